"""Live inputs: a cached graph created, filled, replayed and waited for; also by hand elsewhere."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

import fastgraph as fg
from bench.gpu.clockwork import Series, Way, in_turn, loop
from bench.gpu.native import driver, say
from bench.gpu.rig import Rig

__all__ = ["eight_inputs", "inputs_beside", "two_inputs"]

# Small enough that the twins share one block, so that one copy from the host fills all.
LENGTH, MANY_LENGTH, MANY = 512, 128, 8
CREATE = "DeviceGraph.create(ctx, build, x, y, cache=cache)"
Arrays = list[np.ndarray[Any, Any]]


class Summed:
    """A cached graph that adds its inputs up, live inputs for it, and what they should give."""

    def __init__(self, rig: Rig, count: int, length: int, kernel: str) -> None:
        self.rig = rig
        self.cache = fg.DeviceGraphCache()
        self.out = rig.ctx.create_buffer(length)
        self.twins: list[int] = []
        grid = -(-length // 128)

        def build(b: fg.DeviceGraphBuilder, *stable: fg.Buffer) -> None:
            self.twins = [twin.ptr for twin in stable]
            b.add_function(rig[kernel], self.out, *stable, length, grid_dim=grid, block_dim=128)

        self.build = build
        self.host: Arrays = [np.zeros(length, np.float32) for _ in range(count)]
        self.device = [rig.ctx.create_buffer(length) for _ in range(count)]
        self.graph = self.create(self.device)
        self.hosted = self.create(self.host)
        self.expected = np.zeros(length, np.float32)

    def create(self, live: Sequence[Any]) -> fg.DeviceGraph:
        """The graph of the cache."""
        return fg.DeviceGraph.create(self.rig.ctx, self.build, *live, cache=self.cache)

    @property
    def executable(self) -> int:
        """The driver's handle."""
        return int(self.graph._state.executable.executable_handle)

    def prepare(self, number: int) -> None:
        """Other values in the live inputs, and none in the output."""
        for i, (host, device) in enumerate(zip(self.host, self.device, strict=True)):
            host[:] = np.arange(len(host)) * (i + 1) + number
            device.copy_from(host)
        self.expected = np.sum(self.host, axis=0, dtype=np.float32)
        self.out.copy_from(np.zeros_like(self.expected))
        self.rig.wait()

    def check(self) -> None:
        """The output is the sum of the live inputs."""
        self.rig.wait()
        if not np.array_equal(self.out.numpy(), self.expected):
            raise RuntimeError("the sum is wrong: an input did not arrive")

    def names(self, host: bool) -> dict[str, Any]:
        """What the lines below name."""
        x, y, *_ = live = self.host if host else self.device
        return {
            "DeviceGraph": fg.DeviceGraph,
            "graph": self.hosted if host else self.graph,
            "ctx": self.rig.ctx,
            "wait": self.rig.ctx.synchronize,
            "build": self.build,
            "cache": self.cache,
            "x": x,
            "y": y,
            "live": tuple(live),
        }


class ByHand:
    """The copies and the launch by the driver's calls alone: the call, and the call with its wait.

    From the device by one batch, from the host through pinned memory by one copy.
    """

    def __init__(self, of: Summed, host: bool) -> None:
        self.of, self.rig = of, of.rig
        self.count = len(of.twins)
        self.nbytes = of.device[0].nbytes
        self.stride = of.twins[1] - of.twins[0]
        beside = [of.twins[0] + i * self.stride for i in range(self.count)]
        if host and (beside != of.twins or not self.nbytes <= self.stride < 2 * self.nbytes):
            raise RuntimeError(f"the twins do not lie side by side: {of.twins}")
        pinned = of.rig.ctx.create_host_buffer(self.count * max(self.stride, self.nbytes), "uint8")
        self.staging = pinned if host else None
        addresses = [x.ctypes.data for x in of.host] if host else [x.ptr for x in of.device]
        self.to = (ctypes.c_uint64 * self.count)(*of.twins)
        self.of_ = (ctypes.c_uint64 * self.count)(*addresses)

    def way(self, with_wait: bool) -> Way:
        """One of the two times."""

        def run(samples: int) -> list[float]:
            call, done = ((ctypes.c_double * samples)() for _ in range(2))
            rig = self.rig
            rig.must(
                rig.twin.twin_inputs(
                    self.of.executable,
                    rig.stream,
                    self.count,
                    self.nbytes,
                    self.to,
                    self.of_,
                    None if self.staging is None else self.staging.ptr,
                    self.stride,
                    samples,
                    call,
                    done,
                )
            )
            return list(done if with_wait else call)

        return Way(run, self.of.check, self.rig.twin_clock)


