"""Work that was enqueued on a stream, as one node of a graph."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import counters
from tests import conftest
from tests.device.cuda.helpers import driver_edges, enqueued, filling, kinds
from tests.device.kernels import GRID, N, fill, inc

pytestmark = pytest.mark.cuda


def eager(ctx, kernels, stream, x, value, delta):
    """Work of our own on a stream: a memset and a kernel."""
    on = fg.DeviceContext(ctx.device, stream=stream)
    on.memset(x, value)
    on.launch(kernels.inc, x, delta, N, **GRID)


def captured(ctx, kernels, x, value=5.0, delta=2.0, **options):
    def build(b):
        with b.capture(**options) as c:
            eager(ctx, kernels, c.stream, x, value, delta)

    return fg.DeviceGraph.create(ctx, build)


def test_a27_eager_work_becomes_a_node(ctx, kernels, binding):
    x, y = ctx.create_buffer(N), ctx.create_buffer(N)

    def build(b):
        first = b.add_memset(x, 1.0)
        with b.capture([first]) as c:
            assert c.stream.__cuda_stream__() == (0, c.stream.handle)
            eager(ctx, kernels, c.stream, y, 5.0, 2.0)
            fg.DeviceContext("cuda", stream=c.stream).copy(y[:2], x[:2])
        last = inc(b, kernels, y, 10.0, dependencies=[c.node])
        assert last.id == 2

    graph = fg.DeviceGraph.create(ctx, build)
    assert not x.numpy().any()
    assert not y.numpy().any()
    assert [node.kind for node in graph.nodes] == ["memset", "child", "function"]
    assert graph.edges == [(0, 1), (1, 2)]
    handle = graph._state.executable.handle
    assert kinds(binding, handle) == ["memset", "graph", "kernel"]
    assert driver_edges(binding, handle) == [(0, 1, False), (1, 2, False)]
    for _ in range(3):
        ctx.memset(y, 0.0)
        graph.replay()
        assert y.numpy()[:4].tolist() == [11, 11, 17, 17]
    graph.update("memset", value=3.0)
    graph.update("inc", args=(y, 0.0, N))
    graph.replay()
    assert y.numpy()[:4].tolist() == [3, 3, 7, 7]
    assert graph.stats.rebuilds == 0


def test_an_empty_capture(ctx, kernels):
    x = ctx.create_buffer(N)

    def build(b):
        first = b.add_memset(x, 1.0)
        with b.capture([first]) as c:
            pass
        inc(b, kernels, x, 1.0, dependencies=[c.node])

    graph = fg.DeviceGraph.create(ctx, build)
    assert len(graph.nodes) == 3
    graph.replay()
    assert (x.numpy() == 2).all()


def test_stream_and_node_have_their_time(ctx, kernels):
    x = ctx.create_buffer(N)

    def build(b):
        c = b.capture()
        for look in (lambda: c.stream, lambda: c.node):
            with pytest.raises(fg.GraphError):
                look()
        with c:
            with pytest.raises(fg.GraphError, match="once it is over"):
                c.node  # noqa: B018
            eager(ctx, kernels, c.stream, x, 1.0, 1.0)
        with pytest.raises(fg.GraphError, match="inside its `with`"):
            c.stream  # noqa: B018
        assert c.node.id == 0
        with pytest.raises(fg.GraphError, match="once"), c:
            pass

    fg.DeviceGraph.create(ctx, build).replay()
    assert (x.numpy() == 2).all()


def test_what_a_capture_keeps(ctx, kernels):
    class Thing:
        pass

    thing, x = Thing(), ctx.create_buffer(N)
    other = ctx.create_buffer(N)
    alive = weakref.ref(thing)
    graph = captured(ctx, kernels, x, keep=(thing, other))
    del thing, other
    gc.collect()
    assert alive() is not None
    graph.replay()
    assert (x.numpy() == 7).all()
    graph.close()
    gc.collect()
    assert alive() is None


def test_no_clone_and_no_verify(ctx, kernels):
    x = ctx.create_buffer(N)
    graph = captured(ctx, kernels, x)
    with pytest.raises(fg.UnsupportedError, match=r"captured|foreign"):
        graph.clone()
    with pytest.raises(fg.UnsupportedError, match="work of another library"):
        fg.DeviceGraph.create(ctx, lambda b: capture_in(b, ctx, kernels, x), verify=1)
    graph.replay()
    assert (x.numpy() == 7).all()
    assert graph.run() == ()


def capture_in(b, ctx, kernels, x):
    with b.capture() as c:
        eager(ctx, kernels, c.stream, x, 5.0, 2.0)
    return c.node


def test_check_true_runs_captured_work_alone(ctx, kernels):
    x = ctx.create_buffer(N)

    def build(b):
        node = capture_in(b, ctx, kernels, x)
        inc(b, kernels, x, 1.0, dependencies=[node])

    graph = fg.DeviceGraph.create(ctx, build, check=True)
    for _ in range(2):
        graph.replay()
        ctx.synchronize()
        assert (x.numpy() == 8).all()


def test_an_exception_in_a_capture(ctx, kernels):
    x = ctx.create_buffer(N)
    before = counters.snapshot()

    def build(b):
        with pytest.raises(KeyError, match="mine"), b.capture() as c:
            eager(ctx, kernels, c.stream, x, 1.0, 1.0)
            raise KeyError("mine")
        with pytest.raises(fg.GraphError):
            c.node  # noqa: B018
        assert b.num_nodes == 0
        capture_in(b, ctx, kernels, x)

    graph = fg.DeviceGraph.create(ctx, build)
    graph.replay()
    assert (x.numpy() == 7).all()
    with pytest.raises(ZeroDivisionError):
        fg.DeviceGraph.create(ctx, lambda b: [capture_in(b, ctx, kernels, x), 1 / 0])
    del graph
    gc.collect()
    assert conftest.growth(before, counters.snapshot()) == {}


def test_waiting_inside_a_capture_raises(ctx, kernels):
    x = ctx.create_buffer(N)

    def build(b):
        with b.capture() as c:
            on = fg.DeviceContext("cuda", stream=c.stream)
            on.memset(x, 3.0)
            for call in (
                on.synchronize,
                c.stream.query,
                c.stream.synchronize,
                x.numpy,
                lambda: on.execution_time(lambda: None),
                lambda: on.copy(np.zeros(N, "f4"), x),
            ):
                with pytest.raises(fg.GraphError, match="captured"):
                    call()
            on.launch(kernels.inc, x, 1.0, N, **GRID)

    fg.DeviceGraph.create(ctx, build).replay()
    assert (x.numpy() == 4).all()


def test_other_threads_wait_while_one_captures(ctx, kernels):
    """What one thread records is none of the others' business."""
    x, y = ctx.create_buffer(N), ctx.create_buffer(N)
    seen = []

    def work():
        try:
            for _ in range(3):
                ctx.memset(y, 3.0)
                seen.append(float(y.numpy()[0]))
                seen.append(float(graph.run()[0][0]))
            del_me = ctx.create_buffer(1 << 16)
            del del_me
        except BaseException as error:
            seen.append(error)

    def filled(b):
        fill(b, kernels, y, 4.0)
        b.add_output(y)

    graph = fg.DeviceGraph.create(ctx, filled)

    def build(b):
        with b.capture() as c:
            on = fg.DeviceContext("cuda", stream=c.stream)
            on.memset(x, 3.0)
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            on.launch(kernels.inc, x, 1.0, N, **GRID)

    fg.DeviceGraph.create(ctx, build).replay()
    assert seen == [3.0, 4.0] * 3
    assert (x.numpy() == 4).all()


