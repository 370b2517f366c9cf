"""Putting values to places that a run computes, and taking them from there.

One operator does it all, ``scatter``: rows of a matrix, by their numbers. What has an index per
axis is brought to row numbers by arithmetic, which fuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from fastgraph.errors import GraphError, InputError
from fastgraph.ir.graph import Value
from fastgraph.ir.opdef import Attrs, register
from fastgraph.ir.ops.arguments import as_value, convert, literal, node, owner
from fastgraph.ir.ops.arithmetic import add, multiply
from fastgraph.ir.ops.comparison import greater_equal, less, logical_or, where
from fastgraph.ir.ops.entry import public
from fastgraph.ir.ops.indexing import take
from fastgraph.ir.ops.movement import ALL
from fastgraph.ir.ops.numerics import convert as rounded
from fastgraph.ir.ops.numerics import widened
from fastgraph.ir.ops.reduction import sum
from fastgraph.ir.ops.shaping import broadcast_to, reshape
from fastgraph.ir.types import BOOL, INT64, Shape, Spec, broadcast, check_axis, is_integer

__all__ = [
    "REDUCTIONS",
    "gather_nd",
    "scatter_add",
    "scatter_elements",
    "scatter_nd",
    "take_along_axis",
]

Array = np.ndarray[Any, np.dtype[Any]]

REDUCTIONS: dict[str, Callable[..., Any] | None] = {
    "none": None,
    "add": np.add.at,
    "multiply": np.multiply.at,
    "maximum": np.maximum.at,
    "minimum": np.minimum.at,
}
"""How a value joins what is there already, and NumPy's way to do so with repeated indices."""