def two_inputs(rig: Rig) -> None:
    """``create`` that hits, ``replay(x, y)`` and the wait, and each alone."""
    summed = Summed(rig, 2, LENGTH, "add")
    for kind in ("device", "host"):
        host = kind == "host"
        names = summed.names(host)
        ways = {
            "create + replay(x, y) + wait": rig.call(
                f"{CREATE}.replay(x, y); wait()", names, summed.check
            ),
            "replay(x, y) + wait": rig.call("graph.replay(x, y); wait()", names, summed.check),
            "replay(x, y)": rig.call("graph.replay(x, y)", names, summed.check),
            "create, a hit": rig.call(CREATE, names),
            "by hand in C": ByHand(summed, host).way(True),
        }
        found = _report(rig, ways, summed.prepare, kind)
        whole = found["create + replay(x, y) + wait"]
        whole.over(found["by hand in C"], f"{kind}: create + replay(x, y) + wait over C")
    stats = summed.cache.stats
    say("graphs built", stats.builds, "")


def eight_inputs(rig: Rig) -> None:
    """Eight live inputs: the call, and the call with its wait, beside the driver's calls alone."""
    summed = Summed(rig, MANY, MANY_LENGTH, "sum8")
    for kind in ("device", "host"):
        host = kind == "host"
        names, hand = summed.names(host), ByHand(summed, host)
        ways = {
            "replay(8 inputs)": rig.call("graph.replay(*live)", names, summed.check),
            "C": hand.way(False),
            "replay(8 inputs) + wait": rig.call("graph.replay(*live); wait()", names, summed.check),
            "C + wait": hand.way(True),
        }
        found = _report(rig, ways, summed.prepare, kind)
        found["replay(8 inputs)"].over(found["C"], f"{kind}: replay(8 inputs) over C")
        found["replay(8 inputs)"].minus(found["C"], f"{kind}: replay(8 inputs) minus C")
        found["replay(8 inputs) + wait"].over(
            found["C + wait"], f"{kind}: replay(8 inputs) + wait over C"
        )
        _count_copies(rig, summed, kind)


def _count_copies(rig: Rig, summed: Summed, kind: str) -> None:
    """How many calls of the driver copy the inputs: the tests' driver counts them."""
    counted = getattr(driver(), "fake_calls", None) if rig.smoke else None
    if counted is None:
        return
    names = (b"cuMemcpyBatchAsync", b"cuMemcpyHtoDAsync", b"cuMemcpyDtoDAsync", b"cuMemcpyAsync")
    before = sum(counted(name) for name in names)
    graph, live = (summed.hosted, summed.host) if kind == "host" else (summed.graph, summed.device)
    graph.replay(*live)
    copies = sum(counted(name) for name in names) - before
    rig.wait()
    say(f"{kind}: copies of the driver for 8 inputs", copies, "")


def inputs_beside(rig: Rig, peer_name: str) -> None:
    """The same in another package: static inputs, copies, replay, wait."""
    peer = import_module(f"bench.gpu.peers.{peer_name}")
    summed = Summed(rig, 2, LENGTH, "add")
    theirs = peer.inputs(LENGTH)

    def prepare(number: int) -> None:
        summed.prepare(number)
        theirs.load(*summed.host)

    def check() -> None:
        if not np.array_equal(theirs.result(), summed.expected):
            raise RuntimeError(f"{peer.NAME}: the sum is wrong")

    for kind, line in theirs.lines.items():
        names = summed.names(kind == "host")
        ways = {
            "create + replay(x, y) + wait": rig.call(
                f"{CREATE}.replay(x, y); wait()", names, summed.check
            ),
            "replay(x, y) + wait": rig.call("graph.replay(x, y); wait()", names, summed.check),
            peer.NAME: Way(loop(line, theirs.names), check, rig.clock),
        }
        found = _report(rig, ways, prepare, kind)
        for way in list(ways)[:2]:
            found[way].over(found[peer.NAME], f"{kind}: {way} over {peer.NAME}")


def _report(
    rig: Rig, ways: dict[str, Way], prepare: Callable[[int], object], kind: str
) -> dict[str, Series]:
    found = in_turn(ways, rig.effort.rounds, rig.effort.samples, prepare)
    for way, series in found.items():
        series.report(f"{kind}: {way}")
    return found
