"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fastgraph.errors import GraphError
from fastgraph.ir.graph import Value
from fastgraph.ir.opdef import Attrs, register
from fastgraph.ir.ops.arguments import convert, flag, node, one
from fastgraph.ir.ops.entry import public
from fastgraph.ir.ops.numerics import convert as converted
from fastgraph.ir.ops.shaping import broadcast_to, reshape
from fastgraph.ir.types import (
    BOOL,
    FLOAT64,
    FLOATS,
    INT64,
    SUPPORTED,
    UINT64,
    UNSIGNED,
    Shape,
    Spec,
    check_axes,
    is_float,
)

__all__ = ["all", "any", "argmax", "argmin", "max", "mean", "min", "prod", "sum", "sum_dtype"]

Array = np.ndarray[Any, np.dtype[Any]]


def reduced_shape(shape: Shape, attrs: Attrs) -> Shape:
    """Return `shape` without the reduced axes, or with 1 in their place."""
    axes = attrs["axis"]
    if attrs["keepdims"]:
        return tuple(1 if axis in axes else dim for axis, dim in enumerate(shape))
    return tuple(dim for axis, dim in enumerate(shape) if axis not in axes)


def check_some(op: str, shape: Shape, attrs: Attrs) -> None:
    """Raise GraphError where there would be no element to choose, unless there is no result."""
    if 0 in (shape[axis] for axis in attrs["axis"]) and 0 not in reduced_shape(shape, attrs):
        raise GraphError(
            f"{op}: shape {shape} has no elements over axis {attrs['axis']}, so there is none to "
            "choose; make the axis longer"
        )


