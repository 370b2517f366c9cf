"""Caches of graphs: scenarios A 16 to 19, and threads on cached graphs (24)."""

from __future__ import annotations

import copy
import gc
import sys
import threading

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import counters
from tests.device.kernels import N, fill
from tests.device.test_inputs import doubling


def run_threads(count, work):
    """`count` threads that call ``work(number)``; what any of them raises is returned."""
    errors = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return errors


def test_a16_keys(ctx):
    def build(b, *inputs):
        pass

    def factory(value):
        return lambda b: b.add_memset(None, value)

    def other(b, *inputs):
        pass

    class Owner:
        def build(self, b):
            pass

    x, y = np.zeros(4, "f4"), np.zeros(4, "f8")
    key = fg.DeviceGraphCache.make_key
    owner = Owner()
    same = [
        (key(build, x), key(build, np.ones(4, "f4"))),
        (key(build, ctx.create_buffer(4)), key(build, x)),
        (key(build, x, context=ctx), key(build, x, context=fg.DeviceContext(ctx.device))),
        (key(factory(1.0)), key(factory(1.0))),
        (key(owner.build), key(owner.build)),
    ]
    for one, two in same:
        assert one == two and hash(one) == hash(two)
    keys = [
        key(build), key(build, x), key(build, y), key(build, x, x), key(other), key(factory(1.0)),
        key(factory(2.0)), key(owner.build), key(Owner().build), key(build, key=1),
        key(build, key="1"), key(build, check=False), key(build, check=True), key(build, verify=1),
        key(build, fg.HostValue(1)), key(build, fg.InPlace(ctx.create_buffer(4))),
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)
    for bad in ({"check": 5}, {"verify": -1}, {"context": "cpu"}):
        with pytest.raises(fg.InputError):
            key(build, **bad)


def test_a16_a_build_that_counts_its_calls_hits(ctx):
    cache, n = fg.DeviceGraphCache(), 0

    def build(b):
        nonlocal n
        n += 1

    for _ in range(3):
        fg.DeviceGraph.create(ctx, build, cache=cache)
    assert n == 1


def test_a17_builds(ctx):
    x, cache, builds = ctx.create_buffer(4), fg.DeviceGraphCache(), []

    def build(b):
        builds.append(1)
        b.add_memset(x, 1.0)

    for tag in (1, 1, 2, 1):
        fg.DeviceGraph.create(ctx, build, cache=cache, key=tag).replay()
    assert len(builds) == 2
    for _ in range(2):
        fg.DeviceGraph.create(ctx, build)
    assert len(builds) == 4
    stats = cache.stats
    assert (stats.hits, stats.misses, stats.builds, stats.evictions) == (2, 2, 2, 0)
    assert stats.live_graphs == 2
    key = cache.make_key(build, key=1, context=ctx)
    assert cache.lookup(key) is not None
    assert cache.lookup(cache.make_key(build, key=3, context=ctx)) is None
    with pytest.raises(fg.InputError, match="make_key"):
        cache.lookup("x")


def test_a17_cache_keeps_the_first(ctx):
    x, cache = ctx.create_buffer(4), fg.DeviceGraphCache()
    one, two = (fg.DeviceGraph.create(ctx, lambda b, v=v: b.add_memset(x, v)) for v in (1.0, 2.0))
    key = cache.make_key(test_a17_builds)
    assert cache.cache(key, one) is one
    present = cache.cache(key, two)
    present.replay()
    assert x.numpy()[0] == 1
    one.close()
    cache.lookup(key).replay()
    with pytest.raises(fg.GraphError, match="closed"):
        cache.cache(key, one)
    for bad in (None, 5):
        with pytest.raises(fg.InputError):
            cache.cache(key, bad)
        with pytest.raises(fg.InputError):
            cache.cache(bad, two)


def test_a17_one_build_for_32_threads(ctx):
    x, cache, builds, graphs = ctx.create_buffer(4), fg.DeviceGraphCache(), [], []
    together = threading.Barrier(32)

    def build(b):
        builds.append(1)
        threading.Event().wait(0.05)
        b.add_memset(x, 1.0)

    def work(number):
        together.wait(30)
        graphs.append(fg.DeviceGraph.create(ctx, build, cache=cache))

    assert run_threads(32, work) == []
    assert len(builds) == 1
    assert len({id(graph._state) for graph in graphs}) == 1
    assert cache.stats.builds == 1


