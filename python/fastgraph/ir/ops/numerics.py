"""The oracle's arithmetic where NumPy has no function, or leaves a corner case open."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fastgraph.ir.types import FLOAT32, FLOAT64, HALVES, is_float, is_half, is_integer

__all__ = ["CORNER_CASES", "convert", "erf", "gelu", "power", "sigmoid", "widened"]

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
    (
        "astype between integers",
        "keeps the low bits: wraps, in two's complement",
    ),
    (
        "astype to float16, bfloat16",
        "rounded once, to the nearest, ties to even; integers by way of float32; beyond the range "
        "gives inf",
    ),
    (
        "float16, bfloat16 in all operators",
        "computed in float32 and rounded at the end; what is fused is rounded once, after its last "
        "operator",
    ),
    (
        "comparisons of int64 with uint64",
        "exact, as in NumPy, though their other results are float64",
    ),
    (
        "left_shift, right_shift by more bits than there are, or by a negative number",
        "0; right_shift of a negative number -1, as in NumPy",
    ),
    ("fmod of integers by 0", "0, as in NumPy; the smallest integer by -1 gives 0"),
    ("round", "to the nearest, ties to even"),
    ("astype to bool", "True for all but 0, so also for nan"),
    ("maximum, minimum, max, min, relu with nan", "nan, as in NumPy"),
    ("argmax, argmin with nan", "the first nan; of equal elements the first"),
    ("max, min, argmax, argmin over no elements", "GraphError when written"),
    ("sum, prod, mean over no elements", "0, 1 and nan"),
    ("softmax of a row of only -inf", "nan"),
    ("attention of a query that sees no key, or only scores of -inf", "0"),
    ("sign of nan", "nan"),
    (
        "sqrt, rsqrt, log, log2, log1p, arcsin, arccos, arccosh, arctanh beyond their domain",
        "nan; log(0) is -inf, rsqrt(0) inf",
    ),
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
    """Return gelu in float64, exact or by torch's tanh formula."""
    if approximate == "tanh":
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)
        return np.asarray(0.5 * x * (1.0 + np.tanh(inner)))
    return np.asarray(0.5 * x * (1.0 + erf(x * math.sqrt(0.5))))


def power(base: Array, exponent: Array) -> Array:
    """Return ``base ** exponent``; integers follow the table of corner cases."""
    if is_float(base.dtype):
        return np.power(base.astype(FLOAT64), exponent.astype(FLOAT64))
    found = np.power(base, np.maximum(exponent, 0))
    odd = np.where(exponent % 2 == 0, 1, base)
    below = np.where(np.abs(base) == 1, odd, 0)
    return np.where(exponent < 0, below, found)


def widened(x: Array) -> Array:
    """Return `x` in a dtype that NumPy computes in: half types in float32, where they are exact."""
    return x.astype(FLOAT32) if is_half(x.dtype) else x


def convert(x: Array, dtype: np.dtype[Any]) -> Array:
    """Return `x` in `dtype` by the table of corner cases."""
    x = widened(x)
    if dtype in HALVES:
        return halved(x, dtype)
    if not is_float(x.dtype) or not is_integer(dtype):
        return x.astype(dtype)
    info = np.iinfo(dtype)
    wide = np.nan_to_num(x.astype(FLOAT64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    # The upper end is no float64 for 64 bits, so it is compared and written as an integer.
    high, low = wide >= float(info.max), wide <= float(info.min)
    inside = np.where(high | low, 0.0, wide).astype(dtype)
    return np.where(high, info.max, np.where(low, info.min, inside)).astype(dtype)


def halved(x: Array, dtype: np.dtype[Any]) -> Array:
    """Return `x` in a half type: integers by way of float32, float64 rounded once."""
    with np.errstate(all="ignore"):
        found = np.asarray(x.astype(FLOAT32))
        if x.dtype == FLOAT64:
            # By way of a float32 that is odd where it is not exact, no tie is made up.
            even = found.view(np.uint32) & 1 == 0
            away = np.abs(found) > np.abs(x)
            towards = np.where(away, FLOAT32.type(0), np.copysign(FLOAT32.type(np.inf), found))
            inexact = np.isfinite(x) & (found.astype(FLOAT64) != x)
            found = np.where(inexact & even, np.nextafter(found, towards), found)
        return found.astype(dtype)
