"""Rotary embeddings on the cpu."""

from __future__ import annotations

from math import prod

from fastgraph.ir.graph import Node
from fastgraph.lower.call import Alias, Call
from fastgraph.lower.cpu.halves import in_float32
from fastgraph.lower.cpu.kinds import kernel_kind
from fastgraph.lower.cpu.layout import choose_parts, memory_ns
from fastgraph.lower.cpu.registry import Target, lowers

__all__ = ["lower_rotary_embedding"]


@lowers("rotary_embedding")
@in_float32
def lower_rotary_embedding(node: Node, target: Target) -> list[Call | Alias]:
    """Lower rotations: one row is a head of a position."""
    (x, cos, sin, *rest), (out,) = node.inputs, node.outputs
    kind = kernel_kind(node, x, ("f32", "f64"))
    if prod(out.shape) == 0:
        return []
    attrs, half = node.attrs, node.attrs["length"] // 2
    index = position_batch = angle_batch = 0
    angles = cos.shape[-2]
    if rest:
        (positions,) = rest
        index = positions.dtype.itemsize
        position_batch = positions.shape[1] if positions.shape[0] > 1 else 0
    elif cos.shape[0] > 1:
        angle_batch = angles * half
    words = [*x.shape, half, int(attrs["interleaved"]), int(attrs["rows_first"])]
    words += [angle_batch, index, position_batch, angles]
    rows, elements = prod(x.shape[:3]), prod(x.shape)
    nbytes = 2 * elements * x.dtype.itemsize
    cost_ns = 10.0 + 4.0 * rows + elements * 0.15 + memory_ns(nbytes)
    parts = choose_parts(cost_ns, target.threads, rows)
    return [
        Call(f"rotary_embedding_{kind}", (out,), (x, cos, sin, *rest), words, parts, cost_ns,
             inplace=((0, 0),), flops=3 * elements, nbytes=nbytes)
    ]  # fmt: skip
