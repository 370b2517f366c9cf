"""Graphs of CuPy."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from bench.gpu.peers import PeerGraph, PeerInputs

__all__ = ["NAME", "VERSION", "chain", "inputs"]

NAME = "CuPy"
VERSION = cupy.__version__


def chain(rig: Any, name: str, data: int, n: int) -> PeerGraph:
    """A captured chain of `n` of the rig's kernels."""
    stream = cupy.cuda.Stream(non_blocking=True)
    stream.begin_capture()
    rig.enqueue(name, stream.ptr, data, n)
    graph = stream.end_capture()
    names = {"graph": graph, "stream": stream}
    executable = getattr(graph, "graphExec", None)
    return PeerGraph(
        "graph.launch(stream)", names, lambda: graph.launch(stream), stream.ptr, executable
    )


def inputs(n: int) -> PeerInputs:
    """``out = x + y`` over static inputs."""
    stream = cupy.cuda.Stream(non_blocking=True)
    stream.use()
    sx, sy, x, y, out = (cupy.zeros(n, np.float32) for _ in range(5))
    hx, hy = (np.zeros(n, np.float32) for _ in range(2))
    cupy.add(sx, sy, out=out)
    stream.synchronize()
    stream.begin_capture()
    cupy.add(sx, sy, out=out)
    graph = stream.end_capture()

    def load(one: Any, other: Any) -> None:
        for places in ((x, y), (hx, hy)):
            for place, value in zip(places, (one, other), strict=True):
                place[...] = cupy.asarray(value) if isinstance(place, cupy.ndarray) else value
        stream.synchronize()

    def result() -> Any:
        found = out.get()
        out.fill(0)
        stream.synchronize()
        return found

    end = "graph.launch(stream); stream.synchronize()"
    copy = "{0}.data.copy_from_device_async({1}.data, {1}.nbytes, stream)"
    lines = {
        "device": f"{copy.format('sx', 'x')}; {copy.format('sy', 'y')}; {end}",
        "host": f"sx.set(hx, stream=stream); sy.set(hy, stream=stream); {end}",
    }
    names = {"sx": sx, "sy": sy, "x": x, "y": y, "hx": hx, "hy": hy}
    return PeerInputs(lines, {**names, "graph": graph, "stream": stream}, load, result)
