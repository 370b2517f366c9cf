"""The hazard check over bytes as they are bound: memories that share some count as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fastgraph._core.buffer import Block
from fastgraph._core.record import Memory, Record, RecordNode

__all__ = ["check_hazards"]

Where = tuple[int, int]


def check_hazards(record: Record, blocks: Sequence[tuple[Block, int] | None]) -> None:
    """Raise HazardError if unordered nodes touch the same bytes and one of them writes.

    Parameters
    ----------
    record : Record
    blocks : sequence of (Block, int) or None
        What each memory is bound to, as named pointers are now; None is memory of its own.
    """
    joined = _joined(record, blocks)
    if not joined:
        record.check_hazards()
        return
    seen = record.copy()
    for number, (memory, start) in joined.items():
        # A joined memory ends where the last of its parts does.
        end = start + record.memories[number].nbytes
        held = seen.memories[memory]
        seen.memories[memory] = Memory(held.kind, held.name, max(held.nbytes, end))
    seen.nodes[:] = _moved(record.nodes, joined)
    seen.check_hazards()


def _joined(record: Record, blocks: Sequence[tuple[Block, int] | None]) -> dict[int, Where]:
    """For each memory that shares bytes with others: the one that stands for all, and where."""
    spans = []
    for number, (memory, place) in enumerate(zip(record.memories, blocks, strict=True)):
        if place is not None and memory.nbytes:
            start = place[0].ptr + place[1]
            spans.append((start, start + memory.nbytes, number))
    groups: list[list[tuple[int, int, int]]] = []
    reach = 0
    for span in sorted(spans):
        if not groups or span[0] >= reach:
            groups.append([])
            reach = 0
        groups[-1].append(span)
        reach = max(reach, span[1])
    joined = {}
    for group in groups:
        if len(group) > 1:
            first = min(number for _, _, number in group)
            low = group[0][0]
            joined.update({number: (first, start - low) for start, _, number in group})
    return joined


def _moved(nodes: Iterable[RecordNode], joined: dict[int, Where]) -> list[RecordNode]:
    result = []
    for node in nodes:
        operands = []
        for operand in node.operands:
            memory, start = joined.get(operand.memory, (operand.memory, 0))
            operands.append(operand._replace(memory=memory, offset=operand.offset + start))
        bodies = tuple(tuple(_moved(body, joined)) for body in node.bodies)
        result.append(node._replace(operands=tuple(operands), bodies=bodies))
    return result
