"""Which launches of a run wait for which: branches side by side where that is worth its price."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fastgraph.lower.cuda.feeds import FEEDS
from fastgraph.lower.cuda.seam import INPUTS
from fastgraph.lower.edges import chain, critical_path, data_edges, reduced
from fastgraph.lower.plan import plan
from fastgraph.lower.storage import Item, Roots, Seam

__all__ = ["launch_edges", "launch_ns"]


class Work(Protocol):
    """What is known of how much there is to do."""

    @property
    def nbytes(self) -> int:
        """Bytes read and written."""

    @property
    def flops(self) -> int:
        """Operations."""


# Rough, as in docs/cuda_facts.md: a dependent tiny node behind a programmatic edge, and what a
# graph of several branches costs its launch call. They choose an order, never a result.
NODE_NS = 500.0
BRANCHES_NS = 5_000.0
BYTES_PER_NS = 3_000.0
FLOPS_PER_NS = 30_000.0
# Branches that gain less than this share of a run are not worth the memory that they keep apart.
LEAST_GAIN = 0.1
# What the arena of branches may take beside that of a chain, before the chain is chosen.
MOST_GROWTH = 1.5
SMALL_ARENA = 32 << 20


def launch_edges(items: Sequence[Item], roots: Roots) -> list[tuple[int, ...]]:
    """Return the edges of a run: those of the data, or one chain in the order of the calls.

    A chain lets values share more memory, and its launch is the cheapest; branches save the time
    of what they do at once.
    """
    one_by_one = chain(len(items))
    edges = reduced(_closed(_rooted(data_edges(items, roots), items), items))
    if edges == one_by_one:
        return one_by_one
    costs = [launch_ns(call) for _, call in items]
    saved = sum(costs) - critical_path(edges, costs)
    if saved < max(BRANCHES_NS, LEAST_GAIN * sum(costs)):
        return one_by_one
    apart = plan(items, edges, roots, set(), set()).total
    together = plan(items, one_by_one, roots, set(), set()).total
    return edges if apart <= MOST_GROWTH * together + SMALL_ARENA else one_by_one


def launch_ns(call: Work) -> float:
    """Nanoseconds that a launch takes, roughly."""
    return max(NODE_NS, call.nbytes / BYTES_PER_NS, call.flops / FLOPS_PER_NS)


def _rooted(edges: list[tuple[int, ...]], items: Sequence[Item]) -> list[tuple[int, ...]]:
    """Let all calls wait for those that bring the inputs in, which come first.

    An output may be written to the very bytes that an input is read from.
    """
    first = 0
    while first < len(items) and _brings_in(items[first]):
        first += 1
    last = (first - 1,) if first else ()
    return [
        (number - 1,) * bool(number)
        if number < first
        else (*last, *(i for i in before if i >= first))
        for number, before in enumerate(edges)
    ]


def _closed(edges: list[tuple[int, ...]], items: Sequence[Item]) -> list[tuple[int, ...]]:
    """Let those that feed handles wait for all before: the handles have been read by then."""
    return [
        tuple(range(number)) if isinstance(item[0], Seam) and item[0].name == FEEDS else before
        for number, (before, item) in enumerate(zip(edges, items, strict=True))
    ]


def _brings_in(item: Item) -> bool:
    return isinstance(item[0], Seam) and item[0].name == INPUTS
