"""Python values as exact elements of a dtype: nothing is rounded to an integer, cut or wrapped."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fastgraph.errors import InputError

__all__ = ["pattern"]


def pattern(value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return `value` as a 0-d array of `dtype`.

    Parameters
    ----------
    value : bool, int, float or NumPy scalar
        A NumPy scalar must have `dtype`; a Python float goes only into a float type (rounded to
        it, but not to infinity), a Python int into an integer type in whose range it lies, or a
        float type that holds it exactly; bool takes True, False, 0 and 1.
    dtype : numpy.dtype

    Returns
    -------
    numpy.ndarray

    Raises
    ------
    InputError
        The value is no element of the dtype.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(f"{value!r} is masked, so it has no value")
    if isinstance(value, np.generic | np.ndarray):
        if value.shape != () or value.dtype != dtype:
            raise InputError(f"{value!r} is {value.dtype}, not {dtype}; nothing is cast")
        return np.array(value)
    if dtype.kind == "b":
        fits = isinstance(value, bool | int) and value in (0, 1)
    elif isinstance(value, bool):
        fits = False
    elif dtype.kind in "iu":
        limits = np.iinfo(dtype)
        fits = isinstance(value, int) and limits.min <= value <= limits.max
    elif isinstance(value, int):
        fits = abs(value) < 2**1000 and float(value) == value and _held(value, dtype)
    else:
        fits = isinstance(value, float) and not (math.isfinite(value) and _overflows(value, dtype))
    if not fits:
        raise InputError(f"{value!r} is no element of {dtype}; nothing is rounded, cut or wrapped")
    return np.array(value, dtype=dtype)


def _overflows(value: float, dtype: np.dtype[Any]) -> bool:
    with np.errstate(over="ignore"):
        return math.isinf(float(np.array(value, dtype=dtype)))


def _held(value: int, dtype: np.dtype[Any]) -> bool:
    with np.errstate(over="ignore"):
        return float(np.array(value, dtype=dtype)) == value
