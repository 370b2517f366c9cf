"""Each call of the driver fails in turn: nothing is left behind, and the next call works."""

from __future__ import annotations

import gc
import warnings

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import counters
from tests import conftest
from tests.device.kernels import N, fill, inc

pytestmark = [pytest.mark.fake, pytest.mark.timeout(300)]

# What can go wrong on the way; not what destroys, nor what puts back the caller's own context.
CALLS = (
    *("cuMemAlloc", "cuMemHostAlloc", "cuEventCreate", "cuEventRecord", "cuEventQuery"),
    *("cuStreamWaitEvent", "cuStreamIsCapturing", "cuStreamCreateWithPriority"),
    *("cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync", "cuMemcpyBatchAsync"),
    *("cuMemsetD8Async", "cuMemsetD32Async", "cuLaunchKernelEx", "cuGraphLaunch"),
    *("cuGraphCreate", "cuGraphAddNode", "cuGraphConditionalHandleCreate", "cuGraphUpload"),
    *("cuGraphKernelNodeSetAttribute", "cuGraphInstantiateWithFlags", "cuGraphNodeSetEnabled"),
    *("cuGraphExecNodeSetParams", "cuGraphGetNodes", "cuGraphNodeGetType"),
    *("cuStreamBeginCapture", "cuModuleLoadDataEx", "cuModuleGetFunction", "cuModuleGetGlobal"),
    *("cuFuncGetAttribute", "cuFuncSetAttribute", "cuFuncGetParamInfo", "cuFuncGetName"),
    *("cuPointerGetAttributes", "cuOccupancyMaxActiveBlocksPerMultiprocessor"),
    *("cuMemcpyPeerAsync", "cuStreamQuery", "cuStreamGetCtx", "cuMemGetInfo", "cuEventElapsedTime"),
    *("cuCtxGetStreamPriorityRange", "cuCtxEnablePeerAccess", "cuDeviceCanAccessPeer"),
)


def buffers(ctx):
    """Buffers that the graphs of these tests work on."""
    return {
        "x": ctx.create_buffer(N),
        "y": ctx.create_buffer(N),
        "wide": ctx.create_buffer(8, "uint64"),
        "flag": ctx.to_device(np.ones(1, "u4")),
        "pinned": ctx.create_host_buffer(N),
    }


def everything(ctx, kernels, memory, more=None, **options):
    """A graph with nodes of every kind; its output is 8 everywhere, or 7 more than ``v``."""
    x, y = memory["x"], memory["y"]
    inner = fg.DeviceGraph.create(ctx, lambda b: inc(b, kernels, x, 1.0))

    def build(b, live):
        scratch = b.create_buffer(N)
        first = b.add_copy(scratch, live)
        with b.region(dependencies=[first]):
            fill(b, kernels, x, b.scalar("v", "float32", 1.0), priority=-1, name="fill")
            inc(b, kernels, x, 1.0, shared_mem_bytes=64 << 10, programmatic=True)
            b.add_memset(memory["wide"], 1 << 40 | 1)
            b.add_if(memory["flag"], lambda body: inc(body, kernels, x, 1.0))
            b.add_child_graph(inner)
            b.add_copy(memory["pinned"], x, name="copy out")
            b.add_function(
                kernels.add, b.pointer("to", y), x, scratch, N, grid_dim=4, block_dim=256
            )
            with b.capture() as c:
                fg.DeviceContext("cuda", stream=c.stream).memset(memory["wide"], 1)
        b.add_output(y)
        b.add_output(x)

    return fg.DeviceGraph.create(ctx, build, np.zeros(N, "f4"), **options)


LIVE = np.full(N, 4, "f4")

# What is kept for all, and how many more of them a test may leave behind.
KEPT = {"pinned": 10, "pinned_bytes": 1 << 24, "events": 20, "streams": 5}


def state(ctx, fake):
    """All that is alive, ours and the driver's, once nothing is under way.

    But for what is kept for all: pinned memory to copy through, events, streams for copies.
    """
    ctx.synchronize()
    live = fake.live()
    for kind in KEPT:
        del live[kind]
    return {**counters.snapshot(), **{f"driver's {kind}": count for kind, count in live.items()}}


