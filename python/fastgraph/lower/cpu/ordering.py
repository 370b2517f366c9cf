"""Running sums and the largest elements on the cpu."""

from __future__ import annotations

from math import ceil, log2, prod

from fastgraph.ir.graph import Node
from fastgraph.lower.call import Alias, Call
from fastgraph.lower.cpu.halves import in_float32
from fastgraph.lower.cpu.kinds import kernel_kind
from fastgraph.lower.cpu.layout import choose_parts
from fastgraph.lower.cpu.registry import Target, lowers
from fastgraph.lower.taps import indices_of

__all__ = ["lower_cumulative_sum", "lower_top_k"]

# Columns of a unit, as in the kernel.
_COLUMNS = 64


@lowers("cumulative_sum")
@in_float32
def lower_cumulative_sum(node: Node, target: Target) -> list[Call | Alias]:
    """Lower running sums: lines along the axis are independent."""
    (source,), (out,) = node.inputs, node.outputs
    kind = kernel_kind(node, source, ("f32", "f64", "i64", "u64"))
    elements = prod(out.shape)
    if elements == 0:
        return []
    attrs, axis = node.attrs, node.attrs["axis"]
    outer, inner = prod(out.shape[:axis]), prod(out.shape[axis + 1 :])
    words = [outer, out.shape[axis], inner, int(attrs["exclusive"]), int(attrs["reverse"])]
    nbytes = 2 * elements * out.dtype.itemsize
    cost_ns = 10.0 + elements * (1.0 if inner == 1 else 0.3)
    parts = choose_parts(cost_ns, target.threads, outer * ceil(inner / _COLUMNS))
    return [
        Call(f"cumulative_sum_{kind}", (out,), (source,), words, parts, cost_ns,
             inplace=((0, 0),), flops=elements, nbytes=nbytes)
    ]  # fmt: skip


@lowers("top_k")
@in_float32
def lower_top_k(node: Node, target: Target) -> list[Call | Alias]:
    """Lower the choice of the first k: one heap a line."""
    (source,), (values, indices) = node.inputs, node.outputs
    kind = kernel_kind(node, source)
    if prod(values.shape) == 0:
        return []
    axis, k = node.attrs["axis"], node.attrs["k"]
    outer, inner = prod(source.shape[:axis]), prod(source.shape[axis + 1 :])
    n = source.shape[axis]
    words = [outer, n, inner, k, int(node.attrs["largest"])]
    # Most elements only meet the root of the heap.
    cost_ns = 10.0 + outer * inner * (n * 1.2 + k * (4.0 + 4.0 * log2(k + 1)))
    parts = choose_parts(cost_ns, target.threads, outer * inner)
    nbytes = prod(source.shape) * source.dtype.itemsize
    nbytes += prod(values.shape) * (values.dtype.itemsize + 8)
    ins = (source, indices_of(node))
    return [Call(f"top_k_{kind}", (values, indices), ins, words, parts, cost_ns, nbytes=nbytes)]
