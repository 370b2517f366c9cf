"""Pools: the largest or the mean element of each window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastgraph.errors import GraphError
from fastgraph.ir.graph import Value
from fastgraph.ir.opdef import Attrs, register
from fastgraph.ir.ops.arguments import flag, float_only, node, one
from fastgraph.ir.ops.entry import public
from fastgraph.ir.ops.numerics import convert, widened
from fastgraph.ir.ops.windows import (
    Windows,
    arranged,
    each_axis,
    image_shape,
    padded,
    tap_views,
)
from fastgraph.ir.types import FLOAT64, NUMBERS, Spec, is_float

__all__ = ["average_pool", "max_pool"]

Array = np.ndarray[Any, np.dtype[Any]]


def infer(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Give an element for each window."""
    ((x, dtype),) = inputs
    windows: Windows = attrs["windows"]
    average = attrs["kind"] == "average"
    if dtype not in NUMBERS or (average and not is_float(dtype)):
        raise GraphError(f"{attrs['kind']}_pool: does not take {dtype.name}; use astype")
    if x[2:] != windows.sizes:
        raise GraphError(f"{attrs['kind']}_pool: x {x} is not that of its windows {windows}")
    return [((*x[:2], *windows.counts), dtype)]


def reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Take the larger, or add up in float64, element by element of the windows."""
    (x,) = arrays
    windows: Windows = attrs["windows"]
    if attrs["kind"] == "max":
        held = widened(x)
        lowest = -np.inf if is_float(x.dtype) else np.iinfo(x.dtype).min
        found = np.full((*x.shape[:2], *windows.counts), lowest, held.dtype)
        for _, part in tap_views(padded(held, windows, lowest), windows):
            found = np.maximum(found, part)
        return [convert(found, x.dtype)]
    around = padded(x.astype(FLOAT64), windows, 0.0)
    total = np.zeros((*x.shape[:2], *windows.counts))
    for _, part in tap_views(around, windows):
        total += part
    return [convert(total / counted(windows, attrs["count_include_pad"]), x.dtype)]


def counted(windows: Windows, with_pads: bool) -> Array:
    """Return how many elements each window has, those of the padding included if asked for."""
    found: Array = np.ones((1,) * len(windows.sizes))
    for axis, size in enumerate(windows.sizes):
        first = np.arange(windows.counts[axis]) * windows.strides[axis] - windows.begins[axis]
        low = -windows.begins[axis] if with_pads else 0
        high = size + windows.ends[axis] if with_pads else size
        at = first[:, None] + np.arange(windows.kernel[axis]) * windows.dilations[axis]
        inside = ((at >= low) & (at < high)).sum(axis=1)
        found = found * inside.reshape(-1, *(1,) * (len(windows.sizes) - axis - 1))
    return found


register("pool", "pooling", infer, reference)


def pool(
    op: str, x: Value, kernel_shape: Any, strides: Any, pads: Any, dilations: Any, ceil_mode: Any
) -> Windows:
    """Return the windows of a pool, each of which meets the image."""
    sizes = image_shape(op, x.shape)
    kernel = each_axis(op, "kernel_shape", kernel_shape, len(sizes))
    ceil = flag(op, "ceil_mode", ceil_mode)
    windows = arranged(op, sizes, kernel, strides, pads, dilations, ceil_mode=ceil)
    for axis, span in enumerate(windows.spans):
        if max(windows.begins[axis], windows.ends[axis]) >= span:
            raise GraphError(
                f"{op}: pads {pads!r} hold whole windows of {span} elements on spatial axis {axis};"
                " they must be shorter"
            )
    return windows


@public("ONNX", "float int uint")
def max_pool(
    x: Any,
    kernel_shape: Any,
    strides: Any = 1,
    pads: Any = 0,
    dilations: Any = 1,
    ceil_mode: bool = False,
) -> Value:
    """Return the largest element of each window.

    Parameters
    ----------
    x : Value
        Of shape (batch, channels, …) with one to three spatial axes.
    kernel_shape : int or tuple of int
        The sizes of a window.
    strides, dilations : int or tuple of int
        Steps between windows, and between the elements of one.
    pads : int or tuple of int
        What windows may overhang: one number, or those before each axis and then those after each.
    ceil_mode : bool
        Whether the last window of an axis may overhang further.

    Returns
    -------
    Value
        NaN where a window holds one.

    Raises
    ------
    GraphError
        For bools, or windows that do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(lambda x: ops.max_pool(x, 2, strides=2), np.float32([[[1, 5, 2, 3]]]))
    array([[[5., 3.]]], dtype=float32)
    """
    value = one("max_pool", x)
    windows = pool("max_pool", value, kernel_shape, strides, pads, dilations, ceil_mode)
    attrs = {"kind": "max", "windows": windows, "count_include_pad": False}
    return node("pool", [value], attrs).outputs[0]


@public("ONNX", "float")
def average_pool(
    x: Any,
    kernel_shape: Any,
    strides: Any = 1,
    pads: Any = 0,
    dilations: Any = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Value:
    """Return the mean of each window.

    Parameters
    ----------
    x : Value
        Of shape (batch, channels, …) with one to three spatial axes.
    kernel_shape : int or tuple of int
        The sizes of a window.
    strides, dilations : int or tuple of int
        Steps between windows, and between the elements of one.
    pads : int or tuple of int
        What windows may overhang: one number, or those before each axis and then those after each.
    ceil_mode : bool
        Whether the last window of an axis may overhang further.
    count_include_pad : bool
        Whether what overhangs by `pads` counts, as zeros.

    Returns
    -------
    Value

    Raises
    ------
    GraphError
        For other dtypes than floats, or windows that do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(lambda x: ops.average_pool(x, 2, strides=2), np.float32([[[1, 5, 2, 3]]]))
    array([[[3. , 2.5]]], dtype=float32)
    """
    (value,) = float_only("average_pool", x)
    windows = pool("average_pool", value, kernel_shape, strides, pads, dilations, ceil_mode)
    counts = flag("average_pool", "count_include_pad", count_include_pad)
    attrs = {"kind": "average", "windows": windows, "count_include_pad": counts}
    return node("pool", [value], attrs).outputs[0]
