"""Removes nodes that no output depends on; declared inputs, parameters and scalars stay."""

from __future__ import annotations

from fastgraph.ir.graph import Graph, Node
from fastgraph.passes.rewrite import Rewriter

__all__ = ["run"]


def run(graph: Graph) -> Graph:
    """Return `graph` without the nodes that no output depends on.

    Itself where there are none, and where it is spent.
    """
    live: set[Node] = {value.node for _, value in graph.outputs}
    for node in reversed(graph.nodes):
        if node in live:
            for value in node.inputs:
                live.add(value.node)
    live.update(value.node for value in (*graph.inputs, *graph.params, *graph.scalars))
    gone = [node for node in graph.nodes if node not in live]
    if graph.spent:
        graph.drop(gone)
    if graph.spent or not gone:
        return graph
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if node in live:
            rewriter.keep(node)
    return rewriter.finish()
