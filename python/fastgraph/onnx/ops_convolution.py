"""Convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastgraph.ir import ops
from fastgraph.ir.graph import Value
from fastgraph.ir.types import Shape
from fastgraph.onnx.registry import NodeError, OnnxNode, of_kind, onnx_op

_AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


@onnx_op("Conv")
def conv(node: OnnxNode, x: Value, w: Value, b: Value | None = None) -> Value:
    """A convolution of one to three axes."""
    of_kind("f", x, w, *([] if b is None else [b]))
    options = _options(node, x, _kernel(node, x, w.shape[2:]))
    return ops.conv(x, w, b, group=node.get_int("group", 1), **options)


@onnx_op("ConvTranspose")
def conv_transpose(node: OnnxNode, x: Value, w: Value, b: Value | None = None) -> Value:
    """A transposed convolution, whose result may be given instead of its padding."""
    of_kind("f", x, w, *([] if b is None else [b]))
    kernel = _kernel(node, x, w.shape[2:])
    strides, dilations = _each(node, "strides", kernel), _each(node, "dilations", kernel)
    extra = _each(node, "output_padding", kernel, 0)
    auto = _auto_pad(node)
    sizes = list(zip(x.shape[2:], kernel, strides, dilations, extra, strict=True))
    full = [s * (n - 1) + e + (k - 1) * d + 1 for n, k, s, d, e in sizes]
    wanted = node.get_ints("output_shape")
    if wanted is None and auto.startswith("SAME"):
        wanted = tuple(n * s for n, _, s, _, _ in sizes)
    if wanted is None:
        pads = _pads(node, kernel)
    else:
        if len(wanted) != len(kernel):
            raise NodeError(f"output_shape must have {len(kernel)} sizes, found {wanted}")
        cut = [f - o for f, o in zip(full, wanted, strict=True)]
        # What is longer than all windows together is longer at its end.
        extra = tuple(e + max(-c, 0) for e, c in zip(extra, cut, strict=True))
        pads = _shared([max(c, 0) for c in cut], at_end=auto == "SAME_UPPER")
    return ops.conv_transpose(
        x, w, b, strides, pads, dilations, node.get_int("group", 1), output_padding=extra
    )


@onnx_op("MaxPool")
def max_pool(node: OnnxNode, x: Value) -> Value:
    """The largest element of each window."""
    of_kind("fi", x)
    kernel = _kernel(node, x, None)
    ceil = node.flag("ceil_mode", False)
    return ops.max_pool(x, kernel, ceil_mode=ceil, **_options(node, x, kernel))


@onnx_op("AveragePool")
def average_pool(node: OnnxNode, x: Value) -> Value:
    """The mean of each window."""
    of_kind("f", x)
    kernel = _kernel(node, x, None)
    flags = {name: node.flag(name, False) for name in ("ceil_mode", "count_include_pad")}
    return ops.average_pool(x, kernel, **flags, **_options(node, x, kernel))


@onnx_op("GlobalAveragePool")
def global_average_pool(node: OnnxNode, x: Value) -> Value:
    """The mean of each channel."""
    of_kind("f", x)
    return ops.mean(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@onnx_op("GlobalMaxPool")
def global_max_pool(node: OnnxNode, x: Value) -> Value:
    """The largest element of each channel."""
    of_kind("fi", x)
    return ops.max(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@onnx_op("BatchNormalization")
def batch_normalization(
    node: OnnxNode, x: Value, scale: Value, b: Value, mean: Value, var: Value
) -> Value:
    """Each channel by statistics that are known, not by those of the batch."""
    of_kind("f", x, scale, b, mean, var)
    if node.flag("training_mode", False):
        raise NodeError("training_mode is 1, but models are run and not trained here")
    if node.get_int("spatial", 1) != 1:
        raise NodeError("spatial is 0; statistics of channels alone are supported")
    if x.ndim < 2 or any(v.shape != (x.shape[1],) for v in (scale, b, mean, var)):
        raise NodeError(f"x {x.shape} and its statistics {scale.shape} do not fit")
    column = (x.shape[1], *(1 for _ in x.shape[2:]))
    with node.aside("statistics"):
        spread = ops.sqrt(ops.add(var, node.get_float("epsilon", 1e-5)))
        factor = ops.divide(scale, ops.astype(spread, scale.dtype))
        shift = ops.subtract(b, ops.multiply(ops.astype(mean, factor.dtype), factor))
        factor, shift = (ops.astype(ops.reshape(v, column), x.dtype) for v in (factor, shift))
    return ops.add(ops.multiply(x, factor), shift)


def _kernel(node: OnnxNode, x: Value, found: Shape | None) -> Shape:
    """The sizes of a window: those of the weight, or else of the attribute."""
    given = node.get_ints("kernel_shape")
    if found is None and given is None:
        raise NodeError("attribute 'kernel_shape' is missing")
    kernel = found if given is None else given
    assert kernel is not None
    if (found is not None and kernel != found) or len(kernel) != x.ndim - 2:
        raise NodeError(
            f"kernel_shape {kernel} does not fit x {x.shape}"
            + (f" and w with windows of {found}" if found is not None else "")
        )
    return kernel


def _each(node: OnnxNode, name: str, kernel: Shape, default: int = 1) -> Shape:
    """An attribute with a number for each axis."""
    found = node.get_ints(name)
    if found is None:
        return (default,) * len(kernel)
    if len(found) != len(kernel):
        raise NodeError(f"attribute '{name}' must have {len(kernel)} numbers, found {found}")
    return found


def _auto_pad(node: OnnxNode) -> str:
    found = node.get_string("auto_pad", "NOTSET")
    if found not in _AUTO_PADS:
        raise NodeError(f"auto_pad must be one of {', '.join(_AUTO_PADS)}, found '{found}'")
    return found


def _pads(node: OnnxNode, kernel: Shape) -> Shape:
    found = node.get_ints("pads")
    if found is None or _auto_pad(node) == "VALID":
        return (0,) * (2 * len(kernel))
    if len(found) != 2 * len(kernel):
        raise NodeError(f"attribute 'pads' must have {2 * len(kernel)} numbers, found {found}")
    return found


def _shared(total: Sequence[int], *, at_end: bool) -> Shape:
    """Padding shared out before and after; of an odd number the larger part comes last or first."""
    small, large = [t // 2 for t in total], [t - t // 2 for t in total]
    return (*small, *large) if at_end else (*large, *small)


def _options(node: OnnxNode, x: Value, kernel: Shape) -> dict[str, Any]:
    """The strides, dilations and pads of windows."""
    strides, dilations = _each(node, "strides", kernel), _each(node, "dilations", kernel)
    auto = _auto_pad(node)
    if auto.startswith("SAME"):
        total = []
        for n, k, s, d in zip(x.shape[2:], kernel, strides, dilations, strict=True):
            count = -(-n // s) if s > 0 else 0
            total.append(max((count - 1) * s + (k - 1) * d + 1 - n, 0))
        pads = _shared(total, at_end=auto == "SAME_UPPER")
    else:
        pads = _pads(node, kernel)
    return {"strides": strides, "pads": pads, "dilations": dilations}
