"""What each kind of node does, from the arguments of ``add_*``: all checks, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fastgraph._core.buffer import Buffer
from fastgraph._core.record import PythonCall
from fastgraph.device.backend import PlaceMaker
from fastgraph.device.foreign import as_taken, bare
from fastgraph.device.pending import Access, PointerSlot, Scalar, Scratch, Work
from fastgraph.device.pointer import Pointer
from fastgraph.device.values import check_dtype, element_word
from fastgraph.errors import GraphError, InputError, UnsupportedError

__all__ = [
    "MAKERS", "as_place", "check_in_body", "condition_work", "copy_work", "host_work",
    "memset_work",
]  # fmt: skip


def as_place(value: Any, device: str, written: bool, stream: Any = None) -> Any:
    """Return a place for a buffer, an address or an array; InputError for all else.

    What fills an array of another library is done, or comes before what is put on `stream` next.
    """
    if isinstance(value, Pointer):
        value = value.buffer
    if isinstance(value, Buffer | Scratch | Scalar | PointerSlot):
        if value.device != device:
            raise InputError(f"{value!r} is on {value.device}, the graph on {device}")
        if isinstance(value, Scalar) and (written or value.where != "memory"):
            raise InputError(
                f"{value!r}: only a scalar in memory has bytes, and they are read only"
            )
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise InputError("a masked array has no place for its mask in a graph")
    if not isinstance(value, np.ndarray):
        value = as_taken(value, device, stream, readonly=not written)
        if isinstance(value, Buffer):
            check_dtype(value.dtype)
            return value
    value = bare(value)
    if not (value.flags.c_contiguous and value.flags.aligned):
        raise InputError("a host array in a graph must be dense; use numpy.ascontiguousarray")
    if written and not value.flags.writeable:
        raise InputError("the destination array is read-only")
    check_dtype(value.dtype)
    return value


def copy_work(place: PlaceMaker, dst: Any, src: Any) -> Work:
    """A copy between places of equal size and dtype."""
    source, target = place(src, False), place(dst, True)
    if source.nbytes != target.nbytes or source.dtype != target.dtype:
        raise InputError(
            f"copy of {source.dtype}{list(source.shape)} ({source.nbytes} bytes) to "
            f"{target.dtype}{list(target.shape)} ({target.nbytes} bytes)"
        )
    accesses = (Access(target, False, True), Access(source, True, False))
    spec = {"dst": dst, "src": src}
    return Work("copy", "copy", "copy_bytes", accesses, (source.nbytes,), None, None, spec)


def memset_work(place: PlaceMaker, dst: Any, value: Any) -> Work:
    """Every element of a place set to one value."""
    target = place(dst, True)
    if isinstance(target, np.ndarray):
        raise InputError("memset: a buffer is needed, not a host array")
    params = (target.nbytes, target.dtype.itemsize, element_word(value, target.dtype))
    spec = {"dst": dst, "value": value}
    accesses = (Access(target, False, True),)
    return Work("memset", "memset", "set_bytes", accesses, params, None, None, spec)


def check_in_body(work: Work) -> None:
    """Raise UnsupportedError for what has no place in the body of a conditional."""
    for access in work.accesses:
        place = access.place
        if work.kind == "copy" and isinstance(place, np.ndarray):
            raise UnsupportedError(
                "add_copy: inside a body no copy has a host array on either side, for a GPU cannot "
                "read pageable memory by itself; use a buffer"
            )
        if isinstance(place, Scalar) and place.where == "node":
            raise UnsupportedError(f"{place!r}: inside a body scalars are where='memory'")


def host_work(f: Any) -> Work:
    """The call of a Python function without arguments."""
    if not callable(f):
        raise GraphError(f"a host function is a callable, not {type(f).__name__}")
    return Work("host", "host", None, (), (), f, PythonCall(f, ()))


def condition_work(place: PlaceMaker, kind: str, condition: Any) -> Work:
    """The choice among bodies by a uint32 in a buffer."""
    found = place(condition, False)
    if isinstance(found, np.ndarray):
        raise UnsupportedError(f"the condition of {kind!r} lies in a buffer, not in a host array")
    if found.dtype != np.uint32 or math.prod(found.shape) != 1:
        raise InputError(
            f"the condition of {kind!r} is one uint32, not {found.dtype}{list(found.shape)}"
        )
    return Work(kind, kind, None, (Access(found, True, False),))


# The kinds that `update` can make anew, by the names of their arguments; beside functions, which
# each device has its own way for.
MAKERS: dict[str, Callable[..., Work]] = {
    "copy": copy_work,
    "memset": memset_work,
}
