"""From gathered nodes to a record: scratch is planned, every place gets a memory and an offset."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from fastgraph._core import arena, buffer
from fastgraph._core.buffer import Block, Buffer
from fastgraph._core.order import Order
from fastgraph._core.pending import add_nodes, note_touches, places_of, works_of
from fastgraph._core.record import Memory, Record
from fastgraph.device.backend import Backend, backend_of
from fastgraph.device.pending import (
    Pending,
    PointerSlot,
    Scalar,
    Scratch,
    Shared,
    Where,
    Work,
    where_of,
)

__all__ = ["UNUSED", "Recorded", "locate_more", "record"]

# What stays of a memory that an update let go of, so that the others keep their numbers.
UNUSED = Memory("buffer", "unused", 0)
SCALAR_BYTES = 8


class Recorded(NamedTuple):
    """A record and what binding it takes.

    Attributes
    ----------
    record : Record
    blocks : list of (Block, int) or None
        For each memory what it is bound to; None where each executable has memory of its own.
    private : frozenset of int
        Memories that a clone makes anew.
    located : dict
        Memory and offset of each place, by its `id`; `places` keeps those alive.
    places : list
    works : list of Work
        What each node was made of.
    outputs : list
        Memory, offset, shape and dtype of each.
    names : dict
        Scalars and pointers, each with its memory and offset.
    twins : list
        As `outputs`, for the copied inputs in order.
    arena : int or None
        The memory that holds the planned scratch.
    isa : str or None
        The instruction set that its memory is laid out for, where it is for one.
    """

    record: Record
    blocks: list[tuple[Block, int] | None]
    private: frozenset[int]
    located: dict[int, Where]
    places: list[Any]
    works: list[Work]
    outputs: list[tuple[int, int, tuple[int, ...], np.dtype[Any]]]
    names: dict[str, tuple[Scalar | PointerSlot, Where]]
    twins: list[tuple[int, int, tuple[int, ...], np.dtype[Any]]]
    arena: int | None
    isa: str | None
    faults: dict[int, tuple[str, ...]]


class _Memories:
    """A record's memories while they are gathered."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.blocks: list[tuple[Block, int] | None] = []
        self.private: set[int] = set()

    def add(self, kind: str, name: str, nbytes: int, block: Block | None, offset: int = 0) -> int:
        self.blocks.append(None if block is None else (block, offset))
        return self.record.add_memory(kind, name, nbytes)

    def add_private(self, kind: str, name: str, nbytes: int, block: Block | None = None) -> int:
        number = self.add(kind, name, nbytes, block)
        self.private.add(number)
        return number


def record(pendings: list[Pending], shared: Shared, unknown: bool) -> Recorded:
    """Make the record of a graph.

    Parameters
    ----------
    pendings : list of Pending
    shared : Shared
    unknown : bool
        Whether accesses of which nothing is known count as read and write.
    """
    memories = _Memories(Record())
    places = places_of(pendings)
    places += [*shared.outputs, *shared.twins]
    named = dict(shared.names)
    located: dict[int, Where] = {}
    planned = [s for s in shared.scratch.values() if not s.own]
    arena_number = None
    if planned:
        offsets, total = _plan_scratch(pendings, planned, shared.outputs)
        arena_number = memories.add_private("arena", "scratch", total)
        located.update({key: (arena_number, offset) for key, offset in offsets.items()})
    faults = {id(s): names for child in shared.children for s, names in child.faults}
    for scratch in shared.scratch.values():
        if scratch.own:
            kind = "faults" if id(scratch) in faults else "buffer"
            number = memories.add_private(kind, "scratch", scratch.nbytes, scratch.block)
            located[id(scratch)] = number, 0
    scalars = [scalar for scalar in named.values() if isinstance(scalar, Scalar)]
    if scalars:
        number = memories.add_private("scalars", "scalars", SCALAR_BYTES * len(scalars))
        for i, scalar in enumerate(scalars):
            located[id(scalar)] = number, SCALAR_BYTES * i
    twins = {id(twin.block) for twin in shared.twins}
    located.update(_locate(_outside(places), memories, twins, backend_of(shared.device)))
    for slot in named.values():
        if not isinstance(slot, PointerSlot):
            continue
        target = slot.target
        number = memories.add("buffer", slot.name, slot.nbytes, target.block, target.offset)
        located[id(slot)] = number, 0
    add_nodes(memories.record, pendings, located, unknown)
    return Recorded(
        memories.record,
        memories.blocks,
        frozenset(memories.private),
        located,
        [*places, *shared.scratch.values(), *named.values()],
        works_of(pendings),
        [(*where_of(out, located), out.shape, out.dtype) for out in shared.outputs],
        {name: (held, located[id(held)]) for name, held in named.items()},
        [(*located[id(twin)], twin.shape, twin.dtype) for twin in shared.twins],
        arena_number,
        next((child.isa for child in shared.children if child.isa is not None), None),
        {located[key][0]: names for key, names in faults.items()},
    )


