"""Whether a run may compute one thing in the very bytes that it reads another one from."""

from __future__ import annotations

from collections.abc import Iterable

from fastgraph._core.order import Order
from fastgraph._core.record import RecordNode, accesses_of
from fastgraph.lower.program import Program

__all__ = ["can_share", "ports_that_share"]

Pair = tuple[int, int]


def can_share(program: Program, pairs: Iterable[Pair]) -> set[Pair]:
    """Return the pairs of memories, (read, written), that may lie in the same bytes.

    All that read the one come before all that write the other, over the edges; one that does both
    does it element by element.
    """
    nodes = program.record.nodes
    order = Order([node.dependencies for node in nodes])
    touched: dict[int, list[tuple[int, bool]]] = {}
    for number, node in enumerate(nodes):
        for operand in accesses_of(node):
            for does, writes in ((operand.reads, False), (operand.writes, True)):
                if does:
                    touched.setdefault(operand.memory, []).append((number, writes))
    found = set()
    for read, written in pairs:
        readers = [number for number, writes in touched.get(read, ()) if not writes]
        writers = [number for number, writes in touched.get(written, ()) if writes]
        if all(
            order.before(reader, writer)
            or (reader == writer and _in_place(program, nodes[reader], reader, read, written))
            for reader in readers
            for writer in writers
        ):
            found.add((read, written))
    return found


def ports_that_share(program: Program, pairs: Iterable[Pair]) -> set[Pair]:
    """Return the pairs of numbers, (input, output), of which `can_share` holds."""
    asked = {(program.inputs[i], program.outputs[j]): (i, j) for i, j in pairs}
    return {asked[pair] for pair in can_share(program, asked)}


def _in_place(program: Program, node: RecordNode, number: int, read: int, written: int) -> bool:
    """Whether a node reads one memory once and writes the other element by element."""
    touching = [
        (position, operand)
        for position, operand in enumerate(node.operands)
        if operand.memory in (read, written)
    ]
    if len(touching) != 2 or node.bodies:
        return False
    (out, target), (source, taken) = sorted(touching, key=lambda found: not found[1].writes)
    return (
        (out, source) in program.inplace.get(number, ())
        and not target.offset
        and not taken.offset
        and target.nbytes == taken.nbytes
    )
