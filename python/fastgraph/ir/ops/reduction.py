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
from fastgraph.ir.ops.shaping import reshape
from fastgraph.ir.types import BOOL, FLOAT32, INT32, INT64, Shape, Spec, check_axes

__all__ = ["argmax", "max", "mean", "min", "prod", "sum"]

Array = np.ndarray[Any, np.dtype[Any]]


def reduced_shape(shape: Shape, attrs: Attrs) -> Shape:
    """Return `shape` without the reduced axes, or with 1 in their place."""
    axes = attrs["axis"]
    if attrs["keepdims"]:
        return tuple(1 if axis in axes else dim for axis, dim in enumerate(shape))
    return tuple(dim for axis, dim in enumerate(shape) if axis not in axes)


def check_some(op: str, shape: Shape, attrs: Attrs) -> None:
    """Raise GraphError where there would be no element to choose, unless there is no result."""
    if any(shape[axis] == 0 for axis in attrs["axis"]) and 0 not in reduced_shape(shape, attrs):
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
        wide = x.astype(np.float64) if x.dtype == FLOAT32 else x
        with np.errstate(all="ignore"):
            found = function(wide, axis=attrs["axis"], keepdims=attrs["keepdims"])
            return [np.asarray(found).astype(dtype).reshape(shape)]

    register(op, "reduction", infer, reference)


def mean_or_nan(x: Array, axis: Any, keepdims: bool) -> Array:
    """Return the mean; nan without NumPy's warning where there are no elements."""
    count = np.prod([x.shape[one] for one in axis], dtype=np.int64)
    return np.asarray(np.divide(np.sum(x, axis=axis, keepdims=keepdims), count))


def argmax_of(x: Array, axis: Any, keepdims: bool) -> Array:
    """Return argmax over the one axis in the tuple `axis`."""
    return np.asarray(np.argmax(x, axis=axis[0], keepdims=keepdims))


enter("sum", (FLOAT32, INT64), np.sum)
enter("prod", (FLOAT32, INT64), np.prod)
enter("mean", (FLOAT32,), mean_or_nan)
enter("max", (FLOAT32, INT32, INT64, BOOL), np.max, choosing=True)
enter("min", (FLOAT32, INT32, INT64, BOOL), np.min, choosing=True)
enter("argmax", (FLOAT32, INT32, INT64, BOOL), argmax_of, INT64, choosing=True)


def reduce(op: str, x: Any, axis: Any, keepdims: bool, widen: bool = False) -> Value:
    """Build the node of `op`; with `widen` int32 and bool become int64 first."""
    value = one(op, x)
    axes = check_axes(axis, value.ndim, op)
    keep = flag(op, "keepdims", keepdims)
    if widen and value.dtype in (INT32, BOOL):
        value = convert(value, INT64)
    return node(op, [value], {"axis": axes, "keepdims": keep}).outputs[0]


@public("NumPy 2", "float32 int32 int64 bool")
def sum(x: Any, axis: Any = None, keepdims: bool = False) -> Value:
    """Return the sum of elements over `axis`.

    Parameters
    ----------
    x : Value
        float32, int32, int64 or bool.
    axis : int or tuple of int, optional
        Which axes to reduce; without it, all.
    keepdims : bool
        Whether reduced axes stay, with length 1.

    Returns
    -------
    Value
        Of the same dtype; int64 for int32 and bool, as in NumPy. 0 over no elements.

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
    return reduce("sum", x, axis, keepdims, widen=True)


@public("NumPy 2", "float32 int32 int64 bool")
def prod(x: Any, axis: Any = None, keepdims: bool = False) -> Value:
    """Return the product of elements over `axis`.

    Parameters
    ----------
    x : Value
        float32, int32, int64 or bool.
    axis : int or tuple of int, optional
        Which axes to reduce; without it, all.
    keepdims : bool
        Whether reduced axes stay, with length 1.

    Returns
    -------
    Value
        Of the same dtype; int64 for int32 and bool, as in NumPy. 1 over no elements.

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
    return reduce("prod", x, axis, keepdims, widen=True)


@public("NumPy 2", "float32")
def mean(x: Any, axis: Any = None, keepdims: bool = False) -> Value:
    """Return the mean of elements over `axis`.

    Parameters
    ----------
    x : Value
        float32.
    axis : int or tuple of int, optional
        Which axes to reduce; without it, all.
    keepdims : bool
        Whether reduced axes stay, with length 1.

    Returns
    -------
    Value
        float32; nan over no elements.

    Raises
    ------
    GraphError
        For another dtype (NumPy would give float64), an axis out of range or named twice.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.mean, np.float32([[1, 2, 3], [4, 5, 6]]), axis=1)
    array([2., 5.], dtype=float32)
    """
    return reduce("mean", x, axis, keepdims)


@public("NumPy 2", "float32 int32 int64 bool")
def max(x: Any, axis: Any = None, keepdims: bool = False) -> Value:
    """Return the largest element over `axis`.

    Parameters
    ----------
    x : Value
        float32, int32, int64 or bool.
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


@public("NumPy 2", "float32 int32 int64 bool")
def min(x: Any, axis: Any = None, keepdims: bool = False) -> Value:
    """Return the smallest element over `axis`.

    Parameters
    ----------
    x : Value
        float32, int32, int64 or bool.
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


@public("NumPy 2", "float32 int32 int64 bool")
def argmax(x: Any, axis: Any = None, keepdims: bool = False) -> Value:
    """Return the index of the largest element over `axis`.

    Parameters
    ----------
    x : Value
        float32, int32, int64 or bool.
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
    value = one("argmax", x)
    keep = flag("argmax", "keepdims", keepdims)
    if axis is None:
        flat = reshape(value, (value.size,))
        index = node("argmax", [flat], {"axis": (0,), "keepdims": False}).outputs[0]
        return reshape(index, (1,) * value.ndim) if keep else index
    axes = check_axes(axis, value.ndim, "argmax")
    if len(axes) != 1:
        raise GraphError(f"argmax: axis must be one int or None, found {axis!r}")
    return node("argmax", [value], {"axis": axes, "keepdims": keep}).outputs[0]
