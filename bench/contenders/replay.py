"""Device graphs of native kernels that do nothing, and the same calls in a loop in C."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

import fastgraph as fg
from bench.native import compiled
from bench.timing import Call

__all__ = ["build", "native_ns"]


def build(spec: dict[str, Any]) -> Call:
    """The replay of a chain of ``nodes`` nodes: ``kind`` native, empty, or roots (no edges)."""
    library = compiled()
    kernel, counting = (
        fg.NativeKernel(ctypes.cast(function, ctypes.c_void_p).value, types, owner=library)
        for function, types in ((library.nothing, ""), (library.count, "int32_t *counter"))
    )
    ctx = fg.DeviceContext("cpu")
    counter = ctx.create_buffer(1, "int32")
    kind, nodes = spec["kind"], spec["nodes"]

    def build_counting(b: fg.DeviceGraphBuilder) -> None:
        last: list[fg.Node] = []
        for _ in range(nodes):
            last = [b.add_function(counting, counter, dependencies=last)]

    def build_timed(b: fg.DeviceGraphBuilder) -> None:
        last: list[fg.Node] = []
        for _ in range(nodes):
            if kind == "empty":
                node = b.add_empty(dependencies=last)
            else:
                node = b.add_function(kernel, dependencies=last)
            last = [node] if kind != "roots" else []

    graph = fg.DeviceGraph.create(ctx, build_timed)
    counted = fg.DeviceGraph.create(ctx, build_counting)

    def calls() -> np.ndarray[Any, Any]:
        before = int(counter.numpy()[0])
        counted.replay()
        return np.array([int(counter.numpy()[0]) - before, len(graph.nodes)])

    return Call("replay()", {"replay": graph.replay}, [], calls)


def native_ns(nodes: int) -> float:
    """Nanoseconds that a loop in C needs for as many calls through a pointer."""
    library = compiled()
    arguments = ctypes.c_int32(nodes), ctypes.c_int64(2000)
    return float(np.median([library.time_calls(*arguments) for _ in range(9)]))
