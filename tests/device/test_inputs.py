"""Inputs of graphs and handles that share them: scenarios A 13 to 15."""

from __future__ import annotations

import copy
import gc

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import counters
from fastgraph.testing import replay_in_random_order
from tests.device.kernels import N, add


def doubling(kernels, n=N, seen=None):
    """A build that gives x + x as its output."""

    def build(b, x):
        if seen is not None:
            seen.append(x)
        out = b.create_buffer(x.shape)
        b.add_function(kernels.add, out, x, x, n, grid_dim=4, block_dim=256)
        b.add_output(out)

    return build


def test_a13_stable_inputs(ctx, kernels):
    live, y, counts, twins = ctx.create_buffer(N), ctx.create_buffer(N), [], []

    def build(b):
        counts.append(b.num_inputs)
        twin = b.create_input_buffer(N)
        counts.append(b.num_inputs)
        twins.append(twin.ptr)
        add(b, kernels, y, twin, twin)

    fg.DeviceGraph.create(ctx, build)
    assert counts == [0, 1]

    def with_input(b, x):
        assert b.num_inputs == 1
        twins.append(x.ptr)
        add(b, kernels, y, x, x)

    graph = fg.DeviceGraph.create(ctx, with_input, live)
    assert live.ptr not in twins
    assert graph.inputs == ["float32[1024]"]
    with pytest.raises(fg.InputError, match="without inputs"):
        graph.replay()
    assert not y.numpy().any()
    for value in (1.0, 7.0):
        graph.replay(ctx.to_device(np.full(N, value, "f4")))
        assert (y.numpy() == 2 * value).all()
    ctx.memset(y, 0.0)
    graph.replay()
    assert (y.numpy() == 14).all()


def test_a13_many_calls(ctx, kernels):
    x = np.arange(8, dtype="f4")
    graph = fg.DeviceGraph.create(ctx, doubling(kernels, 8), x)
    for i in range(128):
        (out,) = graph.run(x * i)
        np.testing.assert_array_equal(out, 2 * x * i)
    # Any strides and a transposed order are read as they are.
    (out,) = graph.run(np.arange(16, dtype="f4")[::-2])
    np.testing.assert_array_equal(out, 2 * np.arange(16, dtype="f4")[::-2])


def test_a13_nobody_takes_anothers_data(ctx, kernels):
    x, y = np.ones(8, "f4"), np.full(8, 5, "f4")
    cache = fg.DeviceGraphCache()
    build = doubling(kernels, 8)
    first = fg.DeviceGraph.create(ctx, build, x, cache=cache)
    first.replay(x)
    for other in (fg.DeviceGraph.create(ctx, build, x, cache=cache), copy.copy(first)):
        with pytest.raises(fg.InputError, match="another caller"):
            other.replay()
        assert (first.run()[0] == 2).all()
        assert (other.run(y)[0] == 10).all()
        assert (other.run()[0] == 10).all()
        with pytest.raises(fg.InputError, match="another caller"):
            first.replay()
        first.replay(x)
    with pytest.raises(fg.InputError):
        first.clone().replay()


def test_a13_wrong_inputs_change_nothing(ctx, kernels):
    graph = fg.DeviceGraph.create(ctx, doubling(kernels, 8), np.zeros(8, "f4"))
    graph.replay(np.ones(8, "f4"))
    for bad in (
        (np.ones(9, "f4"),), (np.ones(8, "f8"),), (np.ones((8, 1), "f4"),), (np.float32(1),),
        (1.0,),
        (np.ones(8, "f4"), np.ones(8, "f4")), (fg.HostValue(np.ones(8, "f4")),), (None,),
        (fg.InPlace(ctx.create_buffer(8)),), (np.ma.masked_array(np.ones(8, "f4")),),
    ):  # fmt: skip
        for act in (graph.replay, graph.run):
            with pytest.raises(fg.InputError):
                act(*bad)
        assert (graph.run()[0] == 2).all()
    with pytest.raises((fg.UnsupportedError, fg.InputError), match="stream"):
        graph.replay(np.ones(8, "f4"), stream=object())
    with pytest.raises(fg.InputError, match="no scalar or pointer 'bad'"):
        graph.replay(np.ones(8, "f4"), bad=3)
    none = fg.DeviceGraph.create(ctx, lambda b: b.add_empty())
    with pytest.raises(fg.InputError, match="recorded with 0"):
        none.replay(np.ones(8, "f4"))


def test_a14_in_place(ctx):
    live, out = ctx.create_buffer(64, "u1"), ctx.create_buffer(64, "u1")
    seen = []

    def build(b, x):
        seen.append((x.ptr, b.num_inputs))
        b.add_copy(out, x)

    graph = fg.DeviceGraph.create(ctx, build, fg.InPlace(live))
    assert seen == [(live.ptr, 1)]
    for value in (0x7E, 0x3C):
        ctx.memset(live, value)
        graph.replay()
        assert (out.numpy() == value).all()
    graph.replay(fg.InPlace(live))
    with pytest.raises(fg.InputError, match="at 0x"):
        graph.replay(fg.InPlace(out))


def test_a14_doubling_in_place(ctx, kernels):
    cache, builds = fg.DeviceGraphCache(), []

    def build(b, x):
        builds.append(x.ptr)
        add(b, kernels, x, x, x)

    one, two = (ctx.to_device(np.full(N, v, "f4")) for v in (1.0, 7.0))
    for buffer, want in ((one, (2, 7)), (two, (2, 14)), (one, (4, 14))):
        fg.DeviceGraph.create(ctx, build, fg.InPlace(buffer), cache=cache).replay()
        assert (one.numpy()[0], two.numpy()[0]) == want
    assert builds == [one.ptr, two.ptr]


