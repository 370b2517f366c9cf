"""A replay beside one busy Python thread: what it costs to let the GIL go, and to keep it."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.gpu.native import Built, load, say

NOT_READY = 600
ROUNDS, ROUNDS_BUSY = 400, 100
POLL_US = 50.0
NODES = (10, 1000)


class Policies:
    """The same native calls, with the GIL kept and with it let go."""

    def __init__(self, built: Built):
        self.keep = _typed(load(built, keep_gil=True))
        self.free = _typed(load(built))

    def polled(self, executable: int) -> int:
        """Launch and poll for a while with the GIL; wait on without it."""
        code = self.keep.replay_launch(executable)
        if code:
            return code
        code = self.keep.replay_poll(POLL_US)
        return self.free.replay_wait() if code == NOT_READY else code


def _typed(library: ctypes.CDLL) -> ctypes.CDLL:
    library.replay_prepare.restype = ctypes.c_void_p
    library.replay_prepare.argtypes = [ctypes.c_int]
    library.replay_launch.argtypes = [ctypes.c_void_p]
    library.replay_launch_wait.argtypes = [ctypes.c_void_p]
    library.replay_poll.argtypes = [ctypes.c_double]
    library.replay_sum.restype = ctypes.c_float
    return library


@contextmanager
def busy_thread(busy: bool) -> Iterator[list[int]]:
    """A thread that does nothing but count, as any Python work would; or none."""
    turns, stop = [0], threading.Event()

    def count() -> None:
        while not stop.is_set():
            turns[0] += 1

    if not busy:
        yield turns
        return
    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield turns
    finally:
        stop.set()
        thread.join()


def measure(built: Built) -> None:
    """Print p50 and p99 of each call under each policy, alone and beside the busy thread."""
    policies = Policies(built)
    keep, free = policies.keep, policies.free
    executables = {n: keep.replay_prepare(n) for n in NODES}
    if not all(executables.values()):
        raise RuntimeError("no executable")
    launches = dict.fromkeys(NODES, 20)  # those of the preparation
    with busy_thread(True) as turns:
        began, before = time.perf_counter(), turns[0]
        time.sleep(0.3)
        alone = (turns[0] - before) / (time.perf_counter() - began)

    for busy in (False, True):
        rounds = ROUNDS_BUSY if busy else ROUNDS
        beside = "beside a busy thread" if busy else "alone"
        for policy, library in (("GIL kept", keep), ("GIL let go", free)):
            row(
                f"empty call, {policy}, {beside}", library.replay_nothing, keep, rounds, busy, alone
            )
        for n, executable in executables.items():
            ways = {
                "launch call, GIL kept": lambda e=executable: keep.replay_launch(e),
                "launch call, GIL let go": lambda e=executable: free.replay_launch(e),
                "launch + wait, GIL kept": lambda e=executable: keep.replay_launch_wait(e),
                "launch + wait, GIL let go": lambda e=executable: free.replay_launch_wait(e),
                f"launch + poll {POLL_US:.0f} us with the GIL, then wait without": (
                    lambda e=executable: policies.polled(e)
                ),
            }
            for name, call in ways.items():
                launches[n] += rounds
                row(f"{n} nodes: {name}, {beside}", call, keep, rounds, busy, alone)
    expected = sum(n * count for n, count in launches.items())
    if keep.replay_sum() != expected:
        raise RuntimeError(f"the kernels ran {keep.replay_sum()} times, not {expected}")


def row(
    name: str,
    call: Callable[[], int],
    keep: ctypes.CDLL,
    rounds: int,
    busy: bool,
    alone: float,
) -> None:
    """Time `call`, the stream drained each time, and print its findings."""
    times = []
    with busy_thread(busy) as turns:
        began, before = time.perf_counter(), turns[0]
        for _ in range(rounds):
            start = time.perf_counter_ns()
            code = call()
            times.append(time.perf_counter_ns() - start)
            if code or keep.replay_wait():
                raise RuntimeError(f"{name}: error {code}")
        rate = (turns[0] - before) / (time.perf_counter() - began)
    times.sort()
    note = f"the busy thread kept {rate / alone:.0%} of its speed" if busy else ""
    say(f"{name} p50", times[rounds // 2] / 1e3, "us", note=note)
    say(f"{name} p99", times[rounds * 99 // 100] / 1e3, "us")
