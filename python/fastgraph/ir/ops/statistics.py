"""fg.ops functions that reduce by more than one step: variances, norms, logarithms of sums."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from math import prod
from typing import Any

from fastgraph.ir.graph import Value
from fastgraph.ir.ops.arguments import convert, flag, in_float32, number, one
from fastgraph.ir.ops.comparison import equal, where
from fastgraph.ir.ops.entry import public
from fastgraph.ir.ops.functions import exp, log, sqrt
from fastgraph.ir.ops.reduction import max, mean, sum, sum_dtype
from fastgraph.ir.ops.shaping import reshape
from fastgraph.ir.ops.unary import abs, square
from fastgraph.ir.types import FLOAT64, check_axes, is_float, is_half

__all__ = [
    "reduce_l1",
    "reduce_l2",
    "reduce_log_sum",
    "reduce_log_sum_exp",
    "reduce_sum_square",
    "std",
    "var",
]


def wide(op: str, x: Any, build: Callable[[Value], Value]) -> Value:
    """Return `build` of `x` as floats: integers in float64, half types by way of float32."""
    value = one(op, x)
    if not is_float(value.dtype):
        value = convert(value, FLOAT64)
    return in_float32(value, build)


def variance(x: Value, axes: tuple[int, ...], keepdims: bool, correction: float) -> Value:
    """Return the sum of the squares of deviations over their number less `correction`."""
    centred = x - mean(x, axis=axes, keepdims=True)
    if correction == 0:
        return mean(square(centred), axis=axes, keepdims=keepdims)
    count = prod([x.shape[axis] for axis in axes])
    total = sum(square(centred), axis=axes, keepdims=keepdims)
    # As NumPy: division by 0 where there are too few elements.
    return total / builtins.max(count - correction, 0.0)


@public("NumPy 2", "float int uint bool")
def var(x: Any, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Value:
    """Return the mean square of the deviations from the mean, over `axis`.

    Parameters
    ----------
    x : Value
        Floats; integers and bools are computed in float64.
    axis : int or tuple of int, optional
        Which axes to reduce; without it, all.
    correction : float
        The sum of squares is divided by the number of elements less this.
    keepdims : bool
        Whether reduced axes stay, with length 1.

    Returns
    -------
    Value
        Of the same float dtype, or float64; nan over no elements.

    Raises
    ------
    GraphError
        For an axis out of range or named twice.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.var, np.float32([[1, 2, 3], [4, 5, 6]]), axis=1)
    array([0.6666667, 0.6666667], dtype=float32)
    """
    value = one("var", x)
    axes, keep = check_axes(axis, value.ndim, "var"), flag("var", "keepdims", keepdims)
    less = number("var", "correction", correction)
    return wide("var", value, lambda v: variance(v, axes, keep, less))


@public("NumPy 2", "float int uint bool")
def std(x: Any, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Value:
    """Return the root of the mean square of the deviations from the mean, over `axis`.

    Parameters
    ----------
    x : Value
        Floats; integers and bools are computed in float64.
    axis : int or tuple of int, optional
        Which axes to reduce; without it, all.
    correction : float
        The sum of squares is divided by the number of elements less this.
    keepdims : bool
        Whether reduced axes stay, with length 1.

    Returns
    -------
    Value
        Of the same float dtype, or float64; nan over no elements.

    Raises
    ------
    GraphError
        For an axis out of range or named twice.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.std, np.float32([[1, 2, 3], [4, 5, 6]]), axis=1)
    array([0.8164966, 0.8164966], dtype=float32)
    """
    value = one("std", x)
    axes, keep = check_axes(axis, value.ndim, "std"), flag("std", "keepdims", keepdims)
    less = number("std", "correction", correction)
    return wide("std", value, lambda v: sqrt(variance(v, axes, keep, less)))


@public("ONNX", "float int uint")
def reduce_l1(x: Any, axis: Any = None, keepdims: bool = False) -> Value:
    """Return the sum of absolute values over `axis`.

    Parameters
    ----------
    x : Value
        Floats or integers.
    axis : int or tuple of int, optional
        Which axes to reduce; without it, all.
    keepdims : bool
        Whether reduced axes stay, with length 1.

    Returns
    -------
    Value
        Of the dtype that `sum` gives; 0 over no elements.

    Raises
    ------
    GraphError
        For an axis out of range or named twice.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.reduce_l1, np.float32([[1, 2, 3], [4, 5, 6]]), axis=1)
    array([ 6., 15.], dtype=float32)
    """
    return sum(abs(one("reduce_l1", x)), axis=axis, keepdims=keepdims)


@public("ONNX", "float int uint bool")
def reduce_sum_square(x: Any, axis: Any = None, keepdims: bool = False) -> Value:
    """Return the sum of squares over `axis`.

    Parameters
    ----------
    x : Value
        Floats or integers.
    axis : int or tuple of int, optional
        Which axes to reduce; without it, all.
    keepdims : bool
        Whether reduced axes stay, with length 1.

    Returns
    -------
    Value
        Of the dtype that `sum` gives; 0 over no elements.

    Raises
    ------
    GraphError
        For an axis out of range or named twice.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.reduce_sum_square, np.float32([[1, 2, 3], [4, 5, 6]]), axis=1)
    array([14., 77.], dtype=float32)
    """
    value = one("reduce_sum_square", x)
    if is_half(value.dtype):
        return in_float32(value, lambda v: sum(square(v), axis=axis, keepdims=keepdims))
    # Widened before they are squared, so that small integers do not wrap.
    value = convert(value, sum_dtype(value.dtype))
    return sum(square(value), axis=axis, keepdims=keepdims)


@public("ONNX", "float int uint bool")
def reduce_l2(x: Any, axis: Any = None, keepdims: bool = False) -> Value:
    """Return the root of the sum of squares over `axis`.

    Parameters
    ----------
    x : Value
        Floats; integers and bools are computed in float64.
    axis : int or tuple of int, optional
        Which axes to reduce; without it, all.
    keepdims : bool
        Whether reduced axes stay, with length 1.

    Returns
    -------
    Value
        Of the same float dtype, or float64; 0 over no elements.

    Raises
    ------
    GraphError
        For an axis out of range or named twice.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.reduce_l2, np.float32([[1, 2, 3], [4, 5, 6]]), axis=1)
    array([3.7416575, 8.774964 ], dtype=float32)
    """
    return wide("reduce_l2", x, lambda v: sqrt(sum(square(v), axis=axis, keepdims=keepdims)))


@public("ONNX", "float int uint bool")
def reduce_log_sum(x: Any, axis: Any = None, keepdims: bool = False) -> Value:
    """Return the natural logarithm of the sum over `axis`.

    Parameters
    ----------
    x : Value
        Floats; integers and bools are computed in float64.
    axis : int or tuple of int, optional
        Which axes to reduce; without it, all.
    keepdims : bool
        Whether reduced axes stay, with length 1.

    Returns
    -------
    Value
        Of the same float dtype, or float64; -inf over no elements.

    Raises
    ------
    GraphError
        For an axis out of range or named twice.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.reduce_log_sum, np.float32([[1, 2, 3], [4, 5, 6]]), axis=1)
    array([1.7917595, 2.7080503], dtype=float32)
    """
    return wide("reduce_log_sum", x, lambda v: log(sum(v, axis=axis, keepdims=keepdims)))


@public("ONNX", "float int uint bool")
def reduce_log_sum_exp(x: Any, axis: Any = None, keepdims: bool = False) -> Value:
    """Return the natural logarithm of the sum of ``e ** x`` over `axis`, safe from overflow.

    Parameters
    ----------
    x : Value
        Floats; integers and bools are computed in float64.
    axis : int or tuple of int, optional
        Which axes to reduce; without it, all.
    keepdims : bool
        Whether reduced axes stay, with length 1.

    Returns
    -------
    Value
        Of the same float dtype, or float64; -inf over no elements.

    Raises
    ------
    GraphError
        For an axis out of range or named twice.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.reduce_log_sum_exp, np.float32([[1, 2, 3], [4, 5, 6]]), axis=1)
    array([3.407606, 6.407606], dtype=float32)
    """
    value = one("reduce_log_sum_exp", x)
    axes = check_axes(axis, value.ndim, "reduce_log_sum_exp")
    keep = flag("reduce_log_sum_exp", "keepdims", keepdims)

    def build(v: Value) -> Value:
        if any_empty(v, axes):
            return log(sum(v, axis=axes, keepdims=keep))
        top = max(v, axis=axes, keepdims=True)
        # An infinite maximum would make inf - inf; as it stands it is already the result's size.
        top = where(equal(abs(top), float("inf")), 0.0, top)
        total = log(sum(exp(v - top), axis=axes, keepdims=keep))
        return total + (top if keep else reshape(top, total.shape))

    return wide("reduce_log_sum_exp", value, build)


def any_empty(x: Value, axes: tuple[int, ...]) -> bool:
    """Whether one of the axes has no elements."""
    return not builtins.all(x.shape[axis] for axis in axes)
