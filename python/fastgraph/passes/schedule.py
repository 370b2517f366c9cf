"""Orders the nodes so that few bytes are live at once.

Three orders are tried (as written, depth first, and greedy) and the one with the lowest peak is
taken, so the result is never worse than what was written, and always the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise

from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.passes.rewrite import Rewriter, set_nodes

__all__ = ["peak_bytes", "run"]


def run(graph: Graph) -> Graph:
    """Return `graph` with leaves first, then the set program, then the run in the best order.

    It is returned itself where it is so already.
    """
    is_set = set_nodes(graph.nodes)
    leaves = [node for node in graph.nodes if node.is_leaf]
    order = list(leaves)
    for part in (True, False):
        nodes = [n for n in graph.nodes if not n.is_leaf and (n in is_set) == part]
        order += best_order(graph, nodes)
    if order == graph.nodes:
        return graph
    rewriter = Rewriter(graph)
    for node in order:
        rewriter.keep(node)
    return rewriter.finish()


def best_order(graph: Graph, nodes: list[Node]) -> list[Node]:
    """Return `nodes` in the order of the three with the lowest peak."""
    if all(a in [value.node for value in b.inputs] for a, b in pairwise(nodes)):
        return nodes  # Each reads the one before: there is no other order.
    live = Liveness(graph, nodes)
    orders = [nodes, depth_first(nodes)]
    orders.append(greedy(nodes, live))
    return min(orders, key=live.peak)  # The first of equals.


def peak_bytes(graph: Graph) -> int:
    """Return the largest sum of bytes that the run's values hold at once, outputs throughout.

    Inputs, parameters and what the set program makes are not counted: they have their own memory.
    """
    is_set = set_nodes(graph.nodes)
    nodes = [node for node in graph.nodes if not node.is_leaf and node not in is_set]
    return Liveness(graph, nodes).peak(nodes)


class Liveness:
    """Which buffers the nodes make and read; a reshape's result is the buffer of its operand."""

    def __init__(self, graph: Graph, nodes: Sequence[Node]) -> None:
        self._buffer: dict[Value, Value] = {}
        self.made: dict[Node, list[Value]] = {}
        self.read: dict[Node, list[Value]] = {}
        self.readers: dict[Value, int] = {}
        for node in nodes:
            self.read[node] = list(
                dict.fromkeys(self._buffer[v] for v in node.inputs if v in self._buffer)
            )
            for buffer in self.read[node]:
                self.readers[buffer] += 1
            self.made[node] = []
            for value in node.outputs:
                if node.op == "reshape" and node.inputs[0] in self._buffer:
                    self._buffer[value] = self._buffer[node.inputs[0]]
                elif node.op != "reshape":
                    self._buffer[value] = value
                    self.readers[value] = 0
                    self.made[node].append(value)
        # Outputs are live throughout, so they neither come nor go.
        kept = {self._buffer[v] for _, v in graph.outputs if v in self._buffer}
        self._base = sum(int(value.nbytes) for value in kept)
        self._nbytes = {v: 0 if v in kept else int(v.nbytes) for v in self.readers}

    def nbytes(self, buffer: Value) -> int:
        """Return the bytes that come and go with `buffer`."""
        return self._nbytes[buffer]

    def peak(self, order: Sequence[Node]) -> int:
        """Return the largest number of bytes live at once in this order."""
        left = dict(self.readers)
        live = peak = self._base
        for node in order:
            live += sum(self._nbytes[buffer] for buffer in self.made[node])
            peak = max(peak, live)
            for buffer in self.read[node]:
                left[buffer] -= 1
                if not left[buffer]:
                    live -= self._nbytes[buffer]
            live -= sum(self._nbytes[buffer] for buffer in self.made[node] if not left[buffer])
        return peak


def depth_first(nodes: list[Node]) -> list[Node]:
    """Return `nodes` as a walk from the last ones up finds them, the first operand first."""
    inside = set(nodes)
    read = {value.node for node in nodes for value in node.inputs}
    met: set[Node] = set()
    order: list[Node] = []
    for end in nodes:
        stack = [] if end in read else [(end, False)]
        while stack:
            node, finished = stack.pop()
            if finished:
                order.append(node)
            elif node not in met:
                met.add(node)
                stack.append((node, True))
                stack += [
                    (value.node, False)
                    for value in reversed(node.inputs)
                    if value.node in inside and value.node not in met
                ]
    return order


def greedy(nodes: list[Node], live: Liveness) -> list[Node]:
    """Return `nodes` so that each step adds the fewest bytes, or frees the most."""
    place = {node: i for i, node in enumerate(nodes)}
    waiting = {node: len({v.node for v in node.inputs if v.node in place}) for node in nodes}
    followers: dict[Node, list[Node]] = {node: [] for node in nodes}
    readers: dict[Value, list[Node]] = {}
    for node in nodes:
        for before in {value.node for value in node.inputs if value.node in place}:
            followers[before].append(node)
        for buffer in live.read[node]:
            readers.setdefault(buffer, []).append(node)
    left = dict(live.readers)
    heap: list[tuple[int, int]] = []
    order: list[Node] = []
    done: set[Node] = set()

    def push(node: Node) -> None:
        gone = sum(live.nbytes(buffer) for buffer in live.read[node] if left[buffer] == 1)
        made = sum(live.nbytes(buffer) for buffer in live.made[node])
        heapq.heappush(heap, (made - gone, place[node]))

    for node in nodes:
        if not waiting[node]:
            push(node)
    while heap:
        node = nodes[heapq.heappop(heap)[1]]
        if node in done:  # An entry from before it became the last reader of something.
            continue
        done.add(node)
        order.append(node)
        for buffer in live.read[node]:
            left[buffer] -= 1
            if left[buffer] == 1:
                for last in readers[buffer]:
                    if last not in done and not waiting[last]:
                        push(last)
        for follower in followers[node]:
            waiting[follower] -= 1
            if not waiting[follower]:
                push(follower)
    return order
