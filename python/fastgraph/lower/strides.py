"""Strides of dense arrays, of what is broadcast, and of iteration spaces with fewer axes."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["broadcast_strides", "collapse", "is_prefix", "row_major"]


def row_major(shape: Sequence[int]) -> list[int]:
    """Strides, in elements, of a dense C-contiguous array.

    >>> row_major((2, 3, 4))
    [12, 4, 1]
    """
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return strides


def is_prefix(shape: Sequence[int], whole: Sequence[int] | None = None) -> bool:
    """Whether a dense array of `shape` lies like the first part of one of shape `whole`.

    Without that it is one with the largest extents.

    >>> is_prefix((2, 3, 4)), is_prefix((1, 3, 4), (5, 3, 4)), is_prefix((2, 1, 4), (2, 3, 4))
    (True, True, False)
    """
    strides = row_major([int(n) for n in shape] if whole is None else whole)
    return all(
        own == stride or n == 1
        for n, own, stride in zip(shape, row_major(shape), strides, strict=True)
    )


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
