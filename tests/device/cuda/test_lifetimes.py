"""What lives how long while work is under way, and that all of it goes."""

from __future__ import annotations

import copy
import gc
import threading
import weakref

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import counters
from tests import conftest
from tests.device.cuda.helpers import MS, linger
from tests.device.kernels import N, add, fill, inc

pytestmark = [pytest.mark.cuda, pytest.mark.timeout(120)]


def slow_sum(ctx, kernels, more, x, ms=3):
    """A slow graph that adds a copied input to scratch, and both to `x`."""

    def build(b, live):
        scratch = b.create_buffer(N)
        slow = linger(b, more, ms)
        first = fill(b, kernels, scratch, 1.0, dependencies=[slow])
        add(b, kernels, b.pointer("x", x), scratch, live, dependencies=[first])

    return fg.DeviceGraph.create(ctx, build, np.zeros(N, "f4"))


@pytest.mark.parametrize("how", ["close", "drop", "collect"])
def test_a_graph_that_goes_in_flight(ctx, kernels, more, how):
    x = ctx.create_buffer(N)
    graph = slow_sum(ctx, kernels, more, x)
    for value in (1, 2, 3):
        graph.replay(np.full(N, value, "f4"))
    if how == "close":
        graph.close()
    elif how == "collect":
        ring = [graph]
        ring.append(ring)
        del ring
    del graph
    gc.collect()
    junk = [ctx.to_device(np.full(N, 99, "f4")) for _ in range(20)]
    assert (x.numpy() == 4).all()
    del junk


def test_buffers_that_go_in_flight(ctx, kernels, more):
    out = ctx.create_buffer(N)
    x = ctx.create_buffer(N)
    graph = slow_sum(ctx, kernels, more, x)
    live = ctx.to_device(np.full(N, 4, "f4"))
    graph.replay(live)
    ctx.copy(out, x)
    del live, x
    gc.collect()
    junk = [ctx.to_device(np.full(N, 99, "f4")) for _ in range(20)]
    assert (out.numpy() == 5).all()
    graph.replay(np.full(N, 5, "f4"))  # into the buffer that the graph keeps
    ctx.synchronize()
    del junk


def test_pointers_and_values_that_go_in_flight(ctx, kernels, more):
    x, other = ctx.create_buffer(N), ctx.create_buffer(N)
    graph = slow_sum(ctx, kernels, more, x)
    graph.replay(np.full(N, 1, "f4"), x=other)
    ctx.copy(x, other)
    del other
    for value in range(5):  # each is let go of while it is written
        graph.set(x=ctx.create_buffer(N))
        graph.replay(np.full(N, value, "f4"))
    gc.collect()
    graph.set(x=x)
    ctx.synchronize()
    assert (x.numpy() == 2).all()
    gc.collect()
    live = counters.snapshot()["device_bytes"]
    for _ in range(200):
        graph.set(x=ctx.create_buffer(N))
        graph.replay(np.zeros(N, "f4"))
        ctx.synchronize()
    assert counters.snapshot()["device_bytes"] <= live + 70 * 4 * N


def test_eager_work_on_memory_that_goes(ctx, kernels, more):
    out = ctx.create_buffer(N)
    for value in range(3):
        x = ctx.create_buffer(N)
        pinned = ctx.create_host_buffer(N)
        np.asarray(pinned)[:] = value
        ctx.launch(more.linger, 2_000_000)
        ctx.copy(x, pinned)
        ctx.copy(out, x)
        del x, pinned
        junk = ctx.to_device(np.full(N, 99, "f4"))
        assert (out.numpy() == value).all()
        del junk


def test_streams_and_contexts_that_go_in_flight(ctx, kernels, more):
    x = ctx.create_buffer(N)
    graph = fg.DeviceGraph.create(
        ctx, lambda b: inc(b, kernels, x, 1.0, dependencies=[linger(b, more, 2)])
    )
    for _ in range(3):
        stream = ctx.create_stream()
        graph.replay(stream=stream)
        del stream
    on = fg.DeviceContext("cuda")
    on.wait_for(ctx)
    late = fg.DeviceGraph.create(on, lambda b: b.add_memset(ctx.create_buffer(N), 1.0))
    late.replay()
    del on, late
    gc.collect()
    assert (x.numpy() == 3).all()


