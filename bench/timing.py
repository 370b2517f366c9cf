"""Timing one call inside a process: hot, cold, in blocks. Used by workers."""

from __future__ import annotations

import gc
import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from time import perf_counter_ns
from typing import Any

import numpy as np

__all__ = ["CacheWalker", "Call", "Stopwatch"]

Array = np.ndarray[Any, Any]

HOT = """
def loop(samples, {names}):
    taken = []
    for _ in repeat(None, samples):
        start = clock()
        {line}
        taken.append(clock() - start)
    return taken
"""

COLD = """
def loop(samples, walk, {names}):
    taken = []
    for _ in repeat(None, samples):
        walk()
        start = clock()
        {line}
        taken.append(clock() - start)
    return taken
"""


@dataclass
class Call:
    """One way to do a piece of work, as a statement over local names.

    Attributes
    ----------
    line : str
        What a user would write, such as ``"call(inputs)"``.
    names : dict
        The names in it. They are locals of the timing loop, as in a tight loop of a server.
    inputs : list of numpy.ndarray
        The arrays that the call reads; the harness fills them.
    result : callable
        Returns what the latest call computed.
    note : str
        What was chosen, for the record.
    """

    line: str
    names: dict[str, Any]
    inputs: list[Array]
    result: Callable[[], Array]
    note: str = ""


class Stopwatch:
    """The timing loops of one call, compiled once, so that they cost the same for everybody."""

    def __init__(self, call: Call, block: int = 1) -> None:
        """`block` calls are timed together: for those that last no longer than the clock."""
        line = call.line if block == 1 else f"for _ in repeat(None, {block}): {call.line}"
        self._block = block
        self._hot = _compiled(HOT, line, call.names)
        self._cold = _compiled(COLD, line, call.names)
        self._names = call.names

    def hot(self, samples: int) -> list[float]:
        """Nanoseconds of a call, `samples` times, after some that are not timed."""
        with _collector_off():
            self._hot(3, **self._names)
            return [taken / self._block for taken in self._hot(samples, **self._names)]

    def cold(self, samples: int, walk: Callable[[], object]) -> list[float]:
        """As `hot`, with `walk` called before every single one."""
        with _collector_off():
            self._cold(1, walk, **self._names)
            return [taken / self._block for taken in self._cold(samples, walk, **self._names)]


@dataclass
class CacheWalker:
    """Reads a buffer several times the last cache's size on every core that a contender uses."""

    nbytes: int
    cpus: Sequence[int]
    _buffer: Array = field(init=False, repr=False)
    _asked: list[queue.SimpleQueue[bool]] = field(init=False, repr=False)
    _done: queue.SimpleQueue[bool] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._buffer = np.ones(self.nbytes // 8, np.int64)
        self._done = queue.SimpleQueue()
        self._asked = []
        for cpu in self.cpus if len(self.cpus) > 1 else ():
            asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
            threading.Thread(target=self._serve, args=(cpu, asked), daemon=True).start()
            self._asked.append(asked)

    def __call__(self) -> None:
        if not self._asked:
            self._buffer.sum()
            return
        for asked in self._asked:
            asked.put(True)
        for _ in self._asked:
            self._done.get()

    def _serve(self, cpu: int, asked: queue.SimpleQueue[bool]) -> None:
        os.sched_setaffinity(threading.get_native_id(), {cpu})
        while asked.get():
            self._buffer.sum()
            self._done.put(True)


class _collector_off:
    def __enter__(self) -> None:
        gc.collect()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        gc.enable()


def _compiled(template: str, line: str, names: Mapping[str, Any]) -> Callable[..., list[int]]:
    scope: dict[str, Any] = {"clock": perf_counter_ns, "repeat": repeat}
    exec(template.format(names=", ".join(names), line=line), scope)
    loop: Callable[..., list[int]] = scope["loop"]
    return loop
