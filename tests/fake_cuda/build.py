"""Building the fake driver, once for each state of its sources."""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["build", "header_directory"]

HERE = Path(__file__).resolve().parent
SONAME = "libcuda.so.1"
# Debugging beats speed: tests are short, and a wrong fake is worse than a slow one.
FLAGS = ("-std=c++17", "-O1", "-g", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")


def header_directory() -> Path:
    """Where ``cuda.h`` lies: the folder of the runtime's wheel, or a toolkit's."""
    for entry in (*sys.path, "/usr/local/cuda"):
        for folder in (Path(entry) / "nvidia/cu13/include", Path(entry) / "include"):
            if (folder / "cuda.h").is_file():
                return folder
    raise FileNotFoundError(
        "cuda.h was not found on sys.path; the fake driver needs nvidia-cuda-runtime==13.0.*"
    )


def digest(sources: list[Path], compiler: str, include: Path) -> str:
    """A name for what would be built."""
    text = hashlib.sha256(repr((FLAGS, compiler, str(include))).encode())
    for source in sources:
        text.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return text.hexdigest()[:16]


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
    if cache is None:
        cache = Path(tempfile.gettempdir()) / f"fastgraph-fake-cuda-{os.getuid()}"
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    if cache.stat().st_uid != os.getuid():
        raise PermissionError(f"{cache} belongs to somebody else")
    folder = cache / digest([*headers, *sources, script], compiler, include)
    library = folder / SONAME
    if library.is_file():
        return library
    with tempfile.TemporaryDirectory(dir=cache) as work:

        def compiled(source: Path) -> str:
            target = f"{work}/{source.stem}.o"
            command = [compiler, *FLAGS, f"-I{include}", "-c", str(source), "-o", target]
            subprocess.run(command, check=True)
            return target

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compiled, sources))
        command = [compiler, "-shared", f"-Wl,-soname,{SONAME}", f"-Wl,--version-script={script}"]
        command += [*objects, "-o", f"{work}/{SONAME}", "-ldl", "-pthread"]
        subprocess.run(command, check=True)
        folder.mkdir(exist_ok=True)
        # Two processes may build at once: either's library is as good.
        os.replace(f"{work}/{SONAME}", library)
    return library
