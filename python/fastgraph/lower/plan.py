"""Memory plans of lowered calls: which values lie where in one arena."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastgraph._core import arena
from fastgraph._core.order import Order
from fastgraph.lower.flow import flatten
from fastgraph.lower.storage import Item, Place, Roots, nbytes_of

__all__ = ["Plan", "plan"]


@dataclass(frozen=True)
class Plan:
    """A memory plan with everything that an independent checker needs.

    Nodes are calls, those in bodies included; `loops` are the first and the last of each loop.
    """

    dependencies: list[tuple[int, ...]]
    sizes: list[int]
    writers: list[list[int]]
    users: list[list[int]]
    pinned: list[int]
    inplace: list[tuple[int, int]]
    offsets: list[int]
    total: int
    index: dict[Place, int]
    loops: list[tuple[int, int]]


def plan(
    items: Sequence[Item],
    dependencies: list[tuple[int, ...]],
    roots: Roots,
    pinned: set[Place],
    outside: set[Place],
) -> Plan:
    """Plan the arena of calls in this order for every root that is not `outside` of it.

    Parameters
    ----------
    items : sequence of (Node or Seam, call)
    dependencies : list of tuple of int
        The final edges: what no path orders is never laid over each other.
    roots : Roots
    pinned : set of Value or Temp
        Roots that live for the whole run.
    outside : set of Value or Temp
        Roots that lie elsewhere.
    """
    flat = flatten(items, dependencies)
    index: dict[Place, int] = {}
    places: list[Place] = []
    writers: list[list[int]] = []
    users: list[list[int]] = []
    wishes: list[tuple[int, int]] = []
    for number, (item, reads, written) in enumerate(
        zip(flat.calls, flat.reads, flat.writes, strict=True)
    ):
        for operand in written:
            root, _ = roots.of(operand)
            if root not in outside:
                if root not in index:
                    index[root] = len(places)
                    places.append(root)
                    writers.append([])
                    users.append([])
                writers[index[root]].append(number)
        for operand in reads:
            root, _ = roots.of(operand)
            if root in index:
                users[index[root]].append(number)
        if item is not None:
            wishes += _wishes(item[1], roots, index)
    sizes = [nbytes_of(place) for place in places]
    fixed = [i for i, place in enumerate(places) if place in pinned]
    inplace = [(v, u) for v, u in wishes if sizes[v] == sizes[u]]
    held = users
    if flat.loops:
        held = [_held(*accesses, flat.loops) for accesses in zip(writers, users, strict=True)]
    offsets, total = arena.plan(Order(flat.dependencies), sizes, writers, held, fixed, inplace)
    return Plan(
        flat.dependencies,
        sizes,
        writers,
        users,
        fixed,
        inplace,
        offsets,
        total,
        index,
        flat.loops,
    )


def _wishes(call: Any, roots: Roots, index: dict[Place, int]) -> list[tuple[int, int]]:
    """Return which values a call could compute in the bytes of which others."""
    wishes = []
    for out, source in call.inplace:
        target, target_offset = roots.of(call.outs[out])
        taken, taken_offset = roots.of(call.ins[source])
        if target_offset or taken_offset or taken is target:
            continue
        if target not in index or taken not in index:
            continue
        # Other operands of the call that read the same bytes would see them overwritten.
        if sum([roots.of(operand)[0] is taken for operand in call.ins]) == 1:
            wishes.append((index[target], index[taken]))
    return wishes


def _held(writers: list[int], users: list[int], loops: Sequence[tuple[int, int]]) -> list[int]:
    """Return the users of a value, and the end of each loop that it is touched in and outside of.

    Such a value is read again in the next turn.
    """
    ends = []
    for first, last in loops:
        inside = [first <= number <= last for number in (*writers, *users)]
        if any(inside) and not all(inside):
            ends.append(last)
    return [*users, *ends]
