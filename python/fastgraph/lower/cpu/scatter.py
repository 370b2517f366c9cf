"""Rows put to places that a run computes, on the cpu."""

from __future__ import annotations

from math import prod

from fastgraph.ir.graph import Node
from fastgraph.lower.call import Alias, Call
from fastgraph.lower.cpu.halves import in_float32
from fastgraph.lower.cpu.kinds import kernel_kind
from fastgraph.lower.cpu.layout import choose_parts, memory_ns
from fastgraph.lower.cpu.registry import Target, lowers

__all__ = ["lower_scatter"]

# The numbers of enum Join in src/_core/kernels/scatter.cpp.
_JOINS = {"add": 0, "multiply": 1, "maximum": 2, "minimum": 3}
# What looking at an index costs a part, and what acting on it costs once.
_LOOK_NS, _PUT_NS = 1.0, 4.0


@lowers("scatter")
def lower_scatter(node: Node, target: Target) -> list[Call | Alias]:
    """Lower scatter; where rows only move, by their bytes."""
    return (scatter if node.attrs["reduction"] == "none" else in_float32(scatter))(node, target)


def scatter(node: Node, target: Target) -> list[Call | Alias]:
    """Lower to one call. Parts are ranges of rows, so that equal indices act in order."""
    (x, indices, updates), (out,) = node.inputs, node.outputs
    if prod(out.shape) == 0 and prod(indices.shape) == 0:
        return []
    rows, width = x.shape[0], x.shape[1] * x.dtype.itemsize
    (count,) = indices.shape
    reduction = node.attrs["reduction"]
    words = [rows, width, count]
    name = "scatter"
    if reduction != "none":
        name = f"scatter_{kernel_kind(node, x)}"
        words.append(_JOINS[reduction])
    nbytes = 2 * rows * width + 2 * count * width + count * 8
    cost_ns = 10.0 + memory_ns(nbytes) + count * (_LOOK_NS + _PUT_NS)
    # Every part looks at all indices: more parts only where there is other work for them.
    parts = choose_parts(cost_ns, target.threads, max(rows, 1))
    parts = min(parts, max(1, 2 * target.threads))
    return [
        Call(name, (out,), (x, indices, updates), words, parts, cost_ns,
             inplace=((0, 0),), nbytes=nbytes)
    ]  # fmt: skip
