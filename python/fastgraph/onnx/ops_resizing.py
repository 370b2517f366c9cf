"""Images of other sizes, and of other blocks of channels."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastgraph.ir import ops
from fastgraph.ir.graph import Value
from fastgraph.onnx.registry import NodeError, OnnxNode, normal_axis, onnx_op

Array = np.ndarray[Any, Any]


@onnx_op("Upsample", static=(1,), until=9)
def upsample(node: OnnxNode, x: Value, scales: Array | None = None) -> Value:
    """The first operator for it: scales alone, from the first elements on."""
    if scales is None:
        given = node.attributes.get("scales")
        if not isinstance(given, list):
            raise NodeError("attribute 'scales' is missing")
        scales = np.asarray(given)
    mode = node.get_string("mode", "nearest")
    return _scaled(x, scales, mode)


@onnx_op("Resize", static=(1,), until=10)
def resize_10(node: OnnxNode, x: Value, scales: Array) -> Value:
    """Like Upsample, and smaller too."""
    return _scaled(x, scales, node.get_string("mode", "nearest"))


@onnx_op("DepthToSpace")
def depth_to_space(node: OnnxNode, x: Value) -> Value:
    """Blocks of channels become blocks of positions."""
    size = node.get_int("blocksize")
    if x.ndim != 4 or size < 1 or x.shape[1] % size**2:
        raise NodeError(f"x {x.shape} has no channels for blocks of {size} by {size}")
    batch, channels, height, width = x.shape
    rest = channels // size**2
    if _block_first(node):
        apart, order = (batch, size, size, rest, height, width), (0, 3, 4, 1, 5, 2)
    else:
        apart, order = (batch, rest, size, size, height, width), (0, 1, 4, 2, 5, 3)
    turned = ops.transpose(ops.reshape(x, apart), order)
    return ops.reshape(turned, (batch, rest, height * size, width * size))


@onnx_op("SpaceToDepth")
def space_to_depth(node: OnnxNode, x: Value) -> Value:
    """Blocks of positions become blocks of channels."""
    size = node.get_int("blocksize")
    if x.ndim != 4 or size < 1 or x.shape[2] % size or x.shape[3] % size:
        raise NodeError(f"x {x.shape} does not divide into blocks of {size} by {size}")
    batch, channels, height, width = x.shape
    rows, columns = height // size, width // size
    apart = ops.reshape(x, (batch, channels, rows, size, columns, size))
    turned = ops.transpose(apart, (0, 3, 5, 1, 2, 4) if _block_first(node) else (0, 1, 3, 5, 2, 4))
    return ops.reshape(turned, (batch, channels * size**2, rows, columns))


def _block_first(node: OnnxNode) -> bool:
    """Whether the places of a block come before the other channels."""
    mode = node.get_string("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise NodeError(f"mode must be DCR or CRD, found '{mode}'")
    return mode == "DCR"


def _scaled(x: Value, scales: Array, mode: str) -> Value:
    return ops.resize(
        x,
        scales=_numbers(scales),
        mode=mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


@onnx_op("Resize", static=(1, 2, 3), since=11)
def resize(
    node: OnnxNode,
    x: Value,
    roi: Array | None = None,
    scales: Array | None = None,
    sizes: Array | None = None,
) -> Value:
    """By scales or sizes, of all axes or of some."""
    axes = node.get_ints("axes")
    axes = tuple(range(x.ndim)) if axes is None else tuple(normal_axis(a, x.ndim) for a in axes)
    # In older models an input that is not given is an empty tensor.
    scales, sizes = (None if one is None or not one.size else one for one in (scales, sizes))
    where = node.get_string("coordinate_transformation_mode", "half_pixel")
    options: dict[str, Any] = {
        "mode": node.get_string("mode", "nearest"),
        "coordinate_transformation_mode": where,
        "nearest_mode": node.get_string("nearest_mode", "round_prefer_floor"),
        "antialias": node.flag("antialias", False),
        "exclude_outside": node.flag("exclude_outside", False),
        "cubic_coeff_a": node.get_float("cubic_coeff_a", -0.75),
        "extrapolation_value": node.get_float("extrapolation_value", 0.0),
        "roi": None if roi is None or not roi.size else _numbers(roi),
        "axis": axes,
    }
    policy = node.get_string("keep_aspect_ratio_policy", "stretch")
    if sizes is None:
        if scales is None:
            raise NodeError("has neither scales nor sizes")
        return ops.resize(x, scales=_numbers(scales), **options)
    wanted = [int(size) for size in sizes.reshape(-1)]
    if policy != "stretch":
        wanted = _kept(policy, wanted, [x.shape[axis] for axis in axes])
    return ops.resize(x, sizes=wanted, **options)


def _kept(policy: str, wanted: list[int], sizes: list[int]) -> list[int]:
    """Sizes of one scale for all axes, that of the smallest or largest change."""
    if policy not in ("not_larger", "not_smaller") or len(wanted) != len(sizes) or 0 in sizes:
        raise NodeError(f"keep_aspect_ratio_policy '{policy}' does not fit sizes {wanted}")
    ratios = [new / old for new, old in zip(wanted, sizes, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [int(np.floor(scale * size + 0.5)) for size in sizes]


def _numbers(array: Array) -> list[float]:
    return [float(one) for one in array.reshape(-1)]
