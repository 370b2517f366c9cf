"""Integers that stand for numbers: quantised and back, and their products."""

from __future__ import annotations

from typing import Any

from fastgraph.ir import ops
from fastgraph.ir.graph import Value
from fastgraph.ir.types import is_float
from fastgraph.onnx.proto import element_type_name
from fastgraph.onnx.registry import NodeError, OnnxNode, onnx_op


def _along(node: OnnxNode, x: Value, scale: Value) -> dict[str, Any]:
    """The arguments that say which elements share a scale."""
    size = node.get_int("block_size", 0)
    if scale.ndim > 1 and size == 0:
        raise NodeError("a scale of several axes needs the attribute 'block_size'")
    # Without an axis to go along the attribute means nothing, as its default may be out of range.
    alone = size == 0 and scale.shape in ((), (1,))
    return {"axis": 0 if alone else node.get_int("axis", 1), "block_size": size}


def _zero(zero_point: Value | None, scale: Value) -> Value | None:
    if zero_point is None or zero_point.shape == scale.shape or zero_point.size != scale.size:
        return zero_point
    return ops.reshape(zero_point, scale.shape)


def _output_dtype(node: OnnxNode) -> str | None:
    given = node.get_int("output_dtype", 0)
    return element_type_name(given) if given else None


@onnx_op("DequantizeLinear", since=10)
def dequantize_linear(
    node: OnnxNode, x: Value, scale: Value, zero_point: Value | None = None
) -> Value:
    """What the integers stand for."""
    found = ops.dequantize(x, scale, _zero(zero_point, scale), **_along(node, x, scale))
    wanted = _output_dtype(node)
    return found if wanted is None else ops.astype(found, wanted)


@onnx_op("QuantizeLinear", since=10)
def quantize_linear(
    node: OnnxNode, x: Value, scale: Value, zero_point: Value | None = None
) -> Value:
    """The nearest integers, cut at their limits."""
    if not is_float(x.dtype):
        x = ops.astype(x, scale.dtype)
    zero, wanted = _zero(zero_point, scale), _output_dtype(node)
    if zero is not None and wanted not in (None, zero.dtype.name):
        raise NodeError(f"output_dtype is {wanted}, but the zero point {zero.dtype.name}")
    return ops.quantize(x, scale, zero, **_along(node, x, scale), dtype=wanted or "uint8")


@onnx_op("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(node: OnnxNode, x: Value) -> tuple[Value, Value, Value]:
    """uint8 over the range of the input, which 0 is always within."""
    low, high = ops.minimum(ops.min(x), 0.0), ops.maximum(ops.max(x), 0.0)
    scale = (high - low) / 255.0
    zero = ops.astype(ops.round(0.0 - low / scale), "uint8")
    return ops.quantize(x, scale, zero), scale, zero


@onnx_op("MatMulInteger", since=10)
def matmul_integer(
    node: OnnxNode,
    a: Value,
    b: Value,
    a_zero_point: Value | None = None,
    b_zero_point: Value | None = None,
) -> Value:
    """The product as int32."""
    return ops.matmul(_moved(a, a_zero_point, rows=True), _moved(b, b_zero_point, rows=False))


def _moved(x: Value, zero: Value | None, rows: bool) -> Value:
    wide = ops.astype(x, "int32")
    if zero is None:
        return wide
    if zero.ndim == 1 and zero.size > 1 and rows:
        zero = ops.expand_dims(zero, -1)  # one for each row
    return wide - ops.astype(zero, "int32")
