"""Padding, tiling, triangles, and norms over channels."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastgraph.ir import ops
from fastgraph.ir.graph import Value
from fastgraph.ir.types import FLOAT64, check_table, is_float
from fastgraph.onnx.registry import NodeError, OnnxNode, Operand, normal_axis, onnx_op

Array = np.ndarray[Any, Any]


@onnx_op("Pad", until=10)
def pad_2(node: OnnxNode, x: Value) -> Value:
    """The form with everything as attributes."""
    pads = node.get_ints("pads")
    if pads is None:
        raise NodeError("attribute 'pads' is missing")
    return _pad(node, x, pads, None, node.get_float("value", 0.0))


@onnx_op("Pad", since=11, static=(1, 3))
def pad(
    node: OnnxNode,
    x: Value,
    pads: Array,
    value: Value | None = None,
    axes: Array | None = None,
) -> Value:
    """Elements put before and behind, or taken away where a width is negative."""
    given = None if axes is None else tuple(int(axis) for axis in axes.reshape(-1))
    return _pad(node, x, tuple(int(width) for width in pads.reshape(-1)), given, value)


def _pad(
    node: OnnxNode,
    x: Value,
    pads: tuple[int, ...],
    axes: tuple[int, ...] | None,
    value: Value | float | None,
) -> Value:
    where = range(x.ndim) if axes is None else [normal_axis(axis, x.ndim) for axis in axes]
    if len(pads) != 2 * len(where):
        raise NodeError(f"{len(pads)} pads for {len(where)} axes; there must be two for each")
    widths, key = [(0, 0)] * x.ndim, [slice(None)] * x.ndim
    for i, axis in enumerate(where):
        before, after = pads[i], pads[len(where) + i]
        widths[axis] = max(before, 0), max(after, 0)
        dim = x.shape[axis]
        key[axis] = slice(max(-before, 0), dim - max(-after, 0))
    mode = node.get_string("mode", "constant")
    if mode != "constant":
        return ops.pad(x[tuple(key)], widths, mode)
    if value is None:
        value = 0
    elif isinstance(value, float) and not is_float(x.dtype):
        value = int(value)
    return ops.pad(x[tuple(key)], widths, constant_values=value)


@onnx_op("Tile", static=(1,))
def tile(node: OnnxNode, x: Value, repeats: Array) -> Value:
    """The input repeated along each axis."""
    times = tuple(int(count) for count in repeats.reshape(-1))
    if len(times) != x.ndim:
        raise NodeError(f"{len(times)} repeats for an input of {x.ndim} dimensions")
    return ops.tile(x, times)


@onnx_op("Trilu", since=14, static=(1,))
def trilu(node: OnnxNode, x: Value, k: Array | None = None) -> Value:
    """The upper or the lower triangle of the last two axes."""
    diagonal = 0 if k is None else int(k.reshape(-1)[0])
    return (ops.triu if node.flag("upper", True) else ops.tril)(x, diagonal)


@onnx_op("EyeLike", since=9, raw=True, shape_only=True)
def eye_like(node: OnnxNode, x: Operand) -> Operand:
    """Ones on a diagonal, in the shape of the input."""
    if len(x.shape) != 2:
        raise NodeError(f"takes a matrix, found shape {x.shape}")
    check_table(x.shape, FLOAT64, "eye_like")
    rows, columns = x.shape
    ones: Array = np.eye(rows, columns, node.get_int("k", 0))
    if node.has("dtype"):
        return node.convert(ones, node.get_int("dtype"))
    return ones.astype(x.dtype)


@onnx_op("InstanceNormalization")
def instance_norm(node: OnnxNode, x: Value, scale: Value, bias: Value) -> Value:
    """Each channel of each batch by itself."""
    if x.ndim < 2:
        raise NodeError(f"takes (batch, channels, …), found shape {x.shape}")
    eps = node.get_float("epsilon", 1e-5)
    return ops.group_norm(x, x.shape[1], scale, bias, eps=eps)


@onnx_op("GroupNormalization", since=18, until=20)
def group_norm_18(node: OnnxNode, x: Value, scale: Value, bias: Value) -> Value:
    """The form with one scale and bias for each group."""
    groups = node.get_int("num_groups")
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups:
        raise NodeError(f"shape {x.shape} does not divide into num_groups={groups} groups")
    each = x.shape[1] // groups

    def per_channel(value: Value) -> Value:
        whole = ops.broadcast_to(ops.reshape(value, (groups, 1)), (groups, each))
        return ops.reshape(whole, (x.shape[1],))

    with node.aside("channels"):
        scale, bias = per_channel(scale), per_channel(bias)
    return ops.group_norm(x, groups, scale, bias, eps=node.get_float("epsilon", 1e-5))


@onnx_op("GroupNormalization", since=21)
def group_norm(node: OnnxNode, x: Value, scale: Value, bias: Value) -> Value:
    """Channels normalised in groups."""
    if node.get_int("stash_type", 1) != 1:
        raise NodeError(f"computes in float32 (stash_type=1), not {node.get_int('stash_type', 1)}")
    groups, eps = node.get_int("num_groups"), node.get_float("epsilon", 1e-5)
    return ops.group_norm(x, groups, scale, bias, eps=eps)
