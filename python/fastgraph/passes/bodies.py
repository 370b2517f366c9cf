"""Brings the bodies of conditionals into the vocabulary of lowerings.

What in them depends on parameters and constants alone goes to the graph around, and so to the set
program: a body reads its result like any other value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.ir.ops.control import BODIES, FIRST
from fastgraph.passes.rewrite import Rewriter

__all__ = ["run"]


class Done(Protocol):
    """A graph in the vocabulary of lowerings, and which of its nodes are the set program."""

    @property
    def graph(self) -> Graph:
        """The graph."""

    @property
    def is_set(self) -> set[Node]:
        """The set program."""


Optimise = Callable[[Graph], Done]
# What tells one computation from another.
Key = tuple[str, tuple[Value, ...], str]


def run(graph: Graph, optimise: Optimise) -> Graph:
    """Return `graph` with bodies as `optimise` leaves graphs, less what parameters decide alone."""
    if not any(node.op in BODIES for node in graph.nodes):
        return graph
    mover = Mover(graph, optimise)
    for node in graph.nodes:
        if node.op in BODIES:
            mover.emit(node)
        else:
            mover.keep(node)
    return mover.rewriter.finish()


class Mover:
    """The new graph, and what of it bodies may read instead of computing it again."""

    def __init__(self, graph: Graph, optimise: Optimise) -> None:
        self.rewriter = Rewriter(graph)
        self.optimise = optimise
        self.known: dict[Key, tuple[Value, ...]] = {}

    def keep(self, node: Node) -> None:
        """Keep a node of the graph; if it belongs to the set program, once for all like it."""
        if node.op in ("input", "param", "scalar"):
            self.rewriter.keep(node)
            return
        inputs = tuple(self.rewriter[value] for value in node.inputs)
        # Arrays are shared by graphs, so the same constant is the same object.
        attrs = str(id(node.attrs["value"])) if node.op == "constant" else repr(node.attrs)
        key = node.op, inputs, attrs
        if key in self.known:
            self.rewriter.replace(node, self.known[key])
            return
        twin = self.rewriter.keep(node)
        if self.rewriter.is_set(twin.outputs[0]):
            self.known[key] = twin.outputs

    def emit(self, node: Node) -> None:
        """Emit a node whose bodies are done."""
        first = FIRST[node.op]
        inputs = [self.rewriter[value] for value in node.inputs]
        operands = inputs[first:]
        carried = len(node.outputs) if node.op == "while_loop" else 0
        bodies = {key: self.split(node.attrs[key], operands, carried) for key in BODIES[node.op]}
        needed = list(dict.fromkeys(v for body in bodies.values() for v in body.reads()))
        attrs = {key: body.build(operands[:carried], needed) for key, body in bodies.items()}
        given = [*inputs[:first], *operands[:carried], *needed]
        found = self.rewriter.emit(node, node.op, given, attrs).node
        self.rewriter.replace(node, found.outputs)

    def split(self, body: Graph, operands: Sequence[Value], carried: int) -> Body:
        """Optimise a body, and move its set program out of it."""
        graph = Graph(body.name)
        values: dict[Value, Value] = {}
        outside: dict[str, Value] = {}
        for i, (inner, outer) in enumerate(zip(body.inputs, operands, strict=True)):
            graph.annotate(site=inner.node.site)
            if i >= carried and outer.node.op == "constant":
                values[inner] = graph.copy_node(outer.node, ()).outputs[0]
                continue
            is_set = i >= carried and self.rewriter.is_set(outer)
            name = graph.free_name(inner.name if i < carried else outer.label)
            values[inner] = declared(graph, "param" if is_set else "input", name, inner)
            outside[name] = outer
        graph.annotate()
        for node in body.nodes:
            if node.op != "input":
                twin = graph.copy_node(node, [values[value] for value in node.inputs])
                values.update(zip(node.outputs, twin.outputs, strict=True))
        graph.outputs = [(name, values[value]) for name, value in body.outputs]
        done = self.optimise(graph)
        outer_of: dict[Value, Value] = {}
        for value in (*done.graph.inputs[carried:], *done.graph.params):
            outer_of[value] = outside[value.name]
        self.rewriter.put_values(list(outer_of), list(outer_of.values()))
        for node in done.graph.nodes:
            if node.op == "constant" or node in done.is_set:
                self.keep(node)
                outer_of.update((value, self.rewriter[value]) for value in node.outputs)
        return Body(done.graph, outer_of, carried)


def declared(graph: Graph, op: str, name: str, like: Value) -> Value:
    """Declare an input or parameter of a body that stands for a value like this one."""
    value: Value = getattr(graph, op)(name, like.shape, like.dtype)
    # What callers give has an axis of rows; this is of the size of what it is given.
    value.shape = like.shape
    return value


class Body:
    """A body in which all is done but that others compute what it reads."""

    def __init__(self, graph: Graph, outside: dict[Value, Value], carried: int) -> None:
        self.graph = graph
        self.outside = outside
        self.carried = carried
        self.nodes = [n for n in graph.nodes if not n.is_leaf and n.outputs[0] not in outside]

    def reads(self) -> list[Value]:
        """Return what it reads of the graph around, aside from what is carried."""
        read = [value for node in self.nodes for value in node.inputs]
        read += [value for _, value in self.graph.outputs]
        return [self.outside[value] for value in dict.fromkeys(read) if value in self.outside]

    def build(self, carried: Sequence[Value], needed: Sequence[Value]) -> Graph:
        """Return the body with inputs for these values."""
        graph = Graph(self.graph.name)
        starts = self.graph.inputs[: self.carried]
        values = {
            inner: declared(graph, "input", inner.name, outer)
            for inner, outer in zip(starts, carried, strict=True)
        }
        places = {
            outer: declared(graph, "input", graph.free_name(outer.label), outer) for outer in needed
        }
        values.update((inner, places[v]) for inner, v in self.outside.items() if v in places)
        for node in self.nodes:
            twin = graph.copy_node(node, [values[value] for value in node.inputs])
            values.update(zip(node.outputs, twin.outputs, strict=True))
        graph.outputs = [(name, values[value]) for name, value in self.graph.outputs]
        return graph
