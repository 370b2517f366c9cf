"""Convolutions over images, and what passes make of those with few positions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from fastgraph.errors import GraphError
from fastgraph.ir.graph import Value
from fastgraph.ir.opdef import OPS, Attrs, register
from fastgraph.ir.ops.arguments import float_only, integers, node
from fastgraph.ir.ops.entry import public
from fastgraph.ir.ops.lowered import ACTIVATIONS
from fastgraph.ir.ops.matmul import matmul
from fastgraph.ir.ops.numerics import convert, widened
from fastgraph.ir.ops.shaping import reshape, transpose
from fastgraph.ir.ops.windows import (
    Windows,
    arranged,
    both_ends,
    each_axis,
    image_shape,
    padded,
    tap_views,
)
from fastgraph.ir.types import FLOAT64, Shape, Spec, is_float

__all__ = ["conv", "conv_transpose"]

Array = np.ndarray[Any, np.dtype[Any]]

EPILOGUE: Attrs = {"residual": None, "residual_first": False, "activation": None}
"""The attributes of a convolution that nothing has been fused with."""


def check_floats(op: str, inputs: Sequence[Spec]) -> np.dtype[Any]:
    """Return the one float dtype of `inputs`."""
    dtypes = [dtype for _, dtype in inputs]
    if any(dtype != dtypes[0] for dtype in dtypes) or not is_float(dtypes[0]):
        names = " and ".join(dtype.name for dtype in dtypes)
        raise GraphError(f"{op}: takes floats of one dtype, found {names}; use astype")
    return dtypes[0]


def infer_conv(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Check the weight against the image, then each operand of the epilogue."""
    dtype = check_floats("conv", inputs)
    x, w = inputs[0][0], inputs[1][0]
    windows: Windows = attrs["windows"]
    group = attrs["group"]
    if w[0] % group or x[1] != w[1] * group:
        raise GraphError(
            f"conv: x {x} and w {w} do not fit: w must be (channels out, channels of x / group, …) "
            f"and its first axis divide into group={group}"
        )
    if x[2:] != windows.sizes or w[2:] != windows.kernel:
        raise GraphError(f"conv: x {x} and w {w} are not those of its windows {windows}")
    full = (x[0], w[0], *windows.counts)
    for name, wanted in (("bias", w[:1]), ("residual", full)):
        if attrs[name] is not None and inputs[attrs[name]][0] != wanted:
            found = inputs[attrs[name]][0]
            raise GraphError(f"conv: {name} must have shape {wanted}, found {found}")
    return [(full, dtype)]


def conv_reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Accumulate in float64, then finish in the kernel's dtype, half types in float32."""
    dtype = arrays[0].dtype
    arrays = [widened(array) for array in arrays]
    x, w = arrays[:2]
    windows: Windows = attrs["windows"]
    group = attrs["group"]
    channels, outs = w.shape[1], w.shape[0] // group
    wide = np.zeros((x.shape[0], group, outs, *windows.counts))
    around = padded(x.astype(FLOAT64), windows, 0.0)
    weights = w.astype(FLOAT64).reshape(group, outs, *w.shape[1:])
    with np.errstate(all="ignore"):
        for tap, part in tap_views(around, windows):
            held = part.reshape(x.shape[0], group, channels, *windows.counts)
            one = np.moveaxis(weights, (0, 1, 2), (-3, -2, -1))[tap]
            wide += np.einsum("bgc...,goc->bgo...", held, one)
        wide = wide.reshape(x.shape[0], w.shape[0], *windows.counts)
        if attrs["bias"] is not None:
            bias = arrays[attrs["bias"]]
            wide = wide + bias.reshape(-1, *(1 for _ in windows.counts))
        residual = None if attrs["residual"] is None else arrays[attrs["residual"]]
        if residual is not None and attrs["residual_first"]:
            wide, residual = wide + residual, None
        found = wide.astype(x.dtype)
        if attrs["activation"] is not None:
            op, one = ACTIVATIONS[attrs["activation"]]
            (found,) = OPS[op].reference([found], one)
        return [convert(found if residual is None else found + residual, dtype)]


