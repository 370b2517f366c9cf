"""Copies and memsets: kinds of memory, ranges, devices, every dtype."""

from __future__ import annotations

import threading

import ml_dtypes
import numpy as np
import pytest

import fastgraph as fg
from tests.device.cuda.helpers import enqueued, kinds, linger
from tests.device.kernels import N

pytestmark = pytest.mark.cuda

VALUES = [
    ("bool", True), ("int8", -3), ("uint8", 200), ("int16", -300), ("uint16", 0xBEEF),
    ("int32", -70000), ("uint32", 0xDEADBEEF), ("float16", 1.5), ("float32", -2.5),
    ("int64", -2), ("int64", -(1 << 40)), ("uint64", 0x0101010101010101),
    ("uint64", 0x00000001DEADBEEF), ("uint64", 0xDEADBEEF00000000), ("float64", 1.1),
    ("float64", 0.0), (ml_dtypes.bfloat16, 1.5),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "value"), VALUES)
@pytest.mark.parametrize("pinned", [False, True], ids=["device", "pinned"])
def test_memset_of_every_dtype(ctx, dtype, value, pinned):
    """In a graph, at once, and changed by an update; the neighbours are not touched."""
    make = ctx.create_host_buffer if pinned else ctx.create_buffer
    for n in (1, 7, 1000):
        x = make(n + 2, dtype)
        want = np.zeros(n + 2, dtype)
        want[1:-1] = value
        graph = fg.DeviceGraph.create(
            ctx, lambda b, x=x, n=n: b.add_memset(x[1 : n + 1], value, name="set")
        )
        graph.replay()
        np.testing.assert_array_equal(x.numpy(), want)
        ctx.memset(x, 0)
        assert x.numpy().tobytes() == bytes(x.nbytes)
        ctx.memset(x[1 : n + 1], value)
        np.testing.assert_array_equal(x.numpy(), want)
        graph.update("set", value=0)
        graph.replay()
        assert x.numpy().tobytes() == bytes(x.nbytes)
        graph.update("set", value=value, dst=x[:n])
        graph.replay()
        assert (x.numpy()[:n] == value).all()


def test_unequal_halves_are_a_kernel(ctx, binding, caplog):
    x = ctx.create_buffer(8, "uint64")
    graph = fg.DeviceGraph.create(ctx, lambda b: b.add_memset(x, 1 << 32 | 1, name="set"))
    assert kinds(binding, graph._state.executable.handle) == ["memset"]
    graph.update("set", value=1)  # cannot be done by the memset that there is
    assert graph.stats.rebuilds == 1
    assert kinds(binding, graph._state.executable.handle) == ["kernel"]
    graph.update("set", value=2)
    assert graph.stats.rebuilds == 1
    graph.replay()
    assert (x.numpy() == 2).all()


def test_large_fills_of_eight_bytes(ctx):
    n = 3_000_001
    x = ctx.create_buffer(n, "int64")
    ctx.memset(x, -(1 << 33))
    assert (x.numpy() == -(1 << 33)).all()
    fg.DeviceGraph.create(ctx, lambda b: b.add_memset(x[1:], 1 << 33)).replay()
    seen = x.numpy()
    assert seen[0] == -(1 << 33)
    assert (seen[1:] == 1 << 33).all()


KINDS = ("device", "pinned", "pageable")


def place(ctx, kind, values):
    if kind == "pageable":
        return values.copy()
    if kind == "device":
        return ctx.to_device(values)
    found = ctx.create_host_buffer(values.shape, values.dtype)
    np.asarray(found)[...] = values
    return found


def contents(what):
    return what if isinstance(what, np.ndarray) else what.numpy()


@pytest.mark.parametrize("src", KINDS)
@pytest.mark.parametrize("dst", KINDS)
def test_all_kinds_of_memory(ctx, src, dst):
    """In a graph, at once, a range of each, and nothing at all."""
    numbers = np.arange(N, dtype="f4")
    source, target = place(ctx, src, numbers), place(ctx, dst, np.zeros(N, "f4"))

    def build(b):
        b.add_copy(target, source, name="copy")
        b.add_copy(target[5:5], source[7:7], name="nothing")

    graph = fg.DeviceGraph.create(ctx, build)
    assert not contents(target).any()
    graph.replay()
    ctx.synchronize()
    np.testing.assert_array_equal(contents(target), numbers)
    graph.update("copy", dst=target[:10], src=source[20:30])
    graph.replay()
    ctx.synchronize()
    np.testing.assert_array_equal(contents(target)[:11], [*range(20, 30), 10])
    assert graph.stats.rebuilds == 0
    ctx.copy(target[100:110], source[:10])
    ctx.copy(target[:0], source[:0])
    ctx.synchronize()
    np.testing.assert_array_equal(contents(target)[99:111], [99, *range(10), 110])
    twin = graph.clone()
    twin.replay()
    ctx.synchronize()
    with pytest.raises(fg.InputError):
        ctx.copy(target[:3], source[:4])
    with pytest.raises(fg.InputError):
        graph.update("copy", src=source[:3])


