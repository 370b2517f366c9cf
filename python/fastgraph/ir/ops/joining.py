"""fg.ops functions that take values apart, put them together, and fill up what lies around."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fastgraph.errors import GraphError
from fastgraph.ir.graph import Value
from fastgraph.ir.literals import scalar_array
from fastgraph.ir.ops.arguments import as_value, convert, flag, integers, is_weak, one, owner
from fastgraph.ir.ops.entry import public
from fastgraph.ir.ops.indexing import bounds_of, concat, sliced, take
from fastgraph.ir.ops.movement import ALL
from fastgraph.ir.ops.shaping import broadcast_to, expand_dims, reshape
from fastgraph.ir.types import BOOL, INT64, check_axis, check_shape, check_table, result_dtype

__all__ = ["pad", "split", "stack", "tile"]

Indices = np.ndarray[Any, np.dtype[Any]]


def mirrored(dim: int, at: Indices) -> Indices:
    """Return the places `at`, which may lie outside, mirrored at the ends of an axis."""
    period = max(2 * (dim - 1), 1)
    place = at % period
    found: Indices = np.minimum(place, period - place) if dim > 1 else np.zeros_like(at)
    return found


REPEATS: dict[str, Callable[[int, Indices], Indices]] = {
    "edge": lambda dim, at: np.clip(at, 0, dim - 1),
    "reflect": mirrored,
    "wrap": lambda dim, at: at % dim,
}
"""By mode: which elements of an axis stand in the places `at`."""

MOST_RUNS = 8
"""More runs of neighbours than this are taken element by element."""


def part(x: Value, axis: int, start: int, size: int, step: int = 1) -> Value:
    """Return `size` elements of `x` along `axis`, from `start` on."""
    bounds = [(0, dim, 1) for dim in x.shape]
    bounds[axis] = (start, size, step) if size else (0, 0, 1)
    return sliced(x, bounds)


@public("NumPy 2", ALL)
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Value]:
    """Return the parts of `x` along `axis`.

    Parameters
    ----------
    x : Value
    indices_or_sections : int or tuple of int
        How many equal parts, or where each part but the first begins, counted as in slices.
    axis : int

    Returns
    -------
    list of Value

    Raises
    ------
    GraphError
        Where there are no equal parts, or for an axis out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(lambda x: ops.split(x, [1, 3])[1], np.arange(6))
    array([1, 2])
    """
    value = one("split", x)
    axis = check_axis(axis, value.ndim, "split")
    dim = value.shape[axis]
    if isinstance(indices_or_sections, tuple | list | np.ndarray):
        ends = integers("split", "indices_or_sections", indices_or_sections)
        bounds = zip((0, *ends), (*ends, dim), strict=True)
        cuts = [bounds_of(slice(start, end), dim, "split") for start, end in bounds]
        return [part(value, axis, start, size) for start, size, _ in cuts]
    (count,) = integers("split", "indices_or_sections", indices_or_sections)
    if count < 1 or dim % count:
        raise GraphError(
            f"split: axis {axis} of {value.shape} does not divide into {count} equal parts; give "
            "the indices where parts begin"
        )
    size = dim // count
    return [part(value, axis, i * size, size) for i in range(count)]


@public("NumPy 2", ALL)
def stack(arrays: Any, axis: int = 0) -> Value:
    """Return `arrays` side by side along a new axis.

    Parameters
    ----------
    arrays : sequence of Value or numpy.ndarray
        Of one shape, at least one Value among them; dtypes are promoted as in NumPy.
    axis : int
        Where the new axis is in the result.

    Returns
    -------
    Value

    Raises
    ------
    GraphError
        For shapes that differ, or an axis out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(lambda x: ops.stack([x, x * 2], axis=1), np.arange(2))
    array([[0, 0],
           [1, 2]])
    """
    if isinstance(arrays, Value) or not isinstance(arrays, list | tuple):
        raise GraphError(f"stack: a list of values is needed, found {type(arrays).__name__}")
    graph = owner("stack", arrays)
    values = [as_value("stack", graph, array) for array in arrays]
    for value in values[1:]:
        if value.shape != values[0].shape:
            raise GraphError(
                f"stack: shapes {values[0].shape} and {value.shape} differ; they must be equal"
            )
    axis = check_axis(axis, values[0].ndim + 1, "stack")
    return concat([expand_dims(value, axis) for value in values], axis=axis)


@public("NumPy 2", ALL)
def tile(x: Any, reps: Any) -> Value:
    """Return `x` repeated along each axis.

    Parameters
    ----------
    x : Value
    reps : int or tuple of int
        How often, one per axis of the result; the shorter of `reps` and the shape is filled up
        with ones from the left.

    Returns
    -------
    Value

    Raises
    ------
    GraphError
        For negative numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.tile, np.array([1, 2]), (2, 2))
    array([[1, 2, 1, 2],
           [1, 2, 1, 2]])
    """
    value = one("tile", x)
    times = integers("tile", "reps", reps)
    if any(count < 0 for count in times):
        raise GraphError(f"tile: reps must be 0 or more, found {times}")
    rank = max(value.ndim, len(times))
    times = (1,) * (rank - len(times)) + times
    shape = (1,) * (rank - value.ndim) + value.shape
    wanted = tuple(count * dim for count, dim in zip(times, shape, strict=True))
    check_shape(wanted, "tile", value.dtype)
    apart = tuple(size for dim in shape for size in (1, dim))
    whole = tuple(size for pair in zip(times, shape, strict=True) for size in pair)
    return reshape(broadcast_to(reshape(value, apart), whole), wanted)


def runs(indices: Indices) -> Iterator[tuple[int, int, int]]:
    """Yield (start, size, step) of the runs with equal steps of -1, 0 or 1 in `indices`.

    >>> list(runs(np.array([2, 1, 0, 1, 2, 2, 2])))
    [(2, 3, -1), (1, 2, 1), (2, 2, 0)]
    """
    first = 0
    while first < len(indices):
        end = first + 1
        step = int(indices[end] - indices[first]) if end < len(indices) else 1
        if step in (-1, 0, 1):
            while end < len(indices) and indices[end] - indices[end - 1] == step:
                end += 1
        yield int(indices[first]), end - first, step if end - first > 1 else 1
        first = end


def picked(x: Value, axis: int, indices: Indices) -> Value:
    """Return ``take(x, indices, axis)`` for indices that are known and in range."""
    found = list(runs(indices))
    if len(found) > MOST_RUNS:
        return take(x, indices, axis=axis)
    parts = []
    for start, size, step in found:
        if step == 0:
            whole = (*x.shape[:axis], size, *x.shape[axis + 1 :])
            parts.append(broadcast_to(part(x, axis, start, 1), whole))
        else:
            parts.append(part(x, axis, start, size, step))
    return parts[0] if len(parts) == 1 else concat(parts, axis=axis)


def pad_widths(pad_width: Any, rank: int) -> list[tuple[int, int]]:
    """Return (before, after) per axis, broadcast as NumPy does it."""
    try:
        found = np.asarray(pad_width)
        if found.dtype.kind not in "iu":
            raise TypeError
        whole = np.broadcast_to(found, (rank, 2))
    except (GraphError, TypeError, ValueError):
        raise GraphError(
            f"pad: pad_width must be an int, (before, after), or one such pair for each of the "
            f"{rank} axes, found {pad_width!r}"
        ) from None
    if (whole < 0).any():
        raise GraphError(f"pad: pad_width must be 0 or more, found {pad_width!r}; use slice")
    return [(int(before), int(after)) for before, after in whole]


@public("NumPy 2", ALL)
def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Value:
    """Return `x` with elements put before and behind along each axis.

    Parameters
    ----------
    x : Value
    pad_width : int, (int, int), or a sequence of (int, int)
        How many before and behind: for all axes, or one pair per axis.
    mode : str
        What they are: ``constant``; ``edge``, the outermost element; ``reflect``, the elements
        mirrored at it; ``wrap``, those of the other end.
    constant_values : int, float, bool or Value
        One value for ``constant``.

    Returns
    -------
    Value

    Raises
    ------
    GraphError
        For a negative width, another mode, or an axis without elements that has none to repeat.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.pad, np.array([1, 2, 3]), (2, 1), "reflect")
    array([3, 2, 1, 2, 3, 2])
    """
    value = one("pad", x)
    widths = pad_widths(pad_width, value.ndim)
    if mode != "constant" and mode not in REPEATS:
        raise GraphError(f"pad: mode must be one of constant, {', '.join(REPEATS)}, found {mode!r}")
    if mode == "constant":
        return filled(value, widths, constant_values)
    for axis, (before, after) in enumerate(widths):
        dim = value.shape[axis]
        if before == after == 0:
            continue
        if dim == 0:
            raise GraphError(
                f"pad: axis {axis} of {value.shape} has no elements for mode {mode!r}; use constant"
            )
        check_table((before + dim + after,), INT64, "pad")
        value = picked(value, axis, REPEATS[mode](dim, np.arange(-before, dim + after)))
    return value


def filled(value: Value, widths: list[tuple[int, int]], number: Any) -> Value:
    """Return `value` with `number` around it."""
    graph = value.node.graph
    if value.dtype == BOOL and is_weak(number):
        number = flag("pad", "constant_values", number)
    if is_weak(number):
        result_dtype([value.dtype, number], "pad")
        fill = graph.constant(scalar_array(number, value.dtype, "pad: constant_values"))
    else:
        fill = convert(as_value("pad", graph, number), value.dtype)
    if fill.size != 1:
        raise GraphError(f"pad: constant_values must be one value, found shape {fill.shape}")
    for axis, pair in enumerate(widths):
        shape = value.shape
        sides: list[Value | None] = [
            broadcast_to(reshape(fill, ()), (*shape[:axis], width, *shape[axis + 1 :]))
            if width
            else None
            for width in pair
        ]
        parts = [one for one in (sides[0], value, sides[1]) if one is not None]
        value = concat(parts, axis=axis) if len(parts) > 1 else value
    return value
