"""Scalars, pointers and updates: scenarios A 26 and 29."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import counters
from tests.device.kernels import GRID, N, add, fill, inc, scaled


def scalar_fill(ctx, kernels, x, **options):
    """A graph that fills `x` with its scalar ``v``, 1 by default."""

    def build(b):
        fill(b, kernels, x, b.scalar("v", "float32", 1.0), name="fill")
        b.add_output(x)

    return fg.DeviceGraph.create(ctx, build, **options)


def test_a29_per_call_and_defaults(ctx, kernels):
    graph = scalar_fill(ctx, kernels, ctx.create_buffer(N))
    for given, want in (({}, 1), ({"v": 5.0}, 5), ({}, 1), ({"v": np.float32(7)}, 7), ({}, 1)):
        assert (graph.run(**given)[0] == want).all()
    graph.set(v=3.0)
    for given, want in (({}, 3), ({"v": 5.0}, 5), ({}, 3)):
        graph.replay(**given)
        assert (graph.run(**given)[0] == want).all()


def test_a29_wrong_scalars_change_nothing(ctx, kernels):
    x = ctx.create_buffer(N)
    graph = scalar_fill(ctx, kernels, x)
    for bad in ({"v": 1}, {"v": "x"}, {"v": np.float64(1)}, {"w": 1.0}, {"v": None}, {"v": x}):
        if bad == {"v": 1}:
            continue  # an int that the float holds exactly is one
        for act in (graph.replay, graph.run, graph.set):
            with pytest.raises(fg.InputError, match="scalar"):
                act(**bad)
    with pytest.raises(fg.InputError):
        graph.set(v=2.0, w=1.0)
    assert not x.numpy().any()
    assert (graph.run()[0] == 1).all()


def test_a29_in_nodes_and_in_memory(ctx, kernels):
    x = ctx.create_buffer(1, "int32")

    def build(b):
        node = b.scalar("node", "int32", 10)
        memory = b.scalar("memory", "int32", 1, where="memory")
        b.add_function(kernels.total, x, node, memory)
        b.add_output(x)

    graph = fg.DeviceGraph.create(ctx, build)
    assert graph.run()[0][0] == 11
    assert graph.run(node=20)[0][0] == 21
    assert graph.run(memory=5)[0][0] == 15
    graph.set(node=1, memory=2)
    assert graph.run()[0][0] == 3
    assert graph.clone().run()[0][0] == 3


def test_a29_memory_scalars_of_native_kernels(ctx, kernels):
    """A pointer to const takes the scalar's address."""
    out = ctx.create_buffer(1)

    def build(b):
        one = b.scalar("one", "float32", 2.0, where="memory")
        two = b.scalar("two", "float32", 3.0, where="memory")
        b.add_function(kernels.scaled, out, one, two, b.scalar("s", "float32", 10.0), 1)
        b.add_output(out)

    graph = fg.DeviceGraph.create(ctx, build)
    assert graph.run()[0][0] == 50
    assert graph.run(two=8.0, s=1.0)[0][0] == 10


def test_a29_scalars_that_do_not_fit(ctx, kernels):
    x = ctx.create_buffer(N)
    kept = []

    def build(b):
        node = b.scalar("node", "float32", 1.0)
        memory = b.scalar("memory", "float32", 1.0, where="memory")
        other = b.scalar("other", "int32", 1)
        kept.append(node)
        for bad in (other, memory):
            with pytest.raises(fg.InputError, match="where='node'"):
                fill(b, kernels, x, bad)
        for act in (
            lambda: add(b, kernels, x, node, x),
            lambda: add(b, kernels, memory, x, x),
            lambda: b.add_memset(memory, 1.0),
            lambda: b.add_output(memory),
        ):
            with pytest.raises(fg.InputError):
                act()
        for name in (5, "", "a b", "1a", "out", "stream", "node"):
            with pytest.raises(fg.GraphError):
                b.scalar(name, "float32", 1.0)
        with pytest.raises(fg.GraphError, match="where is"):
            b.scalar("x", "float32", 1.0, where="here")
        for default in (1.5, 2**40, True, None):
            with pytest.raises(fg.InputError):
                b.scalar("x", "int32", default)
        flag = ctx.create_buffer(1, "uint32")

        def body(inner):
            with pytest.raises(fg.UnsupportedError, match="where='memory'"):
                fill(inner, kernels, x, node)
            add(inner, kernels, x[0:1], memory, memory)

        b.add_if(flag, body)

    fg.DeviceGraph.create(ctx, build)
    with pytest.raises(fg.GraphError, match="another graph"):
        fg.DeviceGraph.create(ctx, lambda b: fill(b, kernels, x, kept[0]))
    with pytest.raises(fg.GraphError, match="belongs to a graph"):
        ctx.launch(kernels.fill, x, kept[0], N)