def test_host_buffers_are_views_and_reached_by_kernels(ctx, kernels, more):
    pinned = ctx.create_host_buffer(N)
    view = np.asarray(pinned)
    assert view.flags.writeable
    assert np.shares_memory(view, np.asarray(pinned))
    assert not view.any()
    x, y = ctx.create_buffer(N), ctx.create_buffer(N)
    view[:] = 2
    ctx.copy(x, pinned)
    ctx.copy(y, x)
    assert (y.numpy() == 2).all()
    ctx.launch(more.linger, 3_000_000)
    ctx.memset(x, 9.0)
    ctx.copy(pinned, x)
    assert (pinned.numpy() == 9).all()  # which waits
    ctx.launch(kernels.fill, pinned, 4.0, N, grid_dim=4, block_dim=256)  # reached by kernels
    ctx.synchronize()
    assert (view == 4).all()
    pinned.copy_from(np.arange(N, dtype="f4"))
    assert view[N - 1] == N - 1
    del pinned
    view[:] = 3  # the view holds the memory
    assert (view == 3).all()


@pytest.mark.fake
def test_pinned_copies_do_not_wait(ctx, fake):
    pinned, x = ctx.create_host_buffer(N), ctx.create_buffer(N)
    view = np.asarray(pinned)
    view[:] = 1
    with fake.held():
        ctx.copy(x, pinned)  # is read when the stream gets there …
        view[:] = 2
        ctx.memset(pinned, 5.0)
        ctx.copy(pinned, x)  # … and written then
        assert (view == 2).all()
        ctx.copy(x, np.ones(N, "f4"))
        fake.take(3)
    assert (x.numpy() == 1).all()
    assert (view == 2).all()


def test_to_host_arrays_a_copy_waits(ctx, kernels, more):
    x, back = ctx.create_buffer(N), np.zeros(N, "f4")
    ctx.launch(more.linger, 2_000_000)
    ctx.memset(x, 6.0)
    ctx.copy(back, x)
    assert (back == 6).all()
    strided = np.zeros((N, 2), "f4")
    ctx.copy(strided[:, 0], x)
    assert (strided == [6, 0]).all()
    ctx.copy(x, strided[:, 1])
    assert not x.numpy().any()
    for bad in (np.zeros(N, "f8"), np.zeros(N - 1, "f4"), [1.0] * N, None):
        with pytest.raises(fg.InputError):
            ctx.copy(bad, x)
    back.flags.writeable = False
    with pytest.raises(fg.InputError, match="read-only"):
        ctx.copy(back, x)


def test_graphs_read_pageable_arrays_at_each_replay(ctx, more):
    x, host = ctx.create_buffer(N), np.ones(N, "f4")
    graph = fg.DeviceGraph.create(ctx, lambda b: b.add_copy(x, host))
    for value in (1, 2, 3):
        host[:] = value
        graph.replay()
        ctx.synchronize()
        assert (x.numpy() == value).all()


def test_overlapping_and_equal_ranges(ctx):
    x = ctx.to_device(np.arange(8, dtype="f4"))
    ctx.copy(x, x)
    ctx.copy(x[:4], x[4:])
    assert x.numpy().tolist() == [4, 5, 6, 7, 4, 5, 6, 7]


# ---- two devices


@pytest.fixture(scope="module")
def other():
    return fg.DeviceContext("cuda:1")


@pytest.mark.fake
def test_peer_copies_at_once(ctx, other):
    here, there = ctx.to_device(np.arange(8, dtype="f4")), other.create_buffer(8)
    ctx.copy(there, here)
    ctx.synchronize()
    assert there.numpy().tolist() == list(range(8))
    there.copy_from(np.full(8, 5, "f4"))
    other.copy(here[2:4], there[:2])
    assert here.numpy().tolist() == [0, 1, 5, 5, 4, 5, 6, 7]
    ctx.copy(here[4:], there[4:])
    ctx.synchronize()
    assert here.numpy().tolist() == [0, 1, 5, 5, 5, 5, 5, 5]


@pytest.mark.fake
def test_memory_of_a_peer_outlives_the_copy(ctx, other, fake):
    """What one device's stream still reads is not freed because its own device is idle."""
    here = ctx.create_buffer(8)
    there = other.to_device(np.arange(8, dtype="f4"))
    fake.hold(True)
    ctx.copy(here, there)
    thread = threading.Thread(target=lambda: [fake.wait_for_polls(), fake.hold(False)])
    thread.start()
    del there  # waits
    thread.join()
    assert here.numpy().tolist() == list(range(8))


