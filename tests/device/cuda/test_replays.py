"""What a replay asks of the driver, and of Python."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import counters
from tests.device.cuda.helpers import enqueued, filling, linger
from tests.device.kernels import N, add, fill, inc

pytestmark = pytest.mark.cuda


def summing(ctx, kernels, count):
    """A graph that adds up `count` copied inputs; its output is the sum."""
    total = ctx.create_buffer(N)

    def build(b, *live):
        last = b.add_memset(total, 0.0)
        for each in live:
            last = add(b, kernels, total, total, each, dependencies=[last])
        b.add_output(total)

    return fg.DeviceGraph.create(ctx, build, *[np.zeros(N, "f4")] * count)


@pytest.mark.fake
def test_a_replay_is_one_launch(ctx, kernels, fake):
    x = ctx.create_buffer(N)

    def build(b):
        first = fill(b, kernels, x, b.scalar("v", "float32", 1.0))
        inc(b, kernels, x, 2.0, dependencies=[first])

    graph = fg.DeviceGraph.create(ctx, build)
    graph.replay()
    ctx.synchronize()
    for call, launches in (
        (graph.replay, 1),
        (lambda: graph.replay(v=2.0), 1),
        (lambda: graph.set(v=3.0), 0),
        (graph.replay, 1),
    ):
        fake.forget_calls()
        call()
        assert enqueued(fake) == ({"cuGraphLaunch": 1} if launches else {})
        ctx.synchronize()
    assert (x.numpy() == 5).all()


@pytest.mark.fake
def test_a_plain_replay_asks_the_driver_for_nothing_else(ctx, kernels, fake):
    graph = filling(ctx, kernels, ctx.create_buffer(N))
    graph.replay()
    ctx.synchronize()
    fake.forget_calls()
    for _ in range(10):
        graph.replay()
    made = {name: fake.calls(name) for name in OTHERS if fake.calls(name)}
    assert made == {}
    assert enqueued(fake) == {"cuGraphLaunch": 10}
    ctx.synchronize()


OTHERS = (
    *("cuCtxGetCurrent", "cuCtxSetCurrent", "cuStreamIsCapturing", "cuStreamQuery"),
    *("cuEventQuery", "cuEventCreate", "cuGraphExecNodeSetParams", "cuGraphExecUpdate"),
)


@pytest.mark.fake
@pytest.mark.parametrize("count", [1, 2, 5])
def test_host_inputs_side_by_side_are_one_copy(ctx, kernels, fake, count):
    graph = summing(ctx, kernels, count)
    live = [np.full(N, i + 1, "f4") for i in range(count)]
    for _ in range(8):  # until all slots of pinned memory are there
        graph.run(*live)
    fake.forget_calls()
    graph.replay(*live)
    made = enqueued(fake)
    # The event tells when the pinned memory that the bytes went through may be used again.
    assert made == {"cuMemcpyHtoDAsync": 1, "cuEventRecord": 1, "cuGraphLaunch": 1}
    ctx.synchronize()


@pytest.mark.fake
@pytest.mark.parametrize("where", ["device", "pinned"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_inputs_that_the_device_reaches_are_one_call(ctx, kernels, fake, count, where):
    graph = summing(ctx, kernels, count)
    live = []
    for i in range(count):
        if where == "device":
            live.append(ctx.to_device(np.full(N, i + 1, "f4")))
        else:
            live.append(ctx.create_host_buffer(N))
            np.asarray(live[-1])[:] = i + 1
    (want,) = graph.run(*live)
    assert (want == count * (count + 1) / 2).all()
    fake.forget_calls()
    graph.replay(*live)
    made = enqueued(fake)
    assert made.pop("cuGraphLaunch") == 1
    assert list(made.values()) == [1]
    (name,) = made
    single = "cuMemcpyDtoDAsync" if where == "device" else "cuMemcpyHtoDAsync"
    assert name == ("cuMemcpyBatchAsync" if count > 1 else single)
    ctx.synchronize()


@pytest.mark.fake
def test_inputs_of_all_kinds(ctx, kernels, fake):
    graph = summing(ctx, kernels, 4)
    pinned = ctx.create_host_buffer(N)
    np.asarray(pinned)[:] = 2
    live = [np.ones(N, "f4"), ctx.to_device(np.full(N, 4, "f4")), np.full(N, 8, "f4"), pinned]
    assert (graph.run(*live)[0] == 15).all()
    fake.forget_calls()
    graph.replay(*live)
    made = enqueued(fake)
    # Between two arrays of the host lies a twin that must not be touched.
    assert made["cuMemcpyHtoDAsync"] == 2
    assert made["cuMemcpyBatchAsync"] == 1
    assert made["cuGraphLaunch"] == 1
    assert (graph.run(*live)[0] == 15).all()


@pytest.mark.fake
def test_a_run_copies_in_launches_and_copies_out(ctx, kernels, fake):
    graph = summing(ctx, kernels, 2)
    live = np.ones(N, "f4"), np.ones(N, "f4")
    graph.run(*live)
    fake.forget_calls()
    graph.run(*live)
    assert enqueued(fake) == {
        "cuMemcpyHtoDAsync": 1, "cuGraphLaunch": 1, "cuMemcpyDtoHAsync": 1, "cuEventRecord": 2,
    }  # fmt: skip


@pytest.mark.fake
def test_outputs_in_pinned_memory_need_no_copy(ctx, kernels, fake):
    x, y = ctx.create_host_buffer(N), ctx.create_buffer(N)

    def build(b):
        fill(b, kernels, x, 3.0)
        fill(b, kernels, y, 4.0)
        b.add_output(x)
        b.add_output(y)
        b.add_output(y[:2])

    graph = fg.DeviceGraph.create(ctx, build)
    graph.run()
    fake.forget_calls()
    one, two, three = graph.run()
    assert (one == 3).all()
    assert (two == 4).all()
    assert three.tolist() == [4, 4]
    made = enqueued(fake)
    assert made["cuGraphLaunch"] == 1
    assert made["cuMemcpyBatchAsync"] == 1  # both of `y`
    np.asarray(x)[:] = 0
    assert (one == 3).all()  # the caller's own


def test_outputs_are_the_callers_own(ctx, kernels):
    graph = summing(ctx, kernels, 1)
    results = [graph.run(np.full(N, i, "f4"))[0] for i in range(4)]
    assert [each[0] for each in results] == [0, 1, 2, 3]
    out = [np.zeros(N, "f4")]
    assert graph.run(np.full(N, 9, "f4"), out=out)[0] is out[0]
    assert (out[0] == 9).all()
    for bad in ([np.zeros(N)], [], [np.zeros(N - 1, "f4")], [np.zeros(N, "f4")] * 2):
        with pytest.raises(fg.InputError):
            graph.run(np.full(N, 8, "f4"), out=bad)
    frozen = np.zeros(N, "f4")
    frozen.flags.writeable = False
    with pytest.raises(fg.InputError):
        graph.run(np.full(N, 8, "f4"), out=[frozen])
    assert (graph.run(np.full(N, 8, "f4"))[0] == 8).all()


def blocks_of(call, rounds):
    """By how many blocks of Python's memory `rounds` calls grow, but for cycles' and caches'."""
    for _ in range(64):
        call()
    gc.collect()
    gc.disable()
    try:
        before = sys.getallocatedblocks()
        for _ in range(rounds):
            call()
        cycles = gc.collect()  # which also empties the caches of freed objects
        assert cycles < rounds
        return sys.getallocatedblocks() - before
    finally:
        gc.enable()


