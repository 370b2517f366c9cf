"""Everything that is made is counted, and gone when the last reference is."""

from __future__ import annotations

import contextlib
import copy
import gc

import numpy as np

import fastgraph as fg
from fastgraph._core import counters

EVERYWHERE = ["blocks", "block_bytes", "buffers", "programs", "executables", "engines"]
ON_GPUS = ["streams", "events", "modules", "device_bytes", "pinned_bytes", "products"]


def test_names():
    snapshot = counters.snapshot()
    assert list(snapshot) == EVERYWHERE + ON_GPUS
    assert all(count >= 0 for count in snapshot.values())


def use_scratch(b, x):
    scratch = b.create_buffer(1000)
    n = b.add_copy(scratch, x)
    b.add_copy(x, scratch, dependencies=[n])
    b.add_output(scratch)


def everything():
    """One of each kind of object, in use."""
    ctx = fg.DeviceContext("cpu")
    x = ctx.create_buffer(1000)
    graph = fg.DeviceGraph.create(ctx, lambda b: use_scratch(b, x))
    graph.run()
    g = fg.Graph("scale")
    v, w = g.input("v", (100,)), g.param("w", (100,))
    g.output(v * w + 1.0, "y")
    model = fg.Session("cpu").compile(g)
    model.set_param("w", np.ones(100, "f4"))
    other = model.clone()
    other.set_param("w", np.zeros(100, "f4"))
    data = np.ones(100, "f4")
    raw = model.run_raw({"v": data})
    step = model.bind({"v": data})
    step()
    graphs = [graph, graph.clone(), copy.copy(graph), model.graph]
    return [x, *graphs, g, model, other, raw, model.output_view(0), step]


def test_back_to_the_start():
    before = counters.snapshot()
    kept = everything()
    grown = counters.snapshot()
    assert [name for name in EVERYWHERE if grown[name] <= before[name]] == []
    while kept:
        kept.pop()
        gc.collect()
    assert counters.snapshot() == before


def test_a_failed_build_leaves_nothing():
    before = counters.snapshot()
    ctx = fg.DeviceContext("cpu")

    def build(b):
        b.add_memset(b.create_buffer(100), 1.0)
        b.add_memset(ctx.create_buffer(100), 1.0)
        raise RuntimeError("no")

    with contextlib.suppress(RuntimeError):
        fg.DeviceGraph.create(ctx, build)
    gc.collect()
    assert counters.snapshot() == before
