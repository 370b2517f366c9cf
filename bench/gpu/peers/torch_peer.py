"""Graphs of PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from bench.gpu.peers import PeerGraph, PeerInputs

__all__ = ["NAME", "VERSION", "chain", "inputs"]

NAME = "torch"
VERSION = torch.__version__


def _stream() -> torch.cuda.Stream:
    """A stream of its own, current from now on: ``replay`` goes to the current one."""
    stream = torch.cuda.Stream()
    torch.cuda.set_stream(stream)
    return stream


def chain(rig: Any, name: str, data: int, n: int) -> PeerGraph:
    """A captured chain of `n` of the rig's kernels."""
    stream = _stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        rig.enqueue(name, torch.cuda.current_stream().cuda_stream, data, n)
    torch.cuda.synchronize()
    handle = getattr(graph, "raw_cuda_graph_exec", None)
    names = {"graph": graph}
    executable = None if handle is None else int(handle())
    return PeerGraph("graph.replay()", names, graph.replay, stream.cuda_stream, executable)


def inputs(n: int) -> PeerInputs:
    """``out = x + y`` over static inputs; host arrays come through pinned memory."""
    stream = _stream()
    static = [torch.zeros(n, device="cuda") for _ in range(2)]
    live = [torch.zeros(n, device="cuda") for _ in range(2)]
    pinned = [torch.zeros(n).pin_memory() for _ in range(2)]
    host = [torch.zeros(n) for _ in range(2)]
    out = torch.zeros(n, device="cuda")
    torch.add(*static, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        torch.add(*static, out=out)
    torch.cuda.synchronize()
    places = {"s": static, "": live, "p": pinned, "h": host}
    names = {
        f"{kind}{axis}": a
        for kind, pair in places.items()
        for axis, a in zip("xy", pair, strict=True)
    }

    def load(x: Any, y: Any) -> None:
        for places in (live, host):
            for place, value in zip(places, (x, y), strict=True):
                place.copy_(torch.from_numpy(value))
        torch.cuda.synchronize()

    def result() -> Any:
        found = out.cpu().numpy()
        out.zero_()
        torch.cuda.synchronize()
        return found

    end = "graph.replay(); stream.synchronize()"
    lines = {
        "device": f"sx.copy_(x); sy.copy_(y); {end}",
        "host": "px.copy_(hx); py.copy_(hy); sx.copy_(px, non_blocking=True); "
        f"sy.copy_(py, non_blocking=True); {end}",
    }
    return PeerInputs(lines, {**names, "graph": graph, "stream": stream}, load, result)