def infer_patches(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Take images with their channels last; give a row for each window."""
    ((x, dtype),) = inputs
    windows: Windows = attrs["windows"]
    if len(x) != len(windows.sizes) + 2 or x[1:-1] != windows.sizes:
        raise GraphError(f"patches: {x} is no (batch, *{windows.sizes}, channels)")
    return [((x[0] * prod(windows.counts), prod(windows.kernel) * x[-1]), dtype)]


def patches_reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Lay out windows as [batch * windows][elements of a window][channels]."""
    x = np.moveaxis(arrays[0], -1, 1)
    around = padded(x, attrs["windows"], 0)
    taps = [np.moveaxis(part, 1, -1) for _, part in tap_views(around, attrs["windows"])]
    rows = x.shape[0] * prod(attrs["windows"].counts)
    return [np.stack(taps, axis=-2).reshape(rows, -1)]


def infer_fold(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Take what each element of the image gives to each element of its window."""
    dtype = check_floats("fold", inputs)
    x = inputs[0][0]
    windows: Windows = attrs["windows"]
    size = prod(windows.kernel)
    if len(x) != 3 or x[1] % size or x[2] != prod(windows.counts):
        raise GraphError(f"fold: {x} are not the elements of {windows}")
    channels = x[1] // size
    if len(inputs) > 1 and inputs[1][0] != (channels,):
        raise GraphError(f"fold: bias must have shape {(channels,)}, found {inputs[1][0]}")
    return [((x[0], channels, *windows.sizes), dtype)]


def fold_reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Add up in float64 what lies on each other."""
    x = arrays[0].astype(FLOAT64)
    windows: Windows = attrs["windows"]
    size = prod(windows.kernel)
    held = x.reshape(x.shape[0], -1, size, *windows.counts)
    blank = np.zeros((x.shape[0], held.shape[1], *windows.sizes))
    around = padded(blank, windows, 0.0)
    with np.errstate(all="ignore"):
        for i, (_, part) in enumerate(tap_views(around, windows)):
            part += held[:, :, i]
        cut = [
            slice(begin, begin + n) for begin, n in zip(windows.begins, windows.sizes, strict=True)
        ]
        found = around[(slice(None), slice(None), *cut)]
        if len(arrays) > 1:
            found = found + arrays[1].astype(FLOAT64).reshape(-1, *(1 for _ in windows.sizes))
        return [convert(found, arrays[0].dtype)]


register("conv", "convolution", infer_conv, conv_reference)
register("patches", "lowered", infer_patches, patches_reference)
register("fold", "lowered", infer_fold, fold_reference)


def groups_of(op: str, group: Any) -> int:
    """Return the number of groups."""
    found = integers(op, "group", group)
    if len(found) != 1 or found[0] < 1:
        raise GraphError(f"{op}: group must be an int of 1 or more, found {group!r}")
    return found[0]


def check_axes(op: str, x: Shape, w: Shape) -> None:
    """Refuse a weight that has other axes than images have."""
    image_shape(op, x)
    if len(w) != len(x) or 0 in w[2:]:
        raise GraphError(
            f"{op}: w must have {len(x)} axes like x {x}, spatial ones not empty, found {w}"
        )


@public("ONNX", "float")
def conv(
    x: Any,
    w: Any,
    b: Any = None,
    strides: Any = 1,
    pads: Any = 0,
    dilations: Any = 1,
    group: int = 1,
) -> Value:
    """Return the convolution of images `x` with the weights `w`.

    Parameters
    ----------
    x : Value
        Of shape (batch, channels, …) with one to three spatial axes.
    w : Value or numpy.ndarray
        Of shape (channels out, channels / group, …), with the sizes of a window.
    b : Value or numpy.ndarray, optional
        Of shape (channels out,), added at the end.
    strides, dilations : int or tuple of int
        Steps between windows, and between the elements of one.
    pads : int or tuple of int
        Zeros around the image: one number, or those before each axis and then those after each.
    group : int
        The channels are cut into so many parts, each with weights of its own.

    Returns
    -------
    Value
        Of shape (batch, channels out, …).

    Raises
    ------
    GraphError
        For shapes or dtypes that do not fit, or a window larger than the padded image.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> x, w = np.float32([[[1, 2, 3, 4]]]), np.float32([[[1, 0, -1]]])
    >>> reference.apply(lambda x: ops.conv(x, w, pads=1), x)
    array([[[-2., -2., -2.,  3.]]], dtype=float32)
    """
    values = float_only("conv", *(v for v in (x, w, b) if v is not None))
    group = groups_of("conv", group)
    shape, weight = values[0].shape, values[1].shape
    check_axes("conv", shape, weight)
    windows = arranged("conv", shape[2:], weight[2:], strides, pads, dilations)
    attrs = {"windows": windows, "group": group, "bias": 2 if b is not None else None, **EPILOGUE}
    return node("conv", values, attrs).outputs[0]


@public("ONNX", "float")
def conv_transpose(
    x: Any,
    w: Any,
    b: Any = None,
    strides: Any = 1,
    pads: Any = 0,
    dilations: Any = 1,
    group: int = 1,
    output_padding: Any = 0,
) -> Value:
    """Return the transposed convolution of `x`: each of its elements adds a window to the result.

    Parameters
    ----------
    x : Value
        Of shape (batch, channels, …) with one to three spatial axes.
    w : Value or numpy.ndarray
        Of shape (channels, channels out / group, …), with the sizes of a window.
    b : Value or numpy.ndarray, optional
        Of shape (channels out,), added at the end.
    strides, dilations : int or tuple of int
        Steps between windows in the result, and between the elements of one.
    pads : int or tuple of int
        What is cut from the result: one number, or those before each axis and then those after
        each.
    group : int
        The channels are cut into so many parts, each with weights of its own.
    output_padding : int or tuple of int
        What the result is longer by, at its ends.

    Returns
    -------
    Value
        Of shape (batch, channels out, …), where a spatial axis has ``(n - 1) * stride + (k - 1) *
        dilation + 1 + output_padding - pads`` elements.

    Raises
    ------
    GraphError
        For shapes or dtypes that do not fit, or a result without elements.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> x, w = np.float32([[[1, 2, 3]]]), np.float32([[[1, 10]]])
    >>> reference.apply(lambda x: ops.conv_transpose(x, w, strides=2), x)
    array([[[ 1., 10.,  2., 20.,  3., 30.]]], dtype=float32)
    """
    op = "conv_transpose"
    values = float_only(op, *(v for v in (x, w, b) if v is not None))
    group = groups_of(op, group)
    image, weight = values[:2]
    check_axes(op, image.shape, weight.shape)
    batch, channels, *sizes = image.shape
    outs, kernel = weight.shape[1], weight.shape[2:]
    if weight.shape[0] != channels or channels % group:
        raise GraphError(
            f"{op}: x {image.shape} and w {weight.shape} do not fit: the first axis of w must be "
            f"the channels of x and divide into group={group}"
        )
    axes = len(sizes)
    strides = each_axis(op, "strides", strides, axes)
    dilations = each_axis(op, "dilations", dilations, axes)
    extra = each_axis(op, "output_padding", output_padding, axes, least=0)
    begins, ends = both_ends(op, pads, axes)
    results = tuple(
        (sizes[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 + extra[i]
        - begins[i] - ends[i]
        for i in range(axes)
    )  # fmt: skip
    if 0 in sizes or min(results) < 1:
        raise GraphError(f"{op}: the result would have the spatial sizes {results}; all must be 1+")
    windows = Windows(results, kernel, strides, dilations, begins, ends, tuple(sizes))
    rows = outs * prod(kernel)
    lead = (batch,) if group == 1 else (batch, group)
    held = reshape(image, (*lead, channels // group, prod(sizes)))
    turned = reshape(weight, (group, channels // group, rows)[group == 1 :])
    turned = transpose(turned, (1, 0) if group == 1 else (0, 2, 1))
    parts = reshape(matmul(turned, held), (batch, group * rows, prod(sizes)))
    return node("fold", [parts, *values[2:]], {"windows": windows}).outputs[0]
