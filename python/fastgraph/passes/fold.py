"""Replaces what depends on constants alone by its result."""

from __future__ import annotations

import numpy as np

from fastgraph.errors import InputError
from fastgraph.ir.graph import Graph, Node
from fastgraph.ir.ops.registry import OPS
from fastgraph.passes.rewrite import Rewriter

__all__ = ["MAX_FOLDED_BYTES", "run"]

MAX_FOLDED_BYTES = 1 << 20
"""Larger results are left to the set program, which computes them once, on the device."""


def run(graph: Graph) -> Graph:
    """Return `graph` with nodes upon constants computed, up to a size, by the reference."""
    if not any(is_foldable(node, [value.node for value in node.inputs]) for node in graph.nodes):
        return graph
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if not folded(rewriter, node):
            rewriter.keep(node)
    return rewriter.finish()


def folded(rewriter: Rewriter, node: Node) -> bool:
    """Replace `node` by constants where that can be, and say whether it was."""
    inputs = [rewriter[value] for value in node.inputs]
    if not is_foldable(node, [value.node for value in inputs]):
        return False
    try:
        arrays = OPS[node.op].reference([v.node.attrs["value"] for v in inputs], node.attrs)
    except InputError:
        return False  # A data fault belongs to the run, which reports it.
    rewriter.replace(node, [rewriter.constant(node, np.asarray(array)) for array in arrays])
    return True


def is_foldable(node: Node, producers: list[Node]) -> bool:
    """Whether `node` takes constants alone from `producers`, and gives few enough bytes."""
    if node.is_leaf or any(producer.op != "constant" for producer in producers):
        return False
    return sum(value.nbytes for value in node.outputs) <= MAX_FOLDED_BYTES