def test_a17_a_build_that_raises_reaches_every_waiter(ctx):
    cache, together, wanted, builds = fg.DeviceGraphCache(), threading.Barrier(8), [], []

    def build(b):
        builds.append(1)
        threading.Event().wait(0.1)
        wanted.append(ValueError("mine"))
        raise wanted[-1]

    def work(number):
        together.wait(30)
        fg.DeviceGraph.create(ctx, build, cache=cache)

    errors = run_threads(8, work)
    assert len(errors) == 8
    assert {id(error) for error in errors} <= {id(error) for error in wanted}
    assert len(builds) < 8
    assert cache.stats.live_graphs == 0
    for error in errors:
        error.__traceback__ = None


def test_an_interrupted_build_stops_only_its_own_thread(ctx):
    cache, started, builds = fg.DeviceGraphCache(), threading.Event(), []

    def build(b):
        builds.append(1)
        if len(builds) == 1:
            started.set()
            threading.Event().wait(0.1)
            raise KeyboardInterrupt

    def work(number):
        if number:
            started.wait(30)
        fg.DeviceGraph.create(ctx, build, cache=cache)

    errors = run_threads(4, work)
    assert [type(error) for error in errors] == [KeyboardInterrupt]
    assert len(builds) == 2
    errors[0].__traceback__ = None


def test_a17_a_build_that_enters_its_own_key(ctx):
    cache = fg.DeviceGraphCache()

    def build(b):
        fg.DeviceGraph.create(ctx, build, cache=cache)

    with pytest.raises(fg.GraphError, match="cannot create the graph that it is building"):
        fg.DeviceGraph.create(ctx, build, cache=cache)

    inner = []

    def outer(b):
        inner.append(fg.DeviceGraph.create(ctx, lambda c: c.add_empty(), cache=cache))

    fg.DeviceGraph.create(ctx, outer, cache=cache)
    inner[0].replay()


def test_builds_of_two_threads_that_want_each_others(ctx):
    cache, met = fg.DeviceGraphCache(), threading.Barrier(2, timeout=20)
    seen = []

    def make(tag):
        def build(b):
            if threading.current_thread().name == str(tag):
                met.wait()
                fg.DeviceGraph.create(ctx, builds[1 - tag], cache=cache, key=1 - tag)

        return build

    builds = [make(0), make(1)]

    def work(number):
        threading.current_thread().name = str(number)
        try:
            fg.DeviceGraph.create(ctx, builds[number], cache=cache, key=number)
        except fg.GraphError as error:
            seen.append(str(error))

    assert run_threads(2, work) == []
    assert seen
    assert all("cannot create the graph" in message for message in seen)


def test_a18_eviction_by_count(ctx):
    x, cache, builds = ctx.create_buffer(4), fg.DeviceGraphCache(max_graphs=3), []

    def build(b):
        builds.append(1)
        b.add_memset(x, 1.0)

    make = lambda tag: fg.DeviceGraph.create(ctx, build, cache=cache, key=tag)  # noqa: E731
    kept = [make(tag) for tag in (0, 1, 2, 0, 3)]
    # 1 was used longest ago.
    keys = [cache.make_key(build, key=tag, context=ctx) for tag in range(4)]
    assert [cache.lookup(key) is not None for key in keys] == [True, False, True, True]
    assert cache.stats.evictions == 1
    kept[1].replay()
    kept[1].update(0, value=5.0)
    kept[1].replay()
    assert x.numpy()[0] == 5
    cache.clear()
    assert cache.stats.live_graphs == 0
    assert cache.stats.live_bytes == 0


def test_hits_keep_the_order_of_use(ctx):
    cache = fg.DeviceGraphCache(max_graphs=3)

    def create(value):
        builds = cache.stats.builds
        fg.DeviceGraph.create(ctx, lambda b: b.add_empty() and value, cache=cache)
        return cache.stats.builds - builds

    assert [create(value) for value in "abc"] == [1, 1, 1]
    assert [create(value) for value in "aabbabca"] == [0] * 8
    assert create("d") == 1  # instead of b
    assert [create(value) for value in "cad"] == [0] * 3
    assert create("b") == 1  # instead of c
    assert [create(value) for value in "adb"] == [0] * 3
    cache.clear()
    assert [create(value) for value in "adb"] == [1] * 3
    key = fg.DeviceGraphCache.make_key(lambda b: None, context=ctx)
    assert cache.cache(key, fg.DeviceGraph.create(ctx, lambda b: b.add_empty())).nodes
    assert create("d") == 0
    assert create("a") == 1


def test_a_search_leaves_nothing(ctx):
    things = [object() for _ in range(40)]  # more than a search holds without a list
    cache = fg.DeviceGraphCache()

    def factory(things):
        def helper():
            return things

        return lambda b: helper() and b.add_empty()

    def create(key):
        build = factory(tuple(things))
        fg.DeviceGraph.create(ctx, build, cache=cache, key=key)
        return sys.getrefcount(build)

    held = {create(key) for key in ("", "x" * 1000)}
    before = [sys.getrefcount(thing) for thing in things]
    held |= {create(key) for _ in range(3) for key in ("", "x" * 1000)}
    assert held == {2}
    assert [sys.getrefcount(thing) for thing in things] == before
    assert cache.stats.builds == 2
    assert cache.stats.hits == 6