def test_a29_threads_never_see_each_others(ctx, kernels):
    graph, wrong = scalar_fill(ctx, kernels, ctx.create_buffer(N)), []

    def work(number):
        for _ in range(200):
            (out,) = graph.run(v=float(number))
            if not (out == number).all():
                wrong.append(out[0])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert (graph.run()[0] == 1).all()


def test_a29_pointers(ctx, kernels):
    x, y, z = (ctx.create_buffer(N) for _ in range(3))

    def build(b):
        fill(b, kernels, b.pointer("p", x), 1.0)

    graph = fg.DeviceGraph.create(ctx, build)
    clone = graph.clone()
    graph.replay()
    assert [b.numpy()[0] for b in (x, y, z)] == [1, 0, 0]
    graph.replay(p=y)
    assert [b.numpy()[0] for b in (x, y, z)] == [1, 1, 0]
    ctx.memset(x, 0.0)
    ctx.memset(y, 0.0)
    graph.set(p=z)
    graph.replay()
    assert [b.numpy()[0] for b in (x, y, z)] == [0, 0, 1]
    graph.clone().replay()
    clone.replay()
    assert [b.numpy()[0] for b in (x, y, z)] == [1, 0, 1]
    for bad in (ctx.create_buffer(N + 1), ctx.create_buffer(N, "int32"), np.zeros(N, "f4"), 5):
        with pytest.raises(fg.InputError, match="pointer 'p'"):
            graph.set(p=bad)


def test_pointers_keep_and_let_go(ctx, kernels):
    x = ctx.create_buffer(N)
    graph = fg.DeviceGraph.create(ctx, lambda b: fill(b, kernels, b.pointer("p", x), 1.0))
    gc.collect()
    gc.collect()
    before = counters.snapshot()["blocks"]
    for _ in range(10):
        graph.set(p=ctx.create_buffer(N))
        graph.replay(p=ctx.create_buffer(N))
        # What was pointed to before is let go once no replay can read it.
        ctx.synchronize()
    gc.collect()
    assert counters.snapshot()["blocks"] <= before + 2


def test_hazards_see_through_pointers(ctx, kernels):
    x = ctx.create_buffer(N)

    def build(b):
        fill(b, kernels, b.pointer("p", x), 1.0, name="one")
        fill(b, kernels, x, 2.0, name="two")

    with pytest.raises(fg.HazardError, match=r"'one' and \d+ 'two'"):
        fg.DeviceGraph.create(ctx, build)


def test_a_scalar_after_a_node_that_raises(host):
    """The value of a call ends with the call, also of one that failed."""
    x = host.create_buffer(1)

    def body(grid, block, out, v):
        out[0] = v
        if v == 2:
            raise ValueError("mine")

    def build(b):
        b.add_function(fg.Kernel("k", cpu=body), fg.Out(x), b.scalar("v", "float32", 1.0))

    graph = fg.DeviceGraph.create(host, build)
    with pytest.raises(ValueError, match="mine"):
        graph.replay(v=2.0)
    graph.replay()
    assert x.numpy()[0] == 1


