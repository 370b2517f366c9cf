"""Recording and replaying: the numbered scenarios of recorded graphs."""

from __future__ import annotations

import copy
import ctypes
import gc
import threading
import time
import weakref

import ml_dtypes
import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import counters
from tests.device.kernels import N, add, fill, inc, scaled


def test_a1_recording_executes_nothing(ctx, kernels):
    x = ctx.create_buffer(N)
    graph = fg.DeviceGraph.create(ctx, lambda b: fill(b, kernels, x, 5.0))
    assert not x.numpy().any()
    for _ in range(2):
        graph.replay()
        ctx.synchronize()
        assert (x.numpy() == 5).all()
        ctx.memset(x, 0.0)


def test_a2_add(ctx, kernels):
    a, b = ctx.to_device(np.arange(N, dtype="f4")), ctx.to_device(N - np.arange(N, dtype="f4"))
    out = ctx.create_buffer(N)
    graph = fg.DeviceGraph.create(ctx, lambda builder: add(builder, kernels, out, a, b))
    for _ in range(2):
        graph.replay()
        assert (out.numpy() == 1024).all()
        ctx.memset(out, 0.0)
    fg.DeviceGraph.create(ctx, lambda builder: scaled(builder, kernels, out, a, b, 3.0)).replay()
    assert (out.numpy() == 3072).all()


def test_a3_copies(ctx):
    steps = np.arange(N, dtype="f4")
    x, y = ctx.create_buffer(N), ctx.create_buffer(N)
    host, back = 3 * steps, np.zeros(N, "f4")

    def build(b):
        up = b.add_copy(x, host)
        across = b.add_copy(y, x, dependencies=[up])
        b.add_copy(back, y, dependencies=[across])

    graph = fg.DeviceGraph.create(ctx, build)
    assert not back.any()
    graph.replay()
    ctx.synchronize()
    np.testing.assert_array_equal(back, 3 * steps)
    # The host array is read at each replay, not when it was recorded.
    host[:] = 2 * steps + 1
    graph.replay()
    ctx.synchronize()
    np.testing.assert_array_equal(back, 2 * steps + 1)


def test_a3_host_to_host_and_parts(ctx):
    x = ctx.to_device(np.arange(8, dtype="i4"))
    one, two = np.arange(8, dtype="i4") * 10, np.zeros(8, "i4")

    def build(b):
        b.add_copy(two, one)
        b.add_copy(x[0:2], x[4:6])
        b.add_copy(x[6:8], one[2:4])

    fg.DeviceGraph.create(ctx, build).replay()
    assert x.numpy().tolist() == [4, 5, 2, 3, 4, 5, 20, 30]
    np.testing.assert_array_equal(two, one)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("u1", 123),
        ("u2", 0xBEEF),
        ("u4", 0xDEADBEEF),
        ("u8", 0x0101010101010101),
        ("u8", 0x00000001DEADBEEF),
        ("u8", 2**64 - 1),
        ("i1", -128),
        ("i2", -2),
        ("i4", -(2**31)),
        ("i8", -(2**63)),
        ("i8", 0x00000001DEADBEEF),
        ("f2", 1.5),
        (ml_dtypes.bfloat16, -2.5),
        ("f4", 0.1),
        ("f8", 0.1),
        ("f8", float("inf")),
        ("f4", float("nan")),
        ("f4", -0.0),
        ("f4", 7),
        ("?", True),
        ("?", 0),
        ("f2", np.float16(2.5)),
        (ml_dtypes.bfloat16, ml_dtypes.bfloat16(3.0)),
        ("i8", np.int64(-5)),
        ("u2", np.array(9, "u2")),
    ],
    ids=str,
)
def test_a4_memset(ctx, dtype, value):
    buffers = [ctx.create_buffer(64, dtype) for _ in range(4)]

    def build(b):
        for x in buffers:
            b.add_memset(x, value)

    graph = fg.DeviceGraph.create(ctx, build)
    graph.replay()
    want = np.full(64, value, dtype)
    for x in buffers:
        assert x.numpy().tobytes() == want.tobytes()
    assert graph.edges == []
    ctx.memset(buffers[0], np.zeros((), dtype))
    ctx.memset(buffers[0], value)
    assert buffers[0].numpy().tobytes() == want.tobytes()


