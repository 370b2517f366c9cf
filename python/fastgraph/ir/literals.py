"""Arrays and numbers on their way into a graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastgraph.errors import GraphError
from fastgraph.ir.types import SUPPORTED, is_float, is_integer

__all__ = ["array_of", "frozen", "scalar_array"]


def array_of(found: Any, what: str) -> np.ndarray[Any, np.dtype[Any]]:
    """Return `found` as an array; GraphError naming `what` if NumPy makes none of it."""
    try:
        return np.asarray(found)
    except GraphError:
        raise
    except (AttributeError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise GraphError(
            f"{what}: this {type(found).__name__} cannot be read as an array: {error}"
        ) from error


def frozen(array: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
    """Return `array` dense and read-only, copied unless nobody can write to its bytes.

    It may begin anywhere in these.
    """
    base: Any = array
    while isinstance(base, np.ndarray) and not base.flags.writeable and base.base is not None:
        base = base.base
    if isinstance(base, bytes) and array.flags.c_contiguous:
        return array
    copy = np.array(array, order="C", copy=True)
    copy.flags.writeable = False
    return copy


def scalar_array(number: Any, dtype: np.dtype[Any], what: str) -> np.ndarray[Any, np.dtype[Any]]:
    """Return `number` as a 0-d array; GraphError naming `what` if it does not fit."""
    if not isinstance(number, bool | int | float | np.generic):
        raise GraphError(f"{what} must be a number, found {number!r}")
    if _rank(np.asarray(number).dtype) > _rank(dtype):
        raise GraphError(f"{what} {number!r} does not go into {dtype.name} without loss")
    try:
        with np.errstate(over="ignore"):
            if isinstance(number, np.generic):
                array = np.asarray(number).astype(dtype)
            elif isinstance(number, int) and is_float(dtype):
                # The types of ml_dtypes take no ints of many bits.
                array = np.array(int.__float__(number), dtype=dtype)
            else:
                array = np.array(number, dtype=dtype)
    except OverflowError:
        info = np.iinfo(dtype) if is_integer(dtype) else None
        limit = f": allowed are {info.min} to {info.max}" if info else ""
        raise GraphError(f"{what} {number!r} is out of range for {dtype.name}{limit}") from None
    if is_integer(dtype) and isinstance(number, np.generic) and array != number:
        raise GraphError(f"{what} {number!r} is out of range for {dtype.name}")
    return array


def _rank(dtype: np.dtype[Any]) -> int:
    """Bools go into all kinds, integers into integers and floats, floats into floats alone."""
    if dtype in SUPPORTED:
        return 2 if is_float(dtype) else int(is_integer(dtype))
    return 1 if dtype.kind == "O" else 3  # An int beyond every integer dtype; a complex number.