def chain(ctx, kernels, x, y):
    """memset, inc, copy, one after another."""

    def build(b):
        with b.region():
            b.add_memset(x, 1.0, name="set")
            b.add_function(kernels.inc, x, 10.0, N, name="inc", **GRID)
            b.add_copy(y, x, name="copy")

    return fg.DeviceGraph.create(ctx, build)


def test_a26_updates(ctx, kernels):
    x, y, z = (ctx.create_buffer(N) for _ in range(3))
    graph = chain(ctx, kernels, x, y)
    clone = graph.clone()
    steps = [
        (("set", {"value": 2.0}), lambda: (y.numpy() == 12).all()),
        ((1, {"args": (x, 20.0, N)}), lambda: (y.numpy() == 22).all()),
        ((1, {"grid_dim": 1}), lambda: y.numpy().tolist() == [22.0] * 256 + [2.0] * (N - 256)),
        ((1, {"block_dim": 1, "grid_dim": 2}), lambda: y.numpy().tolist()[:3] == [22.0, 22.0, 2.0]),
        (("inc", {"enabled": False}), lambda: (y.numpy() == 2).all()),
        (("inc", {"enabled": True}), lambda: y.numpy().tolist()[:3] == [22.0, 22.0, 2.0]),
        ((2, {"dst": z}), lambda: z.numpy().tolist()[:3] == [22.0, 22.0, 2.0]),
        ((2, {"src": np.full(N, 9, "f4")}), lambda: (z.numpy() == 9).all()),
    ]
    for i, ((node, changes), holds) in enumerate(steps):
        graph.update(node, **changes)
        graph.replay()
        assert holds(), (node, changes)
        assert graph.stats.updates == i + 1
    clone.replay()
    assert (y.numpy() == 11).all()
    assert clone.stats.updates == 0
    again = graph.clone()
    graph.update("set", value=0.0)
    again.replay()
    assert (x.numpy()[5:10] == 2).all()


def test_a26_wrong_updates_change_nothing(ctx, kernels):
    x, y = ctx.create_buffer(N), ctx.create_buffer(N)
    graph = chain(ctx, kernels, x, y)
    for node, changes, error in (
        (3, {"value": 1.0}, fg.GraphError),
        (-1, {"value": 1.0}, fg.GraphError),
        (True, {"value": 1.0}, fg.GraphError),
        ("nobody", {"value": 1.0}, fg.GraphError),
        (0, {"args": ()}, fg.GraphError),
        (0, {"value": "x"}, fg.InputError),
        (0, {"enabled": 1}, fg.InputError),
        (1, {"args": (x, 1.0)}, fg.InputError),
        (1, {"grid_dim": 0}, fg.GraphError),
        (1, {"f": kernels.fill}, fg.GraphError),
        (2, {"dst": ctx.create_buffer(N + 1)}, fg.InputError),
        (2, {"src": ctx.create_buffer(N, "int32")}, fg.InputError),
    ):
        with pytest.raises(error):
            graph.update(node, **changes)
        assert graph.stats.updates == 0
    graph.replay()
    assert (y.numpy() == 11).all()


def test_a26_an_update_that_makes_a_hazard(ctx, kernels):
    x, y = ctx.create_buffer(N), ctx.create_buffer(N)

    def build(b):
        fill(b, kernels, x, 1.0, name="one")
        fill(b, kernels, y, 2.0, name="two")

    graph = fg.DeviceGraph.create(ctx, build)
    with pytest.raises(fg.HazardError, match=r"'one' and \d+ 'two'"):
        graph.update("two", args=(x, 2.0, N))
    graph.replay()
    assert (x.numpy()[0], y.numpy()[0]) == (1, 2)


