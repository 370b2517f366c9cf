# cython: language_level=3
"""The record of a graph: nodes, edges and memories; no addresses, nothing that runs.

A record names every operand as (memory, byte offset). `instantiate` of a device module resolves it
against bindings; the same record can be bound as often as wanted.
"""

from typing import NamedTuple

from fastgraph._core.order import Order
from fastgraph.errors import GraphError, HazardError


class Memory(NamedTuple):
    """A place that operands name.

    ``kind`` is one of ``arena``, ``input``, ``output``, ``param``, ``constant``, ``scalars``,
    ``staging``, ``buffer``; ``nbytes`` is its size in bytes.
    """

    kind: str
    name: str
    nbytes: int


class Operand(NamedTuple):
    """``nbytes`` bytes from ``offset`` on in memory number ``memory``, read, written or both."""

    memory: int
    offset: int
    nbytes: int
    reads: bool
    writes: bool


class RecordNode(NamedTuple):
    """One node: the host kernel's name (None for an empty node), operands and constants.

    ``kind`` is ``function``, ``copy``, ``memset`` or ``empty``; ``parts`` is into how many slices
    the work may be cut; ``cost_ns`` is an estimate for one thread; ``label`` names the operator.
    """

    name: str
    kind: str
    kernel: str | None
    operands: tuple
    params: tuple
    parts: int
    cost_ns: float
    dependencies: tuple
    label: str
    keep: object


KINDS = frozenset(
    ("arena", "input", "output", "param", "constant", "scalars", "staging", "buffer"))


class Record:
    """A graph of nodes over memories. Grows by `add_memory` and `add_node`, then stays.

    Examples
    --------
    >>> from fastgraph._core.record import Operand, Record
    >>> record = Record()
    >>> x = record.add_memory("buffer", "x", 64)
    >>> record.add_node("set", "memset", "set_bytes", [Operand(x, 0, 64, False, True)], (64, 1, 7))
    0
    >>> record.edges()
    []
    """

    __slots__ = ("memories", "nodes")

    def __init__(self):
        self.memories = []
        self.nodes = []

    def add_memory(self, kind, name, nbytes):
        """Add a memory and return its number."""
        if kind not in KINDS:
            raise GraphError(f"{kind!r} is not a kind of memory; those are {sorted(KINDS)}")
        self.memories.append(Memory(kind, name, nbytes))
        return len(self.memories) - 1

    def add_node(self, name, kind, kernel, operands, params=(), parts=1, cost_ns=0.0,
                 dependencies=(), label="", keep=None):
        """Add a node and return its id.

        Parameters
        ----------
        name, kind, kernel, params, parts, cost_ns, label
            As `RecordNode` has them.
        operands : iterable of Operand
        dependencies : iterable of int
            Ids of earlier nodes; a node named twice counts once.
        keep : object
            Kept alive as long as the record.

        Returns
        -------
        int

        Raises
        ------
        GraphError
            An operand lies outside its memory, or a dependency is not an earlier node. Nothing
            was added.
        """
        operands = tuple(operands)
        for operand in operands:
            if not 0 <= operand.memory < len(self.memories):
                raise GraphError(f"node {name!r}: no memory has number {operand.memory}")
            memory = self.memories[operand.memory]
            if operand.offset < 0 or operand.offset + operand.nbytes > memory.nbytes:
                raise GraphError(
                    f"node {name!r}: bytes {operand.offset} to {operand.offset + operand.nbytes} "
                    f"lie outside {memory.kind} {memory.name!r} of {memory.nbytes} bytes")
        unique = tuple(dict.fromkeys(int(d) for d in dependencies))
        for d in unique:
            if not 0 <= d < len(self.nodes):
                raise GraphError(
                    f"node {name!r} depends on node {d}; the nodes so far are 0 to "
                    f"{len(self.nodes) - 1}")
        if not 1 <= parts <= 0xffff:
            raise GraphError(f"node {name!r}: {parts} parts; 1 to 65535 are possible")
        self.nodes.append(RecordNode(
            name, kind, kernel, operands, tuple(params), parts, cost_ns, unique, label, keep))
        return len(self.nodes) - 1

    def dependencies(self):
        """Return for each node the ids that it waits for."""
        return [node.dependencies for node in self.nodes]

    def edges(self):
        """Return all edges as (earlier, later) pairs of ids, in order of the later one."""
        return [(d, i) for i, node in enumerate(self.nodes) for d in node.dependencies]

    def check_hazards(self):
        """Raise HazardError if unordered nodes touch the same bytes and one of them writes.

        Raises
        ------
        HazardError
            Names both nodes and the memory.
        """
        order = Order(self.dependencies())
        if order.total:
            return
        frontiers = {}
        for i, node in enumerate(self.nodes):
            for operand in node.operands:
                if operand.nbytes:
                    frontier = frontiers.setdefault(operand.memory, ([], []))
                    self._meet(order, frontier, i, operand)

    def _meet(self, order, frontier, node, operand):
        """Check one access against the last ones of its memory, then let it replace some.

        Nodes come in topological order, so what `node` covers and follows needs no second look:
        a later node that conflicts with it conflicts with `node` too.
        """
        readers, writers = frontier
        start, stop = operand.offset, operand.offset + operand.nbytes
        # A read looks at no other read: many nodes may read one memory in no order.
        for others in (writers, readers) if operand.writes else (writers,):
            kept = []
            for access in others:
                other, low, high = access
                if other == node or high <= start or stop <= low:
                    kept.append(access)
                    continue
                ordered = order.before(other, node)
                if not ordered:
                    raise HazardError(
                        f"nodes {self.nodes[other].name!r} and {self.nodes[node].name!r} both "
                        f"touch bytes of {self.memories[operand.memory].name!r}, one of them "
                        "writes, and no edge orders them; add a dependency")
                if not (operand.writes and start <= low and high <= stop):
                    kept.append(access)
            others[:] = kept
        if operand.writes:
            writers.append((node, start, stop))
        if operand.reads:
            readers.append((node, start, stop))