@pytest.mark.fake
@pytest.mark.parametrize("peers", [False, True])
def test_peer_copies_in_graphs(ctx, other, peers):
    if peers:
        ctx.enable_peer_access(other)
        ctx.enable_peer_access(other)
    here, there = ctx.to_device(np.arange(8, dtype="f4")), other.create_buffer(8)
    back = ctx.create_buffer(8)

    def build(b):
        out = b.add_copy(there, here, name="out")
        b.add_copy(back, there, name="back", dependencies=[out])

    graph = fg.DeviceGraph.create(ctx, build)
    graph.replay()
    ctx.synchronize()
    assert there.numpy().tolist() == back.numpy().tolist() == list(range(8))
    graph.update("out", src=here[4:], dst=there[:4])
    graph.replay()
    assert back.numpy().tolist() == [4, 5, 6, 7, 4, 5, 6, 7]
    graph.clone().replay()
    with pytest.raises(fg.HazardError):
        fg.DeviceGraph.create(
            ctx, lambda b: [b.add_copy(there, here), b.add_copy(there[:4], here[:4])]
        )
    pinned = other.create_host_buffer(8)
    np.asarray(pinned)[:] = 3
    fg.DeviceGraph.create(ctx, lambda b: b.add_copy(here, pinned)).replay()
    assert (here.numpy() == 3).all()


@pytest.mark.fake
def test_only_copies_reach_another_device(ctx, other, kernels):
    there = other.create_buffer(N)
    live = [ctx.create_buffer(N)]
    graph = fg.DeviceGraph.create(
        ctx, lambda b, x: b.add_copy(ctx.create_buffer(N), x), np.zeros(N, "f4")
    )
    for call in (
        lambda: ctx.memset(there, 1.0),
        lambda: ctx.launch(kernels.fill, there, 1.0, N),
        lambda: fg.DeviceGraph.create(ctx, lambda b: b.add_memset(there, 1.0)),
        lambda: fg.DeviceGraph.create(ctx, lambda b: b.add_function(kernels.fill, there, 1.0, N)),
        lambda: fg.DeviceGraph.create(ctx, lambda b: b.pointer("p", there)),
        lambda: fg.DeviceGraph.create(ctx, lambda b: b.add_output(there)),
        lambda: fg.DeviceGraph.create(ctx, lambda b: b.register_in_place_input(there)),
        lambda: graph.replay(there),
        lambda: ctx.copy(there, fg.DeviceContext("cpu").create_buffer(N)),
        lambda: fg.DeviceGraph.create(
            ctx, lambda b: b.add_copy(live[0], fg.DeviceContext("cpu").create_buffer(N))
        ),
        lambda: fg.DeviceGraph.create(
            ctx, lambda b: b.add_copy(other.create_buffer(N), other.create_buffer(N))
        ),
    ):
        with pytest.raises(fg.InputError, match=r"cuda:|cpu"):
            call()
    assert not there.numpy().any()


@pytest.mark.fake
def test_peer_access(ctx, other, kernels, fake):
    ctx.enable_peer_access(other)
    for bad in (ctx, fg.DeviceContext("cuda"), None, "cuda:1"):
        with pytest.raises(fg.InputError, match="enable_peer_access"):
            ctx.enable_peer_access(bad)
    with pytest.raises(fg.InputError):
        ctx.enable_peer_access(fg.DeviceContext("cpu"))
    with pytest.raises(fg.UnsupportedError):
        fg.DeviceContext("cpu").enable_peer_access(ctx)
    assert fg.DeviceContext("cuda:1") == other != ctx


@pytest.mark.fake
def test_graphs_of_two_devices(ctx, other, kernels):
    graphs = []
    for where in (ctx, other):
        x = where.create_buffer(8)
        graph = fg.DeviceGraph.create(where, lambda b, x=x: b.add_memset(x, 2.0))
        graphs.append((graph, x))
        graph.replay()
    for graph, x in graphs:
        assert (x.numpy() == 2).all()
        assert graph.context.device == x.device
    with pytest.raises(fg.InputError):
        fg.DeviceGraph.create(ctx, lambda b: b.add_child_graph(graphs[1][0]))
    other.wait_for(ctx)
    other.synchronize()


@pytest.mark.fake
def test_no_such_device(ctx, fake):
    with pytest.raises(fg.InputError, match="no device cuda:7"):
        fg.DeviceContext("cuda:7")


def test_a_large_copy_in_and_out(ctx):
    numbers = np.random.default_rng(0).random(3_000_017).astype("f4")
    x = ctx.to_device(numbers)
    np.testing.assert_array_equal(x.numpy(), numbers)
    y = ctx.create_buffer(numbers.size)
    ctx.copy(y, numbers)
    np.testing.assert_array_equal(y.numpy(), numbers)


@pytest.mark.fake
def test_zero_bytes_are_no_calls(ctx, fake, more):
    x = ctx.create_buffer(0)
    graph = fg.DeviceGraph.create(
        ctx, lambda b: [b.add_copy(x, x), b.add_memset(x, 1.0), linger(b, more, 0)]
    )
    graph.replay()
    fake.forget_calls()
    ctx.copy(x, x)
    ctx.memset(x, 1.0)
    assert enqueued(fake) == {}
    graph.replay()
    ctx.synchronize()
    assert x.numpy().size == 0
