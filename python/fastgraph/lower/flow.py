"""Calls of which the values decide whether, and how often, they are done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from fastgraph.lower.storage import Item, Place

__all__ = ["Flat", "Flow", "flatten", "walk"]


@dataclass(frozen=True, eq=False)
class Flow:
    """Bodies of calls, chosen by the uint32 at `flag`.

    ``kind`` is ``if``, with the body for what is not 0 and the one for 0, or ``while``, with one
    that is done as long as it is not 0. Beside a `Call` it stands for all in its bodies.
    """

    kind: str
    flag: Place
    bodies: tuple[tuple[Item, ...], ...]
    label: str = ""
    inplace: tuple[tuple[int, int], ...] = ()
    early: bool = False
    # What a kernel inside writes is written again, or not at all: never the host's own memory.
    rereads: bool = True
    cost_ns: float = 0.0

    @cached_property
    def outs(self) -> tuple[Place, ...]:
        """Tuple of Place: what is written inside."""
        return tuple(dict.fromkeys(out for _, call in self._calls() for out in call.outs))

    @cached_property
    def ins(self) -> tuple[Place, ...]:
        """Tuple of Place: the flag, and what is read inside."""
        read = dict.fromkeys(place for _, call in self._calls() for place in call.ins)
        return tuple({self.flag: None, **read})

    @property
    def flops(self) -> int:
        """int: operations of all bodies, each done once."""
        return sum(call.flops for _, call in self._calls())

    @property
    def nbytes(self) -> int:
        """int: bytes that all bodies read and write, each done once."""
        return sum(call.nbytes for _, call in self._calls())

    def _calls(self) -> Iterator[Item]:
        for body in self.bodies:
            yield from body


def walk(items: Sequence[Item]) -> Iterator[Item]:
    """Give all calls, those in bodies behind the one that holds them."""
    for item in items:
        yield item
        if isinstance(item[1], Flow):
            for body in item[1].bodies:
                yield from walk(body)


class Flat(NamedTuple):
    """Calls one after another, as a planner looks at them.

    A `Flow` is its look at the flag, what is in its bodies, and for a loop one more look.

    Attributes
    ----------
    reads, writes : list of list of Place
        Of each entry.
    calls : list of Item or None
        None for what no call does.
    dependencies : list of tuple of int
    loops : list of (int, int)
        First and last entry of each loop, both looks at the flag.
    """

    reads: list[list[Place]]
    writes: list[list[Place]]
    calls: list[Item | None]
    dependencies: list[tuple[int, ...]]
    loops: list[tuple[int, int]]

    def add(self, item: Item | None, reads: Sequence[Place], writes: Sequence[Place]) -> int:
        """Append an entry without edges; return its number."""
        self.calls.append(item)
        self.reads.append(list(reads))
        self.writes.append(list(writes))
        self.dependencies.append(())
        return len(self.calls) - 1


def flatten(items: Sequence[Item], dependencies: Sequence[tuple[int, ...]]) -> Flat:
    """Return calls with their bodies one after another.

    Bodies are chains. Of the two bodies of an ``if`` one comes before the other: that both are not
    done in one run only makes fewer values meet.
    """
    flat = Flat([], [], [], [], [])
    last: list[int] = []
    for item, before in zip(items, dependencies, strict=True):
        start = len(flat.calls)
        # Up to the first that holds bodies a call has its own number.
        flat_so_far = start == len(last)
        last.append(_append(flat, item))
        flat.dependencies[start] = (
            before if flat_so_far else tuple([last[number] for number in before])
        )
    return flat


def _append(flat: Flat, item: Item) -> int:
    """Append a call, each entry behind the one before; return the last one's number."""
    call = item[1]
    if not isinstance(call, Flow):
        return flat.add(item, call.ins, call.outs)
    start = number = flat.add(None, [call.flag], [])
    for body in call.bodies:
        for inner in body:
            first = len(flat.calls)
            before = number
            number = _append(flat, inner)
            flat.dependencies[first] = (before,)
    if call.kind == "while":
        before = number
        number = flat.add(None, [call.flag], [])
        flat.dependencies[number] = (before,)
        flat.loops.append((start, number))
    return number