def test_a5_chains_of_kernels(ctx, kernels):
    x, y = ctx.create_buffer(N), ctx.create_buffer(N)

    def build(b):
        for buf, values in ((x, (1, 2, 3)), (y, (4, 5, 6))):
            last = []
            for value in values:
                last = [fill(b, kernels, buf, float(value), dependencies=last)]

    fg.DeviceGraph.create(ctx, build).replay()
    assert ((x.numpy() == 3).all(), (y.numpy() == 6).all()) == (True, True)


def test_a5_chains_of_memsets_and_copies(ctx):
    x, y = ctx.create_buffer(N, "u1"), ctx.create_buffer(N, "u1")
    p, q = ctx.create_buffer(4, "u4"), ctx.create_buffer(4, "u4")
    hosts = [np.full(4, v, "u4") for v in (0x11111111, 0x22222222, 0xAAAAAAAA, 0xBBBBBBBB)]

    def build(b):
        for buf, values in ((x, (0x11, 0x22, 0x33)), (y, (0xAA, 0xBB, 0xCC))):
            last = []
            for value in values:
                last = [b.add_memset(buf, value, dependencies=last)]
        for buf, sources in ((p, hosts[:2]), (q, hosts[2:])):
            first = b.add_copy(buf, sources[0])
            b.add_copy(buf, sources[1], dependencies=first)

    fg.DeviceGraph.create(ctx, build).replay()
    assert (x.numpy() == 0x33).all()
    assert (y.numpy() == 0xCC).all()
    assert (p.numpy() == 0x22222222).all()
    assert (q.numpy() == 0xBBBBBBBB).all()


def test_a9_no_implicit_edge_and_none_twice(ctx):
    x, y = ctx.create_buffer(4), ctx.create_buffer(4)

    def build(b):
        first = b.add_memset(x, 1.0, name="first")
        other = b.add_memset(y, 2.0)
        both = b.add_empty(dependencies=[first, other, first])
        b.add_copy(y, x, dependencies=(n for n in (both, both)))
        assert [n.id for n in b.nodes] == [0, 1, 2, 3]
        assert [n.name for n in b.nodes] == ["first", "memset", "empty", "copy"]

    graph = fg.DeviceGraph.create(ctx, build)
    assert graph.edges == [(0, 2), (1, 2), (2, 3)]
    assert [n.dependencies for n in graph.nodes] == [(), (), (0, 1), (2,)]
    assert [n.kind for n in graph.nodes] == ["memset", "memset", "empty", "copy"]


def test_a12_scratch(ctx):
    host = np.zeros(64, "u1")

    def build(b):
        scratch = b.create_buffer(64, "u1")
        n = b.add_memset(scratch, 0x5A)
        b.add_copy(host, scratch, dependencies=[n])
        assert (scratch.shape, scratch.nbytes) == ((64,), 64)

    graph = fg.DeviceGraph.create(ctx, build)
    kept = [ctx.create_buffer(64 << i, "u1") for i in range(12)]
    for x in kept:
        ctx.memset(x, 1)
    graph.replay()
    ctx.synchronize()
    assert (host == 0x5A).all()
    assert graph.nbytes == 64


def test_a12_scratch_is_reused_along_a_chain_only(ctx):
    def build(b, chained):
        last, nodes = [], []
        for value in (1.0, 2.0, 3.0):
            scratch = b.create_buffer(1000)
            filled = b.add_memset(scratch, value, dependencies=last)
            nodes.append(b.add_copy(ctx.create_buffer(1000), scratch, dependencies=[filled]))
            last = nodes[-1:] if chained else []

    chain = fg.DeviceGraph.create(ctx, lambda b: build(b, True))
    branches = fg.DeviceGraph.create(ctx, lambda b: build(b, False))
    assert (chain.nbytes, branches.nbytes) == (4032, 3 * 4032)


def test_a12_outputs_live_for_the_whole_run(ctx):
    def build(b):
        one, two = b.create_buffer(8), b.create_buffer(8)
        unused = b.create_buffer(3)
        n = b.add_memset(one, 1.0)
        b.add_memset(two, 2.0, dependencies=[n])
        for out in (one, two, one, unused):
            b.add_output(out)
        assert b.num_outputs == 4

    graph = fg.DeviceGraph.create(ctx, build)
    outputs = graph.run()
    assert [out.tolist() for out in outputs] == [[1] * 8, [2] * 8, [1] * 8, [0] * 3]
    outputs[0][:] = 9
    assert graph.run()[0].tolist() == [1] * 8


