"""Strides, collapsed iteration spaces and the number of parts: what every cpu lowering needs."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from fastgraph.lower.call import estimate

__all__ = ["broadcast_strides", "choose_parts", "collapse", "memory_ns", "row_major"]

# Below this a second thread costs more than it saves; above the other, signals would wait.
_SERIAL_NS = 3_000.0
_PART_NS = 2_000.0
_LONGEST_PART_NS = 5_000_000.0
# What a node has just written is read from a cache by the next one, as far as it holds it.
_CACHED_BYTES = 4_000_000
_CACHED_BYTES_PER_NS = 45.0


def row_major(shape: Sequence[int]) -> list[int]:
    """Strides, in elements, of a dense C-contiguous array.

    >>> row_major((2, 3, 4))
    [12, 4, 1]
    """
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return strides


def broadcast_strides(shape: Sequence[int], to: Sequence[int]) -> list[int]:
    """Strides, in elements, with which a dense array of `shape` is read as one of shape `to`.

    >>> broadcast_strides((3, 1), (2, 3, 4))
    [0, 1, 0]
    """
    lead = len(to) - len(shape)
    own = row_major(shape)
    return [0] * lead + [0 if n == 1 else s for n, s in zip(shape, own, strict=True)]


def collapse(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """Merge axes that every operand walks through as if they were one; drop axes of size 1.

    Gives the merged shape, at least of rank 1, and each operand's strides on it.

    >>> collapse((2, 3, 4), [[12, 4, 1], [0, 0, 1]])
    ([6, 4], [[4, 1], [0, 1]])
    >>> collapse((), [[]])
    ([1], [[1]])
    """
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        mergeable = sizes and all(
            merged[-1] == own[axis] * size for merged, own in zip(steps, strides, strict=True)
        )
        if mergeable:
            sizes[-1] *= size
            for merged, own in zip(steps, strides, strict=True):
                merged[-1] = own[axis]
        else:
            sizes.append(size)
            for merged, own in zip(steps, strides, strict=True):
                merged.append(own[axis])
    if not sizes:
        return [1], [[1] for _ in strides]
    return sizes, steps


def memory_ns(nbytes: float) -> float:
    """Nanoseconds that one core needs to move so many bytes, roughly."""
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
    return max(1, min(parts, units))