def test_captures_do_not_nest_and_take_turns(ctx, kernels):
    xs = [ctx.create_buffer(N) for _ in range(4)]

    def nested(b):
        with b.capture() as c:
            with pytest.raises(fg.GraphError, match="do not nest"), b.capture():
                pass
            eager(ctx, kernels, c.stream, xs[0], 1.0, 1.0)

    fg.DeviceGraph.create(ctx, nested).replay()
    assert (xs[0].numpy() == 2).all()
    graphs = [None] * 4

    def work(i):
        graphs[i] = captured(ctx, kernels, xs[i], float(i), 1.0)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, graph in enumerate(graphs):
        graph.replay()
        assert (xs[i].numpy() == i + 1).all()
    assert gc.isenabled()


def test_a_graph_is_not_launched_into_a_capture(ctx, kernels):
    x, y = ctx.create_buffer(N), ctx.create_buffer(N)
    inner = filling(ctx, kernels, y)

    def build(b):
        with b.capture() as c:
            with pytest.raises(fg.GraphError, match="add it to the other graph as a child"):
                inner.replay(stream=c.stream)
            on = fg.DeviceContext("cuda", stream=c.stream)
            late = filling(on, kernels, y)
            with pytest.raises(fg.GraphError, match="captured"):
                late.replay()
            on.memset(x, 2.0)

    graph = fg.DeviceGraph.create(ctx, build)
    graph.replay()
    assert (x.numpy() == 2).all()
    assert not y.numpy().any()
    inner.replay()
    ctx.synchronize()


