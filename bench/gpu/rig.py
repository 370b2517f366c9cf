"""The package and its native twins in one process: what the probes of the device work with."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fastgraph as fg
from bench.gpu.clockwork import Way, loop, nothing
from bench.gpu.graph_sizes import CHAINS, LARGE

__all__ = ["FULL", "SMOKE", "Chain", "Counter", "Effort", "Rig", "TwinGraph"]

SOURCE = Path(__file__).with_name("device_kernels.cu")
SIGNATURES = {
    "inc": "int *p",
    "inc_early": "int *p",
    "add_value": "int *p, int v",
    "add_memory": "int *p, const int *v",
    "add": "float *out, const float *a, const float *b, int n",
    "sum8": "float *out, " + ", ".join(f"const float *{name}" for name in "abcdefgh") + ", int n",
    "linger": "unsigned long long ns",
}
BLOCK = 32
# Chains side by side lie a page apart.
PAGE = 4096
# Longer than it takes to enqueue what is timed behind it.
BUSY_NS = 300_000
# So many launches into a busy stream are timed as one.
TOGETHER = 4


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    rounds: int = 30
    samples: int = 20
    chains: tuple[int, ...] = CHAINS
    nodes: int = LARGE
    creates: int = 20_000
    runs: int = 10_000
    seconds: float = 45.0

    def few(self, n: int) -> int:
        """How many samples a round has where each takes as long as `n` nodes do."""
        return self.samples if n < 1000 else max(1, self.samples // 5)


FULL = Effort()
# On the tests' driver, to see that everything works: its numbers mean nothing.
SMOKE = Effort(2, 2, CHAINS, 20, 200, 20, 20.0)


@dataclass
class Counter:
    """Kernels that count in memory of their own, and how often they were launched."""

    rig: Rig
    data: fg.Buffer
    nodes: int
    lanes: int = 1
    step: int = 1
    launches: int = 0

    def count(self, launches: int) -> None:
        """Note launches."""
        self.launches += launches

    def check(self) -> None:
        """Each kernel of each launch ran once, on the newest value."""
        self.rig.wait()
        found = self.data.numpy().reshape(self.lanes, -1)[:, :BLOCK]
        each = [len(range(lane, self.nodes, self.lanes)) for lane in range(self.lanes)]
        wanted = np.array(each)[:, None] * self.launches * self.step
        if not (found == wanted).all():
            raise RuntimeError(f"the kernels counted {found[:, 0]}, not {wanted[:, 0]}")


class Chain(Counter):
    """A graph of the package."""

    graph: fg.DeviceGraph

    @property
    def executable(self) -> int:
        """The driver's handle."""
        return int(self.graph._state.executable.executable_handle)


class TwinGraph(Counter):
    """A graph that was built without the package; `handle` is the twin's, not the driver's."""

    handle: int
    executable: int
    function: Any

    def set(self, first: int, count: int, value: int) -> float:
        """Microseconds of giving so many nodes another value, one call each."""
        us = ctypes.c_double()
        call, place = self.rig.twin.twin_set, self.data.ptr
        function = self.function.handle
        code = call(self.handle, first, count, function, place, value, ctypes.byref(us))
        self.rig.must(code)
        return us.value

    def drop(self) -> None:
        """Free it."""
        self.rig.must(self.rig.twin.twin_drop(self.handle))