def test_everything_dropped_but_the_handle(kernels):
    """A 20, and the context too."""
    ctx = fg.DeviceContext("cuda")
    host = np.full(N, 3, "f4")
    alive = weakref.ref(host)

    def make():
        x, out = ctx.create_buffer(N), ctx.create_host_buffer(N)

        def build(b):
            first = b.add_copy(x, host)
            last = inc(b, kernels, x, 1.0, dependencies=[first])
            b.add_copy(out, x, dependencies=[last])
            b.add_output(out)

        return fg.DeviceGraph.create(ctx, build)

    graph = make()
    ctx, host = None, None
    gc.collect()
    junk = [fg.DeviceContext("cuda").to_device(np.full(N, 9, "f4")) for _ in range(10)]
    assert alive() is not None
    assert (graph.run()[0] == 4).all()
    graph.close()
    gc.collect()
    assert alive() is None
    del junk


def test_handles_and_clones(ctx, kernels):
    before = counters.snapshot()
    x = ctx.create_buffer(N)
    graph = fg.DeviceGraph.create(ctx, lambda b, x=x: inc(b, kernels, x, 1.0, name="inc"))
    second, twin = copy.copy(graph), copy.deepcopy(graph)
    graph.replay()
    graph.close()
    for call in (graph.replay, graph.run, graph.clone, graph.upload, lambda: graph.nodes):
        with pytest.raises(fg.GraphError, match="closed"):
            call()
    graph.close()
    second.replay()
    twin.replay()
    assert (x.numpy() == 3).all()
    second.update("inc", args=(x, 10.0, N))
    second.replay()
    twin.replay()
    assert (x.numpy() == 14).all()
    del second, twin, x
    gc.collect()
    ctx.synchronize()
    assert {k: v for k, v in counters.snapshot().items() if v > before[k]} == {}


def test_code_goes_with_the_last_that_needs_it(ctx, more_image):
    load = ctx.compile_function if conftest.FAKE is None else ctx.load_function
    # An image of its own: the same bytes are loaded once.
    apart = '\nextern "C" __global__ void apart() {}\n'
    image = more_image + (apart if isinstance(more_image, str) else b"\0apart")
    before = counters.snapshot()["modules"]
    f = load(image, "add_table", "float *x")
    x = ctx.create_buffer(4)
    graph = fg.DeviceGraph.create(ctx, lambda b, f=f: b.add_function(f, x, block_dim=4))
    assert counters.snapshot()["modules"] == before + 1
    del f
    gc.collect()
    assert counters.snapshot()["modules"] == before + 1
    graph.replay()
    assert x.numpy().tolist() == [1, 2, 3, 4]
    graph.replay()
    del graph
    gc.collect()
    assert counters.snapshot()["modules"] == before
    assert x.numpy().tolist() == [2, 4, 6, 8]


@pytest.mark.fake
def test_nothing_is_left_of_many_graphs(ctx, kernels, more, fake):
    flag = ctx.to_device(np.ones(1, "u4"))

    def one(i):
        x = ctx.create_buffer(N)

        def build(b, live):
            scratch = b.create_buffer(N)
            v = b.scalar("v", "float32", 1.0)
            m = b.scalar("m", "int32", 1, where="memory")
            first = fill(b, kernels, scratch, v)
            second = add(b, kernels, x, scratch, live, dependencies=[first])
            b.add_if(flag, lambda body: inc(body, kernels, x, 1.0), dependencies=[second])
            b.add_function(kernels.total, b.create_buffer(1, "int32"), 1, m)
            b.add_host_function(lambda: None, dependencies=[second])
            b.add_output(x)

        graph = fg.DeviceGraph.create(ctx, build, np.zeros(N, "f4"))
        twin = graph.clone()
        assert (graph.run(np.full(N, i, "f4"), v=2.0)[0] == i + 3).all()
        twin.replay(np.zeros(N, "f4"), m=3)
        if i % 2:
            twin.close()

    for i in range(3):
        one(i)
    ctx.synchronize()
    before = fake.settled(), counters.snapshot()
    for i in range(30):
        one(i)
    gc.collect()
    ctx.synchronize()
    assert (fake.live(), counters.snapshot()) == before


# ---- threads


