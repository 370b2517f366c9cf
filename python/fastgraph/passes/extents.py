"""A graph for extents: inferred anew with dimensions that runs make smaller.

Every value then has the shape that it has in the graph written for that extent, as a form of it.
Inputs keep the shapes that callers give; what is read of them is their active part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from fastgraph._core.sizes import ActiveSize, Size, activated, dims_of, may_be_negative, same_form
from fastgraph.errors import GraphError, UnsupportedError
from fastgraph.ir.collector import paused
from fastgraph.ir.dims import Dim, follows
from fastgraph.ir.graph import Graph, Node, Value

__all__ = ["Guard", "Source", "resized", "settled"]


@dataclass(frozen=True)
class Source:
    """A graph as it was when it was compiled, and what in it follows dimensions.

    Attributes
    ----------
    graph : Graph
        With sizes that are ints and nothing else, and without values of parameters.
    attrs : dict of Node to dict
        Attributes of nodes of it that follow dimensions.
    shapes : list of tuple of int
        The shapes of its inputs.
    """

    graph: Graph
    attrs: dict[Node, dict[str, Any]]
    shapes: list[tuple[int, ...]]

    @staticmethod
    @paused
    def of(graph: Graph) -> Source:
        """Return what `graph` is now; one that is spent is not copied."""
        shapes = [value.shape for value in graph.inputs]
        found, attrs = graph if graph.spent else graph.copy(), {}
        found.spent = False
        for node in found.nodes:
            if "initial" in node.attrs:
                node.attrs = {k: attr for k, attr in node.attrs.items() if k != "initial"}
            if any(follows(attr) for attr in node.attrs.values()):
                attrs[node] = node.attrs
                node.attrs = {name: number_of(attr, ()) for name, attr in node.attrs.items()}
            for value in node.outputs:
                value.shape = tuple(map(int, value.shape))
        return Source(found, attrs, shapes)

    @property
    def dims(self) -> set[Dim]:
        """set of (str, int): the dimensions of the inputs, by name and size."""
        return {dim for shape in self.shapes for n in shape for dim in dims_of(n)}

    def live(self) -> set[Node]:
        """Return the nodes that an output depends on."""
        live = {value.node for _, value in self.graph.outputs}
        for node in reversed(self.graph.nodes):
            if node in live:
                live.update(value.node for value in node.inputs)
        return live


class Guard(NamedTuple):
    """What an extent must not do: make `size` negative, unless `unless` is 0 or less."""

    size: int
    unless: int
    message: str


def number_of(found: Any, active: Collection[Dim]) -> Any:
    """Return a size, or a tuple with sizes, that follows the `active` dimensions alone."""
    if isinstance(found, Size):
        return activated(found, active)
    if isinstance(found, tuple) and follows(found):
        parts = [number_of(one, active) for one in found]
        return type(found)(*parts) if hasattr(found, "_fields") else tuple(parts)
    return found


def resized(source: Source, active: Collection[Dim]) -> tuple[Graph, list[Guard]]:
    """Return a graph whose sizes follow the `active` dimensions, and what they must not do.

    Parameters
    ----------
    source : Source
    active : collection of (str, int)
        As `activated` takes it.

    Raises
    ------
    UnsupportedError
        A node cannot be of another size; it is named.
    """
    graph = Graph(source.graph.name)
    graph.sized = True
    guards: list[Guard] = []
    places: dict[Value, Value] = {}
    live = source.live()
    shapes = dict(zip(source.graph.inputs, source.shapes, strict=True))
    for node in source.graph.nodes:
        if node.op == "constant" and node not in live:
            continue
        if node.is_leaf:
            (value,) = graph.copy_node(node, []).outputs
            sizes = number_of(shapes.get(node.outputs[0], ()), active)
            places[node.outputs[0]] = cut(value, sizes) if follows(sizes) else value
        elif node in live:
            refuse_numbers(source, node, active)
            attrs = source.attrs.get(node, node.attrs)
            attrs = {name: number_of(attr, active) for name, attr in attrs.items()}
            if source.graph.imported and node.op in NUMBERED:
                attrs["shape"] = NUMBERED[node.op](places[node.inputs[0]].shape, attrs["shape"])
            graph.annotate(node.name, node.site)
            try:
                twin = graph.add_node(node.op, [places[value] for value in node.inputs], attrs)
            except GraphError as error:
                raise refusal(node, str(error)) from None
            places.update(zip(node.outputs, twin.outputs, strict=True))
            guards += guards_of(twin)
    graph.annotate()
    graph.outputs = [(name, places[value]) for name, value in source.graph.outputs]
    return graph, guards


def regrouped(shape: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    """Return `wanted` with sizes that follow what they hold of `shape`, where one alone can.

    Files tell shapes in numbers. Axes that hold the same elements in both shapes belong together;
    where one of `shape` follows a dimension and one number of `wanted` can take it, it does.

    >>> from fastgraph._core.sizes import activated, dimension, same_form
    >>> n = activated(dimension("n", 64), [("n", 64)])
    >>> found = regrouped((2, n, 384), (128, 12, 32))
    >>> same_form(found[0], 2 * n), found[1:]
    (True, (12, 32))
    """
    if same_form(prod(shape), prod(wanted)):
        return wanted
    wanted = tuple(int(n) for n in wanted)
    found: list[int] = []
    i = 0
    while i < len(shape) and len(found) < len(wanted):
        here, there = [shape[i]], [wanted[len(found)]]
        while int(prod(here)) != prod(there):
            behind = int(prod(here)) < prod(there)
            rest = shape[i + len(here) :] if behind else wanted[len(found) + len(there) :]
            if not rest:
                return wanted
            (here if behind else there).append(rest[0])
        found += fitted(prod(here), there)
        i += len(here)
    return (*found, *wanted[len(found) :])


def stretched(shape: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    """Return `wanted` with the sizes of axes of `shape` that are not repeated."""
    rest = len(wanted) - len(shape)
    kept = [
        size if isinstance(size, Size) and int(size) == number else number
        for size, number in zip(shape, wanted[rest:], strict=True)
    ]
    return (*wanted[:rest], *kept)


NUMBERED = {"reshape": regrouped, "broadcast_to": stretched}
"""Operators of which files tell the shape in numbers."""


def fitted(elements: int, sizes: list[int]) -> list[int]:
    """Return sizes with the one that can take so many elements beside the others."""
    if not isinstance(elements, Size):
        return sizes
    fits = []
    for i, size in enumerate(sizes):
        others = prod(sizes[:i]) * prod(sizes[i + 1 :])
        if size != 1 and same_form(elements // others * others, elements):
            fits.append((i, elements // others))
    if len(fits) != 1:
        return sizes
    ((i, size),) = fits
    return [*sizes[:i], size, *sizes[i + 1 :]]


def cut(value: Value, sizes: tuple[int, ...]) -> Value:
    """Return the active part of an input."""
    graph, rank = value.graph, len(sizes)
    graph.annotate(f"{value.name}.active", value.node.site)
    attrs = {"starts": (0,) * rank, "sizes": sizes, "steps": (1,) * rank}
    return graph.add_node("slice", [value], attrs).outputs[0]


def refuse_numbers(source: Source, node: Node, active: Collection[Dim]) -> None:
    """Raise where a constant of the node was worked out from a size that may now be another."""
    for value in node.inputs:
        if follows(number_of(source.attrs.get(value.node, {}).get("made_of", ()), active)):
            raise refusal(node, f"{value.label} was worked out from a size and stays what it is")


def refusal(node: Node, why: str) -> UnsupportedError:
    """Return the error that names a node which cannot follow."""
    return UnsupportedError(
        f"{node.name} ({node.op}, {node.site}) cannot follow the active extent: {why}"
    )


def guards_of(node: Node) -> Iterable[Guard]:
    """Return what an extent must not do to a node, where that is not the same for all."""

    def guard(size: int, why: str, unless: int = 1) -> None:
        # What is never negative needs no look.
        if isinstance(size, Size) or size < 0:
            found.append(Guard(size, unless, f"{node.name} ({node.op}, {node.site}) {why}"))

    found: list[Guard] = []
    for value in node.outputs:
        for axis, n in enumerate(value.shape):
            if isinstance(n, Size) and may_be_negative(n):
                guard(n, f"would have an axis {axis} of less than 0")
    shape = node.inputs[0].shape if node.inputs else ()
    if node.op == "slice":
        bounds = zip(*(node.attrs[name] for name in ("starts", "sizes", "steps")), strict=True)
        for axis, (n, (start, size, step)) in enumerate(zip(shape, bounds, strict=True)):
            if not follows((n, start, size)) or (start == 0 and size == n):
                continue
            last = start + (size - 1) * step
            for place in (start, last):
                guard(n - 1 - place, f"takes elements beyond the end of axis {axis}", size)
                guard(place, f"takes elements before axis {axis}", size)
    elif node.op in ("max", "min", "argmax", "argmin"):
        for axis in node.attrs["axis"]:
            if follows((shape[axis],)):
                guard(shape[axis] - 1, f"chooses among no elements of axis {axis}")
    elif node.op == "top_k":
        n = shape[node.attrs["axis"]]
        if follows((n,)):
            guard(n - node.attrs["k"], f"wants the first {node.attrs['k']} of fewer elements")
    elif node.op == "recurrence":
        if follows(shape[:1]):
            guard(shape[0] - 1, "has no steps")
    elif node.op == "take":
        n = shape[node.attrs["axis"]]
        if follows((n,)):
            guard(n - 1, f"takes from axis {node.attrs['axis']}, which has no elements")
    return found


def settled(graph: Graph) -> Graph:
    """Return `graph`, but for its bodies, with sizes of extents that are ints and nothing else."""
    found = graph.copy()
    found.sized = False
    for node in found.nodes:
        node.attrs = {name: _settled(attr) for name, attr in node.attrs.items()}
        for value in node.outputs:
            if follows(value.shape):
                value.shape = _settled(value.shape)
    return found


def _settled(found: Any) -> Any:
    if isinstance(found, ActiveSize):
        return int(found)
    if isinstance(found, tuple) and follows(found):
        parts = [_settled(one) for one in found]
        return type(found)(*parts) if hasattr(found, "_fields") else tuple(parts)
    return found