def test_a26_updates_use_what_the_graph_has(ctx, kernels):
    kept = []

    def build(b):
        one, two = b.create_buffer(N), b.create_buffer(N)
        kept[:] = [one, two, b.scalar("v", "float32", 4.0)]
        first = fill(b, kernels, one, 1.0, name="one")
        second = fill(b, kernels, two, 2.0, name="two", dependencies=[first])
        scaled(b, kernels, two, one, two, 1.0, name="sum", dependencies=[second])
        b.add_output(two)

    graph = fg.DeviceGraph.create(ctx, build)
    assert (graph.run()[0] == 3).all()
    graph.update("one", args=(kept[0], kept[2], N))
    assert (graph.run()[0] == 6).all()
    assert (graph.run(v=10.0)[0] == 12).all()
    assert (graph.clone().run()[0] == 6).all()
    other = fg.DeviceGraph.create(ctx, build)
    with pytest.raises(fg.GraphError, match="another graph"):
        graph.update("one", args=(kept[0], 1.0, N))
    assert (other.run()[0] == 3).all()


def test_a26_updates_let_go_of_what_is_replaced(ctx, kernels):
    x, y = ctx.create_buffer(N), ctx.create_buffer(N)
    graph = chain(ctx, kernels, x, y)
    graph.update("copy", dst=ctx.create_buffer(N))
    gc.collect()
    gc.collect()
    before = counters.snapshot()
    for _ in range(20):
        graph.update("copy", dst=ctx.create_buffer(N))
        graph.replay()
        # What was replaced is let go once no replay can touch it.
        ctx.synchronize()
    gc.collect()
    after = counters.snapshot()
    assert all(after[k] <= before[k] + 1 for k in ("blocks", "executables", "programs"))
    assert after["block_bytes"] <= before["block_bytes"] + 4 * N


def test_a26_updates_while_another_thread_replays(ctx, kernels):
    """Each run sees one version of the graph or the next."""
    x, y = ctx.create_buffer(N), ctx.create_buffer(N)

    def build(b):
        with b.region():
            fill(b, kernels, x, 1.0, name="fill")
            inc(b, kernels, x, 1.0)
            b.add_copy(y, x)
            b.add_output(y)

    graph, seen, stop = fg.DeviceGraph.create(ctx, build), set(), threading.Event()

    def work():
        while not stop.is_set():
            (out,) = graph.run()
            seen.update(np.unique(out))

    thread = threading.Thread(target=work)
    thread.start()
    for value in range(50):
        graph.update("fill", args=(x, float(value), N))
    stop.set()
    thread.join()
    assert (graph.run()[0] == 50).all()
    assert seen <= set(range(1, 51))


def test_verify_copies_what_shares_bytes_as_one(ctx, kernels):
    """A pointer and a buffer that name the same bytes do so in the copies too."""
    x, y = ctx.create_buffer(N), ctx.create_buffer(N)

    def build(b):
        with b.region():
            fill(b, kernels, b.pointer("p", x), 3.0)
            inc(b, kernels, x, 1.0)
            b.add_copy(y, x)

    graph = fg.DeviceGraph.create(ctx, build, verify=3)
    for given in ({}, {"p": y}, {"p": x}):
        graph.replay(**given)
    assert (y.numpy() == 4).all()


def test_a20_everything_dropped(host):
    """What the graph names lives as long as the graph, whatever else is let go."""
    out = host.create_buffer(4)

    def make():
        here, array = host.to_device(np.full(4, 2, "f4")), np.full(4, 3, "f4")
        raw = np.full(4, 4, "f4")

        def add_up(grid, block, total, *parts):
            total[...] = sum(parts)

        def build(b, x):
            kernel = fg.Kernel("sum", cpu=add_up)
            place = fg.Pointer(raw.ctypes.data, raw.nbytes, raw, "f4")
            pointer = b.pointer("p", here)
            b.add_function(kernel, fg.Out(out), fg.In(x), fg.In(pointer), fg.In(array), place)

        return fg.DeviceGraph.create(host, build, np.ones(4, "f4"))

    graph = make()
    gc.collect()
    noise = [np.full(4, 99, "f4") for _ in range(1000)]
    for made in (graph, graph.clone()):
        made.replay(np.ones(4, "f4"))
        assert (out.numpy() == 10).all()
    del noise
