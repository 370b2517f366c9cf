"""How passes make a new graph from one that they leave as it is, unless it is spent."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fastgraph.ir.dims import follows
from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.ir.ops.control import BODIES
from fastgraph.ir.types import Spec

__all__ = [
    "IN_RUN",
    "Rewriter",
    "constant_of",
    "in_order",
    "is_sized",
    "readers_of",
    "set_first",
    "set_nodes",
    "use_counts",
]

PREPARING = frozenset(
    {"reshape", "transpose", "slice", "broadcast_to", "concat", "pack_weight", "patches"}
)

# What is done in a run whatever it depends on: the set program has no branches, and what others'
# kernels do is known to them alone.
IN_RUN = frozenset((*BODIES, "kernel"))


def set_nodes(nodes: Iterable[Node]) -> set[Node]:
    """Return the nodes, leaves included, that depend on parameters and constants alone."""
    found: set[Node] = set()
    for node in nodes:
        if depends_on_set_alone(node, found):
            found.add(node)
    return found


def depends_on_set_alone(node: Node, found: set[Node]) -> bool:
    """Whether `node` belongs with `found`, the set nodes among those before it."""
    if node.is_leaf:
        return node.op in ("param", "constant")
    if node.op in IN_RUN or not found.issuperset([value.node for value in node.inputs]):
        return False
    return not is_sized(node)


def is_sized(node: Node) -> bool:
    """Whether what `node` does depends on an extent, which may be another in each run."""
    return node.graph.sized and (
        any(follows(value.shape) for value in (*node.outputs, *node.inputs))
        or any(follows(attr) for attr in node.attrs.values())
    )


def use_counts(graph: Graph) -> dict[Value, int]:
    """Return how often each value is read; being an output counts as a reading."""
    counts: dict[Value, int] = {}
    for node in graph.nodes:
        for value in node.inputs:
            counts[value] = counts.get(value, 0) + 1
    for _, value in graph.outputs:
        counts[value] = counts.get(value, 0) + 1
    return counts


def readers_of(graph: Graph) -> dict[Value, list[Node]]:
    """Return the nodes that read each value, once per reading."""
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            readers.setdefault(value, []).append(node)
    return readers


def in_order(graph: Graph, first: Mapping[Node, Node]) -> list[Node] | None:
    """Return the nodes in an order in which some of them are done together.

    Parameters
    ----------
    graph : Graph
    first : mapping of Node to Node
        Of each node that is done with others, the one that stands for all of them.

    Returns
    -------
    list of Node or None
        Each after all that is read by those done with it; None where two groups need each other.
    """
    readers = readers_of(graph)
    number = {node: i for i, node in enumerate(graph.nodes)}
    groups: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        groups.setdefault(first.get(node, node), []).append(node)
    inside = {
        node: {value for one in group for value in one.outputs} for node, group in groups.items()
    }
    missing = {
        node: sum(value not in inside[node] for one in group for value in one.inputs)
        for node, group in groups.items()
    }
    ready = [number[node] for node, count in missing.items() if not count]
    heapq.heapify(ready)
    found = []
    while ready:
        node = graph.nodes[heapq.heappop(ready)]
        found.append(node)
        for one in groups[node]:
            for value in one.outputs:
                for reader in readers.get(value, ()):
                    other = first.get(reader, reader)
                    if other is node:
                        continue
                    missing[other] -= 1
                    if not missing[other]:
                        heapq.heappush(ready, number[other])
    return found if len(found) == len(groups) else None


def set_first(graph: Graph, is_set: set[Node]) -> list[Node]:
    """Return the nodes with leaves first, then the set program: a topological order as well."""
    leaves = [node for node in graph.nodes if node.is_leaf]
    early = [node for node in graph.nodes if node in is_set and not node.is_leaf]
    late = [node for node in graph.nodes if node not in is_set and not node.is_leaf]
    return leaves + early + late


def constant_of(value: Value) -> Any:
    """Return the number that `value` is, or None unless it is a constant of one element."""
    if value.node.op != "constant" or value.size != 1:
        return None
    return value.node.attrs["value"].reshape(()).item()


class Rewriter:
    """A new graph in the making, and where the values of the old one are in it.

    The declared inputs, parameters and scalars are there from the start, in their order, so that
    no pass can lose one.
    """

    def __init__(self, source: Graph) -> None:
        self.source = source
        self.graph = Graph(source.name)
        self.graph.sized = source.sized
        self._values: dict[Value, Value] = {}
        self._set: set[Node] = set()
        self._looked_at = 0
        for value in (*source.inputs, *source.params, *source.scalars):
            self._keep(value.node)

    def __getitem__(self, value: Value) -> Value:
        """Return where the old `value` is in the new graph; one that is there is itself."""
        return value if value.node.graph is self.graph else self._values[value]

    def keep(self, node: Node) -> Node:
        """Copy the old `node` upon the new places of its inputs; once only for a declared leaf."""
        if node.op in ("input", "param", "scalar"):
            return self[node.outputs[0]].node
        return self._keep(node)

    def emit(
        self,
        like: Node,
        op: str,
        inputs: Sequence[Value],
        attrs: dict[str, Any] | None = None,
        specs: Sequence[Spec] | None = None,
    ) -> Value:
        """Append a node upon new values, named after the old node `like`; return its first output.

        What only prepares or shapes operands is named ``matmul_3.reshape``, so that the node that
        does the work keeps the name which the user knows.
        """
        aside = op in PREPARING and op != like.op
        self.graph.annotate(f"{like.name}.{op}" if aside else like.name, like.site)
        return self.graph.add_node(op, inputs, attrs, specs).outputs[0]

    def constant(self, like: Node, array: np.ndarray[Any, Any]) -> Value:
        """Append a constant named after the old node `like`."""
        self.graph.annotate(like.name, like.site)
        return self.graph.constant(array)

    def replace(self, node: Node, values: Sequence[Value]) -> None:
        """Say that the new `values` stand for the outputs of the old `node`."""
        self.put_values(node.outputs, values)

    def replace_value(self, old: Value, new: Value) -> None:
        """Say that the new value stands for the old one."""
        self._values[old] = new

    def put_values(self, old: Sequence[Value], new: Sequence[Value]) -> None:
        """Say that the new values stand for the old ones."""
        self._values.update(zip(old, new, strict=True))

    def is_set(self, value: Value) -> bool:
        """Whether the new `value` depends on parameters and constants alone."""
        # Few passes ask, so nodes are looked at when one does.
        for node in self.graph.nodes[self._looked_at :]:
            if depends_on_set_alone(node, self._set):
                self._set.add(node)
        self._looked_at = len(self.graph.nodes)
        return value.node in self._set

    def finish(self) -> Graph:
        """Give the new graph the old one's outputs, and return it."""
        self.graph.annotate()
        self.graph.outputs = [(name, self[value]) for name, value in self.source.outputs]
        return self.graph

    def _keep(self, node: Node) -> Node:
        graph, values = self.graph, self._values
        inputs = [v if v.node.graph is graph else values[v] for v in node.inputs]
        if self.source.spent and node.graph is self.source:
            graph.take_node(node, inputs)
            return node
        twin = graph.copy_node(node, inputs)
        values.update(zip(node.outputs, twin.outputs, strict=True))
        return twin