def recorded(device, kernels, out):
    """A graph whose buffers, host array and context nobody else holds."""
    ctx = fg.DeviceContext(device)

    def build(b):
        a, host = ctx.create_buffer(N), np.arange(2 * N, dtype="f4")[::2].copy()
        up = b.add_copy(a, host)
        last = inc(b, kernels, a, 2.0, dependencies=[up])
        b.add_copy(out, a, dependencies=[last])

    return fg.DeviceGraph.create(ctx, build)


def test_a20_lifetimes(device, ctx, kernels):
    out = ctx.create_buffer(N)
    graph = recorded(device, kernels, out)
    gc.collect()
    kept = [ctx.to_device(np.full(N, -1, "f4")) for _ in range(50)]
    graph.replay()
    np.testing.assert_array_equal(out.numpy(), 2 * np.arange(N) + 2)
    assert len(kept) == 50


def test_a20_the_kernel_and_its_library_stay(host, native_kernels):
    class Owner:
        pass

    def graph_of(owner):
        fill = native_kernels.fill
        kernel = fg.NativeKernel(fill.pointer, fill.signature, owner=owner)
        return fg.DeviceGraph.create(
            host, lambda b: b.add_function(kernel, x, 4.0, N, grid_dim=4, block_dim=256)
        )

    x, owner = host.create_buffer(N), Owner()
    alive = weakref.ref(owner)
    graph = graph_of(owner)
    del owner
    gc.collect()
    assert alive() is not None
    graph.replay()
    assert (x.numpy() == 4).all()
    del graph
    gc.collect()
    assert alive() is None


def test_a21_nothing_is_changed_by_misuse(ctx):
    """`test_misuse.py` has the cases; here is what a build that caught them all still does."""
    x = ctx.create_buffer(4)

    def build(b):
        for bad in (None, "x", 1 + 2j):
            with pytest.raises(fg.InputError):
                b.add_memset(x, bad)
        b.add_memset(x, 2.0)

    graph = fg.DeviceGraph.create(ctx, build)
    assert len(graph.nodes) == 1
    graph.replay()
    assert x.numpy().tolist() == [2] * 4


def test_a22_nothing_to_do(ctx):
    graph = fg.DeviceGraph.create(ctx, lambda b: None)
    graph.replay()
    assert (graph.run(), graph.nodes, graph.edges, graph.nbytes) == ((), [], [], 0)
    graph.clone().replay()


def test_a22_no_elements(ctx):
    x, y = ctx.create_buffer(0), ctx.create_buffer((3, 0))
    host = np.empty(0, "f4")

    def build(b):
        scratch = b.create_buffer(0)
        b.add_memset(x, 1.0)
        b.add_copy(x, host)
        b.add_copy(host, y)
        b.add_copy(scratch, x[0:0])
        b.add_output(scratch)
        b.add_output(y)

    graph = fg.DeviceGraph.create(ctx, build)
    assert [out.shape for out in graph.run()] == [(0,), (3, 0)]


def test_a22_a_chain_of_100_000_nodes(ctx):
    gc.collect()
    before = counters.snapshot()
    x = ctx.create_buffer(1, "i4")

    def build(b):
        last = []
        for i in range(100_000):
            last = [b.add_memset(x, i, dependencies=last)]

    start = time.perf_counter()
    graph = fg.DeviceGraph.create(ctx, build)
    graph.replay()
    assert x.numpy() == [99_999]
    graph.close()
    assert time.perf_counter() - start < 30
    del graph
    gc.collect()
    assert counters.snapshot()["executables"] == before["executables"]


def test_a23_handles(ctx):
    gc.collect()
    before = counters.snapshot()
    x = ctx.create_buffer(4)
    graph = fg.DeviceGraph.create(ctx, lambda b: b.add_memset(x, 3.0))
    handle = copy.copy(graph)
    assert counters.snapshot()["executables"] == before["executables"] + 1
    graph.close()
    graph.close()
    with pytest.raises(fg.GraphError, match="closed"):
        graph.replay()
    handle.replay()
    assert x.numpy().tolist() == [3] * 4
    for act in (fg.DeviceGraph.run, fg.DeviceGraph.clone, copy.copy, copy.deepcopy):
        with pytest.raises(fg.GraphError, match="closed"):
            act(graph)
    assert "closed" in repr(graph)
    del graph
    handle.close()
    assert counters.snapshot()["executables"] == before["executables"]