def test_inputs_that_keep_the_writer_or_search_themselves(ctx):
    cache, writers = fg.DeviceGraphCache(), []

    class Input(fg.DeviceGraphInput):
        def write_graph_key(self, writer):
            writers.append(writer)
            writer.write_int(len(writers) and 7)
            create(None)
            writer.write_object(self.__class__)

        def allocate_stable(self, builder):
            return self

    def create(*inputs):
        given = [x for x in inputs if x is not None]
        return fg.DeviceGraph.create(ctx, lambda b, *given: b.add_empty(), *given, cache=cache)

    for _ in range(4):
        create(Input())
        create(np.zeros(3))
    assert cache.stats.builds == 3
    assert len({id(writer) for writer in writers}) == len(writers)
    for writer in writers:
        with pytest.raises(fg.ScopeError):
            writer.write_int(1)
    with pytest.raises(fg.InputError, match="a graph input"):
        create(3)
    assert cache.stats.builds == 3
    create(np.zeros(3))
    assert cache.stats.builds == 3


def test_a18_eviction_by_bytes(ctx):
    cache = fg.DeviceGraphCache(max_bytes=4096)

    def build(b):
        b.add_memset(b.create_buffer(256), 1.0)

    for tag in range(10):
        fg.DeviceGraph.create(ctx, build, cache=cache, key=tag)
        assert cache.stats.live_bytes <= 4096
    assert cache.stats.live_graphs == 4
    for bad in ({"max_graphs": 0}, {"max_graphs": None}, {"max_bytes": 0}, {"max_bytes": 1.5}):
        with pytest.raises(fg.InputError):
            fg.DeviceGraphCache(**bad)


def test_a18_none_in_flight_goes(host):
    cache, started, go = fg.DeviceGraphCache(max_graphs=1), threading.Event(), threading.Event()
    states = []

    def wait(grid, block):
        started.set()
        assert go.wait(30)

    kernel = fg.Kernel("wait", cpu=wait)

    def build(b):
        b.add_function(kernel)

    graph = fg.DeviceGraph.create(host, build, cache=cache)
    thread = threading.Thread(target=graph.replay)
    thread.start()
    assert started.wait(30)
    other = fg.DeviceGraph.create(host, lambda b: b.add_empty(), cache=cache)
    states.append(cache.lookup(cache.make_key(build, context=host)))
    go.set()
    thread.join()
    assert states[0] is not None
    assert other.nodes
    states.clear()
    fg.DeviceGraph.create(host, lambda b: [b.add_empty(), b.add_empty()], cache=cache)
    assert cache.stats.live_graphs == 1


def test_a18_a_long_run_is_flat(ctx):
    cache = fg.DeviceGraphCache(max_graphs=100)
    out = ctx.create_buffer(4, "int32")

    def build(b, tag):
        scratch = b.create_buffer(4, "int32")
        with b.region():
            b.add_memset(scratch, int(tag))
            b.add_copy(out, scratch)

    draw = np.random.default_rng(1)

    def spin(count):
        for tag in draw.zipf(1.2, count) % 1000:
            value = fg.HostValue(np.int32(tag))
            fg.DeviceGraph.create(ctx, build, value, cache=cache).replay()
            assert out.numpy()[0] == tag

    spin(1500)
    gc.collect()
    gc.collect()
    before = counters.snapshot()
    spin(1500)
    gc.collect()
    after = counters.snapshot()
    assert cache.stats.live_graphs == 100
    assert all(abs(after[k] - before[k]) <= 2 for k in ("blocks", "executables", "programs"))
    stats = cache.stats
    assert stats.hits + stats.misses == 3000
    assert stats.builds - stats.evictions == 100


def test_a19_shared_scratch(ctx, kernels):
    cache, x = fg.DeviceGraphCache(), ctx.create_buffer(16)

    def make(value):
        def build(b):
            scratch = b.create_buffer(16)
            with b.region():
                b.add_memset(scratch, value)
                b.add_copy(x, scratch)
            b.add_output(scratch)

        return fg.DeviceGraph.create(ctx, build, cache=cache)

    one, two = make(1.0), make(2.0)
    bound = [g._state.version.blocks[g._state.arena][0].ptr for g in (one, two)]
    assert bound[0] == bound[1]
    pool = cache.get_or_create_pool(ctx)
    assert pool is cache.get_or_create_pool(fg.DeviceContext(ctx.device))
    assert pool.nbytes >= 64
    results = [one.run()[0], two.run()[0], one.run()[0]]
    assert [r[0] for r in results] == [1, 2, 1]
    clone = two.clone()
    assert clone._state.version.blocks[clone._state.arena][0].ptr != bound[0]
    assert clone.run()[0][0] == 2
    assert copy.copy(one).run()[0][0] == 1


