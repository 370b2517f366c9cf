"""fg.ops functions of one operand: signs, rounding, limits, conversion."""

from __future__ import annotations

from typing import Any

from fastgraph.ir.graph import Value
from fastgraph.ir.ops.arguments import convert, node, one, operands
from fastgraph.ir.ops.entry import public
from fastgraph.ir.types import BOOL, FLOAT16, INT8, check_dtype, is_float

__all__ = [
    "abs",
    "astype",
    "ceil",
    "clip",
    "floor",
    "isfinite",
    "isinf",
    "isnan",
    "negative",
    "round",
    "sign",
    "square",
    "trunc",
]


def rounded(op: str, x: Any) -> Value:
    """Build the rounding `op`, which leaves integers and bools as they are."""
    value = one(op, x)
    return node(op, [value]).outputs[0] if is_float(value.dtype) else value


@public("NumPy 2", "float int uint")
def negative(x: Any) -> Value:
    """Return ``-x``.

    Parameters
    ----------
    x : Value
        Floats or integers.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For a dtype that it does not take.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.negative, np.float32([1, -2]))
    array([-1.,  2.], dtype=float32)
    """
    return node("negative", [one("negative", x)]).outputs[0]


@public("NumPy 2", "float int uint bool")
def abs(x: Any) -> Value:
    """Return the absolute value.

    Parameters
    ----------
    x : Value
        Bools are returned as they are.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For a dtype that it does not take.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.abs, np.float32([1, -2]))
    array([1., 2.], dtype=float32)
    """
    value = one("abs", x)
    return value if value.dtype == BOOL else node("abs", [value]).outputs[0]


@public("NumPy 2", "float int uint")
def sign(x: Any) -> Value:
    """Return -1, 0 or 1 by the sign.

    Parameters
    ----------
    x : Value
        Floats or integers.

    Returns
    -------
    Value
        Of the shape and dtype of `x`; nan for nan.

    Raises
    ------
    GraphError
        For a dtype that it does not take.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.sign, np.float32([3, 0, -2]))
    array([ 1.,  0., -1.], dtype=float32)
    """
    return node("sign", [one("sign", x)]).outputs[0]


@public("NumPy 2", "float int uint bool")
def square(x: Any) -> Value:
    """Return ``x * x``.

    Parameters
    ----------
    x : Value
        Floats or integers.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For a dtype that it does not take.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.square, np.float32([3, -2]))
    array([9., 4.], dtype=float32)
    """
    value = one("square", x)
    # As NumPy does for bools.
    return node("square", [convert(value, INT8) if value.dtype == BOOL else value]).outputs[0]


@public("NumPy 2", "float int uint bool")
def floor(x: Any) -> Value:
    """Return the nearest integer not above `x`.

    Parameters
    ----------
    x : Value
        Integers and bools are returned as they are.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For a dtype that it does not take.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.floor, np.float32([1.5, -1.5]))
    array([ 1., -2.], dtype=float32)
    """
    return rounded("floor", x)


@public("NumPy 2", "float int uint bool")
def ceil(x: Any) -> Value:
    """Return the nearest integer not below `x`.

    Parameters
    ----------
    x : Value
        Integers and bools are returned as they are.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For a dtype that it does not take.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.ceil, np.float32([1.5, -1.5]))
    array([ 2., -1.], dtype=float32)
    """
    return rounded("ceil", x)


@public("NumPy 2", "float int uint bool")
def trunc(x: Any) -> Value:
    """Return the integer part of `x`, cut towards 0.

    Parameters
    ----------
    x : Value
        Integers and bools are returned as they are.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For a dtype that it does not take.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.trunc, np.float32([1.5, -1.5]))
    array([ 1., -1.], dtype=float32)
    """
    return rounded("trunc", x)


@public("NumPy 2", "float int uint bool")
def round(x: Any) -> Value:
    """Return the nearest integer; of two as near the even one.

    Parameters
    ----------
    x : Value
        Integers are returned as they are; bools become float16, as in NumPy.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For a dtype that it does not take.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.round, np.float32([1.5, -1.5]))
    array([ 2., -2.], dtype=float32)
    """
    value = one("round", x)
    return convert(value, FLOAT16) if value.dtype == BOOL else rounded("round", value)


def probe(op: str, comparison: str, x: Any) -> Value:
    """Compare the magnitude with infinity; integers and bools are always finite."""
    value = one(op, x)
    if not is_float(value.dtype):
        return node("equal" if op == "isfinite" else "not_equal", [value, value]).outputs[0]
    return node(comparison, operands(op, abs(value), float("inf"))).outputs[0]


@public("NumPy 2", "float int uint bool")
def isnan(x: Any) -> Value:
    """Return whether `x` is not a number.

    Parameters
    ----------
    x : Value

    Returns
    -------
    Value
        bool, of the shape of `x`.

    Raises
    ------
    GraphError
        For what is no Value.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.isnan, np.float32([1, np.nan, -np.inf]))
    array([False,  True, False])
    """
    value = one("isnan", x)
    return node("not_equal", [value, value]).outputs[0]


@public("NumPy 2", "float int uint bool")
def isinf(x: Any) -> Value:
    """Return whether `x` is infinite.

    Parameters
    ----------
    x : Value

    Returns
    -------
    Value
        bool, of the shape of `x`.

    Raises
    ------
    GraphError
        For what is no Value.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.isinf, np.float32([1, np.nan, -np.inf]))
    array([False, False,  True])
    """
    return probe("isinf", "equal", x)


@public("NumPy 2", "float int uint bool")
def isfinite(x: Any) -> Value:
    """Return whether `x` is neither infinite nor not a number.

    Parameters
    ----------
    x : Value

    Returns
    -------
    Value
        bool, of the shape of `x`.

    Raises
    ------
    GraphError
        For what is no Value.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.isfinite, np.float32([1, np.nan, -np.inf]))
    array([ True, False, False])
    """
    return probe("isfinite", "less", x)


@public("NumPy 2", "float int uint")
def clip(x: Any, min: Any = None, max: Any = None) -> Value:
    """Return `x` moved into the range from `min` to `max`.

    Parameters
    ----------
    x : Value
        Floats or integers.
    min, max : Value, number or numpy.ndarray, optional
        They broadcast with `x`; None is no limit.

    Returns
    -------
    Value
        Of the result dtype and the broadcast shape; `max` where the limits cross.

    Raises
    ------
    GraphError
        For shapes that do not broadcast, or dtypes without a common one in NumPy.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.clip, np.float32([-2, .5, 9]), 0, 6)
    array([0. , 0.5, 6. ], dtype=float32)
    """
    value = one("clip", x)
    if min is not None:
        value = node("maximum", operands("clip", value, min)).outputs[0]
    if max is not None:
        value = node("minimum", operands("clip", value, max)).outputs[0]
    return value


@public("NumPy 2", "float int uint bool")
def astype(x: Any, dtype: Any) -> Value:
    """Return `x` converted to `dtype`.

    Parameters
    ----------
    x : Value
    dtype : dtype
        One of bool, int8 to int64, uint8 to uint64, float16, bfloat16, float32, float64.

    Returns
    -------
    Value
        Of the shape of `x`; itself where it has the dtype. Floats are cut towards 0; nan becomes 0
        and what is out of range the nearest integer that is in it. Integers keep their low bits.

    Raises
    ------
    GraphError
        For an unsupported dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.astype, np.float32([1.9, -1.9, np.nan, 1e20]), "int32")
    array([         1,         -1,          0, 2147483647], dtype=int32)
    """
    return convert(one("astype", x), check_dtype(dtype, "astype"))
