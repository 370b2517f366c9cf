"""fg.ops functions of one operand: signs, rounding, limits, conversion."""

from __future__ import annotations

from typing import Any

from fastgraph.ir.graph import Value
from fastgraph.ir.ops.arguments import convert, node, one, operands
from fastgraph.ir.ops.entry import public
from fastgraph.ir.types import BOOL, FLOAT32, check_dtype

__all__ = [
    "abs",
    "astype",
    "ceil",
    "clip",
    "floor",
    "negative",
    "sign",
    "square",
]


@public("NumPy 2", "float32 int32 int64")
def negative(x: Any) -> Value:
    """Return ``-x``.

    Parameters
    ----------
    x : Value
        float32, int32 or int64.

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


@public("NumPy 2", "float32 int32 int64 bool")
def abs(x: Any) -> Value:
    """Return the absolute value.

    Parameters
    ----------
    x : Value
        float32, int32 or int64; bool is returned as it is.

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


@public("NumPy 2", "float32 int32 int64")
def sign(x: Any) -> Value:
    """Return -1, 0 or 1 by the sign.

    Parameters
    ----------
    x : Value
        float32, int32 or int64.

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


@public("NumPy 2", "float32 int32 int64")
def square(x: Any) -> Value:
    """Return ``x * x``.

    Parameters
    ----------
    x : Value
        float32, int32 or int64.

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
    return node("square", [one("square", x)]).outputs[0]


@public("NumPy 2", "float32 int32 int64 bool")
def floor(x: Any) -> Value:
    """Return the nearest integer not above `x`.

    Parameters
    ----------
    x : Value
        float32; integers and bools are returned as they are.

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
    value = one("floor", x)
    return node("floor", [value]).outputs[0] if value.dtype == FLOAT32 else value


@public("NumPy 2", "float32 int32 int64 bool")
def ceil(x: Any) -> Value:
    """Return the nearest integer not below `x`.

    Parameters
    ----------
    x : Value
        float32; integers and bools are returned as they are.

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
    value = one("ceil", x)
    return node("ceil", [value]).outputs[0] if value.dtype == FLOAT32 else value


@public("NumPy 2", "float32 int32 int64")
def clip(x: Any, min: Any = None, max: Any = None) -> Value:
    """Return `x` moved into the range from `min` to `max`.

    Parameters
    ----------
    x : Value
        float32, int32 or int64.
    min, max : Value, number or numpy.ndarray, optional
        They broadcast with `x`; None is no limit.

    Returns
    -------
    Value
        Of the result dtype and the broadcast shape; `max` where the limits cross.

    Raises
    ------
    GraphError
        For shapes that do not broadcast, or dtypes whose result in NumPy is not supported.

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


@public("NumPy 2", "float32 int32 int64 bool")
def astype(x: Any, dtype: Any) -> Value:
    """Return `x` converted to `dtype`.

    Parameters
    ----------
    x : Value
    dtype : dtype
        float32, int32, int64 or bool.

    Returns
    -------
    Value
        Of the shape of `x`; itself where it has the dtype. Floats are cut towards 0; nan becomes 0
        and what is out of range the nearest integer that is in it.

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
