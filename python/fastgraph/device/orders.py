"""Other ways to run a graph than all at once: any legal order, node by node, on copies."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence

import numpy as np

from fastgraph._core import buffer
from fastgraph._core.buffer import Block
from fastgraph.device.backend import Backend

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


def copy_blocks(places: Sequence[Place], sizes: Sequence[int], backend: Backend) -> list[Place]:
    """Return copies of memories, each of the same kind; those that share bytes share them too."""
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
        twin = _like(places[members[0]][0], high - low, backend)
        for number in members:
            block, offset = places[number]
            at = block.ptr + offset - low
            copies[number] = twin, at
            data = bytes_of(block, offset, sizes[number])
            buffer.view(twin, at, data.shape, "uint8", backend.device).copy_from(data)
    return [copies[number] for number in range(len(places))]


def bytes_of(block: Block, offset: int, nbytes: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Wait for the device of a block and return a copy of bytes of it."""
    return buffer.view(block, offset, (nbytes,), "uint8", "").numpy()


def _like(block: Block, nbytes: int, backend: Backend) -> Block:
    if block.memory is None:
        return buffer.allocate(nbytes)
    return (backend.allocate_host if block.memory.host_visible else backend.allocate)(nbytes)