def infer_scatter(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Take a matrix, row numbers of int64, and as many rows."""
    (x, dtype), (indices, kind), (updates, found) = inputs
    reduction = attrs["reduction"]
    if reduction not in REDUCTIONS:
        raise GraphError(
            f"scatter: reduction must be one of {', '.join(REDUCTIONS)}, found {reduction!r}"
        )
    if reduction != "none" and dtype == BOOL:
        raise GraphError(f"scatter: reduction {reduction!r} takes numbers, found bool; use astype")
    if kind != INT64 or found != dtype:
        raise GraphError(
            f"scatter: indices must be int64 and updates {dtype.name}, found {kind.name} and "
            f"{found.name}"
        )
    if len(x) != 2 or len(indices) != 1 or updates != (indices[0], x[1]):
        raise GraphError(f"scatter: {x}, {indices} and {updates} are no rows, numbers and rows")
    return [(x, dtype)]


def scatter_reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Put the rows one after the other; sums in float64, rounded once."""
    x, indices, updates = arrays
    outside = (indices < -len(x)) | (indices >= len(x))
    if outside.any():
        raise InputError(
            f"scatter: index {indices[outside][0]} is out of range for {len(x)} rows; allowed are "
            f"{-len(x)} to {len(x) - 1}"
        )
    join = REDUCTIONS[attrs["reduction"]]
    if join is None:
        out = x.copy()
        for row, update in zip(indices, updates, strict=True):  # The last of equal numbers stays.
            out[row] = update
        return [out]
    wide = widened(x).astype(np.float64) if not is_integer(x.dtype) else x.copy()
    with np.errstate(all="ignore"):
        join(wide, indices, widened(updates))
        return [rounded(wide, x.dtype)]


def infer_scatter_pair(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Take what two scatters with the same numbers take: x, numbers, updates, x and updates."""
    first, second = (infer_scatter(part, attrs) for part in both_of(inputs))
    if first != second:
        raise GraphError(f"scatter_pair: {first[0]} and {second[0]} differ")
    return first + second


def scatter_pair_reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """One after the other."""
    return [out for part in both_of(arrays) for out in scatter_reference(part, attrs)]


def both_of(operands: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The operands of each of two scatters."""
    x, indices, updates, other, more = operands
    return [x, indices, updates], [other, indices, more]


register("scatter", "movement", infer_scatter, scatter_reference)
register("scatter_pair", "lowered", infer_scatter_pair, scatter_pair_reference)


def as_indices(op: str, value: Value) -> Value:
    """Return integer indices as int64."""
    if not is_integer(value.dtype):
        raise GraphError(f"{op}: indices must be integers, found {value.dtype.name}; use astype")
    return convert(value, INT64)


def wrapped(indices: Value, dim: Any, outside: int) -> Value:
    """Return `indices` counted from the front, and `outside` for those out of range."""
    found = where(less(indices, 0), add(indices, dim), indices)
    wrong = logical_or(less(found, 0), greater_equal(found, dim))
    return where(wrong, outside, found)


def places(op: str, indices: Value, shape: Shape, axis: int) -> Value:
    """Return the flat place in `shape` that each index along `axis` names.

    The other coordinates are the index's own. What is out of range has the place beyond the last.
    """
    size = prod(shape)
    strides = [prod(shape[i + 1 :]) for i in range(len(shape))]
    rest = np.zeros((1,) * len(shape), np.int64)
    for i, dim in enumerate(indices.shape):
        if i != axis and dim > 1:
            along = np.arange(dim) * strides[i]
            rest = rest + along.reshape([dim if j == i else 1 for j in range(len(shape))])
    graph = indices.node.graph
    # A size further on from any place is beyond the last.
    step = max(size // strides[axis], 1) if size else 1
    flat = multiply(wrapped(indices, shape[axis], step), strides[axis])
    return add(flat, literal(graph, strides, rest)) if rest.any() else flat


def check_places(op: str, x: Value, indices: Value, axis: Any) -> int:
    """Return `axis` counted from the front; GraphError unless the shapes fit but for it."""
    axis = check_axis(axis, x.ndim, op)
    if indices.ndim != x.ndim or any(
        a > b for i, (a, b) in enumerate(zip(indices.shape, x.shape, strict=True)) if i != axis
    ):
        raise GraphError(
            f"{op}: indices of shape {indices.shape} must have as many axes as x, {x.shape}, and "
            f"be no longer but for axis {axis}"
        )
    return axis


def gather_elements(x: Value, indices: Value, axis: int) -> Value:
    """Return the elements of `x` at `indices` along `axis`; `indices` may be shorter elsewhere."""
    flat = places("take_along_axis", indices, x.shape, axis)
    return take(reshape(x, (x.size,)), flat, axis=0)


@public("NumPy 2", ALL)
def take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Value:
    """Return the elements of `x` at `indices` along `axis`, line by line.

    Parameters
    ----------
    x : Value or numpy.ndarray
    indices : Value or numpy.ndarray
        Of integers, with as many axes as `x`; both broadcast to one shape but for `axis`. Negative
        ones count from the end.
    axis : int, optional
        None takes from the flattened `x` at one axis of indices.

    Returns
    -------
    Value
        Of the dtype of `x` and the shape of `indices`.

    Raises
    ------
    GraphError
        For indices that are no integers, shapes that do not fit, an axis out of range. An index
        that is out of range makes the run raise InputError.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> x = np.float32([[1, 2, 3], [4, 5, 6]])
    >>> reference.apply(ops.take_along_axis, x, np.array([[2], [0]]), axis=1)
    array([[3.],
           [4.]], dtype=float32)
    """
    graph = owner("take_along_axis", (x, indices))
    value = as_value("take_along_axis", graph, x)
    index = as_indices("take_along_axis", as_value("take_along_axis", graph, indices))
    if axis is None:
        value, axis = reshape(value, (value.size,)), 0
    axis = check_axis(axis, value.ndim, "take_along_axis")
    if index.ndim != value.ndim:
        raise GraphError(
            f"take_along_axis: x has {value.ndim} axes and indices {index.ndim}; they must have "
            "as many"
        )

    def without(shape: Shape) -> Shape:
        return (*shape[:axis], 1, *shape[axis + 1 :])

    common = broadcast([without(value.shape), without(index.shape)], "take_along_axis")
    for old in (value, index):
        wanted = (*common[:axis], old.shape[axis], *common[axis + 1 :])
        new = old if old.shape == wanted else broadcast_to(old, wanted)
        value, index = (new, index) if old is value else (value, new)
    if value.shape[axis] == 0 and index.size:
        raise GraphError(f"take_along_axis: axis {axis} of {value.shape} has no elements to take")
    return gather_elements(value, index, axis)


@public("ONNX", ALL)
def scatter_elements(
    x: Any, indices: Any, updates: Any, axis: int = 0, reduction: str = "none"
) -> Value:
    """Return `x` with each element of `updates` put where its index along `axis` says.

    Parameters
    ----------
    x : Value or numpy.ndarray
    indices : Value or numpy.ndarray
        Of integers, with as many axes as `x`, and no longer than it but for `axis`. Negative ones
        count from the end.
    updates : Value or numpy.ndarray
        Of the shape of `indices` and the dtype of `x`.
    axis : int
    reduction : str
        How an element joins what is there: ``none`` (it takes the place, and of several the last
        one stays), ``add``, ``multiply``, ``maximum`` or ``minimum``.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For shapes or dtypes that do not fit, an axis out of range, another reduction. An index
        that is out of range makes the run raise InputError.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> x = np.zeros(3, "f4")
    >>> reference.apply(ops.scatter_elements, x, np.array([2, 0]), np.float32([5, 7]))
    array([7., 0., 5.], dtype=float32)
    """
    return scattered("scatter_elements", x, indices, updates, axis, reduction)


@public("own", "float int uint")
def scatter_add(x: Any, indices: Any, updates: Any, axis: int = 0) -> Value:
    """Return `x` with each element of `updates` added where its index along `axis` says.

    Parameters
    ----------
    x, indices, updates, axis
        As for `scatter_elements`.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        As for `scatter_elements`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> x = np.zeros(3, "f4")
    >>> reference.apply(ops.scatter_add, x, np.array([0, 0]), np.float32([5, 7]))
    array([12.,  0.,  0.], dtype=float32)
    """
    return scattered("scatter_add", x, indices, updates, axis, "add")


def scattered(op: str, x: Any, indices: Any, updates: Any, axis: Any, reduction: str) -> Value:
    """Build the nodes of an element-wise scatter."""
    graph = owner(op, (x, indices, updates))
    value, new = as_value(op, graph, x), as_value(op, graph, updates)
    index = as_indices(op, as_value(op, graph, indices))
    axis = check_places(op, value, index, axis)
    if new.shape != index.shape or new.dtype != value.dtype:
        raise GraphError(
            f"{op}: updates must be {value.dtype.name}{list(index.shape)}, as indices and x, found "
            f"{new.dtype.name}{list(new.shape)}"
        )
    flat = reshape(places(op, index, value.shape, axis), (index.size,))
    return put(value, flat, new, (value.size, 1), reduction)


def put(value: Value, flat: Value, new: Value, rows: tuple[int, int], reduction: str) -> Value:
    """Return `value` seen as `rows`, with those of `new` put to the numbers `flat`."""
    inputs = [reshape(value, rows), flat, reshape(new, (flat.size, rows[1]))]
    found = node("scatter", inputs, {"reduction": reduction}).outputs[0]
    return reshape(found, value.shape)


def row_numbers(op: str, index: Value, shape: Shape, batch: int) -> Value:
    """Return the row of `shape`'s leading axes that each tuple along the last axis names.

    The first `batch` axes of both are walked together.
    """
    depth = index.shape[-1]
    dims = np.array(shape[batch : batch + depth], np.int64)
    strides = np.array([prod(dims[i + 1 :]) for i in range(depth)], np.int64)
    total = prod(shape[: batch + depth])
    graph = index.node.graph
    # One coordinate out of range brings the sum beyond the last row.
    found = where(less(index, 0), add(index, literal(graph, shape, dims)), index)
    wrong = logical_or(less(found, 0), greater_equal(found, literal(graph, shape, dims)))
    steps = literal(graph, shape, strides)
    flat = sum(where(wrong, max(total, 1), multiply(found, steps)), axis=-1)
    if batch:
        lead = index.shape[:batch]
        first = np.arange(prod(lead)).reshape(lead) * int(prod(dims))
        first = first.reshape(*lead, *(1,) * (flat.ndim - batch))
        flat = add(flat, literal(graph, shape, first))
    return flat


def check_tuples(op: str, x: Value, index: Value, batch: int) -> int:
    """Return the length of index tuples; GraphError unless they fit the axes of `x`."""
    if index.ndim < 1 or x.ndim < 1:
        raise GraphError(f"{op}: x and indices need an axis, found {x.shape} and {index.shape}")
    depth = index.shape[-1]
    if not 0 <= batch < min(x.ndim, index.ndim) or x.shape[:batch] != index.shape[:batch]:
        raise GraphError(
            f"{op}: batch_dims {batch} must be equal leading axes of x {x.shape} and indices "
            f"{index.shape}"
        )
    if depth > x.ndim - batch:
        raise GraphError(
            f"{op}: {depth} indices at once for the {x.ndim - batch} axes of {x.shape[batch:]}"
        )
    return depth


@public("ONNX", ALL)
def gather_nd(x: Any, indices: Any, batch_dims: int = 0) -> Value:
    """Return the parts of `x` that the tuples along the last axis of `indices` name.

    Parameters
    ----------
    x : Value or numpy.ndarray
    indices : Value or numpy.ndarray
        Of integers. The last axis holds one index for each of the first axes of `x` behind
        `batch_dims`; negative ones count from the end.
    batch_dims : int
        How many leading axes of both are walked together.

    Returns
    -------
    Value
        Of the dtype of `x`: the axes of `indices` but the last, then those of `x` without index.

    Raises
    ------
    GraphError
        For shapes that do not fit or indices that are no integers. An index that is out of range
        makes the run raise InputError.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> x = np.arange(6).reshape(2, 3)
    >>> reference.apply(ops.gather_nd, x, np.array([[0, 2], [1, 0]]))
    array([2, 3])
    """
    graph = owner("gather_nd", (x, indices))
    value = as_value("gather_nd", graph, x)
    index = as_indices("gather_nd", as_value("gather_nd", graph, indices))
    depth = check_tuples("gather_nd", value, index, batch_dims)
    done = batch_dims + depth
    rows, rest = prod(value.shape[:done]), value.shape[done:]
    shape = (*index.shape[:-1], *rest)
    flat = row_numbers("gather_nd", index, value.shape, batch_dims)
    if rows == 0 and flat.size:
        raise GraphError(f"gather_nd: x of shape {value.shape} has no elements to take")
    return reshape(take(reshape(value, (rows, prod(rest))), flat, axis=0), shape)


@public("ONNX", ALL)
def scatter_nd(x: Any, indices: Any, updates: Any, reduction: str = "none") -> Value:
    """Return `x` with `updates` put to the parts that tuples along the last axis of `indices` name.

    Parameters
    ----------
    x : Value or numpy.ndarray
    indices : Value or numpy.ndarray
        Of integers. The last axis holds one index for each of the first axes of `x`; negative ones
        count from the end.
    updates : Value or numpy.ndarray
        Of the dtype of `x`: the axes of `indices` but the last, then those of `x` without index.
    reduction : str
        As for `scatter_elements`.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For shapes or dtypes that do not fit. An index that is out of range makes the run raise
        InputError.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> x = np.zeros((2, 2), "f4")
    >>> reference.apply(ops.scatter_nd, x, np.array([[1]]), np.float32([[3, 4]]))
    array([[0., 0.],
           [3., 4.]], dtype=float32)
    """
    graph = owner("scatter_nd", (x, indices, updates))
    value, new = (as_value("scatter_nd", graph, one) for one in (x, updates))
    index = as_indices("scatter_nd", as_value("scatter_nd", graph, indices))
    depth = check_tuples("scatter_nd", value, index, 0)
    wanted = (*index.shape[:-1], *value.shape[depth:])
    if new.shape != wanted or new.dtype != value.dtype:
        raise GraphError(
            f"scatter_nd: updates must be {value.dtype.name}{list(wanted)}, found "
            f"{new.dtype.name}{list(new.shape)}"
        )
    flat = row_numbers("scatter_nd", index, value.shape, 0)
    rows = (prod(value.shape[:depth]), prod(value.shape[depth:]))
    return put(value, reshape(flat, (flat.size,)), new, rows, reduction)