def enter(
    op: str,
    allowed: Sequence[np.dtype[Any]],
    function: Callable[..., Array],
    result: np.dtype[Any] | None = None,
    choosing: bool = False,
) -> None:
    """Register a reduction that is `function(array, axis=, keepdims=)`."""

    def infer(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
        ((shape, dtype),) = inputs
        if dtype not in allowed:
            names = ", ".join(one.name for one in allowed)
            raise GraphError(f"{op}: takes {names}, found {dtype.name}; use astype")
        attrs["axis"] = check_axes(tuple(attrs["axis"]), len(shape), op)
        attrs["keepdims"] = bool(attrs["keepdims"])
        if choosing:
            check_some(op, shape, attrs)
        return [(reduced_shape(shape, attrs), result or dtype)]

    def reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
        (x,) = arrays
        dtype = result or x.dtype
        shape = reduced_shape(x.shape, attrs)
        if 0 in shape:
            return [np.zeros(shape, dtype)]
        wide = x.astype(FLOAT64) if is_float(x.dtype) else x
        with np.errstate(all="ignore"):
            found = function(wide, axis=attrs["axis"], keepdims=attrs["keepdims"])
            return [converted(np.asarray(found), dtype).reshape(shape)]

    register(op, "reduction", infer, reference)


def mean_or_nan(x: Array, axis: Any, keepdims: bool) -> Array:
    """Return the mean; nan without NumPy's warning where there are no elements."""
    count = np.prod([x.shape[one] for one in axis], dtype=np.int64)
    return np.asarray(np.divide(np.sum(x, axis=axis, keepdims=keepdims), count))


def index_of(function: Callable[..., Any]) -> Callable[..., Array]:
    """Return argmax or argmin over the one axis in the tuple `axis`."""
    return lambda x, axis, keepdims: np.asarray(function(x, axis=axis[0], keepdims=keepdims))


SUMS = (*FLOATS, INT64, UINT64)
"""The dtypes that sums and products of all others are computed in, as `sum_dtype` says."""

enter("sum", SUMS, np.sum)
enter("prod", SUMS, np.prod)
enter("mean", FLOATS, mean_or_nan)
enter("max", SUPPORTED, np.max, choosing=True)
enter("min", SUPPORTED, np.min, choosing=True)
enter("argmax", SUPPORTED, index_of(np.argmax), INT64, choosing=True)
enter("argmin", SUPPORTED, index_of(np.argmin), INT64, choosing=True)


def sum_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that NumPy adds and multiplies elements in."""
    if is_float(dtype):
        return dtype
    return UINT64 if dtype in UNSIGNED else INT64


def reduce(op: str, x: Any, axis: Any, keepdims: bool) -> Value:
    """Build the node of `op`; sums and means are of the dtype that NumPy computes them in."""
    value = one(op, x)
    axes = check_axes(axis, value.ndim, op)
    keep = flag(op, "keepdims", keepdims)
    if op in ("sum", "prod"):
        value = convert(value, sum_dtype(value.dtype))
    if op == "mean" and not is_float(value.dtype):
        value = convert(value, FLOAT64)
    return node(op, [value], {"axis": axes, "keepdims": keep}).outputs[0]


def index(op: str, x: Any, axis: Any, keepdims: bool) -> Value:
    """Build the node of argmax or argmin; over all elements they are searched in order."""
    value = one(op, x)
    keep = flag(op, "keepdims", keepdims)
    if axis is None:
        flat = reshape(value, (value.size,))
        found = node(op, [flat], {"axis": (0,), "keepdims": False}).outputs[0]
        return reshape(found, (1,) * value.ndim) if keep else found
    axes = check_axes(axis, value.ndim, op)
    if len(axes) != 1:
        raise GraphError(f"{op}: axis must be one int or None, found {axis!r}")
    return node(op, [value], {"axis": axes, "keepdims": keep}).outputs[0]


def truth(op: str, x: Any, axis: Any, keepdims: bool) -> Value:
    """Build `any` or `all`: the largest or smallest truth, or what there is without elements."""
    value = convert(one(op, x), BOOL)
    axes = check_axes(axis, value.ndim, op)
    attrs = {"axis": axes, "keepdims": flag(op, "keepdims", keepdims)}
    if 0 in (value.shape[axis] for axis in axes):
        empty = value.graph.constant(np.asarray(op == "all"))
        return broadcast_to(empty, reduced_shape(value.shape, attrs))
    return node("max" if op == "any" else "min", [value], attrs).outputs[0]


@public("NumPy 2", "float int uint bool")
def sum(x: Any, axis: Any = None, keepdims: bool = False) -> Value:
    """Return the sum of elements over `axis`.

    Parameters
    ----------
    x : Value
        Of any dtype.
    axis : int or tuple of int, optional
        Which axes to reduce; without it, all.
    keepdims : bool
        Whether reduced axes stay, with length 1.

    Returns
    -------
    Value
        Of the same float dtype; int64 for signed integers and bools, uint64 for unsigned ones, as
        in NumPy. 0 over no elements.

    Raises
    ------
    GraphError
        For an axis out of range or named twice.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.sum, np.float32([[1, 2, 3], [4, 5, 6]]), axis=1)
    array([ 6., 15.], dtype=float32)
    """
    return reduce("sum", x, axis, keepdims)


@public("NumPy 2", "float int uint bool")
def prod(x: Any, axis: Any = None, keepdims: bool = False) -> Value:
    """Return the product of elements over `axis`.

    Parameters
    ----------
    x : Value
        Of any dtype.
    axis : int or tuple of int, optional
        Which axes to reduce; without it, all.
    keepdims : bool
        Whether reduced axes stay, with length 1.

    Returns
    -------
    Value
        Of the same float dtype; int64 for signed integers and bools, uint64 for unsigned ones, as
        in NumPy. 1 over no elements.

    Raises
    ------
    GraphError
        For an axis out of range or named twice.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.prod, np.float32([[1, 2, 3], [4, 5, 6]]), axis=1)
    array([  6., 120.], dtype=float32)
    """
    return reduce("prod", x, axis, keepdims)


@public("NumPy 2", "float int uint bool")
def mean(x: Any, axis: Any = None, keepdims: bool = False) -> Value:
    """Return the mean of elements over `axis`.

    Parameters
    ----------
    x : Value
        Of any dtype; integers and bools are computed in float64.
    axis : int or tuple of int, optional
        Which axes to reduce; without it, all.
    keepdims : bool
        Whether reduced axes stay, with length 1.

    Returns
    -------
    Value
        Of the same float dtype, or float64, as in NumPy; nan over no elements.

    Raises
    ------
    GraphError
        For an axis out of range or named twice.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.mean, np.float32([[1, 2, 3], [4, 5, 6]]), axis=1)
    array([2., 5.], dtype=float32)
    """
    return reduce("mean", x, axis, keepdims)


@public("NumPy 2", "float int uint bool")
def max(x: Any, axis: Any = None, keepdims: bool = False) -> Value:
    """Return the largest element over `axis`.

    Parameters
    ----------
    x : Value
        Of any dtype.
    axis : int or tuple of int, optional
        Which axes to reduce; without it, all.
    keepdims : bool
        Whether reduced axes stay, with length 1.

    Returns
    -------
    Value
        Of the same dtype; nan where there is one.

    Raises
    ------
    GraphError
        For an axis out of range or named twice, or no elements to choose from.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.max, np.float32([[1, 2, 3], [4, 5, 6]]), axis=1)
    array([3., 6.], dtype=float32)
    """
    return reduce("max", x, axis, keepdims)


@public("NumPy 2", "float int uint bool")
def min(x: Any, axis: Any = None, keepdims: bool = False) -> Value:
    """Return the smallest element over `axis`.

    Parameters
    ----------
    x : Value
        Of any dtype.
    axis : int or tuple of int, optional
        Which axes to reduce; without it, all.
    keepdims : bool
        Whether reduced axes stay, with length 1.

    Returns
    -------
    Value
        Of the same dtype; nan where there is one.

    Raises
    ------
    GraphError
        For an axis out of range or named twice, or no elements to choose from.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.min, np.float32([[1, 2, 3], [4, 5, 6]]), axis=1)
    array([1., 4.], dtype=float32)
    """
    return reduce("min", x, axis, keepdims)


@public("NumPy 2", "float int uint bool")
def argmax(x: Any, axis: Any = None, keepdims: bool = False) -> Value:
    """Return the index of the largest element over `axis`.

    Parameters
    ----------
    x : Value
        Of any dtype.
    axis : int, optional
        Which axis to search; without it, all elements in order.
    keepdims : bool
        Whether the searched axis stays, with length 1.

    Returns
    -------
    Value
        int64. Of equal elements the first counts, and nan counts as the largest.

    Raises
    ------
    GraphError
        For an axis that is no int or out of range, or no elements to choose from.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.argmax, np.float32([.1, .5, .2, .9, .3]))
    array(3)
    """
    return index("argmax", x, axis, keepdims)


@public("NumPy 2", "float int uint bool")
def argmin(x: Any, axis: Any = None, keepdims: bool = False) -> Value:
    """Return the index of the smallest element over `axis`.

    Parameters
    ----------
    x : Value
        Of any dtype.
    axis : int, optional
        Which axis to search; without it, all elements in order.
    keepdims : bool
        Whether the searched axis stays, with length 1.

    Returns
    -------
    Value
        int64. Of equal elements the first counts, and nan counts as the smallest.

    Raises
    ------
    GraphError
        For an axis that is no int or out of range, or no elements to choose from.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.argmin, np.float32([.1, .5, .2, .9, .3]))
    array(0)
    """
    return index("argmin", x, axis, keepdims)


@public("NumPy 2", "float int uint bool")
def any(x: Any, axis: Any = None, keepdims: bool = False) -> Value:
    """Return whether an element over `axis` is not 0.

    Parameters
    ----------
    x : Value
        Of any dtype.
    axis : int or tuple of int, optional
        Which axes to reduce; without it, all.
    keepdims : bool
        Whether reduced axes stay, with length 1.

    Returns
    -------
    Value
        bool; False over no elements.

    Raises
    ------
    GraphError
        For an axis out of range or named twice.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.any, np.float32([[0, 1], [0, 0]]), axis=1)
    array([ True, False])
    """
    return truth("any", x, axis, keepdims)


@public("NumPy 2", "float int uint bool")
def all(x: Any, axis: Any = None, keepdims: bool = False) -> Value:
    """Return whether all elements over `axis` are not 0.

    Parameters
    ----------
    x : Value
        Of any dtype.
    axis : int or tuple of int, optional
        Which axes to reduce; without it, all.
    keepdims : bool
        Whether reduced axes stay, with length 1.

    Returns
    -------
    Value
        bool; True over no elements.

    Raises
    ------
    GraphError
        For an axis out of range or named twice.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.all, np.float32([[0, 1], [0, 0]]), axis=1)
    array([False, False])
    """
    return truth("all", x, axis, keepdims)
