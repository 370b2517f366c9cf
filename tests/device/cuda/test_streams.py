"""Replays on many streams: their order, streams of others, captures, devices."""

from __future__ import annotations

import contextlib
import gc
import threading

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import counters
from tests.device.cuda.helpers import Foreign, Torch, enqueued, filling, linger
from tests.device.kernels import N, fill, inc

pytestmark = pytest.mark.cuda


@contextlib.contextmanager
def capturing(binding, stream):
    """Inside, another library captures `stream`; that must stay sound, and empty."""
    handle = binding.CUstream(stream.handle)
    mode = binding.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    assert binding.cuStreamBeginCapture(handle, mode)[0] == 0
    yield
    status = binding.cuStreamIsCapturing(handle)[1]
    code, graph = binding.cuStreamEndCapture(handle)
    assert status == binding.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
    assert code == 0
    assert binding.cuGraphGetNodes(graph)[-1] == 0
    binding.cuGraphDestroy(graph)


def bumping(ctx, kernels, x):
    """A graph that adds its scalar `d` to `x`, with a copied input that is added too."""

    def build(b, live):
        first = b.add_function(kernels.add, x, x, live, N, grid_dim=4, block_dim=256, name="add")
        inc(b, kernels, x, b.scalar("d", "float32", 0.0), dependencies=[first])
        b.add_output(x)

    return fg.DeviceGraph.create(ctx, build, np.zeros(N, "f4"))


@pytest.mark.parametrize("kind", [lambda s: s, Foreign, Torch], ids=["own", "protocol", "torch"])
def test_replays_on_streams_of_any_kind(ctx, kernels, kind):
    x = ctx.create_buffer(N)
    graph = filling(ctx, kernels, x)
    stream = ctx.create_stream()
    for _ in range(3):
        ctx.memset(x, 0.0)
        ctx.synchronize()
        graph.replay(stream=kind(stream))
        stream.synchronize()
        assert (x.numpy() == 5).all()
    graph.replay()
    ctx.synchronize()


def test_a_property_and_the_drivers_own_streams(ctx, kernels):
    x = ctx.create_buffer(N)
    graph = filling(ctx, kernels, x)
    held = ctx.create_stream()
    as_property = type("Property", (), {"__cuda_stream__": (0, held.handle), "held": held})()
    builtin = [type("Builtin", (), {"cuda_stream": number})() for number in (0, 1)]
    for stream in (as_property, *builtin):
        ctx.memset(x, 0.0)
        ctx.synchronize()
        graph.replay(stream=stream)
        assert (x.numpy() == 5).all()
    per_thread = type("Builtin", (), {"cuda_stream": 2})()
    with pytest.raises(fg.InputError, match="cudaStreamPerThread"):
        graph.replay(stream=per_thread)


def test_borrowed_streams_are_not_kept(ctx, kernels):
    graph = filling(ctx, kernels, ctx.create_buffer(N))
    stream = ctx.create_stream()
    for _ in range(3):
        graph.replay(stream=Foreign(stream))
    stream.synchronize()
    graph.replay()
    ctx.synchronize()
    gc.collect()
    before = counters.snapshot()["streams"]
    for _ in range(100):
        graph.replay(stream=Foreign(stream))
    graph.replay()
    ctx.synchronize()
    gc.collect()
    assert counters.snapshot()["streams"] <= before + 1


def test_a24_alternating_streams_never_overwrite_twins(ctx, more):
    """Each replay is slow and reads its twin last: a copy-in that does not wait shows."""
    targets = [ctx.create_buffer(N) for _ in range(8)]

    def build(b, live):
        slow = linger(b, more, 2)
        b.add_copy(b.pointer("target", targets[0]), live, dependencies=[slow])

    graph = fg.DeviceGraph.create(ctx, build, np.zeros(N, "f4"))
    streams = [ctx.create_stream(), ctx.create_stream()]
    for i, target in enumerate(targets):
        live = np.full(N, i + 1, "f4")
        graph.replay(live, stream=streams[i % 2], target=target)
        live[:] = -1  # has been read
    for i, target in enumerate(targets):
        assert (target.numpy() == i + 1).all(), i


