"""Building kernels for the host, once for each state of their sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

__all__ = ["build_kernels", "build_runtime", "compiler"]

HERE = Path(__file__).parent
FLAGS = [
    *("-std=c++17", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off"),
    # Static variables of templates stay the library's own, and go with it.
    *("-fno-gnu-unique", "-fno-strict-aliasing"),
    *("-Wall", "-Wextra", "-Wno-unknown-pragmas", "-Wno-unused-function", "-Wno-unused-parameter"),
]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1"]


def compiler() -> str | None:
    """The host's C++ compiler, or None."""
    return shutil.which("g++") or shutil.which("c++")


def _library(name: str, flags: list[str], sources: dict[str, str]) -> Path:
    """A shared object of `sources`, from the cache where it was built before."""
    digest = hashlib.sha256(repr((flags, sorted(sources.items()))).encode())
    for file in ("fibers.h", "words.h"):
        digest.update((HERE / file).read_bytes())
    directory = Path(tempfile.gettempdir()) / f"fastgraph-cuda-host-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    path = directory / f"{name}-{digest.hexdigest()[:24]}.so"
    if path.exists():
        return path
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        files = []
        for file, text in sources.items():
            files.append(Path(scratch) / file)
            files[-1].write_text(text)
        built = Path(scratch) / "built.so"
        command = [compiler() or "g++", *flags, f"-I{HERE}", *map(str, files), "-o", str(built)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"kernels do not compile for the host:\n{done.stderr[:6000]}")
        # Two processes may have built it at once; either is good.
        built.replace(path)
    return path


def build_runtime(sanitize: bool = False) -> Path:
    """What runs the threads of a block."""
    flags = [*FLAGS, "-O2", *(SANITIZERS if sanitize else [])]
    return _library("runtime", flags, {"fibers.cpp": (HERE / "fibers.cpp").read_text()})


def build_kernels(text: str, sanitize: bool = False, level: str = "-O1") -> Path:
    """`text` (CUDA C++ and its entries) against the runtime."""
    runtime = build_runtime(sanitize)
    # Without start files what lies in .bss is the kernels' shared memory alone.
    flags = [
        *FLAGS,
        "-O1",
        "-nostartfiles",
        "-Wl,--no-as-needed",
        str(runtime),
        *(SANITIZERS if sanitize else []),
    ]
    return _library("kernels", flags, {"kernels.cpp": text})