def test_a15_host_values(ctx):
    out, cache, builds = ctx.create_buffer(8, "u1"), fg.DeviceGraphCache(), []

    def build(b, x):
        assert not x.flags.writeable
        builds.append(x.flat[0])
        b.add_memset(out, int(x.flat[0]))

    def replay(value):
        fg.DeviceGraph.create(
            ctx, build, fg.HostValue(np.full(4, value, "u1")), cache=cache
        ).replay()
        return out.numpy()[0]

    assert [replay(v) for v in (0x2B, 0x2B, 0x71, 0x2B)] == [0x2B, 0x2B, 0x71, 0x2B]
    assert builds == [0x2B, 0x71]
    graphs = [fg.DeviceGraph.create(ctx, build, fg.HostValue(v), cache=cache) for v in (3.0, 9.0)]
    graphs.append(fg.DeviceGraph.create(ctx, build, fg.HostValue(3.0), cache=cache))
    assert builds[2:] == [3.0, 9.0]
    graphs[2].replay(fg.HostValue(3.0))
    with pytest.raises(fg.InputError, match="input 0"):
        graphs[2].replay(fg.HostValue(9.0))


def test_inputs_of_all_kinds_and_several(ctx, kernels):
    host, here = np.full(N, 2, "f4"), ctx.to_device(np.full(N, 3, "f4"))

    def build(b, x, y, n):
        assert (b.num_inputs, n.item()) == (2, N)
        add(b, kernels, y, x, y)
        b.add_output(y)

    graph = fg.DeviceGraph.create(ctx, build, host, fg.InPlace(here), fg.HostValue(N))
    (out,) = graph.run(host, fg.InPlace(here), fg.HostValue(N))
    assert (out == 5).all() and (here.numpy() == 5).all()
    assert (graph.run()[0] == 7).all()
    assert (graph.clone().run(host, fg.InPlace(here), fg.HostValue(N))[0] == 9).all()


class Pair(fg.DeviceGraphInput):
    """Two arrays as one input."""

    def __init__(self, a, b):
        self.parts = a, b

    def write_graph_key(self, writer):
        for part in self.parts:
            writer.write_shape(part.shape)
            writer.write_dtype(part.dtype)

    def allocate_stable(self, builder):
        return Pair(*(builder.create_input_buffer(p.shape, p.dtype) for p in self.parts))

    def live_buffers(self):
        return self.parts


def test_an_input_with_a_rule_of_its_own(ctx, kernels):
    y = ctx.create_buffer(N)

    def build(b, pair):
        assert b.num_inputs == 2
        add(b, kernels, y, *pair.parts)

    make = lambda v, w: Pair(np.full(N, v, "f4"), np.full(N, w, "f4"))  # noqa: E731
    graph = fg.DeviceGraph.create(ctx, build, make(0, 0))
    for v, w in ((1, 2), (5, 6)):
        graph.replay(make(v, w))
        assert (y.numpy() == v + w).all()
    with pytest.raises(fg.InputError):
        graph.replay(Pair(np.zeros(N, "f4"), np.zeros(3, "f4")))


def test_add_input_inside_build(ctx, kernels):
    """`create` records its inputs; what build adds itself has no live value and fills nothing."""
    y = ctx.create_buffer(N)

    def build(b):
        x = b.add_input(np.zeros(N, "f4"))
        assert b.num_inputs == 1
        add(b, kernels, y, x, x)

    graph = fg.DeviceGraph.create(ctx, build)
    with pytest.raises(fg.InputError):
        graph.replay()


def test_outputs_are_the_callers_own(ctx, kernels):
    graph = fg.DeviceGraph.create(ctx, doubling(kernels, 8), np.zeros(8, "f4"))
    (one,) = graph.run(np.full(8, 1, "f4"))
    (two,) = graph.run(np.full(8, 2, "f4"))
    assert (one == 2).all() and (two == 4).all()
    mine = np.empty(8, "f4")
    assert graph.run(np.full(8, 3, "f4"), out=[mine])[0] is mine
    assert (mine == 6).all()
    for bad in ([], [mine, mine], [np.empty(9, "f4")], mine[0], [mine[:4]], 5):
        with pytest.raises(fg.InputError):
            graph.run(out=bad)
    assert graph.outputs == [((8,), np.dtype("f4"))]


def test_random_order_takes_inputs(ctx, kernels):
    graph = fg.DeviceGraph.create(ctx, doubling(kernels, 8), np.zeros(8, "f4"))
    assert replay_in_random_order(graph, 3, np.ones(8, "f4")) == [0]
    with pytest.raises(fg.InputError, match="seed"):
        replay_in_random_order(graph, "x")
    assert (graph.run()[0] == 2).all()


@pytest.mark.parametrize("where", ["build", "input"])
def test_a_failed_build_leaves_nothing(ctx, where):
    class Bad(Pair):
        def allocate_stable(self, builder):
            if where == "input":
                super().allocate_stable(builder)
                raise ValueError("mine")
            return super().allocate_stable(builder)

    def build(b, pair):
        b.add_memset(b.create_buffer(8), 1.0)
        raise ValueError("mine")

    gc.collect()
    gc.collect()
    before = counters.snapshot()
    cache = fg.DeviceGraphCache()
    for options in ({}, {"cache": cache}):
        with pytest.raises(ValueError, match="mine"):
            fg.DeviceGraph.create(ctx, build, Bad(np.zeros(4), np.zeros(5)), **options)
    gc.collect()
    assert counters.snapshot() == before
    assert cache.stats.live_graphs == 0
