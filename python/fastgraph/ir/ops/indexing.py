"""fg.ops functions that choose elements, and that join them."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastgraph._core.sizes import Size, least, most, same_form
from fastgraph.errors import GraphError
from fastgraph.ir.dims import follows
from fastgraph.ir.graph import Value
from fastgraph.ir.literals import scalar_array
from fastgraph.ir.ops.arguments import as_value, convert, integers, node, one, owner
from fastgraph.ir.ops.entry import public
from fastgraph.ir.ops.movement import ALL
from fastgraph.ir.ops.shaping import reshape
from fastgraph.ir.types import INT64, check_axis, result_dtype, whole

__all__ = ["concat", "getitem", "slice", "take"]

Bounds = tuple[int, int, int]


def sliced(value: Value, bounds: Sequence[Bounds]) -> Value:
    """Return `value` cut to (start, size, step) per axis; itself where nothing is cut."""
    if all(
        (start, step) == (0, 1) and same_form(size, dim)
        for (start, size, step), dim in zip(bounds, value.shape, strict=True)
    ):
        return value
    starts, sizes, steps = zip(*bounds, strict=True)
    return node("slice", [value], {"starts": starts, "sizes": sizes, "steps": steps}).outputs[0]


def bounds_of(key: builtins.slice, dim: int, what: str) -> Bounds:
    """Return (start, size, step) of a Python slice of an axis of `dim` elements."""
    if any(isinstance(one, Size) for one in (key.start, key.stop, dim)):
        return sized_bounds(key, dim, what)
    try:
        start, stop, step = key.indices(dim)
    except (TypeError, ValueError) as error:
        raise GraphError(f"{what}: {error}; found {key}") from None
    size = len(range(start, stop, step))
    return (start, size, step) if size else (0, 0, 1)


def sized_bounds(key: builtins.slice, dim: int, what: str) -> Bounds:
    """Return the same where a bound or the axis follows a dimension."""
    try:
        step = 1 if key.step is None else operator.index(key.step)
        first, last = (None if one is None else whole(one) for one in (key.start, key.stop))
    except TypeError as error:
        raise GraphError(f"{what}: {error}; found {key}") from None
    if step == 0:
        raise GraphError(f"{what}: slice step cannot be zero; found {key}")
    low, high = (0, dim) if step > 0 else (-1, dim - 1)

    def place(bound: int | None, default: int) -> int:
        if bound is None:
            return default
        return most(dim + bound, low) if bound < 0 else least(bound, high)

    start, stop = place(first, low if step > 0 else high), place(last, high if step > 0 else low)
    ahead = stop - start if step > 0 else start - stop
    # Where the order of the two is known they need no look in each run.
    ordered = first is None or last is None
    if first is not None and last is not None and (first < 0) == (last < 0):
        if (last - first) * step <= 0 and not follows((first, last)):
            return 0, 0, 1
        ordered = not follows((first, last))
    size = -(-(ahead if ordered else most(ahead, 0)) // abs(step))
    return (start, size, step) if isinstance(size, Size) or size else (0, 0, 1)


@public("own", ALL)
def getitem(x: Value, key: Any) -> Value:
    """Return ``x[key]``.

    Parameters
    ----------
    x : Value
    key : int, slice, Ellipsis, None, or a tuple of them; or one integer Value or array
        As in NumPy's basic indexing. An array or Value takes rows, as ``take(x, key, axis=0)``.

    Returns
    -------
    Value
        A copy of the elements, never a view: values are immutable.

    Raises
    ------
    GraphError
        For an index out of range, too many indices, or a mask, whose result has no static shape.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.getitem, np.arange(6).reshape(2, 3), np.s_[0, ::-1])
    array([2, 1, 0])
    """
    x = one("getitem", x)
    what = f"{x.label}[...]"
    if isinstance(key, Value | np.ndarray):
        if key.dtype == np.bool_:
            raise GraphError(
                f"{what}: a mask gives a shape that is not known before the run; use fg.ops.where"
            )
        return take(x, key, axis=0)
    keys = list(key) if isinstance(key, tuple) else [key]
    taken = sum(one is not None and one is not Ellipsis for one in keys)
    if taken > x.ndim:
        raise GraphError(f"{what}: {taken} indices for the {x.ndim} axes of {x.shape}")
    if sum(one is Ellipsis for one in keys) > 1:
        raise GraphError(f"{what}: only one ... is allowed")
    if not any(one is Ellipsis for one in keys):
        keys.append(Ellipsis)
    bounds: list[Bounds] = []
    shape: list[int] = []
    for entry in keys:
        if entry is None:
            shape.append(1)
        elif entry is Ellipsis:
            rest = x.shape[len(bounds) : len(bounds) + x.ndim - taken]
            bounds += [(0, dim, 1) for dim in rest]
            shape += rest
        elif isinstance(entry, builtins.slice):
            bounds.append(bounds_of(entry, x.shape[len(bounds)], what))
            shape.append(bounds[-1][1])
        else:
            bounds.append((position(entry, x, len(bounds), what), 1, 1))
    found = sliced(x, bounds)
    return found if found.shape == tuple(shape) else reshape(found, tuple(shape))


def position(entry: Any, x: Value, axis: int, what: str) -> int:
    """Return the integer index `entry` counted from the front."""
    try:
        if isinstance(entry, bool | np.bool_):
            raise TypeError
        index = whole(entry)
    except TypeError:
        raise GraphError(
            f"{what}: index {entry!r} must be an int, a slice, ... or None; for indices that a "
            "run computes use fg.ops.take"
        ) from None
    dim = x.shape[axis]
    if not -dim <= index < dim:
        raise GraphError(
            f"{what}: index {index} is out of range for axis {axis} of {x.shape}; allowed are "
            f"{-dim} to {dim - 1}"
        )
    return index + dim if index < 0 else index


@public("ONNX", ALL)
def slice(x: Value, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Value:
    """Return `x` cut along `axes`; the same as ``x[start:end:step]`` on each.

    Parameters
    ----------
    x : Value
    starts, ends : int or tuple of int
        Negative ones count from the end; those beyond an end are cut to it.
    axes : int or tuple of int, optional
        One per start; without it, the first ones.
    steps : int or tuple of int, optional
        May be negative; without it, 1.

    Returns
    -------
    Value

    Raises
    ------
    GraphError
        For lists of unequal length, a step of 0, an axis out of range or named twice.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.slice, np.arange(8), 6, 1, steps=-2)
    array([6, 4, 2])
    """
    first = integers("slice", "starts", starts)
    last = integers("slice", "ends", ends)
    where = range(len(first)) if axes is None else integers("slice", "axes", axes)
    step = (1,) * len(first) if steps is None else integers("slice", "steps", steps)
    if not len(first) == len(last) == len(where) == len(step):
        raise GraphError(
            f"slice: {len(first)} starts, {len(last)} ends, {len(where)} axes and {len(step)} "
            "steps found; there must be as many of each"
        )
    value = one("slice", x)
    bounds: list[Bounds] = [(0, dim, 1) for dim in value.shape]
    found = [check_axis(axis, value.ndim, "slice") for axis in where]
    if len(set(found)) != len(found):
        raise GraphError(f"slice: axes {tuple(where)} name an axis twice; name each once")
    for axis, start, end, stride in zip(found, first, last, step, strict=True):
        key = builtins.slice(start, end, stride)
        bounds[axis] = bounds_of(key, value.shape[axis], "slice")
    return sliced(value, bounds)


@public("NumPy 2", ALL)
def take(x: Any, indices: Any, axis: int | None = None) -> Value:
    """Return the elements of `x` at `indices` along `axis`.

    Parameters
    ----------
    x : Value or numpy.ndarray
    indices : Value, numpy.ndarray or int
        Of any integer dtype; negative ones count from the end.
    axis : int, optional
        None takes from the flattened `x`.

    Returns
    -------
    Value
        Of the dtype of `x`; the axes of `indices` stand in the place of `axis`.

    Raises
    ------
    GraphError
        For indices that are no integers, an axis out of range, or a constant index out of range.
        An index that a run computes and that is out of range makes the run raise InputError.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.take, np.float32([[1, 2], [3, 4]]), np.array([1, 0, -1]), axis=0)
    array([[3., 4.],
           [1., 2.],
           [3., 4.]], dtype=float32)
    """
    graph = owner("take", (x, indices))
    value = as_value("take", graph, x)
    if isinstance(indices, int) and not isinstance(indices, bool):
        indices = scalar_array(indices, INT64, "take: index")
    index = as_value("take", graph, indices)
    if axis is None:
        value, axis = reshape(value, (value.size,)), 0
    found = node("take", [value, index], {"axis": axis}).outputs[0]
    if index.node.op == "constant":
        dim = value.shape[found.node.attrs["axis"]]
        array = index.node.attrs["value"]
        outside = array[(array < -dim) | (array >= dim)]
        if outside.size:
            raise GraphError(
                f"take: index {outside[0]} is out of range for axis {axis} of {value.shape}; "
                f"allowed are {-dim} to {dim - 1}"
            )
    return found


@public("NumPy 2", ALL)
def concat(arrays: Any, axis: int | None = 0) -> Value:
    """Return `arrays` one after another along `axis`.

    Parameters
    ----------
    arrays : sequence of Value or numpy.ndarray
        At least one Value among them; dtypes are promoted as in NumPy.
    axis : int, optional
        None flattens them first.

    Returns
    -------
    Value

    Raises
    ------
    GraphError
        Where other axes than `axis` differ, or dtypes without a common one in NumPy.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import Graph, ops, reference
    >>> g = Graph()
    >>> x = g.input("x", (2,))
    >>> _ = g.output(ops.concat([x, x * 10]), "y")
    >>> reference.evaluate(g, {"x": np.float32([1, 2])})
    {'y': array([ 1.,  2., 10., 20.], dtype=float32)}
    """
    if isinstance(arrays, Value) or not isinstance(arrays, list | tuple):
        raise GraphError(f"concat: a list of values is needed, found {type(arrays).__name__}")
    graph = owner("concat", arrays)
    values = [as_value("concat", graph, array) for array in arrays]
    dtype = result_dtype([value.dtype for value in values], "concat")
    values = [convert(value, dtype) for value in values]
    if axis is None:
        values = [reshape(value, (value.size,)) for value in values]
    return node("concat", values, {"axis": 0 if axis is None else axis}).outputs[0]
