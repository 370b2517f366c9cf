"""Memory that there is not: the error says what it was for, and nothing is left."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import counters

HUGE = (1 << 45) - 1
HOST = np.broadcast_to(np.zeros(1, "f4"), (HUGE,))


def build_scratch(b):
    b.add_memset(b.create_buffer(HUGE), 1.0)


def build_address(b):
    return b.create_buffer(HUGE).ptr


def build_own(b):
    b.recording_context().create_buffer(HUGE)


def build_twin(b, x):
    b.add_output(x)


def run_scratch(ctx):
    fg.DeviceGraph.create(ctx, build_scratch)


def run_pool(ctx):
    fg.DeviceGraph.create(ctx, build_scratch, cache=fg.DeviceGraphCache())


def run_child(ctx):
    child = fg.DeviceGraph.create(ctx, build_small)
    fg.DeviceGraph.create(ctx, lambda b: [b.add_child_graph(child), build_scratch(b)])


def build_small(b):
    b.add_memset(b.create_buffer(4), 1.0)


CASES = {
    "buffer": (lambda ctx: ctx.create_buffer(HUGE), r"a buffer of float32 \(\d+,\): "),
    "scratch": (run_scratch, "scratch of the graph of build_scratch: "),
    "pool": (run_pool, "scratch shared by the graphs of a cache: "),
    "address": (lambda ctx: fg.DeviceGraph.create(ctx, build_address), r"scratch float32 \(\d+,\)"),
    "own": (lambda ctx: fg.DeviceGraph.create(ctx, build_own), "scratch of the graph of build_own"),
    "twin": (
        lambda ctx: fg.DeviceGraph.create(ctx, build_twin, HOST),
        r"the twin of an input float32 \(\d+,\): ",
    ),
    "child": (run_child, "scratch of the graph of run_child"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_the_memory_was_for(ctx, case):
    act, text = CASES[case]
    gc.collect()
    before = counters.snapshot()
    with pytest.raises(fg.OutOfMemoryError, match=text) as caught:
        act(ctx)
    assert isinstance(caught.value, MemoryError)
    del caught
    gc.collect()
    after = counters.snapshot()
    assert {k: after[k] - before[k] for k in after if after[k] > before.get(k, 0)} == {}
    x = ctx.create_buffer(4)
    fg.DeviceGraph.create(ctx, lambda b: b.add_memset(x, 1.0)).replay()
    assert x.numpy().tolist() == [1] * 4


def test_what_a_models_memory_was_for(ctx):
    if "compiled_graphs" not in ctx.capabilities:
        pytest.skip("no models can be compiled for this device")
    g = fg.Graph("vast")
    x = g.input("x", (1,))
    g.output(fg.ops.broadcast_to(x, (HUGE,)) + 1.0, "y")
    with pytest.raises(fg.OutOfMemoryError, match="the arena of the compiled model 'vast'"):
        fg.Session(ctx.device, threads=1).compile(g)
