"""Kernels under the sanitizers, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cuda_host import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")


def library(name: str) -> str | None:
    """Where the compiler has a sanitizer's library, or None."""
    command = [str(compiler()), f"-print-file-name={name}"]
    path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return path if os.path.isabs(path) else None


@pytest.mark.slow
def test_kernels_touch_what_is_theirs() -> None:
    preload = library("libasan.so")
    if preload is None:
        pytest.skip("the compiler has no address sanitizer")
    environment = {
        **os.environ,
        "LD_PRELOAD": preload,
        # Python keeps memory at its end, and fibers change stacks.
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.cuda_host.sanitized"],
        env=environment, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert "all is well" in done.stdout, done.stdout[-2000:] + done.stderr[-6000:]
    # The last kernel reads one element behind its operand.
    assert done.returncode
    assert "AddressSanitizer" in done.stderr
    assert "past" in done.stderr
