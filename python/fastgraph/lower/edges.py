"""What waits for what: edges of calls from the bytes that they write and read."""

from __future__ import annotations

from collections.abc import Sequence

from fastgraph._core.order import Order
from fastgraph.lower.storage import Item, Place, Roots, nbytes_of

__all__ = ["chain", "critical_path", "data_edges", "reduced"]

Edges = list[tuple[int, ...]]


def chain(count: int) -> Edges:
    """Return the edges of calls that are done one after another."""
    return [(number - 1,) if number else () for number in range(count)]


def data_edges(items: Sequence[Item], roots: Roots) -> Edges:
    """Return for each call the earlier ones whose bytes it reads, or that touch what it writes.

    Which values share bytes in the arena is not asked here: a plan shares nothing that these edges
    leave unordered.
    """
    written: dict[Place, list[tuple[int, int, int]]] = {}
    read: dict[Place, list[tuple[int, int, int]]] = {}
    edges = []
    for number, (_, call) in enumerate(items):
        found: set[int] = set()
        spans = []
        for position, operand in enumerate((*call.outs, *call.ins)):
            root, start = roots.of(operand)
            span = (start, start + nbytes_of(operand), number)
            writes = position < len(call.outs)
            spans.append((root, span, writes))
            for known in (written, read) if writes else (written,):
                found.update(
                    other
                    for low, high, other in known.get(root, ())
                    if low < span[1] and span[0] < high
                )
        for root, span, writes in spans:
            (written if writes else read).setdefault(root, []).append(span)
        found.discard(number)
        edges.append(tuple(sorted(found)))
    return edges


def reduced(edges: Edges) -> Edges:
    """Return the edges without those that other paths imply.

    >>> reduced([(), (0,), (0, 1), (0, 1, 2)])
    [(), (0,), (1,), (2,)]
    """
    order = Order(edges)
    fewer = []
    for before in edges:
        kept: list[int] = []
        for other in sorted(before, reverse=True):
            if not any(order.before(other, nearer) for nearer in kept):
                kept.append(other)
        fewer.append(tuple(sorted(kept)))
    return fewer


def critical_path(edges: Edges, costs: Sequence[float]) -> float:
    """Return the longest sum of costs along a path.

    >>> critical_path([(), (0,), (0,), (1, 2)], [1.0, 5.0, 2.0, 1.0])
    7.0
    """
    ends: list[float] = []
    for before, cost in zip(edges, costs, strict=True):
        ends.append(cost + max((ends[other] for other in before), default=0.0))
    return max(ends, default=0.0)
