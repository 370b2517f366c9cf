"""Matrix products."""

from __future__ import annotations

from fastgraph.ir import ops
from fastgraph.ir.graph import Value
from fastgraph.ir.types import is_float
from fastgraph.onnx.registry import NodeError, OnnxNode, of_kind, onnx_op


@onnx_op("MatMul")
def matmul(node: OnnxNode, a: Value, b: Value) -> Value:
    """NumPy's matmul."""
    of_kind("fi", a, b)
    return ops.matmul(a, b)


@onnx_op("Gemm")
def gemm(node: OnnxNode, a: Value, b: Value, c: Value | None = None) -> Value:
    """``alpha * A @ B + beta * C`` with either matrix transposed."""
    of_kind("fi", a, b, *([] if c is None else [c]))
    for name, value in (("A", a), ("B", b)):
        if value.ndim != 2:
            raise NodeError(f"input {name} must have 2 dimensions, found shape {value.shape}")
    with node.aside("transpose"):
        a = ops.transpose(a) if node.flag("transA", False) else a
        b = ops.transpose(b) if node.flag("transB", False) else b
    y = ops.matmul(a, b)
    alpha, beta = node.get_float("alpha", 1.0), node.get_float("beta", 1.0)
    if not is_float(a.dtype) and (alpha != 1.0 or beta not in (0.0, 1.0)):
        raise NodeError(f"of integers takes alpha and beta of 1, found {alpha} and {beta}")
    if alpha != 1.0:
        y = ops.multiply(y, alpha)
    if c is None or beta == 0.0:
        return y
    if c.ndim > 2 or any(
        d not in (1, n) for d, n in zip(c.shape[::-1], y.shape[::-1], strict=False)
    ):
        raise NodeError(f"input C of shape {c.shape} does not broadcast to {y.shape}")
    if c.shape == (1, y.shape[1]):
        with node.aside("bias"):
            c = ops.reshape(c, (y.shape[1],))  # the form that fuses into the product
    return ops.add(y, c if beta == 1.0 else ops.multiply(c, beta))
