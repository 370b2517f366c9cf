"""The number of parts, beside strides and iteration spaces: what every cpu lowering needs."""

from __future__ import annotations

from math import ceil

from fastgraph.lower.call import estimate
from fastgraph.lower.strides import broadcast_strides, collapse, row_major

__all__ = ["broadcast_strides", "choose_parts", "collapse", "memory_ns", "row_major"]

# Below this a second thread costs more than it saves; above the other, signals would wait.
_SERIAL_NS = 3_000.0
_PART_NS = 2_000.0
_LONGEST_PART_NS = 5_000_000.0
# What a node has just written is read from a cache by the next one, as far as it holds it.
_CACHED_BYTES = 4_000_000
_CACHED_BYTES_PER_NS = 45.0


def memory_ns(nbytes: float) -> float:
    """Nanoseconds that one core needs to move so many bytes, roughly."""
    nbytes = float(nbytes)
    if nbytes <= _CACHED_BYTES:
        return nbytes / _CACHED_BYTES_PER_NS
    return estimate(0, nbytes)


def choose_parts(cost_ns: float, threads: int, units: int) -> int:
    """How many parts to cut work of `cost_ns` into that has `units` independent pieces.

    Depends on shape and thread count alone. Long work is cut even for one thread: between parts
    signals are looked for.
    """
    parts = ceil(cost_ns / _LONGEST_PART_NS)
    if threads > 1 and cost_ns >= _SERIAL_NS:
        parts = max(parts, min(threads * 4, int(cost_ns / _PART_NS) + 1))
    return max(1, min(parts, int(units)))
