"""Graphs of cuda.core."""

from __future__ import annotations

from typing import Any

import cuda.core
from cuda.core import Device

from bench.gpu.peers import PeerGraph

__all__ = ["NAME", "VERSION", "chain"]

NAME = "cuda.core"
VERSION = cuda.core.__version__


def chain(rig: Any, name: str, data: int, n: int) -> PeerGraph:
    """A captured chain of `n` of the rig's kernels."""
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    builder = device.create_graph_builder()
    builder.begin_building()
    rig.enqueue(name, int(builder.stream.handle), data, n)
    graph = builder.end_building().complete()
    names = {"graph": graph, "stream": stream}
    handle = getattr(graph, "handle", None)
    return PeerGraph(
        "graph.launch(stream)",
        names,
        lambda: graph.launch(stream),
        int(stream.handle),
        None if handle is None else int(handle),
    )
