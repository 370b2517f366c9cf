"""fg.ops functions that choose by position: triangles, and classes as rows of zeros and a one."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastgraph.errors import GraphError
from fastgraph.ir.graph import Value
from fastgraph.ir.ops.arguments import convert, integers, one
from fastgraph.ir.ops.comparison import equal, less_equal, where
from fastgraph.ir.ops.entry import public
from fastgraph.ir.ops.indexing import sliced
from fastgraph.ir.ops.movement import ALL
from fastgraph.ir.ops.shaping import expand_dims
from fastgraph.ir.types import BOOL, INT64, check_axis, check_dtype, check_table, is_integer

__all__ = ["one_hot", "tril", "triu"]


def triangle(op: str, x: Any, k: Any, lower: bool) -> Value:
    """Return `x` on one side of diagonal `k`, 0 on the other."""
    value = one(op, x)
    if value.ndim < 2:
        raise GraphError(f"{op}: two axes or more are needed, found shape {value.shape}")
    (diagonal,) = integers(op, "k", k)
    graph = value.node.graph
    rows, columns = value.shape[-2:]
    check_table((max(rows, columns),), INT64, op)
    # Beyond the corners all diagonals are alike, and their numbers stay small.
    diagonal = min(max(diagonal, -int(rows) - 1), int(columns) + 1)
    # Cut to what they are of now: an axis may have fewer elements in some runs.
    ends = sliced(graph.constant(np.arange(rows)[:, None] + diagonal), [(0, rows, 1), (0, 1, 1)])
    at = sliced(graph.constant(np.arange(columns)[None]), [(0, 1, 1), (0, columns, 1)])
    inside = less_equal(at, ends) if lower else less_equal(ends, at)
    return where(inside, value, False if value.dtype == BOOL else 0)


@public("NumPy 2", ALL)
def tril(x: Any, k: int = 0) -> Value:
    """Return the lower triangle of the last two axes of `x`, with 0 above diagonal `k`.

    Parameters
    ----------
    x : Value
        With two axes or more.
    k : int
        The last diagonal that stays: 0 is the main one, 1 the one above it.

    Returns
    -------
    Value

    Raises
    ------
    GraphError
        For fewer axes.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.tril, np.array([[1, 2], [3, 4]]))
    array([[1, 0],
           [3, 4]])
    """
    return triangle("tril", x, k, lower=True)


@public("NumPy 2", ALL)
def triu(x: Any, k: int = 0) -> Value:
    """Return the upper triangle of the last two axes of `x`, with 0 below diagonal `k`.

    Parameters
    ----------
    x : Value
        With two axes or more.
    k : int
        The first diagonal that stays: 0 is the main one, 1 the one above it.

    Returns
    -------
    Value

    Raises
    ------
    GraphError
        For fewer axes.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.triu, np.array([[1, 2], [3, 4]]), 1)
    array([[0, 2],
           [0, 0]])
    """
    return triangle("triu", x, k, lower=False)


@public("torch.nn.functional", "int uint")
def one_hot(x: Any, num_classes: int, axis: int = -1, dtype: Any = "int64") -> Value:
    """Return 1 at the place that each element of `x` names along a new axis, 0 elsewhere.

    Parameters
    ----------
    x : Value
        Of integers. What is not from 0 to num_classes - 1 gives zeros alone.
    num_classes : int
        Length of the new axis.
    axis : int
        Where the new axis is in the result.
    dtype : dtype
        Of the result.

    Returns
    -------
    Value

    Raises
    ------
    GraphError
        For `x` of another dtype, fewer than one class, or an axis out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.one_hot, np.array([2, 0]), 3)
    array([[0, 0, 1],
           [1, 0, 0]])
    """
    value = one("one_hot", x)
    if not is_integer(value.dtype):
        raise GraphError(f"one_hot: takes integers, found {value.dtype.name}; use astype")
    (count,) = integers("one_hot", "num_classes", num_classes)
    if count < 1:
        raise GraphError(f"one_hot: num_classes must be 1 or more, found {count}")
    wanted = check_dtype(dtype, "one_hot")
    axis = check_axis(axis, value.ndim + 1, "one_hot")
    check_table((count,), INT64, "one_hot")
    shape = [1] * (value.ndim + 1)
    shape[axis] = count
    classes = value.node.graph.constant(np.arange(count).reshape(shape))
    return convert(equal(expand_dims(convert(value, INT64), axis), classes), wanted)