def test_a19_graphs_of_one_pool_count_as_one(ctx):
    """Many threads, two graphs, one scratch: no run sees the other's bytes."""
    cache = fg.DeviceGraphCache()

    def make(value):
        def build(b):
            scratch = b.create_buffer(4096)
            b.add_memset(scratch, value)
            b.add_output(scratch)

        return fg.DeviceGraph.create(ctx, build, cache=cache)

    graphs = [make(float(v)) for v in range(4)]

    def work(number):
        for _ in range(50):
            (out,) = graphs[number].run()
            assert (out == number).all()

    assert run_threads(4, work) == []


def test_a24_sixteen_threads_on_one_cached_graph(ctx, kernels):
    cache = fg.DeviceGraphCache()
    build = doubling(kernels, 8)

    def work(number):
        x = np.full(8, number, "f4")
        for i in range(40):
            graph = fg.DeviceGraph.create(ctx, build, x, cache=cache)
            (out,) = graph.run(x + i)
            assert (out == 2 * (number + i)).all()

    assert run_threads(16, work) == []
    assert cache.stats.builds == 1


def test_cached_graphs_are_not_changed(ctx, kernels):
    cache, x = fg.DeviceGraphCache(), ctx.create_buffer(N)

    def build(b):
        fill(b, kernels, x, b.scalar("v", "float32", 1.0), name="fill")

    graph = fg.DeviceGraph.create(ctx, build, cache=cache)
    for act in (lambda: graph.set(v=2.0), lambda: graph.update("fill", grid_dim=1)):
        with pytest.raises(fg.GraphError, match=r"clone\(\) it first"):
            act()
    clone = graph.clone()
    clone.set(v=2.0)
    clone.replay()
    assert (x.numpy() == 2).all()
    fg.DeviceGraph.create(ctx, build, cache=cache).replay(v=3.0)
    assert (x.numpy() == 3).all()
    graph.replay()
    assert (x.numpy() == 1).all()


def test_check_true_sees_what_the_key_does_not(ctx, kernels):
    """What a mutable object holds is no part of a key; recording again tells."""
    x, y, cache, held = ctx.create_buffer(N), ctx.create_buffer(N), fg.DeviceGraphCache(), {}

    def build(b):
        flag = ctx_flag
        fill(b, kernels, held["out"], held["value"], name="fill")
        b.add_if(flag, lambda i: [i.add_empty() for _ in range(held["count"])])
        b.scalar("s", "int32", held["scalar"])

    ctx_flag = ctx.create_buffer(1, "uint32")
    held.update(out=x, value=1.0, count=1, scalar=1)
    make = lambda check: fg.DeviceGraph.create(ctx, build, cache=cache, check=check)  # noqa: E731
    for check in ("known", True):
        for _ in range(2):
            make(check)
    for name, value in (("out", y), ("value", 2.0), ("count", 2), ("scalar", 2)):
        before, held[name] = held[name], value
        make("known")
        with pytest.raises(fg.GraphError, match="the key does not see"):
            make(True)
        held[name] = before
    make(True)
    assert cache.stats.builds == 2


def test_check_true_and_memory_that_build_makes(ctx):
    """A buffer or array made by build itself is another one each time, and means nothing."""
    cache, out = fg.DeviceGraphCache(), ctx.create_buffer(4)

    def build(b):
        b.add_copy(ctx.create_buffer(4), np.ones(4, "f4"))
        b.add_memset(b.pointer("p", ctx.create_buffer(4)), 1.0)
        b.add_memset(out, 1.0)

    for _ in range(3):
        fg.DeviceGraph.create(ctx, build, cache=cache, check=True).replay()
    assert (out.numpy() == 1).all()


def test_a_graph_that_is_cached_again_is_the_one_used_last(ctx):
    cache, x = fg.DeviceGraphCache(max_graphs=2), ctx.create_buffer(N)

    def build(b):
        b.add_memset(x, 1.0)

    keys = [cache.make_key(build, key=i, context=ctx) for i in range(3)]
    graphs = [fg.DeviceGraph.create(ctx, build) for _ in keys]
    for i in (0, 1, 0, 2):
        cache.cache(keys[i], graphs[i])
    assert [cache.lookup(key) is not None for key in keys] == [True, False, True]
