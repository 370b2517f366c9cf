"""C compiled when a benchmark runs: twins of our work without us, and the machine's peak."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["compiled"]

SOURCE = Path(__file__).with_name("native.c")


def compiled(flags: Sequence[str] = ()) -> ctypes.CDLL:
    """``native.c``, compiled with `flags` and loaded.

    Raises
    ------
    RuntimeError
        There is no C compiler.
    """
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise RuntimeError("this benchmark needs a C compiler: cc, gcc or clang")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "native.so"
        command = [compiler, "-O3", "-shared", "-fPIC", *flags, "-o", str(library), str(SOURCE)]
        subprocess.run(command, check=True)
        loaded = ctypes.CDLL(str(library))
    for name in ("time_add", "time_calls", "fma_peak"):
        getattr(loaded, name).restype = ctypes.c_double
    return loaded
