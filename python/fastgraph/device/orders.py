"""Other ways to run a graph than all at once: any legal order, node by node, on copies."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence

import numpy as np

from fastgraph._core import buffer
from fastgraph._core.buffer import Block

__all__ = ["bytes_of", "copy_blocks", "random_order"]

Place = tuple[Block, int]


def random_order(dependencies: Sequence[Sequence[int]], seed: int) -> list[int]:
    """Return the nodes in an order that the edges allow, drawn by `seed`."""
    draw = random.Random(seed)
    missing = [len(needed) for needed in dependencies]
    users: list[list[int]] = [[] for _ in dependencies]
    for node, needed in enumerate(dependencies):
        for other in needed:
            users[other].append(node)
    ready = [(draw.random(), node) for node, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        _, node = heapq.heappop(ready)
        order.append(node)
        for user in users[node]:
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(ready, (draw.random(), user))
    return order


def copy_blocks(places: Sequence[Place], sizes: Sequence[int]) -> list[Place]:
    """Return copies of memories; those that share bytes share them in the copies too."""
    spans = sorted(
        (block.ptr + offset, block.ptr + offset + size, number)
        for number, ((block, offset), size) in enumerate(zip(places, sizes, strict=True))
    )
    groups: list[tuple[int, int, list[int]]] = []
    for start, stop, number in spans:
        if groups and start < groups[-1][1]:
            low, high, members = groups[-1]
            members.append(number)
            groups[-1] = low, max(high, stop), members
        else:
            groups.append((start, stop, [number]))
    copies: dict[int, Place] = {}
    for low, high, members in groups:
        twin = buffer.allocate(high - low)
        for number in members:
            block, offset = places[number]
            at = block.ptr + offset - low
            copies[number] = twin, at
            bytes_of(twin, at, sizes[number])[:] = bytes_of(block, offset, sizes[number])
    return [copies[number] for number in range(len(places))]


def bytes_of(block: Block, offset: int, nbytes: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return a writable view of bytes of a block."""
    return np.asarray(buffer.view(block, offset, (nbytes,), "uint8", "cpu"))
