"""Records of launches for one extent after another, and up to which extents a program is good."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack
from typing import Any, NamedTuple

from fastgraph._core.record import Launch, Operand, Record, RecordNode
from fastgraph._core.sizes import ActiveSize, SizeTable
from fastgraph.ir.dims import Dim
from fastgraph.lower.cuda.call import KernelCode
from fastgraph.lower.cuda.given import Words
from fastgraph.lower.cuda.text import source

__all__ = ["SizedRecord", "bounds_of", "idle_code"]

Bounds = tuple[int, ...]

# Programs are made for extents up to these and, beyond, a factor of four apart, so that tiles and
# parts suit them: of few rows products have kernels that read their weights once.
FEW = (4, 8, 16)
STEP = 4
# So many records are kept, by their extents.
MOST_RECORDS = 64


def bounds_of(dims: Sequence[Dim], actual: Sequence[int]) -> Bounds:
    """Return up to which extents the program is made that runs `actual` ones; () for one row.

    Examples
    --------
    >>> dims = (("n", 4096),)
    >>> [bounds_of(dims, (n,)) for n in (1, 0, 16, 17, 1000, 1025)]
    [(), (4,), (16,), (64,), (1024,), (4096,)]
    """
    if all(n == 1 for n in actual):
        return ()
    found = []
    for (_, upper), n in zip(dims, actual, strict=True):
        bound = next((few for few in FEW if few >= n), FEW[-1])
        while bound < n:
            bound *= STEP
        found.append(min(bound, upper))
    return tuple(found)


def idle_code() -> KernelCode:
    """Return the kernel that stands for those that have nothing to do."""
    text = "__global__ void idle() {\n  fg_trigger();\n  fg_wait();\n}\n"
    return KernelCode(source() + text, "idle", "idle")


# A number of the table of sizes, or less than 0 and a number of its own.
Number = tuple[int, Any]


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
        self._idle = idle
        self._following = [
            (i, following)
            for i, node in enumerate(record.nodes)
            if (following := self._following_of(node)) is not None
        ]
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
            for i, following in self._following:
                found.replace_node(i, following.at(values))
            if len(self._made) >= MOST_RECORDS:
                self._made.clear()
            self._made[actual] = found
        return found

    def _following_of(self, node: RecordNode) -> _Following | None:
        """What makes the node of an extent; None where it is the same for all."""
        places = tuple([self._number(op.offset) for op in node.operands])
        moves = any(number >= 0 for number, _ in places)
        bodies = tuple(
            [tuple([(inner, self._following_of(inner)) for inner in body]) for body in node.bodies]
        )
        grid: tuple[Number, ...] = ()
        packed: list[tuple[int, str, tuple[Number, ...]]] = []
        if isinstance(node.call, Launch):
            grid = tuple([self._number(size) for size in node.call.grid])
            for i, argument in enumerate(node.call.arguments):
                if argument[0] == "sized":
                    words: Words = argument[1]
                    numbers = tuple([self._number(one) for one in words.numbers])
                    packed.append((i, words.form, numbers))
        inner = any(one is not None for body in bodies for _, one in body)
        if not (moves or packed or inner or any(number >= 0 for number, _ in grid)):
            return None
        idle = None
        if isinstance(node.call, Launch):
            # Neither can change in an update.
            cluster, programmatic = node.call.cluster, node.call.programmatic
            grid_of_one = cluster or (1, 1, 1)
            call = Launch(
                self._idle, grid_of_one, (32, 1, 1), (), cluster=cluster, programmatic=programmatic
            )
            idle = node._replace(operands=(), call=call)
        return _Following(node, places if moves else None, grid, packed, bodies, idle)

    def _number(self, size: Any) -> Number:
        return (self._table.number(size), 0) if isinstance(size, ActiveSize) else (-1, size)


class _Following(NamedTuple):
    """A node that is another one for other extents.

    ``places`` are the offsets of its operands, None where these stay; ``packed`` are which
    arguments, their forms and numbers; ``idle`` is the node where its grid is empty.
    """

    node: RecordNode
    places: tuple[Number, ...] | None
    grid: tuple[Number, ...]
    packed: list[tuple[int, str, tuple[Number, ...]]]
    bodies: tuple[tuple[tuple[RecordNode, Any], ...], ...]
    idle: RecordNode | None

    def at(self, values: tuple[int, ...]) -> RecordNode:
        """Return the node for what the table of sizes gives."""
        node, call, operands = self.node, self.node.call, self.node.operands
        if isinstance(call, Launch):
            x, y, z = [n if number < 0 else values[number] for number, n in self.grid]
            if not (x and y and z):
                assert self.idle is not None
                return self.idle
            arguments = list(call.arguments)
            for i, form, numbers in self.packed:
                found = [n if number < 0 else values[number] for number, n in numbers]
                arguments[i] = "value", pack(form, *found)
            call = call._replace(grid=(x, y, z), arguments=tuple(arguments))
        if self.places is not None:
            offsets = [n if number < 0 else values[number] for number, n in self.places]
            operands = tuple([
                Operand(op.memory, offset, op.nbytes, op.reads, op.writes)
                for op, offset in zip(operands, offsets, strict=True)
            ])  # fmt: skip
        bodies = tuple([
            tuple([inner if one is None else one.at(values) for inner, one in body])
            for body in self.bodies
        ])  # fmt: skip
        return RecordNode(
            node.name, node.kind, node.kernel, operands, node.params, node.parts, node.cost_ns,
            node.dependencies, node.label, node.keep, bodies, call, node.enabled,
        )  # fmt: skip
