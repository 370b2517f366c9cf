"""Device graphs of native kernels that do nothing, and the same calls in a loop in C."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np

import fastgraph as fg
from bench.native import compiled
from bench.timing import Call

__all__ = ["build", "native_ns"]

Array = np.ndarray[Any, Any]
Kernels = dict[str, fg.NativeKernel]


def build(spec: dict[str, Any]) -> Call:
    """What ``kind`` says over ``nodes`` nodes.

    ``native``, ``empty`` and ``roots`` (no edges) replay a graph; ``kernels``, ``memsets`` and
    ``copies`` make one; ``hit`` finds one in a cache by its two inputs; ``hit and replay`` also
    replays it with them, ``inputs`` does only that, and ``run`` returns the outputs too. ``set``
    changes a scalar of a graph for good, ``value`` for one replay.
    """
    kind, nodes = spec["kind"], spec["nodes"]
    ctx = fg.DeviceContext("cpu")
    if kind in ("hit", "hit and replay", "inputs", "run"):
        return _hit(ctx, kind)
    if kind in ("set", "value"):
        return _valued(ctx, kind)
    if kind in ("kernels", "memsets", "copies"):
        return _built(ctx, kind, nodes)
    kernels = _kernels()
    counter = ctx.create_buffer(1, "int32")
    recording = _recording(kernels["nothing"], (), kind, nodes)
    # The same graph of kernels that count tells whether all nodes are called.
    counting = _recording(kernels["count"], (counter,), kind, nodes)
    graph = fg.DeviceGraph.create(ctx, recording)
    # The check would refuse that unordered kernels count in one place; they do it atomically.
    counted = fg.DeviceGraph.create(ctx, counting, check=False)

    def calls() -> Array:
        before = int(counter.numpy()[0])
        counted.replay()
        return np.array([int(counter.numpy()[0]) - before, len(graph.nodes)])

    return Call("replay()", {"replay": graph.replay}, [], calls)


def _built(ctx: fg.DeviceContext, kind: str, nodes: int) -> Call:
    """Making a chain of nodes; the graph leaves the number of its nodes in `x`."""
    x, y, z = (ctx.create_buffer(1, "int32") for _ in range(3))
    pointer = ctypes.cast(compiled_once().count, ctypes.c_void_p).value
    signature = "int32_t *counter, const int32_t *a, const int32_t *b, int n"
    count = fg.NativeKernel(pointer, signature, owner=compiled_once())

    def recording(b: fg.DeviceGraphBuilder) -> None:
        last: list[fg.Node] = []
        for number in range(nodes):
            if kind == "kernels":
                node = b.add_function(count, x, y, z, number, dependencies=last)
            elif kind == "memsets":
                node = b.add_memset(x, number + 1, dependencies=last)
            else:
                node = b.add_copy(*((x, y) if number % 2 else (y, x)), dependencies=last)
            last = [node]

    def result() -> Array:
        x.copy_from(np.array([nodes if kind == "copies" else 0], "i4"))
        graph = fg.DeviceGraph.create(ctx, recording)
        graph.replay()
        return np.array([int(x.numpy()[0]), len(graph.nodes)])

    names = {"create": fg.DeviceGraph.create, "ctx": ctx, "recording": recording}
    return Call("create(ctx, recording)", names, [], result)


def native_ns(nodes: int, samples: int = 5) -> list[float]:
    """Nanoseconds that a loop in C needs for as many calls through a pointer."""
    library = compiled_once()
    turns = ctypes.c_int64(max(20, 200_000 // nodes))
    return [library.time_calls(ctypes.c_int32(nodes), turns) for _ in range(samples)]


_libraries: list[ctypes.CDLL] = []


def compiled_once() -> ctypes.CDLL:
    """The library of the process: the loop calls the very function that the graphs call."""
    if not _libraries:
        _libraries.append(compiled())
    return _libraries[0]


def _kernels() -> Kernels:
    library = compiled_once()
    types = {
        "nothing": "",
        "count": "int32_t *counter",
        "keep": "int32_t *place, int32_t value",
    }
    return {
        name: fg.NativeKernel(
            ctypes.cast(getattr(library, name), ctypes.c_void_p).value, signature, owner=library
        )
        for name, signature in types.items()
    }


def _recording(
    kernel: fg.NativeKernel, arguments: tuple[Any, ...], kind: str, nodes: int
) -> Callable[[fg.DeviceGraphBuilder], None]:
    def recording(b: fg.DeviceGraphBuilder) -> None:
        last: list[fg.Node] = []
        for _ in range(nodes):
            if kind == "empty" and not arguments:
                node = b.add_empty(dependencies=last)
            else:
                node = b.add_function(kernel, *arguments, dependencies=last)
            last = [node] if kind != "roots" else []

    return recording


def _hit(ctx: fg.DeviceContext, kind: str) -> Call:
    x, y = np.full(16, 1, "f4"), np.full(16, 2, "f4")
    outs = [ctx.create_buffer(16, "f4") for _ in range(2)]
    cache = fg.DeviceGraphCache()

    def recording(b: fg.DeviceGraphBuilder, *twins: fg.Buffer) -> None:
        for out, twin in zip(outs, twins, strict=True):
            b.add_copy(out, twin)
            b.add_output(out)

    create = fg.DeviceGraph.create
    graph = create(ctx, recording, x, y, cache=cache)
    names = {"create": create, "ctx": ctx, "recording": recording, "x": x, "y": y, "cache": cache}
    line = "create(ctx, recording, x, y, cache=cache)"
    if kind == "hit and replay":
        line += ".replay(x, y); ctx.synchronize()"
    elif kind in ("inputs", "run"):
        names |= {"inputs": graph.replay, "run": graph.run}
        line = f"{kind}(x, y)"

    def result() -> Array:
        create(ctx, recording, x, y, cache=cache).replay(x, y)
        return np.array([*(out.numpy()[5] for out in outs), cache.stats.misses])

    return Call(line, names, [], result)


def _valued(ctx: fg.DeviceContext, kind: str) -> Call:
    place, values = ctx.create_buffer(1, "int32"), cycle((2, 3))

    def recording(b: fg.DeviceGraphBuilder) -> None:
        b.add_function(_kernels()["keep"], place, b.scalar("v", "int32", 1))

    graph = fg.DeviceGraph.create(ctx, recording)
    call = graph.set if kind == "set" else graph.replay

    def result() -> Array:
        seen = []
        for given in ({"v": 7}, {}):
            graph.replay(**given)
            seen.append(int(place.numpy()[0]))
        return np.array([seen[0], seen[1] in (1, 2, 3)])

    return Call("call(v=next())", {"call": call, "next": values.__next__}, [], result)
