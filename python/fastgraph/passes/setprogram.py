"""Packs the weights of products, once, where they depend on parameters and constants alone.

What depends on those alone is the set program: it runs when the last parameter has been set, never
in a run.
"""

from __future__ import annotations

from math import prod

from fastgraph._core.sizes import activated
from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.ir.opdef import Attrs
from fastgraph.ir.types import FLOAT32, is_half
from fastgraph.passes.rewrite import Rewriter

__all__ = ["run", "turn"]

# Products of at most so many rows read their weights once and are done: there the layout counts.
# Tensor cores take half floats along K in any case: products of 32 to 4,096 rows were measured at
# 0.86 to 1 of what they take upon [K, N]; float32 ones of so many at 1.01 to 1.18.
FEW_ROWS = 16
# Bytes that are read at once.
PIECE = 16


def turn(graph: Graph) -> Graph:
    """Return `graph` with weights [K, N] of half floats, and of products of few rows, as [N, K].

    One column's weights then lie side by side, so that a product needs no second step to add up
    what different parts of a GPU have read.
    """
    rewriter = Rewriter(graph)
    turned: dict[Value, Value] = {}
    for node in graph.nodes:
        if not (_may_turn(node) and rewriter.is_set(rewriter[node.inputs[1]])):
            rewriter.keep(node)
            continue
        weight = rewriter[node.inputs[1]]
        if weight not in turned:
            turned[weight] = rewriter.emit(weight.node, "transpose", [weight], {"axes": (1, 0)})
        replace(rewriter, node, turned[weight], {"transpose_b": True})
    return rewriter.finish()


def _may_turn(node: Node) -> bool:
    if node.op != "fused_matmul":
        return False
    x, weight = node.inputs[:2]
    attrs = node.attrs
    # As many as there can be: a program for extents has the weights of the model's own.
    rows = activated(prod(x.shape[:-1]), ())
    return (
        not (attrs["packed"] or attrs["transpose_a"] or attrs["transpose_b"])
        and weight.ndim == 2
        and (is_half(weight.dtype) or (weight.dtype == FLOAT32 and rows <= FEW_ROWS))
        and rows > 0
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
            alone = rewriter.is_set(weight) and not node.attrs["transpose_a"]
            if is_float32_or_half(weight) and weight.ndim == 2 and alone:
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
    replace(rewriter, node, packs[key], {"packed": True, "transpose_b": False})


def is_float32_or_half(weight: Value) -> bool:
    """Whether products of this dtype have kernels that care how the weight lies."""
    return weight.dtype == FLOAT32 or is_half(weight.dtype)


def replace(rewriter: Rewriter, node: Node, weight: Value, attrs: Attrs) -> None:
    """Emit the product upon another form of its weight, which `attrs` tell of."""
    inputs = [rewriter[node.inputs[0]], weight, *(rewriter[v] for v in node.inputs[2:])]
    found = rewriter.emit(node, "fused_matmul", inputs, {**node.attrs, **attrs})
    rewriter.replace(node, [found])