@pytest.mark.fake
def test_a_spoilt_capture(ctx, kernels, binding, fake):
    x = ctx.create_buffer(N)

    def build(b):
        b.add_memset(x, 1.0)
        with pytest.raises(fg.GraphError, match="the capture was spoilt"), b.capture() as c:
            eager(ctx, kernels, c.stream, x, 5.0, 1.0)
            binding.cuCtxSetCurrent(binding.CUcontext(ctx.stream.device.context))
            binding.cuCtxSynchronize()
            binding.cuCtxSetCurrent(binding.CUcontext(0))
        assert b.num_nodes == 1
        # What the work raises tells more than that its capture was spoilt.
        with pytest.raises(KeyError), b.capture():
            binding.cuCtxSetCurrent(binding.CUcontext(ctx.stream.device.context))
            binding.cuCtxSynchronize()
            binding.cuCtxSetCurrent(binding.CUcontext(0))
            raise KeyError
        assert b.num_nodes == 1

    before = fake.settled()["graphs"]
    graph = fg.DeviceGraph.create(ctx, build)
    graph.replay()
    assert (x.numpy() == 1).all()
    assert gc.isenabled()
    assert fake.live()["graphs"] == before + 1
    assert (captured(ctx, kernels, x).run(), x.numpy()[0]) == ((), 7)


@pytest.mark.fake
@pytest.mark.parametrize(
    "name", ["cuStreamCreateWithPriority", "cuStreamBeginCapture", "cuStreamEndCapture"]
)
def test_a_capture_that_the_driver_refuses(ctx, kernels, fake, name):
    x = ctx.create_buffer(N)
    before = fake.settled()
    fake.fail(name, 999)
    with pytest.raises(fg.DriverError):
        captured(ctx, kernels, x)
    gc.collect()
    assert gc.isenabled()
    if name != "cuStreamEndCapture":  # else the driver has it still
        assert fake.live() == before
    captured(ctx, kernels, x).replay()
    assert (x.numpy() == 7).all()


def test_no_captures_in_bodies_that_cannot_have_them(ctx, kernels, binding):
    """A body takes captured kernels and memsets; not host functions, nor pageable copies."""
    x, flag = ctx.create_buffer(N), ctx.to_device(np.ones(1, "u4"))
    host = np.ones(N, "f4")

    def good(b):
        capture_in(b, ctx, kernels, x)

    graph = fg.DeviceGraph.create(ctx, lambda b: b.add_if(flag, good))
    graph.replay()
    assert (x.numpy() == 7).all()

    def pageable(b):
        with b.capture(keep=[host]) as c:
            stream = binding.CUstream(c.stream.handle)
            binding.cuMemcpyHtoDAsync(x.ptr, host.ctypes.data, host.nbytes, stream)

    fg.DeviceGraph.create(ctx, pageable).replay()
    assert (x.numpy() == 1).all()
    for bad in (lambda b: b.add_if(flag, pageable), lambda b: b.add_while(flag, pageable)):
        with pytest.raises((fg.GraphError, fg.UnsupportedError), match=r"body|bodies"):
            fg.DeviceGraph.create(ctx, bad)


@pytest.mark.fake
def test_a_replay_of_captured_work_is_one_launch(ctx, kernels, fake):
    x = ctx.create_buffer(N)  # is the caller's to keep
    graph = captured(ctx, kernels, x)
    graph.replay()
    ctx.synchronize()
    fake.forget_calls()
    graph.replay()
    assert enqueued(fake) == {"cuGraphLaunch": 1}
    ctx.synchronize()


def test_captured_work_in_children(ctx, kernels):
    x = ctx.create_buffer(N)
    inner = captured(ctx, kernels, x)

    def build(b, inner=inner):
        child = b.add_child_graph(inner)
        inc(b, kernels, x, 1.0, dependencies=[child])

    graph = fg.DeviceGraph.create(ctx, build)
    inner.close()
    del inner
    gc.collect()
    graph.replay()
    assert (x.numpy() == 8).all()


def test_capture_options(ctx, kernels):
    def build(b):
        for bad in (7, "x", [7], [None]):
            with pytest.raises(fg.GraphError):
                b.capture(bad)
        with pytest.raises(TypeError):
            b.capture(keep=7)
        with pytest.raises(fg.GraphError):
            b.capture([foreign])

    kept = []
    fg.DeviceGraph.create(ctx, lambda b: kept.append(b.add_empty()))
    foreign = kept[0]
    fg.DeviceGraph.create(ctx, build)
    builders = []
    fg.DeviceGraph.create(ctx, builders.append)
    with pytest.raises(fg.ScopeError):
        builders[0].capture()