@pytest.mark.fake
def test_a_new_stream_waits_for_the_old_one_by_an_event(ctx, kernels, fake):
    x = ctx.create_buffer(N)
    graph = filling(ctx, kernels, x)
    one, two = ctx.create_stream(), ctx.create_stream()
    graph.replay(stream=one)
    one.synchronize()
    with fake.held():
        fake.forget_calls()
        graph.replay(stream=one)
        assert enqueued(fake) == {"cuGraphLaunch": 1}
        fake.forget_calls()
        graph.replay(stream=two)
        assert enqueued(fake) == {"cuGraphLaunch": 1, "cuEventRecord": 1, "cuStreamWaitEvent": 1}
        fake.forget_calls()
        graph.replay(stream=Foreign(two))  # the same stream by another name
        assert enqueued(fake) == {"cuGraphLaunch": 1}
        graph.replay(stream=one)
        fake.forget_calls()
        graph.replay(stream=one)
        assert enqueued(fake) == {"cuGraphLaunch": 1}
    ctx.wait_for(fg.DeviceContext("cuda", stream=one))
    ctx.synchronize()
    one.synchronize()
    # What is known to be done needs no waiting for.
    fake.forget_calls()
    graph.replay(stream=two)
    assert enqueued(fake) == {"cuGraphLaunch": 1}
    two.synchronize()


@pytest.mark.fake
def test_on_two_held_streams_the_old_twin_is_read_first(ctx, kernels, fake):
    outs = ctx.create_buffer(N), ctx.create_buffer(N)
    graph = fg.DeviceGraph.create(
        ctx, lambda b, live: b.add_copy(b.pointer("to", outs[0]), live), np.zeros(N, "f4")
    )
    one, two = ctx.create_stream(), ctx.create_stream()
    with fake.held():
        graph.replay(np.full(N, 1, "f4"), stream=one, to=outs[0])
        graph.replay(np.full(N, 2, "f4"), stream=two, to=outs[1])
        fake.step(1)
    assert [out.numpy()[0] for out in outs] == [1, 2]


def test_contexts_wait_for_each_other(ctx, kernels, more):
    other = fg.DeviceContext("cuda")
    x, y = ctx.create_buffer(N), ctx.create_buffer(N)
    ctx.launch(more.linger, 3_000_000)
    ctx.launch(kernels.fill, x, 3.0, N, grid_dim=4, block_dim=256)
    other.wait_for(ctx)
    other.copy(y, x)
    other.synchronize()
    assert (y.numpy() == 3).all()
    with pytest.raises(fg.InputError, match="wait_for takes a DeviceContext"):
        other.wait_for(ctx.stream)
    other.wait_for(other)
    other.wait_for(fg.DeviceContext("cpu"))


def test_streams_wait_for_streams_and_events(ctx, more):
    x, y = ctx.create_buffer(4), ctx.create_buffer(4)
    producer = fg.DeviceContext("cuda", stream=ctx.create_stream())
    event = producer.create_event()
    producer.launch(more.linger, 3_000_000)
    producer.memset(x, 7.0)
    event.record()
    for what in (event, producer.stream):
        consumer = fg.DeviceContext("cuda", stream=ctx.create_stream())
        consumer.stream.wait_for(what)
        consumer.memset(y, 0.0)
        consumer.copy(y, x)
        consumer.synchronize()
        assert (y.numpy() == 7).all()


def test_times(ctx, more):
    graph = fg.DeviceGraph.create(ctx, lambda b: linger(b, more, 3))
    start, end = ctx.create_event(), ctx.create_event()
    for event in (start, end):
        with pytest.raises(fg.GraphError, match="never recorded"):
            event.query()
    start.record()
    seconds = ctx.execution_time(graph.replay, 2)
    end.record()
    # The kernel takes its time, and what is inside less than what is round it.
    assert 5.5 < 1e3 * seconds <= end.elapsed_ms(start) * 1.001
    assert start.query()
    assert end.query()
    with pytest.raises(ZeroDivisionError):
        ctx.execution_time(lambda: 1 / 0)


def test_with_waits_for_the_stream(ctx, kernels, more):
    x = ctx.create_buffer(N)

    def build(b):
        fill(b, kernels, x, 5.0, dependencies=[linger(b, more, 3)])

    graph = fg.DeviceGraph.create(ctx, build)
    with fg.DeviceContext("cuda", stream=ctx.stream) as same:
        graph.replay()
        assert same.stream.unobserved == 1
    assert ctx.stream.unobserved == 0
    assert (x.numpy() == 5).all()
    with pytest.raises(KeyError), ctx:
        graph.replay()
        raise KeyError
    assert ctx.stream.unobserved == 0


def test_a_context_on_a_foreign_stream(ctx, kernels):
    stream = ctx.create_stream()
    on = fg.DeviceContext("cuda", stream=Torch(stream))
    assert on == ctx
    assert on.stream.handle == stream.handle
    x = on.create_buffer(N)
    graph = filling(on, kernels, x)
    graph.replay()
    graph.replay()
    stream.synchronize()
    assert (x.numpy() == 5).all()
    assert graph.context.stream.borrowed
    for bad in (7, "x", object()):
        with pytest.raises(fg.InputError):
            fg.DeviceContext("cuda", stream=bad)


