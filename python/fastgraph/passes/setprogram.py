"""Packs the weights of products, once, where they depend on parameters and constants alone.

What depends on those alone is the set program: it runs when the last parameter has been set, never
in a run.
"""

from __future__ import annotations

from math import prod

from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.ir.types import FLOAT32, is_half
from fastgraph.passes.rewrite import Rewriter

__all__ = ["run", "turn"]

# Products of at most so many rows read their weights once and are done: there the layout counts.
FEW_ROWS = 16
TURNED = frozenset(("float16", "bfloat16", "float32"))
# Bytes that are read at once.
PIECE = 16


def turn(graph: Graph) -> Graph:
    """Return `graph` with weights [K, N] of products of few rows turned to [N, K].

    One column's weights then lie side by side, so that a product needs no second step to add up
    what different parts of a GPU have read.
    """
    rewriter = Rewriter(graph)
    turned: dict[Value, Value] = {}
    for node in graph.nodes:
        if node.op != "fused_matmul" or not _may_turn(node):
            rewriter.keep(node)
            continue
        weight = rewriter[node.inputs[1]]
        if not rewriter.is_set(weight):
            rewriter.keep(node)
            continue
        if weight not in turned:
            turned[weight] = rewriter.emit(weight.node, "transpose", [weight], {"axes": (1, 0)})
        inputs = [rewriter[node.inputs[0]], turned[weight], *(rewriter[v] for v in node.inputs[2:])]
        attrs = {**node.attrs, "transpose_b": True}
        rewriter.replace(node, [rewriter.emit(node, "fused_matmul", inputs, attrs)])
    return rewriter.finish()


def _may_turn(node: Node) -> bool:
    x, weight = node.inputs[:2]
    attrs = node.attrs
    return (
        not (attrs["packed"] or attrs["transpose_a"] or attrs["transpose_b"])
        and weight.ndim == 2
        and weight.dtype.name in TURNED
        and 1 <= prod(x.shape[:-1]) <= FEW_ROWS
        and attrs["k"] * weight.dtype.itemsize % PIECE == 0
    )


def run(graph: Graph) -> Graph:
    """Return `graph` with ``pack_weight`` before each product whose weight can be set."""
    if not any(node.op == "fused_matmul" for node in graph.nodes):
        return graph
    rewriter = Rewriter(graph)
    packs: dict[tuple[Value, bool], Value] = {}
    for node in graph.nodes:
        if node.op == "fused_matmul" and not node.attrs["packed"]:
            weight = rewriter[node.inputs[1]]
            packable = weight.dtype == FLOAT32 or is_half(weight.dtype)
            alone = rewriter.is_set(weight) and not node.attrs["transpose_a"]
            if packable and weight.ndim == 2 and alone:
                pack(rewriter, node, weight, packs)
                continue
        rewriter.keep(node)
    return rewriter.finish()


def pack(
    rewriter: Rewriter, node: Node, weight: Value, packs: dict[tuple[Value, bool], Value]
) -> None:
    """Emit the product upon the packed `weight`, which products share."""
    key = weight, node.attrs["transpose_b"]
    sizes = {"k": node.attrs["k"], "n": node.attrs["n"]}
    if key not in packs:
        attrs = {**sizes, "transposed": node.attrs["transpose_b"]}
        packs[key] = rewriter.emit(weight.node, "pack_weight", [weight], attrs)
    inputs = [rewriter[node.inputs[0]], packs[key], *(rewriter[v] for v in node.inputs[2:])]
    attrs = {**node.attrs, "packed": True, "transpose_b": False}
    rewriter.replace(node, [rewriter.emit(node, "fused_matmul", inputs, attrs)])