def test_replays_leave_nothing_behind_in_python(ctx, kernels):
    x = ctx.create_buffer(N)
    plain = fg.DeviceGraph.create(
        ctx, lambda b: fill(b, kernels, x, b.scalar("v", "float32", 1.0), name="fill")
    )
    full = summing(ctx, kernels, 2)
    live = np.ones(N, "f4"), np.ones(N, "f4")
    there = ctx.create_buffer(N), ctx.create_buffer(N)
    out = [np.zeros(N, "f4")]
    stream = ctx.create_stream()
    for call in (
        plain.replay,
        lambda: plain.replay(v=2.0),
        lambda: plain.replay(stream=stream),
        lambda: plain.set(v=3.0),
        lambda: full.replay(*live),
        lambda: full.replay(*there),
        lambda: full.run(*live, out=out),
    ):
        # A growth by replay would be a hundred blocks and more.
        assert abs(blocks_of(call, 200)) < 20
    ctx.synchronize()
    stream.synchronize()


def test_live_objects_stay_as_many(ctx, kernels):
    graph = summing(ctx, kernels, 1)
    live = np.ones(N, "f4")
    graph.run(live)
    before = counters.snapshot()
    for _ in range(100):
        graph.replay(live)
    graph.run(live)
    assert counters.snapshot() == before


def test_host_arrays_have_been_read_when_the_call_returns(ctx, kernels, more):
    """Also those larger than one slot of the pinned memory that they go through."""
    n = 5 << 20  # floats
    out = ctx.create_buffer(n)

    def build(b, live):
        b.add_copy(out, live, dependencies=[linger(b, more, 3)])

    graph = fg.DeviceGraph.create(ctx, build, np.zeros(n, "f4"))
    live = np.arange(n, dtype="f4")
    graph.replay(live)
    live[:] = -1
    np.testing.assert_array_equal(out.numpy(), np.arange(n, dtype="f4"))


def test_strided_arrays(ctx, kernels):
    graph = summing(ctx, kernels, 1)
    wide = np.arange(3 * N, dtype="f4")
    np.testing.assert_array_equal(graph.run(wide[::3])[0], wide[::3])
    np.testing.assert_array_equal(graph.run(wide[N - 1 :: -1])[0], wide[N - 1 :: -1])


def test_device_inputs_are_read_in_the_order_of_the_stream(ctx, kernels, more):
    x = ctx.create_buffer(N)
    graph = summing(ctx, kernels, 1)
    ctx.launch(more.linger, 3_000_000)
    ctx.memset(x, 7.0)
    graph.replay(x)
    ctx.memset(x, 1.0)
    assert (graph.run(x)[0] == 1).all()
    ctx.launch(more.linger, 3_000_000)
    ctx.memset(x, 7.0)
    (seen,) = graph.run(x)
    assert (seen == 7).all()


@pytest.mark.fake
def test_upload(ctx, kernels, fake):
    graph = filling(ctx, kernels, ctx.create_buffer(N))
    graph.upload()
    assert fake.calls("cuGraphUpload") == 1
    graph.replay()
    graph.upload()
    ctx.synchronize()


def test_small_and_large_chains(ctx, kernels):
    x = ctx.create_buffer(N)
    for length in (0, 1, 200):

        def build(b, length=length):
            with b.region():
                b.add_memset(x, 0.0)
                for _ in range(length):
                    inc(b, kernels, x, 1.0)

        graph = fg.DeviceGraph.create(ctx, build)
        graph.replay()
        graph.replay()
        assert (x.numpy() == length).all()
