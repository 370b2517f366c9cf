"""A cuBLASLt for machines without a GPU: it multiplies on host memory, on fake streams.

``load()`` builds it. It launches kernels, so what it does is captured and replayed as the real
library's work is, and it checks what the real one is said to take for granted: layouts that fit,
the algorithm of this very product, alignments, workspaces. Where K is long an algorithm has a
workspace and becomes three nodes.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

from tests.fake_cuda.build import cache_folder, digest, header_directory

__all__ = ["FakeCublas", "load"]

SOURCE = Path(__file__).with_name("cublas.cpp")
FLAGS = ("-std=c++17", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")


class FakeCublas:
    """What tests ask of the fake itself."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # What it takes of the driver is found in the fake one, which is there for all.
        self.library = ctypes.CDLL(str(path))

    @property
    def handle(self) -> int:
        """What ``dlopen`` gave."""
        return self.library._handle

    def fail(self, name: str, status: int, count: int = 1) -> None:
        """Let the `count`-th call of ``cublasLt`` `name` from now on do nothing but answer."""
        self.library.fake_cublas_fail(name.encode(), count, status)

    def calls(self, name: str) -> int:
        """How often it was called since `reset`."""
        return self.library.fake_cublas_calls(name.encode())

    def live(self) -> int:
        """How many handles, descriptions, layouts and preferences are alive."""
        return self.library.fake_cublas_live()

    def without_algorithms(self) -> None:
        """Have no algorithm for anything."""
        self.library.fake_cublas_none(1)

    def version(self, number: int) -> None:
        """Be another release."""
        self.library.fake_cublas_version(ctypes.c_size_t(number))

    def reset(self) -> None:
        """Undo all of the above."""
        self.library.fake_cublas_reset()


_loaded: list[FakeCublas] = []


def load() -> FakeCublas:
    """The library, built by the first call; the fake driver must be there."""
    if not _loaded:
        _loaded.append(FakeCublas(_build()))
    return _loaded[0]


def _build() -> Path:
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        raise FileNotFoundError("the fake cuBLASLt needs a C++17 compiler: c++, g++ or clang++")
    include = header_directory()
    folder = cache_folder() / digest([SOURCE], compiler, include, FLAGS)
    library = folder / "libcublasLt.so.13"
    if not library.is_file():
        folder.mkdir(exist_ok=True)
        made = folder / f"made-{os.getpid()}.so"
        command = [compiler, *FLAGS, "-Werror", f"-I{include}", "-o", str(made)]
        subprocess.run([*command, str(SOURCE), "-ldl"], check=True)
        os.replace(made, library)
    return library