@pytest.mark.parametrize("make", [lambda g: g.clone(), copy.deepcopy], ids=["clone", "deepcopy"])
def test_a23_clones_own_their_executable_and_scratch(ctx, make):
    def build(b):
        scratch = b.create_buffer(4)
        b.add_memset(scratch, 1.0)
        b.add_output(scratch)

    graph = fg.DeviceGraph.create(ctx, build)
    gc.collect()
    before = counters.snapshot()
    clone = make(graph)
    after = counters.snapshot()
    assert [after[k] - before[k] for k in ("blocks", "executables", "programs")] == [1, 1, 0]
    graph.close()
    assert clone.run()[0].tolist() == [1] * 4


def test_a24_replays_of_one_graph_are_serialised(ctx, kernels):
    """Every run counts once, and hands out the count of that run and no other."""
    x = ctx.create_buffer(N)

    def build(b):
        inc(b, kernels, x, 1.0)
        b.add_output(x)

    graph, seen = fg.DeviceGraph.create(ctx, build), []

    def work():
        for _ in range(250):
            (out,) = graph.run()
            seen.append(out[0] if (out == out[0]).all() else None)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(1, 1001))


def test_a24_clones_overlap(host):
    """Two native_kernels that wait for each other end only where both run at once."""
    meeting, met = threading.Barrier(2, timeout=20), []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    def meet(args, dims):
        try:
            met.append(meeting.wait())
        except threading.BrokenBarrierError:
            met.append("alone")

    kernel = fg.NativeKernel(ctypes.cast(meet, ctypes.c_void_p).value, "", owner=meet)
    graph = fg.DeviceGraph.create(host, lambda b: b.add_function(kernel))
    clone = graph.clone()
    threads = [threading.Thread(target=g.replay) for g in (graph, clone)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(met) == [0, 1]


def test_a28_unordered_writes(ctx, kernels):
    x, y, z = (ctx.create_buffer(N) for _ in range(3))

    def readers(b):
        add(b, kernels, y, x, x)
        add(b, kernels, z, x, x)

    fg.DeviceGraph.create(ctx, readers)

    def one_writes(b):
        add(b, kernels, y, x, x, name="reader")
        fill(b, kernels, x, 1.0, name="writer")

    with pytest.raises(fg.HazardError, match=r"'reader' and \d+ 'writer' both touch"):
        fg.DeviceGraph.create(ctx, one_writes)
    fg.DeviceGraph.create(ctx, one_writes, check=False).replay()


def test_a28_views_of_one_memory(host):
    """Slices, NumPy views and arrays over one foreign buffer are known to share bytes."""
    x, shared = host.create_buffer(8, "u1"), bytearray(16)
    array = np.arange(16, dtype="u1")
    pairs = [
        (x[0:4], x[2:6], True),
        (x[0:4], x[4:8], False),
        (x, np.asarray(x), True),
        (np.asarray(x)[0:4], x[4:8], False),
        (array[0:8], array[4:12], True),
        (array[0:8], array[8:16], False),
        (np.frombuffer(shared, "u1", 8), np.frombuffer(shared, "u1"), True),
        (np.frombuffer(shared, "u1"), np.frombuffer(shared, "u1", 8, 8), True),
        (np.frombuffer(shared, "u1", 8), np.frombuffer(shared, "u1", 8, 8), False),
    ]
    for one, two, share in pairs:

        def build(b, one=one, two=two):
            b.add_copy(one, np.full(one.shape, 1, "u1"))
            b.add_copy(two, np.full(two.shape, 2, "u1"))

        if share:
            with pytest.raises(fg.HazardError):
                fg.DeviceGraph.create(host, build)
        graph = fg.DeviceGraph.create(host, build, check=not share and "known")
        graph.replay()
        assert (np.asarray(two) == 2).all()


def test_a28_branches_that_share_scratch(ctx):
    def build(b, ordered):
        scratch = b.create_buffer(4)
        n = b.add_memset(scratch, 1.0)
        b.add_copy(ctx.create_buffer(4), scratch, dependencies=[n])
        b.add_memset(scratch, 2.0, dependencies=[n] if not ordered else b.nodes)

    fg.DeviceGraph.create(ctx, lambda b: build(b, True))
    with pytest.raises(
        fg.HazardError, match=r"'copy' and \d+ 'memset' both touch bytes .* of 'scratch'"
    ):
        fg.DeviceGraph.create(ctx, lambda b: build(b, False))
