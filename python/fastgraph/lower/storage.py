"""Where values lie: each value's root, the one value whose bytes it is, and the offset in it."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.lower.call import Alias, Call, Temp

__all__ = ["Item", "Lowered", "Output", "Place", "Roots", "Seam", "nbytes_of"]

Place = Value | Temp


class Seam(NamedTuple):
    """What stands for the operator of a call that belongs to none."""

    name: str
    op: str
    shape: tuple[int, ...]
    site: str = ""


# Calls of all devices have the same fields where they are planned.
Item = tuple[Node | Seam, Any]


def nbytes_of(place: Place) -> int:
    """Bytes of a value or of scratch."""
    if isinstance(place, Temp):
        return place.nbytes
    return prod(place.shape, start=place.dtype.itemsize)


class Roots:
    """Follows aliases: which bytes a value names."""

    def __init__(self) -> None:
        self._source: dict[Place, tuple[Place, int]] = {}

    def copy(self) -> Roots:
        """Return the same; what is added to one is not added to the other."""
        other = Roots()
        other._source = dict(self._source)
        return other

    def add(self, alias: Alias) -> None:
        """Note that ``alias.out`` is bytes of ``alias.source``."""
        root, offset = self.of(alias.source)
        self.put(alias.out, root, offset + alias.byte_offset)

    def put(self, value: Value, root: Place, offset: int) -> None:
        """Note that `value`, and all that is a view of it, is bytes of `root`, which is no view."""
        self._source[value] = (root, offset)
        for other, (source, inner) in self._source.items():
            if source is value:
                self._source[other] = (root, offset + inner)

    def of(self, place: Place) -> tuple[Place, int]:
        """Return the root of `place` and the byte offset in it."""
        return self._source.get(place) or (place, 0)


class Output(NamedTuple):
    """Name, value, and the root that is computed by the run program and belongs to no other one."""

    name: str
    value: Value
    root: Place


class Lowered:
    """Kernel calls of a graph, split into the set program and the run program.

    Attributes
    ----------
    set_calls, run_calls : list of (Node or Seam, call)
        In an order in which they can be done.
    roots : Roots
    inputs : list of Value or Temp
        What the caller's array is, for each input of the graph: the input, or a place that a call
        reads to fill it.
    scalars : list of Value or Temp
        The same for scalars.
    outputs : list of Output
    kept : list of (int, Value or Temp)
        What lies in the handle of an input, by that input's number.
    reads : dict of Value to int
        How many bytes of an input a run reads from its beginning on, where these are all.
    wholes : list of tuple of int
        The shapes of the outputs' memory, where what is written of it follows extents.
    """

    def __init__(self, graph: Graph, is_set: set[Node]) -> None:
        self.graph = graph
        self.is_set = is_set
        self.roots = Roots()
        self.set_calls: list[Item] = []
        self.run_calls: list[Item] = []
        self.inputs: list[Place] = list(graph.inputs)
        self.scalars: list[Place] = list(graph.scalars)
        self.outputs: list[Output] = []
        self.kept: list[tuple[int, Place]] = []
        self.reads: dict[Value, int] = {}
        self.wholes: list[tuple[int, ...]] = []

    def copy(self) -> Lowered:
        """Return the same calls; what is added to one is not added to the other."""
        other = Lowered(self.graph, self.is_set)
        other.roots = self.roots.copy()
        other.set_calls = list(self.set_calls)
        other.run_calls = list(self.run_calls)
        other.inputs = list(self.inputs)
        other.scalars = list(self.scalars)
        other.outputs = list(self.outputs)
        other.kept = list(self.kept)
        other.reads, other.wholes = self.reads, self.wholes
        return other

    def add(self, node: Node, items: list[Any]) -> None:
        """Append the calls of one node."""
        calls = self.set_calls if node in self.is_set else self.run_calls
        for item in items:
            if isinstance(item, Alias):
                self.roots.add(item)
            elif (
                isinstance(item, Call)
                and item.early
                and all(self._is_set(place) for place in item.ins)
            ):
                self.set_calls.append((node, item))
            else:
                calls.append((node, item))

    def _is_set(self, place: Place) -> bool:
        """Whether a place depends on parameters and constants alone."""
        # What a body reads of the graph around it is bytes of that one's values.
        place, _ = self.roots.of(place)
        if isinstance(place, Temp):
            return False
        return place.node in self.is_set or place.node.op in ("param", "constant")
