"""Regions and the recording context: scenarios A 6 to 11."""

from __future__ import annotations

import copy
import gc

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import counters
from fastgraph.testing import replay_in_random_order
from tests.device.kernels import N, fill, inc


def waits(graph):
    """The dependencies of each node."""
    return [node.dependencies for node in graph.nodes]


def test_a6_a_region_stands_for_all_of_it(ctx):
    a, b, c = (ctx.create_buffer(64, "u1") for _ in range(3))

    def build(builder):
        root = builder.add_memset(a, 0x01)

        def work(inner):
            assert inner is builder
            inner.add_memset(a, 0xAA)
            inner.add_memset(b, 0xBB)

        node = builder.region(work, dependencies=[root])
        builder.add_memset(c, 0xCC, dependencies=[node])

    graph = fg.DeviceGraph.create(ctx, build)
    for seed in range(5):
        replay_in_random_order(graph, seed)
        for buffer, value in ((a, 0xAA), (b, 0xBB), (c, 0xCC)):
            assert (buffer.numpy() == value).all()
    assert waits(graph) == [(), (0,), (1,), (2,)]


def test_a7_empty_regions(ctx, kernels):
    x = ctx.create_buffer(N)

    def build(b):
        alone = b.region(lambda _: None)
        assert isinstance(alone, fg.Node) and alone.id == 0
        producer = fill(b, kernels, x, 5.0)
        through = b.region(lambda _: None, dependencies=[producer])
        inc(b, kernels, x, 10.0, dependencies=[through])

    graph = fg.DeviceGraph.create(ctx, build)
    graph.replay()
    assert (x.numpy() == 15).all()
    assert waits(graph) == [(), (), (1,), (2,)]


def test_a8_ids(ctx):
    x = ctx.create_buffer(4)

    def build(b):
        first = b.region(lambda r: [r.add_memset(x, 1.0), r.add_memset(x, 2.0)])
        assert first.id == 1 == b.nodes[-1].id
        inner = []

        def work(r):
            r.add_memset(x, 1.0)
            inner.append(r.region(lambda s: s.add_memset(x, 2.0)))
            r.add_memset(x, 3.0)

        outer = b.region(work, dependencies=[first])
        assert (inner[0].id, outer.id) == (3, 4)
        assert b.region(lambda _: None, dependencies=[outer]).id == 5

    graph = fg.DeviceGraph.create(ctx, build)
    assert waits(graph) == [(), (0,), (1,), (2,), (3,), (4,)]


@pytest.mark.parametrize(
    ("given", "third"), [((), (2,)), ((1,), (1, 2)), ((2,), (2,)), ((2, 1, 2), (2, 1))]
)
def test_a9_edges(ctx, given, third):
    def build(b):
        pre = b.add_empty()
        with b.region(dependencies=[pre, pre]) as r:
            b.add_empty()
            b.add_empty()
            b.add_empty(dependencies=[b.nodes[i] for i in given])
        assert r.node.id == 3
        b.add_empty()
        b.add_empty(dependencies=[pre, pre, r.node, pre])

    graph = fg.DeviceGraph.create(ctx, build)
    assert waits(graph) == [(), (0,), (1,), third, (), (0, 3)]
    assert len(set(graph.edges)) == len(graph.edges)


def test_a10_one_after_another(ctx, kernels):
    x = ctx.create_buffer(N)

    def build(b):
        with b.region():
            fill(b, kernels, x, 5.0)
            inc(b, kernels, x, 10.0)

    graph = fg.DeviceGraph.create(ctx, build)
    for seed in range(4):
        replay_in_random_order(graph, seed)
        assert (x.numpy() == 15).all()


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, fg.GraphError])
def test_a10_a_region_that_raises(ctx, deep, error):
    x = ctx.create_buffer(4)
    kept = []

    def work(b):
        kept[:] = [b.add_memset(x, 3.0), b.create_buffer(8)]
        b.add_output(kept[1])
        b.add_output(x)
        b.create_input_buffer(4)
        b.scalar("s", "float32", 1.0)
        b.pointer("p", x)
        if deep:
            b.region(lambda inner: inner.add_copy(x, np.zeros(5, "f4")))
        raise error("mine")

    def build(b):
        with b.region() as outer:
            first = b.add_memset(x, 1.0)
            with pytest.raises(fg.InputError if deep else error):
                b.region(work, dependencies=[first])
            assert b.nodes == [first]
            assert (b.num_outputs, b.num_inputs) == (0, 0)
            with pytest.raises(fg.GraphError, match="another graph"):
                b.add_empty(dependencies=[kept[0]])
            with pytest.raises(fg.GraphError, match="another graph"):
                b.add_memset(kept[1], 1.0)
            b.scalar("s", "int32", 1)
            b.pointer("p", x)
            last = b.add_memset(x, 2.0)
        assert (last.id, outer.node) == (1, last)

    graph = fg.DeviceGraph.create(ctx, build)
    assert waits(graph) == [(), (0,)]
    graph.replay()
    assert x.numpy().tolist() == [2] * 4


