"""Windows that slide over the spatial axes of images: how convolutions and pools lie on them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from fastgraph.errors import GraphError
from fastgraph.ir.ops.arguments import integers
from fastgraph.ir.types import Shape

__all__ = [
    "MOST_AXES",
    "Windows",
    "arranged",
    "both_ends",
    "each_axis",
    "image_shape",
    "padded",
    "tap_views",
]

Array = np.ndarray[Any, np.dtype[Any]]

MOST_AXES = 3
"""Spatial axes that images have at most."""


class Windows(NamedTuple):
    """Where windows lie, axis by axis.

    Element `k` of window `o` is element ``o * strides + k * dilations - begins`` of the image.
    """

    sizes: Shape
    kernel: Shape
    strides: Shape
    dilations: Shape
    begins: Shape
    ends: Shape
    counts: Shape

    @property
    def spans(self) -> Shape:
        """How far a window reaches along each axis."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))


def image_shape(op: str, x: Shape) -> Shape:
    """Return the sizes of the spatial axes of images (batch, channels, …); GraphError if none."""
    if not 3 <= len(x) <= 2 + MOST_AXES:
        raise GraphError(
            f"{op}: x must be (batch, channels, …) with one to three spatial axes, found {x}; "
            "expand_dims adds an axis"
        )
    return x[2:]


def each_axis(op: str, what: str, found: Any, axes: int, least: int = 1) -> Shape:
    """Return `found`, an int for all axes or one for each, as a tuple."""
    numbers = integers(op, what, found)
    if len(numbers) == 1:
        numbers *= axes
    if len(numbers) != axes or min(numbers) < least:
        raise GraphError(
            f"{op}: {what} must be one int or {axes}, each {least} or more, found {found!r}"
        )
    return numbers


def both_ends(op: str, pads: Any, axes: int) -> tuple[Shape, Shape]:
    """Return what is added before and after each axis: one int, or all begins, then all ends."""
    numbers = integers(op, "pads", pads)
    if len(numbers) == 1:
        numbers *= 2 * axes
    if len(numbers) != 2 * axes or min(numbers) < 0:
        raise GraphError(
            f"{op}: pads must be one int or {2 * axes}, those before each axis, then those after "
            f"each, all 0 or more, found {pads!r}"
        )
    return numbers[:axes], numbers[axes:]


def arranged(
    op: str,
    sizes: Shape,
    kernel: Shape,
    strides: Any,
    pads: Any,
    dilations: Any,
    *,
    ceil_mode: bool = False,
) -> Windows:
    """Return the windows that fit on an image of these sizes, with so much padding around it."""
    axes = len(sizes)
    strides = each_axis(op, "strides", strides, axes)
    dilations = each_axis(op, "dilations", dilations, axes)
    begins, ends = both_ends(op, pads, axes)
    counts = []
    for axis in range(axes):
        size, step = sizes[axis] + begins[axis] + ends[axis], strides[axis]
        span = (kernel[axis] - 1) * dilations[axis] + 1
        if span > size:
            raise GraphError(
                f"{op}: a window of {span} elements does not fit on spatial axis {axis} of "
                f"{sizes[axis]} with {begins[axis]} and {ends[axis]} of padding"
            )
        count = (size - span) // step + 1
        # One more that overhangs, unless it would begin in the padding behind.
        if ceil_mode and (size - span) % step and count * step < sizes[axis] + begins[axis]:
            count += 1
        counts.append(count)
    return Windows(sizes, kernel, strides, dilations, begins, ends, tuple(counts))


def padded(x: Array, windows: Windows, fill: Any) -> Array:
    """Return images with `fill` around them, as far as any window reaches."""
    widths = [(0, 0), (0, 0)]
    for axis, span in enumerate(windows.spans):
        reach = (windows.counts[axis] - 1) * windows.strides[axis] + span
        behind = max(reach - windows.begins[axis] - windows.sizes[axis], 0)
        widths.append((windows.begins[axis], behind))
    return np.pad(x, widths, constant_values=fill)


def tap_views(around: Array, windows: Windows) -> Iterator[tuple[Shape, Array]]:
    """Yield for each element of a window its index, and that element of all windows."""
    for tap in product(*(range(k) for k in windows.kernel)):
        cut = [slice(None), slice(None)]
        for axis, k in enumerate(tap):
            start, step = k * windows.dilations[axis], windows.strides[axis]
            cut.append(slice(start, start + (windows.counts[axis] - 1) * step + 1, step))
        yield tap, around[tuple(cut)]
