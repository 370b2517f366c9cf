"""Graphs of a cache over long runs, on any device: many keys, little room, many threads.

``bench/soak.py`` runs it on the cpu, ``bench/gpu/soaks.py`` on a GPU.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

import fastgraph as fg
from bench.machine import resident_bytes
from bench.rounds import WrongResult
from fastgraph._core import counters

__all__ = ["ROOM", "Look", "Plateau", "create_many", "run_from_threads", "uniform", "zipf"]

KEYS, ROOM = 1000, 100
LENGTH = 64
LOOKS = 10


@dataclass(frozen=True)
class Look:
    """What was held at one moment."""

    after: int
    resident: int
    device: int
    live: int
    graphs: int
    seconds: float


@dataclass
class Plateau:
    """Looks at memory, and how much it went on growing after the first half of them.

    What allocators and drivers keep for reuse is not returned, so the end is held against the
    highest look of the first half, not against the start.
    """

    ctx: fg.DeviceContext
    looks: list[Look] = field(default_factory=list)
    began: float = field(default_factory=perf_counter)

    def look(self, after: int, graphs: int = 0) -> None:
        """Take one."""
        self.ctx.synchronize()
        gc.collect()
        device = 0
        if self.ctx.api != "cpu":
            available, total = self.ctx.memory_info
            device = total - available
        live = {k: n for k, n in counters.snapshot().items() if not k.endswith("bytes")}
        seconds = perf_counter() - self.began
        held = sum(live.values())
        self.looks.append(Look(after, resident_bytes(), device, held, graphs, seconds))

    def growth(self, what: str) -> int:
        """How much more of ``resident``, ``device`` or ``live`` there is than at the plateau."""
        values = [getattr(look, what) for look in self.looks]
        return max(0, values[-1] - max(values[: -(-len(values) // 2)]))


def uniform(count: int, keys: int = KEYS) -> Iterator[int]:
    """So many keys, every one as often as any other."""
    return iter(np.random.default_rng(1).integers(keys, size=count).tolist())


def zipf(count: int, keys: int = KEYS) -> Iterator[int]:
    """So many keys, the k-th of them as often as 1/k: a few are asked for all the time."""
    chances = 1 / np.arange(1, keys + 1)
    chosen = np.random.default_rng(1).choice(keys, size=count, p=chances / chances.sum())
    return iter(chosen.tolist())


class Copied:
    """A graph of copies, a memset and scratch: its output is its input."""

    def __init__(self, ctx: fg.DeviceContext, room: int) -> None:
        self.ctx = ctx
        self.cache = fg.DeviceGraphCache(max_graphs=room)

    @staticmethod
    def build(b: fg.DeviceGraphBuilder, x: fg.Buffer) -> None:
        """Record it."""
        scratch, out = b.create_buffer(LENGTH), b.create_buffer(LENGTH)
        copied = b.add_copy(scratch, x)
        cleared = b.add_memset(out, -1.0)
        b.add_copy(out, scratch, dependencies=[copied, cleared])
        b.add_output(out)

    def graph(self, x: Any, key: int) -> fg.DeviceGraph:
        """The graph of a key."""
        return fg.DeviceGraph.create(self.ctx, self.build, x, cache=self.cache, key=key)

    @staticmethod
    def check(x: np.ndarray[Any, Any], found: np.ndarray[Any, Any]) -> None:
        """The result is that of this input."""
        if not np.array_equal(found, x):
            raise WrongResult("a graph of the cache gave another input's result")


def create_many(
    ctx: fg.DeviceContext, keys: Iterator[int], count: int, *, room: int = ROOM
) -> tuple[Plateau, Any]:
    """Create a graph for each key, room for fewer in the cache; every tenth is run and checked.

    Returns
    -------
    Plateau
        One look after each tenth of `count`.
    CacheStats
    """
    work, x = Copied(ctx, room), np.zeros(LENGTH, np.float32)
    plateau = Plateau(ctx)
    part = max(1, count // LOOKS)
    for number, key in enumerate(keys, 1):
        graph = work.graph(x, key)
        if number % 10 == 0:
            x[:] = np.arange(LENGTH) + number % 1000
            work.check(x, graph.run(x)[0])
        if number % part == 0:
            plateau.look(number, work.cache.stats.live_graphs)
    stats = work.cache.stats
    if stats.live_graphs > room or stats.hits + stats.misses != count:
        raise WrongResult(f"the cache says {stats}")
    return plateau, stats


def run_from_threads(
    ctx: fg.DeviceContext, threads: int, runs: int, seconds: float = float("inf")
) -> int:
    """Threads that run one cached graph, each on inputs of its own, and check every result.

    Returns
    -------
    int
        How many runs there were; fewer than asked for only if `seconds` were over.
    """
    work, until = Copied(ctx, 1), perf_counter() + seconds
    done, wrong = [0] * threads, []
    start = threading.Barrier(threads)

    def serve(number: int) -> None:
        x = np.empty(LENGTH, np.float32)
        start.wait()
        for turn in range(runs):
            if perf_counter() > until:
                return
            x[:] = number * runs + turn
            work.check(x, work.graph(x, 0).run(x)[0])
            done[number] += 1

    workers = [
        threading.Thread(target=_noting(serve, wrong), args=(number,)) for number in range(threads)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if wrong:
        raise wrong[0]
    if work.cache.stats.builds != 1:
        raise WrongResult(f"the threads built {work.cache.stats.builds} graphs of one key")
    return sum(done)


def _noting(work: Callable[[int], None], wrong: list[BaseException]) -> Callable[[int], None]:
    def noted(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            wrong.append(error)

    return noted
