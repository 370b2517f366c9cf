"""Building the fake driver, once for each state of its sources."""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

__all__ = ["build", "build_kernels", "cache_folder", "digest", "header_directory"]

HERE = Path(__file__).resolve().parent
SONAME = "libcuda.so.1"
# Built once and run briefly: the compiler's time is most of the cost.
FLAGS = ("-std=c++17", "-O0", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")


def header_directory() -> Path:
    """Where ``cuda.h`` lies: the folder of the runtime's wheel, or a toolkit's."""
    for entry in (*sys.path, "/usr/local/cuda"):
        for folder in (Path(entry) / "nvidia/cu13/include", Path(entry) / "include"):
            if (folder / "cuda.h").is_file():
                return folder
    raise FileNotFoundError(
        "cuda.h was not found on sys.path; the fake driver needs nvidia-cuda-runtime==13.0.*"
    )


def digest(
    sources: list[Path], compiler: str, include: Path, flags: tuple[str, ...] = FLAGS
) -> str:
    """A name for what would be built."""
    text = hashlib.sha256(repr((flags, compiler, str(include))).encode())
    for source in sources:
        text.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return text.hexdigest()[:16]


def cache_folder(cache: Path | None = None) -> Path:
    """Where built libraries are kept: `cache`, or a folder of this user's."""
    if cache is None:
        cache = Path(tempfile.gettempdir()) / f"fastgraph-fake-cuda-{os.getuid()}"
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    if cache.stat().st_uid != os.getuid():
        raise PermissionError(f"{cache} belongs to somebody else")
    return cache


def build(cache: Path | None = None) -> Path:
    """The path of the fake's ``libcuda.so.1``, built unless `cache` has it already.

    Without `cache`, a folder of this user below the system's for temporary files is taken.
    """
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        raise FileNotFoundError("the fake driver needs a C++17 compiler: c++, g++ or clang++")
    include = header_directory()
    headers = sorted(HERE.glob("*.h"))
    sources = sorted(HERE.glob("*.cpp"))
    script = HERE / "exports.map"
    cache = cache_folder(cache)
    folder = cache / digest([*headers, *sources, script], compiler, include)
    library = folder / SONAME
    if library.is_file():
        return library
    with tempfile.TemporaryDirectory(dir=cache) as work:
        for path in (*headers, *sources):
            shutil.copy(path, work)
        run = partial(subprocess.run, cwd=work, check=True)
        compile_ = [compiler, *FLAGS, f"-I{include}"]
        # Most of the work is the standard library's: done once, beside the header it is found.
        run([*compile_, "-w", "-x", "c++-header", "fake.h", "-o", "fake.h.gch"])

        def compiled(source: Path) -> str:
            run([*compile_, "-include", "fake.h", "-c", source.name, "-o", f"{source.stem}.o"])
            return f"{source.stem}.o"

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compiled, sources))
        link = [compiler, "-shared", f"-Wl,-soname,{SONAME}", f"-Wl,--version-script={script}"]
        run([*link, *objects, "-o", SONAME, "-ldl", "-pthread"])
        folder.mkdir(exist_ok=True)
        # Two processes may build at once: either's library is as good.
        os.replace(f"{work}/{SONAME}", library)
    return library


def build_kernels(folder: Path, source: Path = HERE / "kernels.c") -> Path:
    """An image of the host's in `folder`, of kernels written in C."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise FileNotFoundError("kernels for the fake driver need a C compiler: cc, gcc or clang")
    target = folder / f"{source.stem}.so"
    flags = ["-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *flags, str(source), "-o", str(target)], check=True)
    return target
