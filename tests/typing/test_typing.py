"""The package and the uses beside this file pass mypy. Where it is not installed, CI runs it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

if importlib.util.find_spec("mypy"):

    def test_mypy() -> None:
        command = [sys.executable, "-m", "mypy", "--no-incremental"]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
