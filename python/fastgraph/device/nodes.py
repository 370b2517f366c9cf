"""What each kind of node does, from the arguments of ``add_*``: all checks, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fastgraph._core.buffer import Buffer
from fastgraph._core.record import PythonCall
from fastgraph.device.function import NativeKernel
from fastgraph.device.kernel import Declared, Pointer, body_of
from fastgraph.device.pending import Access, PointerSlot, Scalar, Scratch, Work
from fastgraph.device.values import check_dims, check_dtype, pattern, word
from fastgraph.errors import GraphError, InputError, UnsupportedError

__all__ = ["MAKERS", "Place", "as_place", "function_work", "host_work"]

# Turns what a caller gives into a place of the graph, or raises: (value, written).
Place = Callable[[Any, bool], Any]


def as_place(value: Any, device: str, written: bool) -> Any:
    """Return a place for a buffer, an address or a host array; InputError for all else."""
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
    if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray):
        raise InputError(f"a buffer or a NumPy array is needed, not {type(value).__name__}")
    if not (value.flags.c_contiguous and value.flags.aligned):
        raise InputError("a host array in a graph must be dense; use numpy.ascontiguousarray")
    if written and not value.flags.writeable:
        raise InputError("the destination array is read-only")
    check_dtype(value.dtype)
    return value


def function_work(
    place: Place,
    api: str,
    f: Any,
    args: tuple[Any, ...],
    grid_dim: int | Sequence[int] = 1,
    block_dim: int | Sequence[int] = 1,
) -> Work:
    """The call of a function."""
    name, body = body_of(f, api)
    grid, block = check_dims("grid_dim", grid_dim), check_dims("block_dim", block_dim)
    spec = {"f": f, "args": args, "grid_dim": grid_dim, "block_dim": block_dim}
    declared = [arg if isinstance(arg, Declared) else None for arg in args]
    bare = tuple(arg.value if isinstance(arg, Declared) else arg for arg in args)
    if isinstance(body, NativeKernel):
        return _native(place, name, body, bare, declared, (*grid, *block), (f, body), spec)
    return _python(place, name, body, bare, declared, (grid, block), spec)


def _native(
    place: Place,
    name: str,
    f: NativeKernel,
    args: tuple[Any, ...],
    declared: list[Declared | None],
    dims: tuple[int, ...],
    keep: object,
    spec: dict[str, Any],
) -> Work:
    values = f.check_arguments(args)
    accesses: list[Access] = []
    sources: list[tuple[str, int]] = []
    for i, (parameter, value, said) in enumerate(zip(f.parameters, values, declared, strict=True)):
        where = f"kernel {name!r}, argument {i} ({parameter.text})"
        if not parameter.pointer:
            if said is not None:
                raise InputError(f"{where}: {said!r} is for buffers")
            if isinstance(value, Scalar):
                sources.append(("scalar", len(accesses)))
                accesses.append(Access(value, True, False))
            else:
                sources.append(("value", word(value)))
            continue
        reads, writes = True, not parameter.const
        if said is not None:
            if said.writes and parameter.const:
                raise InputError(f"{where}: {said!r}, but a pointer to const is only read")
            reads, writes = said.reads, said.writes
        if isinstance(value, np.ndarray):
            raise InputError(f"{where}: a buffer is needed, not a host array; copy it to one")
        sources.append(("pointer", len(accesses)))
        accesses.append(Access(place(value, writes), reads, writes))
    if f.convention == "c":
        kernel, params = "call_c", _c_params(f, values, sources)
    else:
        kernel, params = "call_native", _array_params(f, dims, sources)
    return Work(name, "function", kernel, tuple(accesses), params, keep, None, spec)


def _array_params(
    f: NativeKernel, dims: tuple[int, ...], sources: list[tuple[str, int]]
) -> tuple[int, ...]:
    """The words of ``call_native``: for each argument where its value lies."""
    words = np.array(dims, dtype=np.int32).view(np.int64).tolist()
    params = [f.pointer, len(sources), *words]
    first_value = len(params) + len(sources)
    stored: list[int] = []
    for kind, number in sources:
        if kind == "value":
            params.append(first_value + len(stored))
            stored.append(number)
        else:
            params.append(-1 if kind == "pointer" else -2)
    return (*params, *stored)


def _c_params(
    f: NativeKernel, values: list[Any], sources: list[tuple[str, int]]
) -> tuple[int, ...]:
    """The words of ``call_c``: integers and pointers first, each as (source, word)."""
    ints: list[int] = []
    floats: list[int] = []
    for parameter, value, (kind, number) in zip(f.parameters, values, sources, strict=True):
        words = floats if parameter.is_floating else ints
        if kind == "pointer":
            words += (1, number)
        elif kind == "scalar":
            signed = value.dtype.kind == "i"
            words += ((16 if signed else 32) + value.dtype.itemsize, number)
        else:
            # A small integer fills its register, as its sign says.
            words += (0, int(value) if value.dtype.kind in "iub" else number)
    wrapped = [w - (1 << 64) if w >= 1 << 63 else w for w in (*ints, *floats)]
    return (f.pointer, len(ints) // 2, len(floats) // 2, *wrapped)


def _python(
    place: Place,
    name: str,
    f: Callable[..., object],
    args: tuple[Any, ...],
    declared: list[Declared | None],
    dims: tuple[tuple[int, int, int], tuple[int, int, int]],
    spec: dict[str, Any],
) -> Work:
    arguments: list[tuple[Any, ...]] = [("value", dims[0]), ("value", dims[1])]
    accesses: list[Access] = []
    for i, (value, said) in enumerate(zip(args, declared, strict=True)):
        if isinstance(value, Scalar) and value.where == "node" and said is None:
            arguments.append(("scalar", len(accesses), value.dtype))
            accesses.append(Access(value, True, False))
        elif isinstance(value, bool | int | float | np.generic) and said is None:
            arguments.append(("value", value))
        else:
            known = said is not None or isinstance(value, Scalar)
            reads, writes = True, not isinstance(value, Scalar)
            if said is not None:
                reads, writes = said.reads, said.writes
            try:
                found = place(value, writes)
            except InputError as error:
                raise InputError(f"kernel {name!r}, argument {i}: {error}") from None
            arguments.append(("array", len(accesses), found.shape, found.dtype))
            accesses.append(Access(found, reads, writes, known))
    call = PythonCall(f, tuple(arguments))
    return Work(name, "function", None, tuple(accesses), (), f, call, spec)


def copy_work(place: Place, api: str, dst: Any, src: Any) -> Work:
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


def memset_work(place: Place, api: str, dst: Any, value: Any) -> Work:
    """Every element of a place set to one value."""
    if isinstance(dst, np.ndarray):
        raise InputError("memset: a buffer is needed, not a host array")
    target = place(dst, True)
    element = pattern(value, target.dtype)
    params = (target.nbytes, target.dtype.itemsize, word(element))
    spec = {"dst": dst, "value": value}
    accesses = (Access(target, False, True),)
    return Work("memset", "memset", "set_bytes", accesses, params, None, None, spec)


def host_work(f: Any) -> Work:
    """The call of a Python function without arguments."""
    if not callable(f):
        raise GraphError(f"a host function is a callable, not {type(f).__name__}")
    return Work("host", "host", None, (), (), f, PythonCall(f, ()))


def condition_work(place: Place, kind: str, condition: Any) -> Work:
    """The choice among bodies by a uint32 in a buffer."""
    found = place(condition, False)
    if isinstance(found, np.ndarray):
        raise UnsupportedError(f"the condition of {kind!r} lies in a buffer, not in a host array")
    if found.dtype != np.uint32 or math.prod(found.shape) != 1:
        raise InputError(
            f"the condition of {kind!r} is one uint32, not {found.dtype}{list(found.shape)}"
        )
    return Work(kind, kind, None, (Access(found, True, False),))


# The kinds that `update` can make anew, by the names of their arguments.
MAKERS: dict[str, Callable[..., Work]] = {
    "function": function_work,
    "copy": copy_work,
    "memset": memset_work,
}
