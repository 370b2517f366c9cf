"""Compiled code on disk, for the next process."""

from __future__ import annotations

import hashlib
import importlib
import logging
import threading
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from fastgraph.errors import InputError

__all__ = ["Compiled", "cache_directory", "recall", "remember", "set_cache_directory"]

MAX_BYTES = 256 << 20
MAGIC = b"fastgraph cubin 1"

_log = logging.getLogger("fastgraph")
_lock = threading.Lock()
_stores: dict[Path, Any] = {}  # None where the place cannot be used
_place: Path | None = None
_is_set = False


class Compiled(NamedTuple):
    """Code for one architecture: the image, the function's name in it, and its type's name."""

    image: bytes
    symbol: str
    probe: str | None


def cache_directory() -> Path | None:
    """Return where compiled code is kept between processes, None if nowhere.

    Unless `set_cache_directory` says otherwise it is ``.cache/fastgraph/cuda`` in the user's home.
    """
    with _lock:
        if _is_set:
            return _place
    try:
        return Path.home() / ".cache" / "fastgraph" / "cuda"
    except RuntimeError:  # a user without a home
        return None


def set_cache_directory(path: str | PathLike[str] | None) -> None:
    """Say where compiled code is kept between processes.

    Parameters
    ----------
    path : path_like or None
        A directory, made when something is written; several processes may use it at once. None
        keeps nothing on disk. No more than 256 MiB stay there; what was read longest ago goes
        first. A place that cannot be written is no error: then code is compiled anew.

    Raises
    ------
    InputError
        `path` is neither a path nor None.

    Notes
    -----
    Holds for the whole process. Results never depend on it, only how long a first compilation
    takes. The files are code that later runs load: the place should be the user's alone.

    Examples
    --------
    >>> from fastgraph.device.cuda.disk import cache_directory, set_cache_directory
    >>> set_cache_directory(None)
    >>> cache_directory() is None
    True
    """
    global _is_set, _place
    if path is not None and not isinstance(path, str | PathLike):
        raise InputError(f"set_cache_directory takes a path or None, not {path!r}")
    with _lock:
        _place = None if path is None else Path(path).expanduser()
        _is_set = True


def _store() -> Any:
    place = cache_directory()
    if place is None:
        return None
    with _lock:
        if place not in _stores:
            make = importlib.import_module("cuda.core.utils").FileStreamProgramCache
            try:
                _stores[place] = make(place, max_size_bytes=MAX_BYTES)
            except OSError as error:
                _log.debug("no compiled code is kept in %s: %s", place, error)
                _stores[place] = None
        return _stores[place]


def recall(key: bytes) -> Compiled | None:
    """Return what was remembered under `key`, None if there is nothing, or nothing sound."""
    store = _store()
    if store is None:
        return None
    try:
        return _unpack(store[key])
    except (KeyError, OSError):
        return None


def remember(key: bytes, compiled: Compiled) -> None:
    """Keep compiled code, if there is a place that can be written."""
    store = _store()
    if store is None:
        return
    try:
        store[key] = _pack(compiled)
    except OSError as error:
        _log.debug("compiled code could not be kept: %s", error)


def _pack(compiled: Compiled) -> bytes:
    names = f"{compiled.symbol}\n{compiled.probe or ''}\n".encode()
    body = names + compiled.image
    return b"%s %s\n%s" % (MAGIC, hashlib.sha256(body).hexdigest().encode(), body)


def _unpack(data: bytes) -> Compiled | None:
    head, _, body = data.partition(b"\n")
    if head != b"%s %s" % (MAGIC, hashlib.sha256(body).hexdigest().encode()):
        return None
    symbol, probe, image = body.split(b"\n", 2)
    return Compiled(image, symbol.decode(), probe.decode() or None)