def locate_more(
    record: Record, blocks: list[tuple[Block, int]], places: list[Any], pointers: set[int]
) -> dict[int, Where]:
    """Add memories for places that the record does not have yet, without moving any other.

    What lies in one of `pointers` gets a memory of its own, for those can go elsewhere.
    """
    located = {}
    for place in _outside(places):
        block, at = _span(place)
        for number, bound in enumerate(blocks):
            # Bytes that a memory holds already stay one memory, for the hazard check.
            if record.memories[number].kind == "buffer" and number not in pointers:
                start = bound[0].ptr + bound[1]
                if start <= at and at + place.nbytes <= start + record.memories[number].nbytes:
                    located[id(place)] = number, at - start
                    break
        else:
            number = record.memories.index(UNUSED) if UNUSED in record.memories else len(blocks)
            record.memories[number:] = [
                Memory("buffer", f"buffer {number}", block.nbytes),
                *record.memories[number + 1 :],
            ]
            blocks[number:] = [(block, 0), *blocks[number + 1 :]]
            located[id(place)] = number, at - block.ptr
    return located


def _outside(places: Iterable[Any]) -> list[Any]:
    """The places that are memory of a caller's, each once."""
    return list({id(p): p for p in places if isinstance(p, Buffer | np.ndarray)}.values())


def _locate(
    places: list[Any], memories: _Memories, twins: set[int], backend: Backend
) -> dict[int, Where]:
    """Add a memory for each block of buffers and arrays; return (memory, offset) by id of a place.

    Blocks that share bytes, as arrays over one foreign buffer do, become one memory, so that the
    hazard check sees that they do.
    """
    spans = [(*_span(place), id(place)) for place in places]
    groups: list[list[Block]] = []
    group_of: dict[int, int] = {}
    stop = 0
    for block, _, key in sorted(spans, key=lambda span: span[0].ptr):
        if not groups or (block.ptr >= stop and block is not groups[-1][-1]):
            groups.append([])
            stop = 0
        groups[-1].append(block)
        group_of[key] = len(groups) - 1
        stop = max(stop, block.ptr + block.nbytes)
    memory_of: dict[int, Where] = {}
    located = {}
    for _, at, key in spans:
        group = group_of[key]
        if group not in memory_of:
            block = _union(groups[group], backend)
            name = f"buffer {len(memories.blocks)}"
            add = memories.add_private if id(block) in twins else memories.add
            memory_of[group] = add("buffer", name, block.nbytes, block), block.ptr
        number, start = memory_of[group]
        located[key] = number, at - start
    return located


def _span(place: Any) -> tuple[Block, int]:
    if isinstance(place, Buffer):
        return place.block, place.ptr
    return _host_block(place), int(place.__array_interface__["data"][0])


def _union(group: list[Block], backend: Backend) -> Block:
    """One block over the bytes of all, which it keeps alive."""
    if all(block is group[0] for block in group):
        return group[0]
    return backend.block_like(group)


def _plan_scratch(
    pendings: list[Pending], scratches: list[Scratch], outputs: list[Buffer | Scratch]
) -> tuple[dict[int, int], int]:
    touched: dict[int, list[int]] = {id(scratch): [] for scratch in scratches}
    # A read counts as a write: what was never written must not be another's bytes.
    note_touches(pendings, touched)
    used = [scratch for scratch in scratches if touched[id(scratch)]]
    unused = [scratch for scratch in scratches if not touched[id(scratch)]]
    kept = {id(output.base) for output in outputs if isinstance(output, Scratch)}
    pinned = [i for i, scratch in enumerate(used) if id(scratch) in kept]
    order = Order([pending.dependencies for pending in pendings])
    touches = [touched[id(scratch)] for scratch in used]
    planned, total = arena.plan(order, [s.nbytes for s in used], touches, touches, pinned)
    offsets = {id(scratch): offset for scratch, offset in zip(used, planned, strict=True)}
    for scratch in unused:
        offsets[id(scratch)] = total
        total += -(-scratch.nbytes // arena.ALIGNMENT) * arena.ALIGNMENT
    return offsets, total


def _host_block(array: np.ndarray[Any, Any]) -> Block:
    """The bytes of the array that owns `array`'s, so that views of it count as one memory."""
    root: Any = array
    # What NumPy itself knows of each: a subclass may say something else.
    while isinstance(base := np.ndarray.base.__get__(root), np.ndarray):
        root = base
    low, high = np.lib.array_utils.byte_bounds(np.asarray(root))
    return buffer.borrow(low, high - low, array)