def fail_each(ctx, fake, operation, check):
    """Let each call that `operation` makes fail: the first and the last of a name."""
    for _ in range(2):
        operation()
        check()
    fake.forget_calls()
    operation()
    made = {name: fake.calls(name) for name in CALLS}
    check()
    had = fake.settled()
    before = state(ctx, fake)
    tried = {}
    for name, count in made.items():
        for turn in sorted({1, count}) if count else ():
            for code in (2, 999) if turn == 1 else (999,):
                what = f"call {turn} of {count} of {name} gave {code}"
                print(what)  # for who reads of a failure
                fake.fail(name, code, turn)
                failed = None
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always", fg.FastGraphWarning)
                    try:
                        operation()
                    except fg.FastGraphError as error:
                        failed = str(error), type(error), getattr(error, "code", None)
                fake.fail(name, code, 0)
                after = state(ctx, fake)
                if told:  # a destruction could not be done, which is said
                    assert all("not" in str(each.message) for each in told), what
                    before = after
                if conftest.growth(before, after):
                    gc.collect()
                    after = state(ctx, fake)
                assert conftest.growth(before, after) == {}, what
                check()
                if failed is not None:
                    assert failed[0], what
                    if code == 2 and issubclass(failed[1], fg.DriverError):
                        assert issubclass(failed[1], fg.OutOfMemoryError), (what, failed)
                    assert failed[1] is not fg.ContextPoisonedError, what
                tried[name, turn, code] = failed is not None
    for kind, most in KEPT.items():
        assert fake.live()[kind] <= had[kind] + most, kind
    return tried


def test_while_a_graph_is_built(ctx, kernels, fake):
    memory = buffers(ctx)

    def operation():
        everything(ctx, kernels, memory)

    def check():
        one, two = everything(ctx, kernels, memory).run(LIVE)
        assert (one == 8).all()
        assert (two == 4).all()

    tried = fail_each(ctx, fake, operation, check)
    for name in (
        "cuGraphCreate", "cuGraphAddNode", "cuGraphInstantiateWithFlags", "cuMemAlloc",
        "cuGraphConditionalHandleCreate", "cuGraphKernelNodeSetAttribute", "cuStreamBeginCapture",
        "cuLaunchKernelEx",
    ):  # fmt: skip
        assert tried[name, 1, 2], name
        assert tried[name, 1, 999], name


def test_while_it_is_cloned(ctx, kernels, fake):
    memory = buffers(ctx)
    x = memory["x"]

    def build(b, live):
        scratch = b.create_buffer(N)
        first = b.add_copy(scratch, live)
        last = b.add_copy(x, scratch, dependencies=[first])
        b.add_if(memory["flag"], lambda body: inc(body, kernels, x, 1.0), dependencies=[last])
        b.add_output(x)

    graph = fg.DeviceGraph.create(ctx, build, np.zeros(N, "f4"))

    def check():
        assert (graph.run(LIVE)[0] == 5).all()
        assert (graph.clone().run(LIVE)[0] == 5).all()

    tried = fail_each(ctx, fake, graph.clone, check)
    for name in ("cuGraphCreate", "cuGraphAddNode", "cuGraphInstantiateWithFlags", "cuMemAlloc"):
        assert tried[name, 1, 2], name


@pytest.mark.parametrize(
    "what",
    ["replay", "values", "run", "set", "device", "pinned", "stream", "upload", "update", "enabled"],
)
def test_while_it_is_used(ctx, kernels, fake, what):
    memory = buffers(ctx)
    graph = everything(ctx, kernels, memory)
    there, y = ctx.to_device(LIVE), memory["y"]
    other, streams = ctx.create_buffer(N), [ctx.create_stream(), ctx.create_stream()]
    turn = [0]
    pinned = ctx.create_host_buffer(N)
    np.asarray(pinned)[:] = 4

    def change():
        graph.update("fill", grid_dim=(4, 1, 1 + turn[0] % 2))
        turn[0] += 1

    def on_a_stream():
        turn[0] += 1
        graph.replay(LIVE, stream=streams[turn[0] % 2])

    def put(value):
        graph.set(v=value)

    operations = {
        "replay": lambda: graph.replay(LIVE),
        "values": lambda: graph.replay(LIVE, v=5.0, to=other),
        "run": lambda: graph.run(LIVE, v=2.0),
        "set": lambda: [put(3.0), put(1.0)],
        "device": lambda: graph.replay(there),
        "pinned": lambda: graph.replay(pinned),
        "stream": on_a_stream,
        "upload": graph.upload,
        "update": change,
        "enabled": lambda: [
            graph.update("copy out", enabled=False), graph.update("copy out", enabled=True),
        ],
    }  # fmt: skip

    def check():
        for stream in streams:
            stream.synchronize()
        if what == "set":
            graph.set(v=1.0)
        if what == "enabled":
            graph.update("copy out", enabled=True)
        one, two = graph.run(LIVE)
        assert (one == 8).all()
        assert (two == 4).all()
        assert (y.numpy() == 8).all()

    tried = fail_each(ctx, fake, operations[what], check)
    assert any(tried.values())
    if what in ("replay", "values", "run", "device", "pinned", "stream"):
        assert tried["cuGraphLaunch", 1, 2]
        assert tried["cuGraphLaunch", 1, 999]


