"""Shapes and dtypes: what is allowed, and how operands combine."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from fastgraph._core.sizes import Size
from fastgraph.errors import GraphError, UnsupportedError

# NumPy has no bfloat16 of its own: without this package all other dtypes work.
try:
    import ml_dtypes
except ImportError:
    _HAS_BFLOAT16 = False
else:
    _HAS_BFLOAT16 = True

__all__ = [
    "BOOL",
    "FLOAT16",
    "FLOAT32",
    "FLOAT64",
    "FLOATS",
    "GROUPS",
    "HALVES",
    "INT8",
    "INT32",
    "INT64",
    "INTEGERS",
    "MAX_BYTES",
    "MAX_RANK",
    "MAX_TABLE_BYTES",
    "NUMBERS",
    "SIGNED",
    "SUPPORTED",
    "UINT32",
    "UINT64",
    "UNSIGNED",
    "Shape",
    "Spec",
    "broadcast",
    "check_axes",
    "check_axis",
    "check_dtype",
    "check_shape",
    "check_table",
    "computed_in",
    "dtypes_of",
    "is_float",
    "is_half",
    "is_integer",
    "is_supported",
    "result_dtype",
    "whole",
]

Shape = tuple[int, ...]
DType = np.dtype[Any]
Spec = tuple[Shape, DType]
"""What is known of a value before any run: its shape and its dtype."""

BOOL: DType = np.dtype(np.bool_)
INT8: DType = np.dtype(np.int8)
INT32: DType = np.dtype(np.int32)
INT64: DType = np.dtype(np.int64)
UINT32: DType = np.dtype(np.uint32)
UINT64: DType = np.dtype(np.uint64)
FLOAT16: DType = np.dtype(np.float16)
FLOAT32: DType = np.dtype(np.float32)
FLOAT64: DType = np.dtype(np.float64)

HALVES: tuple[DType, ...] = (FLOAT16, np.dtype(ml_dtypes.bfloat16)) if _HAS_BFLOAT16 else (FLOAT16,)
"""Stored in two bytes, computed in float32."""
FLOATS: tuple[DType, ...] = (*HALVES, FLOAT32, FLOAT64)
SIGNED: tuple[DType, ...] = (INT8, np.dtype(np.int16), INT32, INT64)
UNSIGNED: tuple[DType, ...] = (
    np.dtype(np.uint8),
    np.dtype(np.uint16),
    UINT32,
    UINT64,
)
INTEGERS: tuple[DType, ...] = (*SIGNED, *UNSIGNED)
NUMBERS: tuple[DType, ...] = (*INTEGERS, *FLOATS)
SUPPORTED: tuple[DType, ...] = (BOOL, *NUMBERS)

GROUPS: dict[str, tuple[DType, ...]] = {
    "float": FLOATS,
    "int": SIGNED,
    "uint": UNSIGNED,
    "bool": (BOOL,),
}
"""What the operator table calls several dtypes at once."""

# To look a dtype up in a tuple compares it with others, which NumPy takes its time for.
_HALVES, _FLOATS, _INTEGERS = frozenset(HALVES), frozenset(FLOATS), frozenset(INTEGERS)
_SUPPORTED = frozenset(SUPPORTED)

MAX_RANK = 64
MAX_BYTES = 2**47
"""No value may be larger: what one process can address."""
MAX_TABLE_BYTES = 2**31
"""No constant may be larger that nobody has given: what an operator or an import makes of sizes."""


def is_half(dtype: DType) -> bool:
    """Whether `dtype` is float16 or bfloat16."""
    return dtype in _HALVES


def computed_in(dtype: DType) -> DType:
    """Return the dtype that `dtype` is computed in: half types are converted at the edges."""
    return FLOAT32 if is_half(dtype) else dtype


def is_float(dtype: DType) -> bool:
    """Whether `dtype` is one of `FLOATS`; NumPy's kind of bfloat16 is no "f"."""
    return dtype in _FLOATS


def is_integer(dtype: DType) -> bool:
    """Whether `dtype` is a signed or unsigned integer."""
    return dtype in _INTEGERS


def is_supported(dtype: DType) -> bool:
    """Whether graphs compute in `dtype`."""
    return dtype in _SUPPORTED


