"""Running sums, and the largest elements in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastgraph.errors import GraphError
from fastgraph.ir.graph import Graph, Value
from fastgraph.ir.opdef import Attrs, register
from fastgraph.ir.ops.arguments import convert, flag, integers, node, one
from fastgraph.ir.ops.entry import public
from fastgraph.ir.ops.movement import ALL
from fastgraph.ir.ops.numerics import convert as rounded
from fastgraph.ir.ops.numerics import widened
from fastgraph.ir.ops.reduction import sum_dtype
from fastgraph.ir.types import BOOL, INT64, Spec, check_axis, is_float

__all__ = ["cumulative_sum", "layer_of", "top_k"]

# Masks are given one a layer, so numbers are small.
MAX_LAYERS = 1 << 16

Array = np.ndarray[Any, np.dtype[Any]]


def infer_cumulative_sum(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Keep shape and dtype."""
    ((shape, dtype),) = inputs
    if dtype == BOOL:
        raise GraphError("cumulative_sum: takes numbers, found bool; use astype")
    attrs["axis"] = check_axis(attrs["axis"], len(shape), "cumulative_sum")
    return [(shape, dtype)]


def cumulative_sum_reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Add up in float64, or in the integers' own dtype, where sums wrap."""
    (x,) = arrays
    axis = attrs["axis"]
    turned = np.flip(x, axis) if attrs["reverse"] else x
    with np.errstate(all="ignore"):
        wide = widened(turned).astype(np.float64) if is_float(x.dtype) else turned
        found = np.cumsum(wide, axis=axis, dtype=wide.dtype)
        if attrs["exclusive"]:
            found = np.roll(found, 1, axis)
            found[(slice(None),) * axis + (slice(0, 1),)] = 0
        found = rounded(found, x.dtype)
    return [np.flip(found, axis) if attrs["reverse"] else found]


def infer_top_k(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Give k values, and k places of int64."""
    ((shape, dtype),) = inputs
    if dtype == BOOL:
        raise GraphError("top_k: takes numbers, found bool; use astype")
    axis = attrs["axis"] = check_axis(attrs["axis"], len(shape), "top_k")
    if not 0 <= attrs["k"] <= shape[axis]:
        raise GraphError(
            f"top_k: k is {attrs['k']}, but axis {axis} of {shape} has {shape[axis]} elements; it "
            "must be from 0 to that"
        )
    found = (*shape[:axis], attrs["k"], *shape[axis + 1 :])
    return [(found, dtype), (found, INT64)]


def top_k_reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Sort stably, so that ties go to the lower index; nan counts as the largest."""
    (x,) = arrays
    axis, k = attrs["axis"], attrs["k"]
    wide = widened(x)
    order = np.argsort(wide, axis=axis, kind="stable")  # nan comes last.
    if attrs["largest"]:
        # The stable order from the largest down is that of the reversed axis, read backwards.
        n = x.shape[axis]
        order = np.flip(n - 1 - np.argsort(np.flip(wide, axis), axis=axis, kind="stable"), axis)
    chosen = np.take(order, np.arange(k), axis=axis)
    return [np.take_along_axis(x, chosen, axis), chosen.astype(np.int64)]


register("cumulative_sum", "reduction", infer_cumulative_sum, cumulative_sum_reference)
register("top_k", "reduction", infer_top_k, top_k_reference)


@public("NumPy 2", ALL)
def cumulative_sum(
    x: Any, axis: int | None = None, *, exclusive: bool = False, reverse: bool = False
) -> Value:
    """Return the sums of the elements up to each one along `axis`.

    Parameters
    ----------
    x : Value
    axis : int, optional
        May be left out for one axis.
    exclusive : bool
        Whether an element's own sum is without it.
    reverse : bool
        Whether sums run from the end.

    Returns
    -------
    Value
        Of the dtype that `sum` gives.

    Raises
    ------
    GraphError
        For no axis where there are several, or one out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.cumulative_sum, np.float32([1, 2, 3]))
    array([1., 3., 6.], dtype=float32)
    """
    value = one("cumulative_sum", x)
    if axis is None:
        if value.ndim != 1:
            raise GraphError(
                f"cumulative_sum: axis is needed for the {value.ndim} axes of {value.shape}"
            )
        axis = 0
    attrs = {
        "axis": axis,
        "exclusive": flag("cumulative_sum", "exclusive", exclusive),
        "reverse": flag("cumulative_sum", "reverse", reverse),
    }
    return node("cumulative_sum", [convert(value, sum_dtype(value.dtype))], attrs).outputs[0]


@public("ONNX", "float int uint")
def top_k(
    x: Any, k: int, axis: int = -1, *, largest: bool = True, layer: int | None = None
) -> tuple[Value, Value]:
    """Return the `k` largest elements along `axis` in order, and their indices.

    Parameters
    ----------
    x : Value
    k : int
    axis : int
    largest : bool
        Whether the largest are wanted, from the largest down, or the smallest, from there up.
    layer : int, optional
        Which layer of a mixture of experts chooses here. Without it, the one after that of the
        `top_k` written before, from 0 on.

    Returns
    -------
    values, indices : Value
        Of the dtype of `x`, and int64. Of equal elements those with lower indices come first; nan
        counts as the largest.

    Raises
    ------
    GraphError
        For `k` below 0 or above the length of `axis`, an axis out of range, or bool.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(lambda x: ops.top_k(x, 2)[1], np.float32([.1, .9, .3, .7, .5]))
    array([1, 3])
    """
    value = one("top_k", x)
    (count,) = integers("top_k", "k", k)
    attrs = {
        "axis": axis,
        "k": count,
        "largest": flag("top_k", "largest", largest),
        "layer": layer_of(value.node.graph, "top_k", layer),
    }
    values, indices = node("top_k", [value], attrs).outputs
    return values, indices


def layer_of(graph: Graph, op: str, layer: Any) -> int:
    """Return the number of a layer: `layer`, or what follows that of the last `op` of `graph`."""
    if layer is None:
        last = graph.last(op)
        return 0 if last is None else int(last.attrs["layer"]) + 1
    (found,) = integers(op, "layer", layer)
    if not 0 <= found < MAX_LAYERS:
        raise GraphError(f"{op}: layer must be 0 to {MAX_LAYERS - 1}, found {found}")
    return found