def test_a24_16_threads_run_one_cached_graph(ctx, kernels):
    cache, wrong = fg.DeviceGraphCache(), []
    builds = []

    def build(b, live):
        builds.append(1)
        scratch = b.create_buffer(N)
        first = add(b, kernels, scratch, live, live)
        inc(b, kernels, scratch, 1.0, dependencies=[first])
        b.add_output(scratch)

    def work(number):
        try:
            graph = fg.DeviceGraph.create(ctx, build, np.zeros(N, "f4"), cache=cache)
            for turn in range(20):
                value = number * 100 + turn
                (seen,) = graph.run(np.full(N, value, "f4"))
                if not (seen == 2 * value + 1).all():
                    wrong.append((number, turn, seen[:4]))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(builds) == 1


def test_threads_with_values_of_their_own(ctx, kernels):
    x = ctx.create_buffer(N)

    def build(b):
        fill(b, kernels, x, b.scalar("v", "float32", 0.0))
        b.add_output(x)

    graph, wrong = fg.DeviceGraph.create(ctx, build), []
    streams = [ctx.create_stream() for _ in range(4)]

    def work(number):
        for turn in range(30):
            value = float(number * 100 + turn)
            (seen,) = graph.run(v=value, stream=streams[number % 4])
            if not (seen == value).all():
                wrong.append((number, turn, seen[:4]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a24_clones_overlap_and_replays_of_one_do_not(ctx, more):
    """Each run counts itself, waits for more to come, and notes how many it saw."""
    counter, seen = ctx.create_buffer(1, "uint32"), ctx.create_buffer(4, "uint32")
    streams = [ctx.create_stream() for _ in range(4)]

    def build(b):
        slot = b.pointer("slot", seen[:1])
        limit = b.scalar("limit", "uint64", 30_000 * MS)
        b.add_function(more.gather_up, counter, slot, 4, limit)

    def counts(graphs, **given):
        ctx.memset(counter, 0)
        ctx.synchronize()
        for i, (graph, stream) in enumerate(zip(graphs, streams, strict=True)):
            graph.replay(stream=stream, slot=seen[i : i + 1], **given)
        return seen.numpy().tolist()

    graph = fg.DeviceGraph.create(ctx, build)
    assert counts([graph, *(graph.clone() for _ in range(3))]) == [4] * 4
    assert counts([graph] * 4, limit=3 * MS) == [1, 2, 3, 4]


def test_a_graph_closed_by_another_thread(ctx, kernels, more):
    x = ctx.create_buffer(N)
    for _ in range(5):
        graph = slow_sum(ctx, kernels, more, x, 1)
        errors, begun = [], threading.Event()

        def work(graph=graph, errors=errors, begun=begun):
            try:
                while True:
                    graph.replay(np.ones(N, "f4"))
                    begun.set()
            except fg.GraphError as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        begun.wait()
        graph.close()
        thread.join()
        assert len(errors) == 1
        assert "closed" in str(errors[0])
    ctx.synchronize()
    assert (x.numpy() == 2).all()


def test_threads_build_and_drop(ctx, kernels):
    wrong = []

    def work(number):
        try:
            for turn in range(10):
                x = ctx.create_buffer(N)
                graph = fg.DeviceGraph.create(ctx, lambda b, x=x: fill(b, kernels, x, 1.0))
                graph.replay()
                twin = graph.clone()
                del graph
                ctx.memset(x, float(number))
                twin.replay()
                del twin
                if turn % 3 == 0:
                    gc.collect()
                if not (x.numpy() == 1).all():
                    wrong.append(x.numpy()[:4])
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.fake
def test_a_wait_lets_other_threads_go_on(ctx, kernels, fake):
    x = ctx.create_buffer(N)
    graph = fg.DeviceGraph.create(ctx, lambda b: fill(b, kernels, x, 1.0))
    waits = [graph.run, ctx.synchronize, x.numpy]
    fake.hold(True)
    graph.replay()
    threads = [threading.Thread(target=wait) for wait in waits]
    for thread in threads:
        thread.start()
    fake.wait_for_polls(1000)  # while this thread goes on
    assert all(thread.is_alive() for thread in threads)
    fake.hold(False)
    for thread in threads:
        thread.join()
    assert (x.numpy() == 1).all()
