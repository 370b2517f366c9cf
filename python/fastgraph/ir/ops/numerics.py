"""The oracle's arithmetic where NumPy has no function, or leaves a corner case open."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["CORNER_CASES", "convert", "erf", "gelu", "power", "sigmoid"]

Array = np.ndarray[Any, np.dtype[Any]]

CORNER_CASES: tuple[tuple[str, str], ...] = (
    (
        "take: index out of range",
        "-n to n-1 are allowed, negative ones count from the end; any "
        "other gives 0 and the run raises InputError; a constant one raises GraphError when "
        "written",
    ),
    ("floor_divide, remainder of integers by 0", "0, as in NumPy"),
    ("floor_divide of the smallest integer by -1", "wraps to itself; the remainder is 0"),
    ("divide of floats by 0", "inf, -inf or nan, as in IEEE 754"),
    (
        "floor_divide, remainder of floats",
        "as in NumPy: the remainder has the divisor's sign; "
        "by 0 the quotient is inf, -inf or nan and the remainder nan",
    ),
    (
        "add, subtract, multiply, negative, abs, square, power, sum, prod of integers",
        "wrap on overflow, in two's complement",
    ),
    (
        "power of integers, negative exponent",
        "the quotient cut to an integer: 1 for base 1, 1 or "
        "-1 for base -1, else 0 (NumPy raises); one written as a number raises GraphError",
    ),
    (
        "astype from float to integer",
        "cuts towards 0; nan gives 0; beyond the range gives the nearest end of the range",
    ),
    ("astype to bool", "True for all but 0, so also for nan"),
    ("maximum, minimum, max, min, relu with nan", "nan, as in NumPy"),
    ("argmax with nan", "the first nan; of equal elements the first"),
    ("max, min, argmax over no elements", "GraphError when written"),
    ("sum, prod, mean over no elements", "0, 1 and nan"),
    ("softmax of a row of only -inf", "nan"),
    ("sign of nan", "nan"),
    ("sqrt, rsqrt, log of negative numbers", "nan; log(0) is -inf, rsqrt(0) inf"),
)
"""Where devices and libraries differ, and what is right here: (case, rule)."""

_erf = np.vectorize(math.erf, otypes=[np.float64])


def erf(x: Array) -> Array:
    """Return the error function in float64."""
    if x.size == 0:
        return x.astype(np.float64)
    found: Array = np.asarray(_erf(x))
    return found


def sigmoid(x: Array) -> Array:
    """Return the logistic function without overflow on either side."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + small), small / (1.0 + small))


def gelu(x: Array, approximate: str) -> Array:
    """Return gelu, exact or by torch's tanh formula, rounded once to float32."""
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        if approximate == "tanh":
            inner = math.sqrt(2.0 / math.pi) * (wide + 0.044715 * wide**3)
            found = 0.5 * wide * (1.0 + np.tanh(inner))
        else:
            found = 0.5 * wide * (1.0 + erf(wide * math.sqrt(0.5)))
    return np.asarray(found).astype(np.float32)


def power(base: Array, exponent: Array) -> Array:
    """Return ``base ** exponent``; integers follow the table of corner cases."""
    if base.dtype.kind == "f":
        return np.power(base.astype(np.float64), exponent.astype(np.float64))
    found = np.power(base, np.maximum(exponent, 0))
    odd = np.where(exponent % 2 == 0, 1, base)
    below = np.where(np.abs(base) == 1, odd, 0)
    return np.where(exponent < 0, below, found)


def convert(x: Array, dtype: np.dtype[Any]) -> Array:
    """Return `x` in `dtype` by the table of corner cases."""
    if x.dtype.kind != "f" or dtype.kind != "i":
        return x.astype(dtype)
    info = np.iinfo(dtype)
    wide = np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    # The upper end is no float64 for int64, so it is compared and written as an integer.
    high, low = wide >= float(info.max), wide <= float(info.min)
    inside = np.where(high | low, 0.0, wide).astype(dtype)
    return np.where(high, info.max, np.where(low, info.min, inside)).astype(dtype)
