"""Removes nodes that no output depends on; declared inputs, parameters and scalars stay."""

from __future__ import annotations

from fastgraph.ir.graph import Graph, Node
from fastgraph.passes.rewrite import Rewriter

__all__ = ["run"]


def run(graph: Graph) -> Graph:
    """Return `graph` without the nodes that no output depends on; itself where there are none."""
    live: set[Node] = {value.node for _, value in graph.outputs}
    for node in reversed(graph.nodes):
        if node in live:
            live.update(value.node for value in node.inputs)
    if all(node in live or node.op in ("input", "param", "scalar") for node in graph.nodes):
        return graph
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if node in live:
            rewriter.keep(node)
    return rewriter.finish()
