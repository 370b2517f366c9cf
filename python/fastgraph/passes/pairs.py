"""Puts rows of two arrays with the same numbers in one node, for a GPU: the keys and the values."""

from __future__ import annotations

import heapq

from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.passes.rewrite import Rewriter, readers_of, set_nodes

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
    order = in_order(graph, partner, number)
    # Two pairs may each need one of the other first.
    if not partner or 2 * len(order) < 2 * len(graph.nodes) - len(partner):
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


def in_order(graph: Graph, partner: dict[Node, Node], number: dict[Node, int]) -> list[Node]:
    """Return the nodes, the first of each pair for both, each after what it reads."""
    readers = readers_of(graph)

    def one_of(node: Node) -> Node:
        other = partner.get(node)
        return node if other is None or number[node] < number[other] else other

    def inputs_of(node: Node) -> list[Value]:
        return [*node.inputs, *(partner[node].inputs if node in partner else ())]

    def outputs_of(node: Node) -> list[Value]:
        return [*node.outputs, *(partner[node].outputs if node in partner else ())]

    missing = {node: len(inputs_of(node)) for node in graph.nodes if one_of(node) is node}
    ready = [number[node] for node, count in missing.items() if not count]
    heapq.heapify(ready)
    found = []
    while ready:
        node = graph.nodes[heapq.heappop(ready)]
        found.append(node)
        for value in outputs_of(node):
            for reader in readers.get(value, ()):
                one = one_of(reader)
                missing[one] -= 1
                if not missing[one]:
                    heapq.heappush(ready, number[one])
    return found
