"""fg.ops functions that give a value another shape."""

from __future__ import annotations

from math import prod
from typing import Any

from fastgraph.errors import GraphError
from fastgraph.ir.graph import Value
from fastgraph.ir.ops.arguments import integers, node, one
from fastgraph.ir.ops.entry import public
from fastgraph.ir.ops.movement import ALL
from fastgraph.ir.types import check_axes

__all__ = ["broadcast_to", "expand_dims", "reshape", "squeeze", "transpose"]


@public("NumPy 2", ALL)
def reshape(x: Any, shape: Any) -> Value:
    """Return the elements of `x`, in order, in another shape.

    Parameters
    ----------
    x : Value
    shape : int or tuple of int
        Of as many elements; one entry may be -1 and is then worked out.

    Returns
    -------
    Value
        Of the dtype of `x`.

    Raises
    ------
    GraphError
        Where the numbers of elements differ.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.reshape, np.arange(6), (2, -1))
    array([[0, 1, 2],
           [3, 4, 5]])
    """
    value = one("reshape", x)
    dims = list(integers("reshape", "shape", shape))
    if dims.count(-1) == 1:
        rest = prod(dim for dim in dims if dim != -1)
        if rest <= 0 or value.size % rest:
            raise GraphError(
                f"reshape: {value.size} elements of shape {value.shape} do not fill {tuple(dims)}"
            )
        dims[dims.index(-1)] = value.size // rest
    elif dims.count(-1) > 1:
        raise GraphError(f"reshape: shape {tuple(dims)} has more than one -1; only one is allowed")
    return node("reshape", [value], {"shape": tuple(dims)}).outputs[0]


@public("NumPy 2", ALL)
def transpose(x: Any, axes: Any = None) -> Value:
    """Return `x` with its axes in another order.

    Parameters
    ----------
    x : Value
    axes : tuple of int, optional
        Which axis of `x` comes in each place; without it, the reverse order.

    Returns
    -------
    Value
        Of the dtype of `x`.

    Raises
    ------
    GraphError
        Where `axes` does not name each axis once.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.transpose, np.arange(6).reshape(2, 3))
    array([[0, 3],
           [1, 4],
           [2, 5]])
    """
    value = one("transpose", x)
    order = range(value.ndim)[::-1] if axes is None else integers("transpose", "axes", axes)
    return node("transpose", [value], {"axes": tuple(order)}).outputs[0]


@public("NumPy 2", ALL)
def broadcast_to(x: Any, shape: Any) -> Value:
    """Return `x` repeated to `shape`.

    Parameters
    ----------
    x : Value
    shape : int or tuple of int

    Returns
    -------
    Value
        Of the dtype of `x`.

    Raises
    ------
    GraphError
        Where `x` does not broadcast to `shape`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.broadcast_to, np.arange(3), (2, 3))
    array([[0, 1, 2],
           [0, 1, 2]])
    """
    dims = integers("broadcast_to", "shape", shape)
    return node("broadcast_to", [one("broadcast_to", x)], {"shape": dims}).outputs[0]


@public("NumPy 2", ALL)
def expand_dims(x: Any, axis: Any) -> Value:
    """Return `x` with new axes of length 1.

    Parameters
    ----------
    x : Value
    axis : int or tuple of int
        Where the new axes are in the result.

    Returns
    -------
    Value

    Raises
    ------
    GraphError
        For an axis out of range or named twice.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.expand_dims, np.arange(3), 0)
    array([[0, 1, 2]])
    """
    value = one("expand_dims", x)
    count = len(integers("expand_dims", "axis", axis))
    axes = check_axes(axis, value.ndim + count, "expand_dims")
    dims = iter(value.shape)
    shape = [1 if i in axes else next(dims) for i in range(value.ndim + count)]
    return reshape(value, tuple(shape))


@public("NumPy 2", ALL)
def squeeze(x: Any, axis: Any = None) -> Value:
    """Return `x` without axes of length 1.

    Parameters
    ----------
    x : Value
    axis : int or tuple of int, optional
        Which to drop; without it, all of length 1.

    Returns
    -------
    Value

    Raises
    ------
    GraphError
        For an axis out of range, named twice, or longer than 1.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.squeeze, np.arange(3).reshape(1, 3, 1))
    array([0, 1, 2])
    """
    value = one("squeeze", x)
    if axis is None:
        axis = tuple(i for i, dim in enumerate(value.shape) if dim == 1)
    axes = check_axes(axis, value.ndim, "squeeze")
    for i in axes:
        if value.shape[i] != 1:
            raise GraphError(
                f"squeeze: axis {i} of {value.shape} has length {value.shape[i]}; only axes of "
                "length 1 can go"
            )
    return reshape(value, tuple(dim for i, dim in enumerate(value.shape) if i not in axes))
