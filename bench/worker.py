"""A contender's own process: ``python -m bench.worker MODULE``, told what to do through a pipe."""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import struct
import sys
from collections.abc import Sequence
from time import perf_counter_ns
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np

from bench.machine import last_level_cache
from bench.timing import CacheWalker, Call, Stopwatch

__all__ = ["receive", "send"]

CACHE_FACTOR = 3
LARGEST_WALK = 1 << 30


def send(pipe: BinaryIO, message: object) -> None:
    """Write one pickled message."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(struct.pack("<q", len(data)) + data)
    pipe.flush()


def receive(pipe: BinaryIO) -> Any:
    """Read one message; EOFError when the other side has gone."""
    head = pipe.read(8)
    if len(head) < 8:
        raise EOFError("the other process has ended")
    return pickle.loads(pipe.read(struct.unpack("<q", head)[0]))


class Contender:
    """The calls of one contender's module, by key."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._calls: dict[str, Call] = {}
        self._watches: dict[str, Stopwatch] = {}
        self._walker: CacheWalker | None = None

    def build(self, key: str, spec: dict[str, Any], block: int = 1) -> str:
        """Make a call ready under `key`; the note of what was chosen comes back."""
        call = self._module.build(spec)
        self._calls[key] = call
        self._watches[key] = Stopwatch(call, block)
        return str(call.note)

    def clear(self) -> None:
        """Drop all calls."""
        self._watches.clear()
        self._calls.clear()
        gc.collect()

    def load(self, key: str, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        """Put `arrays` where the call reads its inputs."""
        for place, array in zip(self._calls[key].inputs, arrays, strict=True):
            place[...] = array

    def estimate(self, key: str) -> float:
        """Nanoseconds of a call, roughly: the best of a few."""
        return min(self._watches[key].hot(5))

    def round(self, key: str, samples: int, cold: bool) -> list[float]:
        """Nanoseconds of a call, `samples` times."""
        if not cold:
            return self._watches[key].hot(samples)
        if self._walker is None:
            nbytes = min(CACHE_FACTOR * last_level_cache(), LARGEST_WALK)
            self._walker = CacheWalker(nbytes, sorted(os.sched_getaffinity(0)))
        return self._watches[key].cold(samples, self._walker)

    def result(self, key: str) -> np.ndarray[Any, Any]:
        """A copy of what the latest call computed."""
        return np.array(self._calls[key].result())

    def about(self) -> tuple[dict[str, str], list[str]]:
        """The process's environment, and the modules that it has imported."""
        return dict(os.environ), sorted(sys.modules)

    def apply(self, function: str, *arguments: Any) -> Any:
        """Call a function of the module."""
        return getattr(self._module, function)(*arguments)

    def seconds(self, function: str, *arguments: Any) -> tuple[float, Any]:
        """Time one call of a function of the module, which returns what proves that it worked."""
        gc.collect()
        start = perf_counter_ns()
        done = getattr(self._module, function)(*arguments)
        return (perf_counter_ns() - start) / 1e9, done


def main() -> None:
    """Serve until the pipe closes."""
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not end up between the messages
    module, cpus = receive(requests)
    if cpus:
        os.sched_setaffinity(0, cpus)
    try:
        contender = Contender(importlib.import_module(module))
    except Exception as error:
        send(replies, (False, f"{type(error).__name__}: {error}"))
        return
    send(replies, (True, ""))
    while True:
        try:
            method, arguments = receive(requests)
        except EOFError:
            return
        try:
            reply = (True, getattr(contender, method)(*arguments))
        except Exception as error:  # the asking side raises it
            reply = (False, f"{type(error).__name__}: {error}")
        send(replies, reply)


if __name__ == "__main__":
    main()
