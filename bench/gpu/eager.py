"""A loop of launches, and the same work as a graph: what recording it is good for."""

from __future__ import annotations

import ctypes
from typing import Any

import fastgraph as fg
from bench.gpu.clockwork import Way, in_turn
from bench.gpu.rig import BLOCK, Rig

__all__ = ["eager"]


def eager(rig: Rig) -> None:
    """3 and 100 kernels: a loop of ``launch``, the replayed graph, the cached and replayed one."""
    for n in (3, 100):
        _compare(rig, n)


def _compare(rig: Rig, n: int) -> None:
    ctx, function = rig.ctx, rig["inc"]
    data = ctx.create_buffer(BLOCK, "int32")
    counted = [0]
    cache = fg.DeviceGraphCache()

    def build(b: fg.DeviceGraphBuilder) -> None:
        last: list[fg.Node] = []
        for _ in range(n):
            last = [b.add_function(function, data, block_dim=BLOCK, dependencies=last)]

    def launch_all() -> None:
        for _ in range(n):
            ctx.launch(function, data, block_dim=BLOCK)
        ctx.synchronize()

    def count() -> None:
        counted[0] += n

    def check() -> None:
        rig.wait()
        if (data.numpy() != counted[0]).any():
            raise RuntimeError(f"the kernels counted {data.numpy()[0]}, not {counted[0]}")

    graph = fg.DeviceGraph.create(ctx, build, cache=cache)
    names: dict[str, Any] = {
        "DeviceGraph": fg.DeviceGraph,
        "ctx": ctx,
        "build": build,
        "cache": cache,
        "graph": graph,
        "launch_all": launch_all,
    }
    cached = "DeviceGraph.create(ctx, build, cache=cache).replay(); ctx.synchronize()"

    def native(samples: int) -> list[float]:
        us = (ctypes.c_double * samples)()
        counted[0] += n * samples
        rig.must(rig.twin.twin_eager(function.handle, rig.stream, data.ptr, n, samples, us))
        return list(us)

    ways = {
        "loop of launches": rig.call("launch_all()", names, check, before=count),
        "cached, replayed": rig.call(cached, names, check, before=count),
        "replayed": rig.call("graph.replay(); ctx.synchronize()", names, check, before=count),
        "loop of launches in C": Way(native, check, rig.twin_clock),
    }
    found = in_turn(ways, rig.effort.rounds, rig.effort.samples)
    for way, series in found.items():
        series.report(f"{n} kernels: {way}")
    for way in ("cached, replayed", "replayed"):
        found["loop of launches"].over(found[way], f"{n} kernels: loop of launches over {way}")
    found["loop of launches"].over(
        found["loop of launches in C"], f"{n} kernels: loop of launches over C"
    )
