"""The short form of the soak, in a process of its own so that only its memory counts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_memory_is_flat_over_compiles_and_runs():
    command = [sys.executable, "-m", "bench.soak", "--short"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "live objects more than at first 0" in done.stdout