class Rig:
    """A context with its kernels, and the library of the twins.

    Parameters
    ----------
    library : ctypes.CDLL
        The compiled ``device_twin.cpp``.
    image : bytes, optional
        Kernels for the tests' driver, where nothing is measured.
    """

    def __init__(self, library: ctypes.CDLL, image: bytes | None = None) -> None:
        self.twin = _typed(library)
        self.smoke = image is not None
        self.effort = SMOKE if self.smoke else FULL
        self.ctx = fg.DeviceContext("cuda")
        source = SOURCE.read_text("utf-8")
        self.functions = {
            name: self.ctx.compile_function(source, name, signature)
            if image is None
            else self.ctx.load_function(image, name, signature)
            for name, signature in SIGNATURES.items()
        }
        self.stream = int(self.ctx.stream.__cuda_stream__()[1])
        self.must(self.twin.twin_open(self.functions["linger"].handle))
        if not self.smoke:
            self._raise_clocks()
        # As what they are taken off: behind a wait, which leaves little of a clock in the caches.
        clock = loop("pass", {"_": None}, after=self.wait)
        self.clock = float(np.median(clock(500)))
        self.twin_clock = float(np.median(self.one_by_one(self.twin.twin_clock)(500)))

    def __getitem__(self, name: str) -> Any:
        return self.functions[name]

    def must(self, code: int) -> None:
        """Fail where a twin did; it has said why."""
        if code:
            raise RuntimeError("a twin failed")

    def wait(self) -> None:
        """Wait as the package does, then as the twins do: nobody finds the other's traces."""
        self.ctx.synchronize()
        self.must(self.twin.twin_wait(self.stream))

    def busy(self, stream: int) -> None:
        """Let `stream` be busy while the next calls are timed."""
        self.must(self.twin.twin_busy(stream, BUSY_NS))

    def one_by_one(self, call: Callable[..., int], *arguments: Any) -> Callable[[int], list[float]]:
        """A function that has a twin take samples each behind the wait that our calls come after.

        Else what the wait leaves in the caches would count as our call's.
        """

        def run(samples: int) -> list[float]:
            us, taken = (ctypes.c_double * 1)(), []
            for _ in range(samples):
                self.must(call(*arguments, 1, us))
                taken.append(us[0])
                self.wait()
            return taken

        return run

    def chain(
        self,
        name: str,
        n: int,
        *arguments: Any,
        lanes: int = 1,
        programmatic: bool = False,
        step: int = 1,
        scalar: Callable[[fg.DeviceGraphBuilder], Sequence[Any]] | None = None,
    ) -> Chain:
        """A chain of `n` kernels, or several side by side, recorded through the builder.

        `scalar` gives the arguments behind the pointer for each node, from the builder.
        """
        data = self.ctx.create_buffer(lanes * PAGE // 4, "int32")
        places = [data[lane * PAGE // 4 : lane * PAGE // 4 + BLOCK] for lane in range(lanes)]
        function = self[name]

        def build(b: fg.DeviceGraphBuilder) -> None:
            behind = [arguments] * n if scalar is None else scalar(b)
            last: list[list[fg.Node]] = [[] for _ in range(lanes)]
            for i in range(n):
                lane = i % lanes
                node = b.add_function(
                    function,
                    places[lane],
                    *behind[i],
                    block_dim=BLOCK,
                    programmatic=programmatic,
                    dependencies=last[lane],
                )
                last[lane] = [node]

        graph = fg.DeviceGraph.create(self.ctx, build)
        graph.upload()
        self.wait()
        chain = Chain(self, data, n, lanes, step)
        chain.graph = graph
        return chain

    def twin_chain(
        self, name: str, n: int, *, value: int = 1, lanes: int = 1, programmatic: bool = False
    ) -> TwinGraph:
        """The same graph, built in C++ over the same kernels."""
        data = self.ctx.create_buffer(lanes * PAGE // 4, "int32")
        twin = TwinGraph(self, data, n, lanes, value)
        twin.function = self[name]
        twin.handle, _ = self.twin_build(self[name], data, n, value, lanes, programmatic)
        twin.executable = int(self.twin.twin_exec(twin.handle))
        return twin

    def twin_build(
        self,
        function: Any,
        data: fg.Buffer,
        n: int,
        value: int = 1,
        lanes: int = 1,
        programmatic: bool = False,
    ) -> tuple[int, tuple[float, float]]:
        """A graph in C++: its handle, and microseconds of adding nodes and of instantiating."""
        us = (ctypes.c_double * 2)()
        build, early = self.twin.twin_build, int(programmatic)
        made = build(function.handle, data.ptr, value, 0, n, lanes, early, us)
        if not made:
            raise RuntimeError("a twin failed")
        return made, (us[0], us[1])

    def enqueue(self, name: str, stream: int, data: int, n: int) -> None:
        """Launch a kernel `n` times, also into a stream that somebody captures."""
        self.must(self.twin.twin_enqueue(self[name].handle, stream, data, n))

    # ---- ways to do the same ---------------------------------------------------------------------
    def replay_call(self, chain: Chain, busy: bool) -> Way:
        """The call of ``replay()`` into a drained or a busy stream."""
        together = TOGETHER if busy else 1

        def before() -> None:
            if busy:
                self.busy(self.stream)
                chain.graph.replay()
            chain.count(together + busy)

        call = loop(
            "graph.replay()",
            {"graph": chain.graph},
            before=before,
            after=self.wait,
            together=together,
        )
        return Way(call, chain.check, self.clock / together)

    def launch_call(
        self, executable: int, stream: int, busy: bool, count: Callable[[int], None]
    ) -> Way:
        """The same by a loop in C on an executable, whosoever it is."""
        together = TOGETHER if busy else 1

        twin, ns = self.twin.twin_launches, BUSY_NS if busy else 0
        taken = self.one_by_one(lambda n, us: twin(executable, stream, n, ns, together, us))

        def run(samples: int) -> list[float]:
            count(samples * (together + busy))
            return taken(samples)

        return Way(run, clock=self.twin_clock / together)

    def chain_launch_call(self, chain: Chain, busy: bool) -> Way:
        """The loop in C on the executable of `chain`."""
        way = self.launch_call(chain.executable, self.stream, busy, chain.count)
        return Way(way.run, chain.check, way.clock)

    def replay_rounds(self, chain: Chain, together: int = 10) -> Way:
        """So many replays one behind the other and one wait: the device's time."""

        def before() -> None:
            chain.count(together)

        lines = "; ".join(["graph.replay()"] * together + ["wait()"])
        names = {"graph": chain.graph, "wait": self.ctx.synchronize}
        timed = loop(lines, names, before=before)
        return Way(lambda samples: [us / together for us in timed(samples)], chain.check)

    def twin_rounds(self, twin: TwinGraph, together: int = 10) -> Way:
        """The same by the driver's calls alone."""

        def run(samples: int) -> list[float]:
            us = (ctypes.c_double * samples)()
            self.must(self.twin.twin_rounds(twin.executable, self.stream, samples, together, us))
            twin.count(samples * together)
            return list(us)

        return Way(run, twin.check)

    def call(
        self,
        line: str,
        names: dict[str, Any],
        check: Callable[[], object] = nothing,
        **options: Any,
    ) -> Way:
        """Any call from Python; the stream is drained after each."""
        return Way(loop(line, names, after=self.wait, **options), check, self.clock)

    def _raise_clocks(self) -> None:
        self.must(self.twin.twin_busy(self.stream, 400_000_000))
        self.wait()


def _typed(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer, number, big = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64
    many = ctypes.POINTER(ctypes.c_double)
    arguments = {
        "twin_open": [pointer],
        "twin_clock": [number, many],
        "twin_busy": [pointer, big],
        "twin_wait": [pointer],
        "twin_launches": [pointer, pointer, number, big, number, many],
        "twin_rounds": [pointer, pointer, number, number, many],
        "twin_enqueue": [pointer, pointer, big, number],
        "twin_eager": [pointer, pointer, big, number, number, many],
        "twin_build": [pointer, big, number, big, number, number, number, many],
        "twin_exec": [pointer],
        "twin_drop": [pointer],
        "twin_set": [pointer, number, number, pointer, big, number, many],
        "twin_inputs": [
            *(pointer, pointer, number, ctypes.c_size_t, pointer, pointer, pointer),
            *(ctypes.c_size_t, number, many, many),
        ],
    }
    for name, types in arguments.items():
        getattr(library, name).argtypes = types
    library.twin_build.restype = library.twin_exec.restype = pointer
    return library