@pytest.mark.parametrize("bad", [7, "x", object(), 0])
def test_no_streams(ctx, kernels, bad):
    x = ctx.create_buffer(N)
    graph = filling(ctx, kernels, x)
    for call in (graph.replay, graph.run):
        with pytest.raises(fg.InputError, match="stream"):
            call(stream=bad)
    assert not x.numpy().any()


@pytest.mark.parametrize("foreign", [False, True])
def test_a_capturing_stream_is_refused_before_harm(ctx, kernels, binding, foreign):
    x, raw = ctx.create_buffer(N), ctx.create_stream()
    plain, full = filling(ctx, kernels, x), bumping(ctx, kernels, x)
    live = np.ones(N, "f4")
    stream = Foreign(raw) if foreign else raw
    plain.replay()  # the streams have an order to keep
    with capturing(binding, raw):
        for call in (
            lambda: plain.replay(stream=stream),
            lambda: plain.run(stream=stream),
            lambda: full.replay(live, stream=stream),
            lambda: full.replay(live, stream=stream, d=2.0),
            lambda: full.run(live, stream=stream, d=2.0),
        ):
            with pytest.raises(fg.GraphError, match="captured"):
                call()
        ctx.synchronize()
        assert (x.numpy() == 5).all()
        assert (full.run(live)[0] == 6).all()
        assert (full.run(live, d=1.0)[0] == 8).all()
    plain.replay(stream=stream)
    raw.synchronize()


@pytest.mark.parametrize("foreign", [False, True])
def test_a_context_whose_stream_captures(ctx, kernels, binding, foreign):
    stream = ctx.create_stream()
    on = fg.DeviceContext("cuda", stream=Foreign(stream) if foreign else stream)
    x = ctx.create_buffer(N)
    plain, full = filling(on, kernels, x), bumping(on, kernels, x)
    plain.replay()
    on.synchronize()
    with capturing(binding, stream):
        if foreign:
            for call in (
                plain.replay,
                plain.run,
                plain.upload,
                lambda: full.replay(np.ones(N, "f4")),
            ):
                with pytest.raises(fg.GraphError, match="captured"):
                    call()
        with pytest.raises(fg.GraphError, match="captured"):
            on.synchronize()
    plain.replay()
    on.synchronize()
    assert (x.numpy() == 5).all()


def test_a_stream_that_goes_while_it_is_captured(ctx, kernels, binding):
    """An event to remember its work by must not get into the capture."""
    x, raw = ctx.create_buffer(N), ctx.create_stream()
    on = fg.DeviceContext("cuda", stream=Foreign(raw))
    on.memset(x, 1.0)
    raw.synchronize()
    with capturing(binding, raw):
        del on
        gc.collect()
        ctx.memset(x, 2.0)
        ctx.synchronize()
        ctx.create_buffer(N)  # and is gone
    assert (x.numpy() == 2).all()


def test_a_graph_whose_last_stream_is_captured(ctx, kernels, binding):
    """It cannot be told when the last replay is done: not even on another stream."""
    x, raw = ctx.create_buffer(N), ctx.create_stream()
    graph = filling(ctx, kernels, x)
    graph.replay(stream=Foreign(raw))
    raw.synchronize()
    with capturing(binding, raw):
        for _ in range(2):
            with pytest.raises(fg.GraphError, match="captured"):
                graph.replay()
    ctx.memset(x, 0.0)
    graph.replay()
    ctx.synchronize()
    assert (x.numpy() == 5).all()


@pytest.mark.fake
def test_streams_of_another_device(ctx, kernels, fake):
    other = fg.DeviceContext("cuda:1")
    x = ctx.create_buffer(N)
    plain, full = filling(ctx, kernels, x), bumping(ctx, kernels, x)
    for stream in (other.stream, Foreign(other.stream), Torch(other.stream)):
        for call in (
            lambda stream=stream: plain.replay(stream=stream),
            lambda stream=stream: plain.run(stream=stream),
            lambda stream=stream: full.replay(np.ones(N, "f4"), stream=stream),
            lambda stream=stream: fg.DeviceContext("cuda", stream=stream),
        ):
            with pytest.raises(fg.InputError, match="cuda:0"):
                call()
    assert not x.numpy().any()
    plain.replay()
    ctx.synchronize()


def test_many_threads_on_streams_of_their_own(ctx, kernels):
    """A counter: replays of one executable never interleave, wherever they go."""
    x = ctx.create_buffer(N)
    graph = fg.DeviceGraph.create(ctx, lambda b: inc(b, kernels, x, 1.0))
    streams = [ctx.create_stream() for _ in range(4)]

    def work(stream):
        for _ in range(50):
            graph.replay(stream=stream)

    threads = [threading.Thread(target=work, args=(stream,)) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (x.numpy() == 200).all()
