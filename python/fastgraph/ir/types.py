"""Shapes and dtypes: what is allowed, and how operands combine."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from fastgraph.errors import GraphError

__all__ = [
    "BOOL",
    "FLOAT32",
    "INT32",
    "INT64",
    "MAX_BYTES",
    "MAX_RANK",
    "SUPPORTED",
    "Shape",
    "Spec",
    "broadcast",
    "check_axes",
    "check_axis",
    "check_dtype",
    "check_shape",
    "result_dtype",
]

Shape = tuple[int, ...]
DType = np.dtype[Any]
Spec = tuple[Shape, DType]
"""What is known of a value before any run: its shape and its dtype."""

BOOL: DType = np.dtype(np.bool_)
INT32: DType = np.dtype(np.int32)
INT64: DType = np.dtype(np.int64)
FLOAT32: DType = np.dtype(np.float32)
SUPPORTED: tuple[DType, ...] = (BOOL, INT32, INT64, FLOAT32)

MAX_RANK = 64
MAX_BYTES = 2**47
"""No value may be larger: what one process can address."""


def check_dtype(dtype: Any, what: str) -> DType:
    """Return `dtype` as a NumPy dtype; GraphError naming `what` if graphs do not compute in it."""
    try:
        found: DType = np.dtype(dtype)
    # NumPy parses text and structures here, and what it raises for them is not listed.
    except Exception:
        raise GraphError(f"{what}: {dtype!r} is not a dtype; use one of {dtype_names()}") from None
    if found not in SUPPORTED:
        raise GraphError(
            f"{what}: dtype {found.name}{'' if found.isnative else ' (foreign byte order)'} is "
            f"not supported; graphs compute in {dtype_names()}, so convert the data first"
        )
    return found


def dtype_names() -> str:
    """Return the names of the supported dtypes, for messages."""
    return ", ".join(dtype.name for dtype in SUPPORTED)


def check_shape(shape: Any, what: str, dtype: DType = FLOAT32) -> Shape:
    """Return `shape` as a tuple of ints; GraphError naming `what` if it is unusable."""
    if isinstance(shape, str | bytes):
        raise GraphError(f"{what}: shape {shape!r} is text; give a tuple of ints such as (2, 3)")
    try:
        entries: Sequence[Any] = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    except GraphError:
        raise GraphError(f"{what}: a shape must be known now, so it cannot be a Value") from None
    dims = []
    for axis, entry in enumerate(entries):
        try:
            if isinstance(entry, bool | np.bool_):
                raise TypeError
            dim = operator.index(entry)
        except TypeError:
            raise GraphError(
                f"{what}: shape {tuple(entries)!r} has {entry!r} at axis {axis}; every dimension "
                "must be an int that is known now"
            ) from None
        if dim < 0:
            raise GraphError(
                f"{what}: shape {tuple(entries)!r} has {dim} at axis {axis}; "
                "dimensions must be 0 or more"
            )
        dims.append(dim)
    found = tuple(dims)
    check_size(found, dtype, what)
    return found


def check_size(shape: Shape, dtype: DType, what: str) -> None:
    """Raise GraphError naming `what` where a value of this shape is beyond the limits."""
    if len(shape) > MAX_RANK:
        raise GraphError(f"{what}: {len(shape)} dimensions found, at most {MAX_RANK} allowed")
    # Zeros count as ones, as in NumPy: strides of an empty array must fit as well.
    if prod(dim or 1 for dim in shape) * dtype.itemsize > MAX_BYTES:
        raise GraphError(
            f"{what}: shape {shape} of {dtype.name} is larger than the limit of "
            f"{MAX_BYTES} bytes; use smaller dimensions"
        )


def check_axis(axis: Any, rank: int, what: str) -> int:
    """Return `axis` counted from the front; GraphError naming `what` if it is out of range."""
    try:
        if isinstance(axis, bool | np.bool_):
            raise TypeError
        found = operator.index(axis)
    except TypeError:
        raise GraphError(f"{what}: axis must be an int, found {axis!r}") from None
    if not -rank <= found < rank:
        limit = f"-{rank} to {rank - 1}" if rank else "none: the value has no axes"
        raise GraphError(f"{what}: axis {found} is out of range; allowed are {limit}")
    return found % rank


def check_axes(axis: Any, rank: int, what: str) -> tuple[int, ...]:
    """Return `axis` (None: all, an int, several ints) as sorted axes counted from the front."""
    if axis is None:
        return tuple(range(rank))
    if not isinstance(axis, tuple | list):
        return (check_axis(axis, rank, what),)
    axes = sorted(check_axis(one, rank, what) for one in axis)
    if len(set(axes)) != len(axes):
        raise GraphError(f"{what}: axis {tuple(axis)} names an axis twice; name each once")
    return tuple(axes)


def broadcast(shapes: Sequence[Shape], what: str) -> Shape:
    """Return the shape that `shapes` broadcast to; GraphError naming `what` if there is none."""
    rank = max((len(shape) for shape in shapes), default=0)
    dims = [1] * rank
    for shape in shapes:
        for axis, dim in enumerate(shape, rank - len(shape)):
            if dim == dims[axis] or dim == 1:
                continue
            if dims[axis] != 1:
                listed = " and ".join(str(one) for one in shapes)
                raise GraphError(
                    f"{what}: shapes {listed} do not broadcast: axis {axis - rank} is "
                    f"{dims[axis]} and {dim}; they must be equal or one of them 1 "
                    "(see reshape, broadcast_to)"
                )
            dims[axis] = dim
    return tuple(dims)


def result_dtype(operands: Sequence[Any], what: str) -> DType:
    """Return NumPy's result dtype for dtypes and Python scalars; GraphError if it is outside.

    Python scalars are weak, as in NumPy 2: they take the dtype of the others where it is of
    their kind or a higher one.
    """
    result = np.result_type(*operands)
    if result not in SUPPORTED:
        names = " and ".join(
            one.name if isinstance(one, np.dtype) else f"Python {type(one).__name__}"
            for one in operands
        )
        raise GraphError(
            f"{what}: {names} give {result.name} in NumPy, which is not supported; convert an "
            "operand first, as in x.astype('float32')"
        )
    return result
