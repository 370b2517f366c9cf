"""Print where a build finds what the cuda modules need; CMake runs it with its Python.

Two lines: the directory for Cython's ``-I`` and that of ``cuda.h``; or one that begins with ``!``
and says what is missing. ``cuda.pathfinder`` does not see pip's isolated environment, so the
directories of ``sys.path`` are looked through by hand.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

MAJOR = 13
HEADERS = ("cuda.h", "cudaProfiler.h")


def bindings() -> Path | None:
    """The directory that holds ``cuda/bindings/cydriver.pxd``."""
    for entry in map(Path, sys.path):
        if (entry / "cuda" / "bindings" / "cydriver.pxd").is_file():
            return entry
    return None


def bindings_major() -> int:
    """Major version of the bindings, or 0."""
    try:
        return int(importlib.metadata.version("cuda-bindings").partition(".")[0])
    except importlib.metadata.PackageNotFoundError:
        return 0


def include_directories() -> Iterator[Path]:
    """Where the headers may lie, best first."""
    for entry in sys.path:
        yield Path(entry) / "nvidia" / f"cu{MAJOR}" / "include"
    if home := os.environ.get("CUDA_HOME"):
        yield Path(home) / "include"
    yield Path("/usr/local/cuda/include")


def headers_major(directory: Path) -> int:
    """Major version of the headers there; 0 where one is missing."""
    if not all((directory / name).is_file() for name in HEADERS):
        return 0
    text = (directory / "cuda.h").read_text("utf-8", "replace")
    found = re.search(r"#define\s+CUDA_VERSION\s+(\d+)", text)
    return int(found[1]) // 1000 if found else 0


def main() -> None:
    """Print it."""
    pxd = bindings()
    if pxd is None:
        print("!cuda.bindings is not installed (pip install cuda-bindings)")
    elif (major := bindings_major()) != MAJOR:
        print(f"!cuda.bindings has version {major}, not {MAJOR}")
    else:
        found = (path for path in include_directories() if headers_major(path) == MAJOR)
        include = next(found, None)
        if include is None:
            names = " and ".join(HEADERS)
            print(f"!{names} of CUDA {MAJOR} are nowhere (nvidia-cuda-runtime and profiler-api)")
        else:
            print(f"{pxd}\n{include}")


if __name__ == "__main__":
    main()
