"""Changes between replays: launches in flight do not see them, refusals are told."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import fastgraph as fg
from tests.device.cuda.helpers import driver_nodes, kernel_params, linger
from tests.device.kernels import GRID, N, fill, inc

pytestmark = pytest.mark.cuda


def slow_fill(ctx, kernels, more, x, ms=3):
    """A slow graph that then fills `x` with its scalar ``v``, 1 by default."""

    def build(b):
        slow = linger(b, more, ms)
        fill(b, kernels, b.pointer("x", x), b.scalar("v", "float32", 1.0), name="fill",
             dependencies=[slow])  # fmt: skip

    return fg.DeviceGraph.create(ctx, build)


def test_a26_replays_in_flight_do_not_see_scalars(ctx, kernels, more):
    xs = [ctx.create_buffer(N) for _ in range(5)]
    graph = slow_fill(ctx, kernels, more, xs[0])
    graph.replay()
    graph.replay(v=2.0, x=xs[1])
    graph.set(v=3.0)
    graph.replay(x=xs[2])
    graph.replay(x=xs[3], v=4.0)
    graph.replay(x=xs[4])
    assert [x.numpy()[0] for x in xs] == [1, 2, 3, 4, 3]
    assert graph.stats.rebuilds == 0


def test_a26_replays_in_flight_do_not_see_updates(ctx, kernels, more):
    x, y, z = (ctx.create_buffer(N) for _ in range(3))
    src, other = ctx.to_device(np.full(N, 8, "f4")), ctx.to_device(np.full(N, 9, "f4"))

    def build(b):
        slow = [linger(b, more, 3)]
        b.add_memset(x, 1.0, name="set", dependencies=slow)
        b.add_copy(y, src, name="copy", dependencies=slow)
        fill(b, kernels, z, 1.0, name="fill", dependencies=slow)

    def seen():
        return [each.numpy()[0] for each in (x, y, z)]

    graph = fg.DeviceGraph.create(ctx, build)
    x2, y2, z2 = (ctx.create_buffer(N) for _ in range(3))
    graph.replay()
    graph.update("set", value=2.0, dst=x2)
    graph.update("copy", src=other, dst=y2)
    graph.update("fill", args=(z2, 2.0, N))
    graph.replay()
    assert seen() == [1, 8, 1]
    assert [each.numpy()[0] for each in (x2, y2, z2)] == [2, 9, 2]
    graph.replay()
    for name in ("set", "copy", "fill"):
        graph.update(name, enabled=False)
    for each in (x2, y2, z2):
        ctx.memset(each, 0.0)
    assert [each.numpy()[0] for each in (x2, y2, z2)] == [0, 0, 0]
    graph.replay()
    assert [each.numpy()[0] for each in (x2, y2, z2)] == [0, 0, 0]
    for name in ("set", "copy", "fill"):
        graph.update(name, enabled=True)
    graph.replay()
    assert [each.numpy()[0] for each in (x2, y2, z2)] == [2, 9, 2]
    assert graph.stats.rebuilds == 0
    assert graph.stats.updates == 9


@pytest.mark.fake
def test_held_replays_do_not_see_changes(ctx, kernels, fake):
    x = [ctx.create_buffer(N) for _ in range(4)]

    def build(b):
        b.add_function(
            kernels.fill, b.pointer("x", x[0]), b.scalar("v", "float32", 1.0), N, name="fill",
            **GRID,
        )  # fmt: skip

    graph = fg.DeviceGraph.create(ctx, build)
    with fake.held():
        graph.replay()
        graph.set(v=2.0, x=x[1])
        graph.replay()
        graph.update("fill", grid_dim=1, block_dim=8, args=(x[2], 3.0, N))
        graph.replay()
        graph.update("fill", args=(x[3], 4.0, N))
    ctx.synchronize()
    assert (x[0].numpy() == 1).all()
    assert (x[1].numpy() == 2).all()
    assert x[2].numpy().tolist() == [3] * 8 + [0] * (N - 8)
    assert not x[3].numpy().any()


def test_values_of_one_call_go_back(ctx, kernels):
    x, other = ctx.create_buffer(N), ctx.create_buffer(N)

    def build(b):
        fill(b, kernels, b.pointer("x", x), b.scalar("v", "float32", 1.0))
        b.add_output(other)

    graph = fg.DeviceGraph.create(ctx, build)

    def after(**given):
        graph.replay(**given)
        return x.numpy()[0], other.numpy()[0]

    assert after() == (1, 0)
    assert after(v=2.0) == (2, 0)
    assert after() == (1, 0)
    assert after(x=other, v=3.0) == (1, 3)
    assert after() == (1, 3)
    graph.set(v=4.0)
    assert after(v=5.0) == (5, 3)
    graph.set(v=6.0)  # between a value for one call and its going back
    assert after() == (6, 3)
    assert after(v=6.0) == (6, 3)
    graph.replay(v=7.0)
    graph.replay(v=8.0)
    assert after() == (6, 3)
    with pytest.raises(fg.InputError):
        graph.replay(v=9.0, x=ctx.create_buffer(N - 1))
    assert after() == (6, 3)
    twin = graph.clone()
    graph.replay(v=10.0)
    late = graph.clone()  # of the defaults
    for each in (twin, late):
        ctx.memset(x, 0.0)
        each.replay()
        assert x.numpy()[0] == 6


def test_updates_after_values_of_one_call(ctx, kernels):
    x = ctx.create_buffer(N)
    graph = fg.DeviceGraph.create(
        ctx, lambda b: fill(b, kernels, x, b.scalar("v", "float32", 1.0), name="fill")
    )
    graph.replay(v=2.0)
    graph.update("fill", grid_dim=1, block_dim=1)
    ctx.memset(x, 0.0)
    graph.replay()
    assert x.numpy()[:2].tolist() == [1, 0]
    graph.replay(v=3.0)
    graph.update("fill", grid_dim=4, block_dim=256)
    graph.replay()
    assert (x.numpy() == 1).all()


def test_node_scalars_of_1000_nodes(ctx, kernels):
    x = ctx.create_buffer(1000)

    def build(b):
        v = b.scalar("v", "float32", 1.0)
        for i in range(1000):
            b.add_function(kernels.fill, x[i : i + 1], v, 1)

    graph = fg.DeviceGraph.create(ctx, build)
    for given, want in (({}, 1), ({"v": 2.0}, 2), ({"v": 2.0}, 2), ({}, 1), ({"v": 3.0}, 3)):
        graph.replay(**given)
        assert (x.numpy() == want).all()
    graph.set(v=4.0)
    graph.replay()
    assert (x.numpy() == 4).all()
    assert graph.stats.rebuilds == 0


@pytest.mark.fake
def test_only_nodes_that_take_a_scalar_are_touched(ctx, kernels, fake):
    x = ctx.create_buffer(8)

    def build(b):
        one, two = b.scalar("one", "float32", 1.0), b.scalar("two", "float32", 2.0)
        for i in range(8):
            b.add_function(kernels.fill, x[i : i + 1], one if i < 3 else two, 1)

    graph = fg.DeviceGraph.create(ctx, build)
    for given, want in (
        ({"one": 5.0}, 3),
        ({"one": 5.0}, 0),  # as before
        ({}, 3),
        ({"one": 1.0, "two": 2.0}, 0),  # the defaults
        ({"one": 6.0, "two": 7.0}, 8),
        ({}, 8),
        ({}, 0),
    ):
        fake.forget_calls()
        graph.replay(**given)
        assert fake.calls("cuGraphExecNodeSetParams") == want, given
    assert x.numpy().tolist() == [1] * 3 + [2] * 5


def refused(caplog, fake, change):
    """What is told of a change whose first call the driver refuses."""
    fake.fail("cuGraphExecNodeSetParams", 910)
    with caplog.at_level(logging.WARNING, "fastgraph"):
        change()
    return [record for record in caplog.records if record.name == "fastgraph"]


@pytest.mark.fake
def test_a_refused_update_builds_anew_once(ctx, kernels, fake, caplog):
    x, y = ctx.create_buffer(N), ctx.create_buffer(N)

    def build(b):
        first = fill(b, kernels, x, b.scalar("v", "float32", 1.0), name="fill")
        b.add_copy(b.pointer("y", y), x, name="copy", dependencies=[first])

    graph = fg.DeviceGraph.create(ctx, build)
    graph.replay()
    for number, (change, want) in enumerate(
        [
            (lambda: graph.update("fill", grid_dim=1, block_dim=4), [1] * 4 + [0]),
            (lambda: graph.set(v=2.0), [2] * 4 + [0]),
            (lambda: graph.replay(v=3.0), [2] * 4 + [0]),
            (lambda: graph.set(y=ctx.create_buffer(N)), [2] * 4 + [0]),
            (lambda: graph.update("copy", dst=y), [2] * 4 + [0]),
        ]
    ):
        caplog.clear()
        ctx.memset(x, 0.0)
        fake.forget_calls()
        told = refused(caplog, fake, change)
        assert len(told) == 1
        assert told[0].levelno == logging.WARNING
        assert "is built anew" in told[0].getMessage()
        assert fake.calls("cuGraphInstantiateWithFlags") + fake.calls("cuGraphInstantiate") == 1
        assert graph.stats.rebuilds == number + 1
        ctx.memset(x, 0.0)
        caplog.clear()
        graph.replay()
        assert not caplog.records
        assert x.numpy()[:5].tolist() == want


@pytest.mark.fake
def test_a_refused_update_whose_rebuild_fails_changes_nothing(ctx, kernels, fake, caplog):
    x = ctx.create_buffer(N)
    graph = fg.DeviceGraph.create(
        ctx, lambda b: fill(b, kernels, x, b.scalar("v", "float32", 1.0), name="fill")
    )
    graph.replay()
    ctx.synchronize()
    before = fake.settled()
    for change in (
        lambda: graph.update("fill", grid_dim=1, block_dim=4),
        lambda: graph.set(v=2.0),
        lambda: graph.replay(v=2.0),
    ):
        for call in ("cuGraphCreate", "cuGraphAddNode", "cuGraphInstantiateWithFlags"):
            fake.fail("cuGraphExecNodeSetParams", 910)
            fake.fail(call, 2)
            with pytest.raises(fg.OutOfMemoryError):
                change()
            assert fake.live() == before
            ctx.memset(x, 0.0)
            graph.replay()
            assert (x.numpy() == 1).all()
    assert graph.stats.rebuilds == 0
    assert graph.stats.updates == 0
    assert not [record for record in caplog.records if record.name == "fastgraph"]


@pytest.mark.fake
def test_an_update_that_fails_changes_nothing(ctx, kernels, fake):
    """Not refused, but an error: of the second node of three, the first goes back."""
    x = ctx.create_buffer(3)

    def build(b):
        v = b.scalar("v", "float32", 1.0)
        for i in range(3):
            b.add_function(kernels.fill, x[i : i + 1], v, 1, name=f"fill {i}")

    graph = fg.DeviceGraph.create(ctx, build)
    for change in (lambda: graph.set(v=2.0), lambda: graph.replay(v=2.0)):
        fake.fail("cuGraphExecNodeSetParams", 999, 2)
        with pytest.raises(fg.DriverError) as caught:
            change()
        assert caught.value.code == 999
        graph.replay()
        assert x.numpy().tolist() == [1, 1, 1]
    graph.set(v=2.0)
    graph.replay()
    assert x.numpy().tolist() == [2, 2, 2]


def conditional(ctx, kernels, flag, x, other):
    def build(b):
        b.add_if(
            flag,
            lambda inner: fill(inner, kernels, x, 1.0, name="yes"),
            lambda inner: inner.add_memset(x, 2.0, name="no"),
            name="if",
        )
        b.add_copy(other, x, name="copy", dependencies=[b.nodes[0]])

    return fg.DeviceGraph.create(ctx, build)


def test_conditionals_are_cloned_updated_and_rebuilt(ctx, kernels, caplog):
    flag = ctx.to_device(np.array([1], "u4"))
    x, other = ctx.create_buffer(N), ctx.create_buffer(N)
    graph = conditional(ctx, kernels, flag, x, other)
    twin = graph.clone()

    def seen(which, value):
        flag.copy_from(np.array([value], "u4"))
        which.replay()
        return other.numpy()[0]

    assert [seen(graph, 1), seen(graph, 0), seen(twin, 1), seen(twin, 0)] == [1, 2, 1, 2]
    graph.update("yes", args=(x, 5.0, N))
    graph.update("no", value=6.0)
    assert [seen(graph, 1), seen(graph, 0), seen(twin, 1), seen(twin, 0)] == [5, 6, 1, 2]
    late = graph.clone()
    graph.update("no", enabled=False)
    assert [seen(graph, 1), seen(graph, 0), seen(late, 1), seen(late, 0)] == [5, 5, 5, 6]
    graph.update("no", enabled=True)
    assert graph.stats.rebuilds == 0
    # Memory of another kind is another direction of the copy, which the driver refuses.
    pinned = ctx.create_host_buffer(N)
    with caplog.at_level(logging.WARNING, "fastgraph"):
        graph.update("copy", dst=pinned)
    assert graph.stats.rebuilds == 1
    assert "is built anew" in caplog.text
    flag.copy_from(np.array([0], "u4"))
    graph.replay()
    ctx.synchronize()
    assert (np.asarray(pinned) == 6).all()
    assert [seen(late, 1), seen(twin, 1)] == [5, 1]


def test_rebuilds_while_replays_are_in_flight(ctx, kernels, more, caplog):
    x, pinned = ctx.create_buffer(N), ctx.create_host_buffer(N)

    def build(b):
        slow = linger(b, more, 3)
        first = inc(b, kernels, x, 1.0, dependencies=[slow])
        b.add_copy(ctx.create_buffer(N), x, name="copy", dependencies=[first])

    graph = fg.DeviceGraph.create(ctx, build)
    with caplog.at_level(logging.WARNING, "fastgraph"):
        for _ in range(3):
            graph.replay()
            graph.update("copy", dst=pinned)
            graph.replay()
            graph.update("copy", dst=ctx.create_buffer(N))
    assert graph.stats.rebuilds == 6
    assert (x.numpy() == 6).all()
    assert np.asarray(pinned)[0] == 6


def test_what_an_update_may_change(ctx, kernels, more, binding):
    x = ctx.create_buffer(N)
    graph = fg.DeviceGraph.create(ctx, lambda b: fill(b, kernels, x, 1.0, name="fill", priority=0))
    for changes in (
        {"grid_dim": (2, 1, 1)},
        {"block_dim": 128},
        {"args": (x, 2.0, N)},
        {"shared_mem_bytes": 1024},
    ):
        graph.update("fill", **changes)
    assert graph.stats.rebuilds == 0
    graph.replay()
    assert x.numpy()[:257].tolist() == [2] * 256 + [0]
    graph.update("fill", priority=-1)
    graph.update("fill", cooperative=True)
    assert graph.stats.rebuilds == 2
    (node,) = driver_nodes(binding, graph._state.executable.handle)
    assert kernel_params(binding, node).blockDimX == 128
    for wrong, error in (
        ({"grid_dim": 0}, fg.GraphError),
        ({"args": (x, 2, "n")}, fg.InputError),
        ({"args": (x,)}, fg.InputError),
        ({"shared_mem_bytes": 1 << 20}, fg.UnsupportedError),
        ({"enabled": 1}, fg.InputError),
        ({"value": 1.0}, fg.GraphError),
    ):
        with pytest.raises(error):
            graph.update("fill", **wrong)
    assert graph.stats.rebuilds == 2
    graph.replay()
    ctx.synchronize()


def test_zero_length_becomes_something_and_nothing_again(ctx, caplog):
    x = ctx.create_buffer(8)
    graph = fg.DeviceGraph.create(ctx, lambda b: b.add_memset(x[:0], 1.0, name="set"))
    graph.replay()
    with caplog.at_level(logging.WARNING, "fastgraph"):
        graph.update("set", dst=x[:3])
        graph.replay()
        assert x.numpy().tolist() == [1] * 3 + [0] * 5
        graph.update("set", dst=x[3:3])
        graph.update("set", value=2.0)
        graph.replay()
    assert x.numpy().tolist() == [1] * 3 + [0] * 5
    assert graph.stats.rebuilds == 2
