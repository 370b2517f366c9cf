"""Building kernels for the host, once for each state of their sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

__all__ = ["build_kernels", "build_runtime", "compiler"]

HERE = Path(__file__).parent
FLAGS = [
    *("-std=c++17", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off"),
    # Static variables of templates stay the library's own, and go with it.
    *("-fno-gnu-unique", "-fno-strict-aliasing"),
    *("-Wall", "-Wextra", "-Wno-unknown-pragmas", "-Wno-unused-function", "-Wno-unused-parameter"),
]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1"]


def compiler() -> str | None:
    """The host's C++ compiler, or None."""
    return shutil.which("g++") or shutil.which("c++")


def _library(name: str, flags: list[str], links: list[str], texts: list[str]) -> Path:
    """A shared object of `texts`, from the cache where it was built before."""
    digest = hashlib.sha256(repr((flags, links, texts)).encode())
    for file in ("fibers.h", "words.h"):
        digest.update((HERE / file).read_bytes())
    directory = Path(tempfile.gettempdir()) / f"fastgraph-cuda-host-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.stat().st_uid != os.getuid():
        raise PermissionError(f"{directory} belongs to somebody else")
    path = directory / f"{name}-{digest.hexdigest()[:24]}.so"
    if path.exists():
        return path
    command = [compiler() or "g++", *flags]
    with tempfile.TemporaryDirectory(dir=directory) as scratch:

        def compiled(number: int) -> str:
            file = Path(scratch) / f"{number}.cpp"
            file.write_text(texts[number])
            _run([*command, f"-I{HERE}", "-c", str(file), "-o", f"{file}.o"])
            return f"{file}.o"

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compiled, range(len(texts))))
        built = Path(scratch) / "built.so"
        _run([*command, "-shared", *objects, *links, "-o", str(built)])
        # Two processes may have built it at once; either is good.
        built.replace(path)
    return path


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"kernels do not compile for the host:\n{done.stderr[:6000]}")


def build_runtime(sanitize: bool = False) -> Path:
    """What runs the threads of a block."""
    flags = [*FLAGS, "-O2", *(SANITIZERS if sanitize else [])]
    return _library("runtime", flags, [], [(HERE / "fibers.cpp").read_text()])


def build_kernels(texts: list[str], sanitize: bool = False, level: str = "-O1") -> Path:
    """`texts` (CUDA C++ and its entries) against the runtime."""
    runtime = build_runtime(sanitize)
    flags = [*FLAGS, level, *(SANITIZERS if sanitize else [])]
    # Without start files what lies in .bss is the kernels' shared memory alone.
    links = ["-nostartfiles", "-Wl,--no-as-needed", str(runtime)]
    return _library("kernels", flags, links, texts)