def dtypes_of(groups: str) -> tuple[DType, ...]:
    """Return the dtypes that the words of `groups` stand for: names of `GROUPS`.

    >>> [dtype.name for dtype in dtypes_of("uint bool")]
    ['uint8', 'uint16', 'uint32', 'uint64', 'bool']
    """
    return tuple(dtype for group in groups.split() for dtype in GROUPS[group])


def check_dtype(dtype: Any, what: str) -> DType:
    """Return `dtype` as a NumPy dtype; GraphError naming `what` if graphs do not compute in it."""
    if isinstance(dtype, np.dtype) and is_supported(dtype):
        return dtype
    if not _HAS_BFLOAT16 and isinstance(dtype, str) and dtype == "bfloat16":
        raise UnsupportedError(
            f"{what}: bfloat16 needs the ml_dtypes package, which is not installed: "
            "pip install ml_dtypes"
        )
    try:
        found: DType = np.dtype(dtype)
    # NumPy parses text and structures here, and what it raises for them is not listed.
    except Exception:
        raise GraphError(f"{what}: {dtype!r} is not a dtype; use one of {dtype_names()}") from None
    if not is_supported(found):
        raise GraphError(
            f"{what}: dtype {found.name}{'' if found.isnative else ' (foreign byte order)'} is "
            f"not supported; graphs compute in {dtype_names()}, so convert the data first"
        )
    return found


def dtype_names() -> str:
    """Return the names of the supported dtypes, for messages."""
    return ", ".join(dtype.name for dtype in SUPPORTED)


def whole(entry: Any) -> int:
    """Return `entry` as an int; a size that follows a dimension stays one. Else TypeError."""
    return entry if isinstance(entry, Size) else operator.index(entry)


def check_shape(shape: Any, what: str, dtype: DType = FLOAT32) -> Shape:
    """Return `shape` as a tuple of ints; GraphError naming `what` if it is unusable."""
    if type(shape) is tuple and all(type(dim) is int and dim >= 0 for dim in shape):
        check_size(shape, dtype, what)
        return shape
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
            dim = whole(entry)
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
    count = prod(map(int, shape)) or prod(int(dim) or 1 for dim in shape)
    if count * dtype.itemsize > MAX_BYTES:
        raise GraphError(
            f"{what}: shape {shape} of {dtype.name} is larger than the limit of "
            f"{MAX_BYTES} bytes; use smaller dimensions"
        )


def check_table(shape: Shape, dtype: DType, what: str) -> None:
    """Raise GraphError naming `what` where it would make a constant beyond the limit."""
    # Zeros count as ones, as in `check_size`.
    nbytes = prod(dim or 1 for dim in shape) * dtype.itemsize
    if nbytes > MAX_TABLE_BYTES:
        raise GraphError(
            f"{what}: a constant of {nbytes} bytes would be made; the limit is {MAX_TABLE_BYTES}"
        )


def check_axis(axis: Any, rank: int, what: str) -> int:
    """Return `axis` counted from the front; GraphError naming `what` if it is out of range."""
    try:
        if isinstance(axis, (bool, np.bool_)):
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
    rank = max(map(len, shapes), default=0)
    dims = [1] * rank
    for shape in shapes:
        for axis, dim in enumerate(shape, rank - len(shape)):
            known = dims[axis]
            if dim is known or dim == 1 != known:
                continue
            if dim == known and isinstance(known, Size):
                continue  # One that follows a dimension tells more.
            if dim != known != 1:
                listed = " and ".join(str(one) for one in shapes)
                raise GraphError(
                    f"{what}: shapes {listed} do not broadcast: axis {axis - rank} is "
                    f"{dims[axis]} and {dim}; they must be equal or one of them 1 "
                    "(see reshape, broadcast_to)"
                )
            dims[axis] = dim
    return tuple(dims)


def result_dtype(operands: Sequence[Any], what: str) -> DType:
    """Return NumPy's result dtype for dtypes and Python scalars; GraphError if there is none.

    Python scalars are weak, as in NumPy 2: they take the dtype of the others where it is of
    their kind or a higher one.
    """
    strong = [one for one in operands if isinstance(one, np.dtype)]
    try:
        result = np.result_type(*(strong or operands))
        # NumPy itself takes a Python float beside a dtype of another package for a float64.
        if not is_float(result):
            result = np.result_type(*operands)
    except np.exceptions.DTypePromotionError:
        names = " and ".join(one.name for one in strong)
        raise GraphError(
            f"{what}: {names} have no common dtype in NumPy; convert an operand first, as in "
            "x.astype('float32')"
        ) from None
    return result
