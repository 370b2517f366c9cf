"""Records of launches for one extent after another, and up to which extents a program is good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastgraph._core.record import Launch, Operand, Record, RecordNode
from fastgraph._core.sizes import ActiveSize, SizeTable
from fastgraph.ir.dims import Dim, follows
from fastgraph.ir.graph import Graph
from fastgraph.ir.ops.control import BODIES
from fastgraph.lower.cuda.call import KernelCode
from fastgraph.lower.cuda.given import Words
from fastgraph.lower.cuda.text import source

__all__ = ["SizedRecord", "bounds_of", "idle_code", "settle"]

Bounds = tuple[int, ...]

# Programs are made for extents up to these, a factor of four apart, so that tiles and parts suit
# them; below the first one products read their weights once and are done.
LEAST_BOUND = 16
STEP = 4
# So many records are kept, by their extents.
MOST_RECORDS = 64


def bounds_of(dims: Sequence[Dim], actual: Sequence[int]) -> Bounds:
    """Return up to which extents the program is made that runs `actual` ones; () for one row.

    Examples
    --------
    >>> dims = (("n", 4096),)
    >>> [bounds_of(dims, (n,)) for n in (1, 0, 16, 17, 1000, 1025)]
    [(), (16,), (16,), (64,), (1024,), (4096,)]
    """
    if all(n == 1 for n in actual):
        return ()
    found = []
    for (_, upper), n in zip(dims, actual, strict=True):
        bound = LEAST_BOUND
        while bound < n:
            bound *= STEP
        found.append(min(bound, upper))
    return tuple(found)


def settle(graph: Graph) -> None:
    """Let all sizes of a graph, in its bodies too, be the numbers that they are as ints."""
    graph.sized = False
    for node in graph.nodes:
        node.attrs = {name: _settled(attr) for name, attr in node.attrs.items()}
        for value in node.outputs:
            if follows(value.shape):
                value.shape = _settled(value.shape)
        for name in BODIES.get(node.op, ()):
            settle(node.attrs[name])


def _settled(found: Any) -> Any:
    if isinstance(found, ActiveSize):
        return int(found)
    if isinstance(found, tuple) and follows(found):
        parts = [_settled(one) for one in found]
        return type(found)(*parts) if hasattr(found, "_fields") else tuple(parts)
    return found


def idle_code() -> KernelCode:
    """Return the kernel that stands for those that have nothing to do."""
    text = "__global__ void idle() {\n  fg_trigger();\n  fg_wait();\n}\n"
    return KernelCode(source() + text, "idle", "idle")


class SizedRecord:
    """A record whose launches follow extents.

    Parameters
    ----------
    record : Record
    dims : tuple of (str, int)
        What they follow.
    idle : object
        The function of `idle_code`.
    """

    def __init__(self, record: Record, dims: tuple[Dim, ...], idle: Any) -> None:
        self._record = record
        self._table = SizeTable(dims)
        self._idle = Launch(idle, (1, 1, 1), (32, 1, 1), ())
        self._following = [
            (i, node) for i, node in enumerate(record.nodes) if self._find(node)
        ]  # all numbers are in the table from here on
        self._made: dict[tuple[int, ...], Record] = {}

    @property
    def n_following(self) -> int:
        """int: how many nodes are other ones for other extents."""
        return len(self._following)

    def at(self, actual: tuple[int, ...]) -> Record:
        """Return the record of runs with these extents."""
        if not self._following:
            return self._record
        found = self._made.get(actual)
        if found is None:
            values = self._table.work_out(actual)
            found = self._record.copy()
            for i, node in self._following:
                found.replace_node(i, self._worked_out(node, values))
            while len(self._made) >= MOST_RECORDS:
                self._made.pop(next(iter(self._made)), None)
            self._made[actual] = found
        return found

    def _find(self, node: RecordNode) -> bool:
        """Whether a node follows extents; its sizes become numbers of the table."""
        found = [self._find(inner) for body in node.bodies for inner in body]
        sizes = [size for op in node.operands for size in (op.offset, op.nbytes)]
        if isinstance(node.call, Launch):
            sizes += node.call.grid
            for kind, *rest in node.call.arguments:
                if kind == "sized":
                    sizes += rest[0].numbers
        for size in sizes:
            if isinstance(size, ActiveSize):
                self._table.number(size)
                found.append(True)
        return any(found)

    def _worked_out(self, node: RecordNode, values: tuple[int, ...]) -> RecordNode:
        def number(size: Any) -> Any:
            return values[self._table.number(size)] if isinstance(size, ActiveSize) else size

        bodies = tuple(
            [tuple([self._worked_out(inner, values) for inner in body]) for body in node.bodies]
        )
        operands = tuple([
            Operand(op.memory, number(op.offset), number(op.nbytes), op.reads, op.writes)
            for op in node.operands
        ])  # fmt: skip
        call = node.call
        if isinstance(call, Launch):
            grid = tuple([number(size) for size in call.grid])
            if 0 in grid:
                idle = self._idle._replace(programmatic=call.programmatic)
                return node._replace(operands=(), call=idle)
            arguments = [
                ("value", _packed(argument[1], number)) if argument[0] == "sized" else argument
                for argument in call.arguments
            ]
            call = call._replace(grid=grid, arguments=tuple(arguments))
        return node._replace(operands=operands, call=call, bodies=bodies)


def _packed(words: Words, number: Any) -> bytes:
    return words.packed([number(one) for one in words.numbers])
