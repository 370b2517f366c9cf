"""Where values lie: each value's root, the one value whose bytes it is, and the offset in it."""

from __future__ import annotations

from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.lower.call import Alias, Call, Temp, estimate
from fastgraph.lower.cpu.layout import choose_parts

__all__ = ["Lowered", "Roots", "nbytes_of"]

# A part of a copy is not less than this many bytes.
PAGE = 4096

Place = Value | Temp
Item = tuple[Node, Call]


def nbytes_of(place: Place) -> int:
    """Bytes of a value or of scratch."""
    if isinstance(place, Temp):
        return place.nbytes
    count = place.dtype.itemsize
    for size in place.shape:
        count *= size
    return count


class Roots:
    """Follows aliases: which bytes a value names."""

    def __init__(self) -> None:
        self._source: dict[Value, tuple[Value, int]] = {}

    def add(self, alias: Alias) -> None:
        """Note that ``alias.out`` is bytes of ``alias.source``."""
        root, offset = self.of(alias.source)
        assert isinstance(root, Value)
        self._source[alias.out] = (root, offset + alias.byte_offset)

    def of(self, place: Place) -> tuple[Place, int]:
        """Return the root of `place` and the byte offset in it."""
        if isinstance(place, Temp):
            return place, 0
        return self._source.get(place, (place, 0))


class Lowered:
    """Kernel calls of a graph, split into the set program and the run program.

    Attributes
    ----------
    set_calls, run_calls : list of (Node, Call)
        In the order in which they are done.
    roots : Roots
    outputs : list of (str, Value, Value or Temp)
        Name, value and root; the root is computed by the run program and belongs to no other one.
    """

    def __init__(self, graph: Graph, is_set: set[Node]) -> None:
        self.graph = graph
        self.is_set = is_set
        self.roots = Roots()
        self.set_calls: list[Item] = []
        self.run_calls: list[Item] = []
        self.outputs: list[tuple[str, Value, Place]] = []

    def add(self, node: Node, items: list[Call | Alias]) -> None:
        """Append the calls of one node."""
        calls = self.set_calls if node in self.is_set else self.run_calls
        for item in items:
            if isinstance(item, Alias):
                self.roots.add(item)
            else:
                calls.append((node, item))

    def claim_outputs(self, threads: int) -> None:
        """Give every output bytes of its own, by a copy where it shares them."""
        written = {self.roots.of(out)[0] for _, call in self.run_calls for out in call.outs}
        claimed: set[Place] = set()
        for name, value in self.graph.outputs:
            root, _ = self.roots.of(value)
            if root not in written or root in claimed or nbytes_of(root) != nbytes_of(value):
                size = nbytes_of(value)
                root = Temp(size, f"copy of {name}")
                cost = estimate(0, 2 * size)
                parts = choose_parts(cost, threads, max(size // PAGE, 1))
                call = Call("copy_bytes", (root,), (value,), [size], parts, cost, nbytes=2 * size)
                self.run_calls.append((value.node, call))
            claimed.add(root)
            self.outputs.append((name, value, root))