def test_regions_used_wrongly(ctx):
    kept = []

    def build(b):
        r = b.region()
        with pytest.raises(fg.GraphError, match="once it is over"):
            r.node  # noqa: B018
        with r:
            with pytest.raises(fg.GraphError, match="entered once"):
                r.__enter__()
            kept.append(b.region())
        with pytest.raises(fg.GraphError, match="entered once"):
            r.__enter__()
        with pytest.raises(fg.GraphError, match="not entered"):
            b.region().__exit__(None, None, None)
        for bad in (5, "x", object()):
            with pytest.raises(fg.GraphError, match="callable"):
                b.region(bad)
        with pytest.raises(fg.GraphError, match="dependencies are nodes"):
            b.region(dependencies=[5])
        one, two = b.region(), b.region()
        one.__enter__()
        two.__enter__()
        with pytest.raises(fg.GraphError, match="opposite order"):
            one.__exit__(None, None, None)
        two.__exit__(None, None, None)
        one.__exit__(None, None, None)

    fg.DeviceGraph.create(ctx, build)
    with pytest.raises(fg.ScopeError, match="callback has returned"):
        kept[0].__enter__()
    with pytest.raises(fg.GraphError, match="returned inside a region"):
        fg.DeviceGraph.create(ctx, lambda b: b.region().__enter__() and None)


def test_a11_recording_context(ctx, kernels):
    x, y = ctx.create_buffer(N), ctx.create_buffer(N)

    def build(b):
        c = b.recording_context()
        grid = {"grid_dim": 4, "block_dim": 256}
        c.launch(kernels.fill, x, 5.0, N, **grid)
        c.launch(kernels.inc, x, 10.0, N, **grid)
        c.copy(y, x)
        with b.region(dependencies=[c.node]):
            mixed = b.recording_context()
            mixed.launch(kernels.inc, x, 1.0, N, **grid)
            fill(b, kernels, y, 1.0)
            mixed.copy(y, x)

    graph = fg.DeviceGraph.create(ctx, build)
    assert waits(graph) == [(), (0,), (1,), (2,), (3,), (3, 4)]
    for seed in range(4):
        replay_in_random_order(graph, seed)
        assert (x.numpy() == 16).all()
        assert (y.numpy() == 16).all()


def test_a11_buffers_of_the_recording_context(ctx):
    """They belong to the graph, start as zeros, and share their bytes with nothing."""

    def build(b):
        c = b.recording_context()
        mine, other = c.create_buffer(4), c.create_host_buffer(4)
        c.memset(other, 7.0)
        b.add_output(mine)
        b.add_output(other)

    graph = fg.DeviceGraph.create(ctx, build)
    gc.collect()
    for handle in (graph, copy.copy(graph), graph.clone()):
        zero, seven = handle.run()
        assert zero.tolist() == [0] * 4
        assert seven.tolist() == [7] * 4
    assert graph.nbytes == 32


def test_a11_what_raises_inside(ctx):
    def build(b):
        c = b.recording_context()
        mine = c.create_buffer(4)
        for act in (
            c.synchronize,
            c.create_event,
            c.create_stream,
            lambda: c.stream,
            lambda: c.wait_for(ctx),
            lambda: c.execution_time(print, 3),
            lambda: c.to_device(np.zeros(4)),
            c.__enter__,
            mine.numpy,
            lambda: np.asarray(mine),
            b.create_buffer(4).numpy,
        ):
            with pytest.raises(fg.GraphError):
                act()
        assert b.nodes == []

    fg.DeviceGraph.create(ctx, build)


def test_a11_after_a_region_that_raised(ctx):
    x = ctx.create_buffer(4)

    def build(b):
        c = b.recording_context()
        c.memset(x, 1.0)
        with pytest.raises(ValueError, match="no"), b.region():
            c.memset(x, 2.0)
            raise ValueError("no")
        c.memset(x, 3.0)

    assert waits(fg.DeviceGraph.create(ctx, build)) == [(), (0,)]


def test_scratch_with_an_address(ctx):
    """Reading the address takes it out of reuse, and the address is the one of the graph."""
    seen = []

    def build(b):
        one, two = b.create_buffer(16), b.create_buffer(16)
        seen.append(one.ptr)
        b.add_memset(two, 2.0, dependencies=[b.add_memset(one, 1.0)])
        b.add_output(one)
        seen.append(one)

    graph = fg.DeviceGraph.create(ctx, build)
    assert graph.run()[0].tolist() == [1] * 16
    with pytest.raises(fg.ScopeError):
        seen[1].ptr  # noqa: B018
    assert graph.clone().run()[0].tolist() == [1] * 16
    gc.collect()
    before = counters.snapshot()["blocks"]
    graph.close()
    # And on a GPU the pinned memory through which the outputs came.
    assert counters.snapshot()["blocks"] == before - (2 if ctx.api == "cpu" else 3)
