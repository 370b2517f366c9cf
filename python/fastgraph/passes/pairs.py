"""Puts rows of two arrays with the same numbers in one node, for a GPU: the keys and the values."""

from __future__ import annotations

from fastgraph.ir.graph import Graph, Node
from fastgraph.passes.rewrite import Rewriter, in_order, set_nodes

__all__ = ["run"]


def run(graph: Graph) -> Graph:
    """Return `graph` with scatters of the same numbers two by two."""
    is_set = set_nodes(graph.nodes)
    number = {node: i for i, node in enumerate(graph.nodes)}
    open_ones: dict[object, Node] = {}
    partner: dict[Node, Node] = {}
    for node in graph.nodes:
        if node.op != "scatter" or node in is_set:
            continue
        x, indices, _ = node.inputs
        key = indices, x.shape, x.dtype, node.attrs["reduction"]
        first = open_ones.pop(key, None)
        if first is None or depends(node, first, number):
            open_ones[key] = node
        else:
            partner[first], partner[node] = node, first
    first_of = {one: min(one, other, key=number.__getitem__) for one, other in partner.items()}
    # Two pairs may each need one of the other first.
    order = in_order(graph, first_of) if partner else None
    if order is None:
        return graph
    rewriter = Rewriter(graph)
    for node in order:
        other = partner.get(node)
        if other is None:
            rewriter.keep(node)
            continue
        inputs = [rewriter[value] for value in (*node.inputs, other.inputs[0], other.inputs[2])]
        outputs = rewriter.emit(node, "scatter_pair", inputs, dict(node.attrs)).node.outputs
        rewriter.replace(node, outputs[:1])
        rewriter.replace(other, outputs[1:])
    return rewriter.finish()


def depends(node: Node, earlier: Node, number: dict[Node, int]) -> bool:
    """Whether `node` reads, by whatever way, what `earlier` gives."""
    seen: set[Node] = set()
    ahead = [value.node for value in node.inputs]
    while ahead:
        one = ahead.pop()
        if one is earlier:
            return True
        if one not in seen and number[one] > number[earlier]:
            seen.add(one)
            ahead += [value.node for value in one.inputs]
    return False