@pytest.mark.parametrize(
    "what", ["buffer", "host", "to_device", "memset", "copy", "launch", "stream", "event", "read"]
)
def test_while_a_context_is_used(ctx, kernels, fake, what):
    memory = buffers(ctx)
    x, back = memory["x"], np.zeros(N, "f4")
    operations = {
        "buffer": lambda: ctx.create_buffer(N),
        "host": lambda: ctx.create_host_buffer(N),
        "to_device": lambda: ctx.to_device(LIVE),
        "memset": lambda: [ctx.memset(x, 1.0), ctx.memset(memory["wide"], 1 << 40)],
        "copy": lambda: [ctx.copy(x, LIVE), ctx.copy(memory["y"], x), ctx.copy(back, x)],
        "launch": lambda: ctx.launch(kernels.fill, x, 1.0, N, shared_mem_bytes=64 << 10),
        "stream": lambda: ctx.create_stream(),
        "event": lambda: ctx.execution_time(lambda: ctx.memset(x, 1.0)),
        "read": lambda: [x.copy_from(LIVE), x.numpy()],
    }

    def check():
        ctx.copy(x, LIVE)
        assert (x.numpy() == LIVE).all()

    tried = fail_each(ctx, fake, operations[what], check)
    assert any(tried.values())


def test_while_code_is_loaded(ctx, native_path, more_image, fake):
    image = native_path.read_bytes()
    x = ctx.create_buffer(4)
    loaded = []

    def operation():
        loaded.clear()
        f = ctx.load_function(image, "dims", "int32_t *out")
        table = ctx.load_function(more_image, "add_table", "float *x")
        ctx.launch(table, x, block_dim=4, constant_memory={"table": np.arange(4, dtype="i4")})
        loaded.append((f, table))

    def check():
        loaded.clear()
        gc.collect()
        operation()

    def settled():
        try:
            operation()
            ctx.synchronize()
        finally:
            loaded.clear()

    tried = fail_each(ctx, fake, settled, check)
    assert tried["cuModuleGetFunction", 1, 999]


def test_too_little_memory(ctx, kernels, fake):
    fake.memory_total(256 << 20)
    available = ctx.memory_info[1]
    before = state(ctx, fake)
    for call in (
        lambda: ctx.create_buffer(available // 4 + 1),
        lambda: fg.DeviceGraph.create(ctx, lambda b: b.create_buffer(available // 4 + 1)),
        lambda: fg.DeviceGraph.create(ctx, lambda b: b.create_input_buffer(available // 4 + 1)),
    ):
        with pytest.raises(fg.OutOfMemoryError) as caught:
            call()
        assert str(available) in str(caught.value)
        assert isinstance(caught.value, MemoryError)
        gc.collect()
        assert conftest.growth(before, state(ctx, fake)) == {}
    # The scratch of one graph leaves no room for its clone's.
    third = available // 4 // 5 * 3
    graph = fg.DeviceGraph.create(
        ctx, lambda b: b.add_memset(b.create_buffer(third), 1.0, name="set")
    )
    held = counters.snapshot()
    with pytest.raises(fg.OutOfMemoryError, match="scratch"):
        graph.clone()
    gc.collect()
    assert counters.snapshot() == held
    graph.run()
    graph.close()
    del graph
    ctx.create_buffer(third)


def test_a_destruction_that_fails_is_a_warning(ctx, kernels, fake):
    def last_use():
        graph = fg.DeviceGraph.create(ctx, lambda b: b.add_memset(ctx.create_buffer(4), 1.0))
        graph.replay()
        ctx.synchronize()
        del graph
        stream, event = ctx.create_stream(), ctx.create_event()
        del stream, event
        gc.collect()

    last_use()
    for name in ("cuMemFree", "cuStreamDestroy", "cuEventDestroy"):
        fake.fail(name, 999)
        with pytest.warns(fg.FastGraphWarning, match="not"):
            last_use()
    last_use()
