"""CUDA C++ to code for one architecture, by NVRTC; no GPU is needed for it."""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from fastgraph.device.cuda import disk
from fastgraph.device.cuda.disk import Compiled
from fastgraph.errors import GraphError, UnsupportedError

__all__ = ["compile_source", "recall_source"]

EXTRA = "pip install fastgraph-runtime[cuda]"
MAX_KEPT = 256
MAX_KEPT_BYTES = 64 << 20
# Goes into every key: to be counted up when the options or what is kept change their meaning.
SCHEMA = b"fastgraph 1"

# A kernel with C linkage has no types in its name; this one's name holds the type of the kernel.
PROBE = "\ntemplate <class F> __global__ void fg_signature_of() {}\n"
PROBE_NAME = "fg_signature_of<decltype(&{})>"

_INCLUDE = re.compile(r"^\s*#\s*include", re.MULTILINE)

Key = tuple[bytes, str, str]

_guard = threading.Lock()
_importing = threading.Lock()
_kept: OrderedDict[Key, Compiled] = OrderedDict()
_at_work: dict[Key, threading.Lock] = {}


def compile_source(source: str, name: str, arch: str) -> Compiled:
    """Compile one kernel of a CUDA C++ source.

    Parameters
    ----------
    source : str
        Compiled as C++17. ``cuda_fp16.h`` and its like can be included where the headers are
        installed, other files cannot: the text is all there is.
    name : str
        The kernel as C++ names it: ``"inc"``, ``"ns::inc"``, ``"axpy<float>"``.
    arch : str
        The architecture, ``"sm_90"``.

    Returns
    -------
    Compiled

    Raises
    ------
    GraphError
        The source does not compile, or has no such kernel: the compiler's log is in the message.
    UnsupportedError
        The compiler is not installed, or does not know the architecture.

    Notes
    -----
    Kept in memory and on disk, see `fastgraph.device.cuda.disk.set_cache_directory`; threads that
    ask for the same at once wait for one compilation.
    """
    if not isinstance(source, str) or not source.strip():
        raise GraphError(f"kernel {name!r}: the source is a text, not {type(source).__name__}")
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise GraphError(f"the name of a kernel is a C++ name, not {name!r}")
    key = _key(source, name, arch)
    with _guard:
        if found := _recent(key):
            return found
        lock = _at_work.setdefault(key, threading.Lock())
    with lock:
        with _guard:
            if found := _recent(key):
                return found
        try:
            compiled = _compile(source, name, arch)
            with _guard:
                _keep(key, compiled)
        finally:
            with _guard:
                _at_work.pop(key, None)
    return compiled


def recall_source(source: str, name: str, arch: str) -> Compiled | None:
    """Return what `compile_source` would, if it is kept in memory or on disk, else None."""
    key = _key(source, name, arch)
    with _guard:
        if found := _recent(key):
            return found
    core = _toolchain()
    _, stored = _request(core, source, name, arch)
    kept = disk.recall(stored)
    if kept is not None:
        with _guard:
            _keep(key, kept)
    return kept


def _key(source: str, name: str, arch: str) -> Key:
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).digest(), name, arch


def _recent(key: Key) -> Compiled | None:
    if key in _kept:
        _kept.move_to_end(key)
    return _kept.get(key)


def _keep(key: Key, compiled: Compiled) -> None:
    _kept[key] = compiled
    nbytes = sum(len(each.image) for each in _kept.values())
    while len(_kept) > 1 and (len(_kept) > MAX_KEPT or nbytes > MAX_KEPT_BYTES):
        nbytes -= len(_kept.popitem(last=False)[1].image)


def _request(core: Any, source: str, name: str, arch: str) -> tuple[Any, bytes]:
    """Return the compiler's options and the key under which its result is on disk."""
    includes = _include_directories() if _INCLUDE.search(source) else []
    options = core.ProgramOptions(
        name="source",
        arch=arch,
        std="c++17",
        include_path=[str(path) for path in includes] or None,
        no_source_include=True,
    )
    key = importlib.import_module("cuda.core.utils").make_program_cache_key(
        code=source,
        code_type="c++",
        options=options,
        target_type="cubin",
        name_expressions=(name,),
        extra_digest=_digest(includes),
    )
    return options, key


def _compile(source: str, name: str, arch: str) -> Compiled:
    core = _toolchain()
    options, key = _request(core, source, name, arch)
    if found := disk.recall(key):
        return found
    probe = PROBE_NAME.format(name)
    try:
        compiled = _run(core, source + PROBE, (name, probe), options)
    except Exception:
        # Once more without the probe: it may be what failed, and no log should speak of it.
        compiled = _compile_alone(core, source, name, arch, options)
    disk.remember(key, compiled)
    return compiled


def _compile_alone(core: Any, source: str, name: str, arch: str, options: Any) -> Compiled:
    try:
        return _run(core, source, (name,), options)
    # The compiler's errors have no public base class but Exception.
    except Exception as error:
        text = str(error)
        if "--gpu-architecture" in text:
            raise UnsupportedError(
                f"kernel {name!r}: the compiler NVRTC {_compiler_version()} does not know {arch}; "
                "upgrade nvidia-cuda-nvrtc"
            ) from error
        log = text.partition("compilation log:")[2].strip(" \n\0") or text
        raise GraphError(f"kernel {name!r} does not compile for {arch}:\n{log}") from error


def _run(core: Any, source: str, names: tuple[str, ...], options: Any) -> Compiled:
    program = core.Program(source, "c++", options)
    try:
        code = program.compile("cubin", name_expressions=names)
    finally:
        program.close()
        # A traceback would keep it, and a program that the cycle collector finds is not quiet.
        del program
    symbols = [_text(code.symbol_mapping[name]) for name in names]
    return Compiled(bytes(code.code), symbols[0], symbols[1] if len(symbols) > 1 else None)


def _text(symbol: str | bytes) -> str:
    return symbol.decode() if isinstance(symbol, bytes) else symbol


def _toolchain() -> Any:
    """The module ``cuda.core``, once it is known that there is a compiler below it."""
    try:
        # One thread at a time: others could be given what is imported by half.
        with _importing:
            core = importlib.import_module("cuda.core")
            _compiler_version()
    # A library that is not there is an error of the binding's own making.
    except (ImportError, RuntimeError) as error:
        raise UnsupportedError(
            f"CUDA C++ is compiled by cuda-core and nvidia-cuda-nvrtc: {EXTRA} ({error})"
        ) from error
    if not hasattr(core, "Program"):
        raise UnsupportedError(f"this cuda-core is too old to compile CUDA C++: {EXTRA}")
    return core


def _compiler_version() -> str:
    _, major, minor = importlib.import_module("cuda.bindings.nvrtc").nvrtcVersion()
    return f"{major}.{minor}"


def _include_directories() -> list[Path]:
    """The directory of ``cuda_fp16.h`` and its like, if it can be found."""
    for entry in sys.path:
        path = Path(entry) / "nvidia" / "cu13" / "include"
        if (path / "cuda_fp16.h").is_file():
            return [path]
    try:
        finder = importlib.import_module("cuda.pathfinder")
        found = finder.find_nvidia_header_directory("cudart")
    # Without headers those kernels can still be compiled that include none.
    except (ImportError, AttributeError, RuntimeError, OSError):
        return []
    return [Path(found)] if found else []


def _digest(includes: list[Path]) -> bytes:
    """What tells one set of headers from another without reading them."""
    digest = hashlib.sha256(SCHEMA)
    for directory in includes:
        for path in sorted(directory.iterdir()):
            status = path.stat()
            digest.update(f"{path.name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.digest()
