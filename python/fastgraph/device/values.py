"""Checks of what a caller gives: shapes, dtypes, sizes, and values as exact elements of a dtype."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastgraph._core.calls import plain_word
from fastgraph._core.checks import element
from fastgraph.errors import GraphError, InputError

__all__ = [
    "check_dims", "check_dtype", "check_element", "check_shape", "element_word", "pattern", "word",
]  # fmt: skip

MAX_BYTES = 1 << 47
MAX_NDIM = 32


# Floats of other packages that NumPy knows by name; the eight-bit ones for those who hand them on.
SMALL_FLOATS = frozenset(("bfloat16", "float8_e4m3fn", "float8_e5m2"))


def pattern(value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return `value` as a 0-d array of `dtype`; `checks.element`, and bool takes 0 and 1."""
    return element(value, dtype, numbers=True)


def element_word(value: Any, dtype: np.dtype[Any]) -> int:
    """Return what `pattern` returns as `word` has it."""
    plain = plain_word(value, dtype)
    return word(pattern(value, dtype)) if plain is None else plain


def check_shape(shape: int | Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return `shape` as a tuple of sizes; InputError for what is none, or is too large."""
    try:
        sizes = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    except TypeError:
        raise InputError(f"shape {shape!r} is neither an integer nor a sequence of them") from None
    if len(sizes) > MAX_NDIM:
        raise InputError(f"a shape of {len(sizes)} axes; {MAX_NDIM} are possible")
    for axis, size in enumerate(sizes):
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 0:
            raise InputError(f"shape {shape!r}: axis {axis} has size {size!r}")
    # Beside an axis of size 0 the others must still be addressable.
    if math.prod(int(size) or 1 for size in sizes) * itemsize >= MAX_BYTES:
        raise InputError(f"shape {shape!r} of {itemsize}-byte elements; the limit is {MAX_BYTES}")
    return tuple(int(size) for size in sizes)


def check_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return `dtype` as a NumPy dtype with plain native elements; InputError for others."""
    try:
        kind = np.dtype(dtype)
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        raise InputError(f"{dtype!r} is not a dtype: {error}") from None
    if not (kind.kind in "biuf" and kind.itemsize <= 8) and kind.name not in SMALL_FLOATS:
        raise InputError(f"dtype {kind} has no place in a buffer; bool, integers and floats have")
    return check_element(kind)


def check_element(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype of plain native numbers, those that only ml_dtypes names and complex too."""
    if dtype.kind not in "biufc" and (dtype.kind != "V" or dtype.type is np.void):
        raise InputError(f"dtype {dtype} is of no numbers; bool, integers and floats are possible")
    if dtype.itemsize > (16 if dtype.kind == "c" else 8):
        raise InputError(f"dtype {dtype} has elements that no device has; 8 bytes are possible")
    if not dtype.isnative:
        raise InputError(f"dtype {dtype} is byte-swapped; use {dtype.newbyteorder('=')}")
    return dtype


def word(value: np.ndarray[Any, Any]) -> int:
    """The bytes of a 0-d array, zero-padded, as one 64-bit word."""
    return int.from_bytes(value.tobytes().ljust(8, b"\0"), "little", signed=True)


def check_dims(what: str, dims: int | Sequence[int]) -> tuple[int, int, int]:
    """Return three positive sizes; GraphError naming the axis of one that is not."""
    if type(dims) is int and 0 < dims < 2**31:
        return dims, 1, 1
    try:
        sizes = (dims,) if isinstance(dims, int | np.integer) else tuple(dims)
    except TypeError:
        sizes = ()
    if not 1 <= len(sizes) <= 3:
        raise GraphError(f"{what} is {dims!r}; one to three sizes are possible")
    for axis, size in zip("xyz", sizes, strict=False):
        if isinstance(size, bool) or not isinstance(size, int | np.integer):
            raise GraphError(f"{what}.{axis} is {size!r}, not an integer")
        if not 1 <= size < 2**31:
            raise GraphError(f"{what}.{axis} is {size}; 1 to {2**31 - 1} is possible")
    x, y, z = (*[int(size) for size in sizes], 1, 1)[:3]
    return x, y, z
