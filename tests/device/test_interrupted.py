"""What an interrupt between two steps leaves behind: the old state or the new one, nothing between.

The interrupts are real signals, raised before each line of the package that a call comes to.
"""

from __future__ import annotations

import contextlib
import itertools
import linecache
import signal
import sys
import threading

import numpy as np
import pytest

import fastgraph as fg

BASE = np.arange(4, dtype="f4")


class Signal:
    """Ctrl-C before the line of ours, in `files`, that is `number` lines away."""

    def __init__(self, number, files):
        self.number = number
        self.files = tuple(f"/fastgraph/{name}" for name in files)
        self.raised = False

    def look(self, frame, event, arg):
        if not any(name in frame.f_code.co_filename for name in self.files):
            return None
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        # Signals are not looked for between the end of a `with` and its exit.
        if event == "line" and not text.lstrip().startswith("with "):
            self.number -= 1
            if self.number < 0 and not self.raised:
                self.raised = True
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return self.look

    def __enter__(self):
        self.before = sys.gettrace(), signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.settrace(self.look)
        return self

    def __exit__(self, *exc):
        sys.settrace(self.before[0])
        signal.signal(signal.SIGINT, self.before[1])


def interrupts(call, *files):
    """Make a call, interrupted one line later each time, until it comes through."""
    for number in itertools.count():
        with Signal(number, files or ("",)) as told:
            try:
                call()
            except KeyboardInterrupt:
                assert told.raised
        if not told.raised:
            assert number
            return
        yield number


def test_a_build_that_is_interrupted_leaves_its_key_free(ctx):
    x, cache = ctx.create_buffer(4), fg.DeviceGraphCache(max_graphs=2)

    def build(b):
        b.add_memset(x, 1.0)

    def create(key):
        return fg.DeviceGraph.create(ctx, build, cache=cache, key=key)

    keys = itertools.count()
    done = []
    for key in interrupts(lambda: create(next(keys)), "device/store.py", "device/graph.py"):
        other = threading.Thread(target=lambda key=key: done.append(create(key).replay()))
        other.start()
        other.join(5)
        assert len(done) == key + 1
        assert cache.stats.live_bytes == 0
        ctx.synchronize()  # what still runs would not be let go of
    assert cache.stats.live_graphs == 2
    ctx.synchronize()
    assert x.numpy()[0] == 1


class Sum:
    """y = (input + 1 + p) * s, of which a memset, a pointer and a scalar can be changed."""

    def __init__(self, ctx, kernels):
        self.x, self.y = ctx.create_buffer(4), ctx.create_buffer(4)
        self.five, self.seven = ctx.to_device(np.full(4, 5, "f4")), ctx.to_device(BASE * 0 + 7)

        def build(b, given):
            s, p, z = b.scalar("s", "float32", 2.0), b.pointer("p", self.five), b.create_buffer(4)
            with b.region():
                b.add_memset(self.x, 1.0)
                b.add_function(kernels.add, z, given, p, 4, block_dim=4)
                b.add_function(kernels.scaled, self.y, z, self.x, s, 4, block_dim=4)
            b.add_output(self.y)

        self.graph = fg.DeviceGraph.create(ctx, build, BASE)

    def is_now(self, value, p, s):
        """Whether a run of the graph, a run again, and one of a clone give what these make."""
        want = ((BASE + p + value) * s).tolist()
        outs = [g.run(BASE)[0].tolist() for g in (self.graph, self.graph, self.graph.clone())]
        assert outs[0] == outs[1] == outs[2]
        return outs[0] == want

    def reset(self):
        self.graph.update(0, value=1.0)
        self.graph.set(p=self.five, s=2.0)


OLD = (1, 5, 2)
CHANGES = {
    "update": (lambda s: s.graph.update(0, value=6.0), (6, 5, 2)),
    "scalar": (lambda s: s.graph.set(s=9.0), (1, 5, 9)),
    "pointer": (lambda s: s.graph.set(p=s.seven), (1, 7, 2)),
    "both": (lambda s: s.graph.set(p=s.seven, s=9.0), (1, 7, 9)),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_is_made_as_a_whole_or_not_at_all(ctx, kernels, kind):
    made = Sum(ctx, kernels)
    call, new = CHANGES[kind]
    done = 0
    for _ in interrupts(lambda: call(made)):
        before, updates = done, made.graph.stats.updates
        if not made.is_now(*OLD):
            assert made.is_now(*new)
            made.reset()
        done = made.graph.stats.updates
        assert updates - before in (0, 1)
    assert made.is_now(*new)


RUNS = {
    "run": lambda s: s.graph.run(BASE + 1, p=s.seven, s=100.0),
    "replay": lambda s: s.graph.replay(BASE + 1, p=s.seven, s=100.0),
    "scalars": lambda s: s.graph.run(BASE + 1, s=100.0),
}


def test_a_clone_beside_a_change_has_all_of_it_or_none(ctx, kernels):
    made = Sum(ctx, kernels)
    over = threading.Event()

    def change():
        while not over.is_set():
            made.graph.set(p=made.seven, s=9.0)
            made.graph.set(p=made.five, s=2.0)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        wanted = [((BASE + p + 1) * s).tolist() for p, s in ((5, 2), (7, 9))]
        for _ in range(60):
            assert made.graph.clone().run(BASE)[0].tolist() in wanted
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("kind", RUNS)
def test_values_of_one_run_go_when_it_is_interrupted(ctx, kernels, kind):
    made = Sum(ctx, kernels)
    for _ in interrupts(lambda: RUNS[kind](made)):
        assert not made.graph._state.executable.active
        assert made.is_now(*OLD)
    ctx.synchronize()


def test_inputs_that_may_be_half_filled_are_asked_for(ctx):
    graph = fg.DeviceGraph.create(ctx, lambda b, x: b.add_output(x), BASE)
    graph.run(BASE)
    state = graph._state
    fill = state._fill

    def interrupted(arrays, stream):
        fill(arrays, stream)
        raise KeyboardInterrupt

    state._fill = interrupted
    with pytest.raises(KeyboardInterrupt):
        graph.run(BASE + 1)
    del state._fill
    with pytest.raises(fg.InputError, match="give them"):
        graph.replay()
    assert graph.run(BASE)[0].tolist() == BASE.tolist()


def test_a_cache_counts_what_it_holds(ctx):
    x = ctx.create_buffer(4)

    def build(b, y):
        b.add_copy(x, y)

    cache = fg.DeviceGraphCache(max_graphs=1)
    keys = [cache.make_key(build, context=ctx, key=i) for i in range(2)]
    graphs = [fg.DeviceGraph.create(ctx, build, BASE) for _ in keys]

    def call():
        for key, graph in zip(keys, graphs, strict=True):
            cache.cache(key, graph)

    for _ in interrupts(call):
        held = [cache.lookup(key) is not None for key in keys]
        assert sum(held) <= 2
        assert cache.stats.live_bytes == sum(held) * graphs[0].nbytes
        for graph, is_held in zip(graphs, held, strict=True):
            assert graph._state.cell.n_caches == is_held
        cache.clear()
        assert cache.stats.live_bytes == 0
    assert [cache.lookup(key) is not None for key in keys] == [False, True]


def test_a_handle_is_closed_or_not(ctx):
    x = ctx.create_buffer(4)
    graph = fg.DeviceGraph.create(ctx, lambda b: b.add_memset(x, 1.0))
    for _ in interrupts(graph.close):
        try:
            graph.replay()
        except fg.GraphError:
            break
        assert graph.nodes
    with pytest.raises(fg.GraphError, match="closed"):
        graph.replay()
    with pytest.raises(fg.GraphError, match="closed"):
        graph.nodes  # noqa: B018


BUILDING = {
    "memset": lambda b, at, n: b.add_memset(at["y"], 3.0, dependencies=n),
    "copy": lambda b, at, n: b.add_copy(at["y"], at["x"], dependencies=n),
    "scratch": lambda b, at, n: b.add_memset(b.create_buffer(4), 3.0, dependencies=n),
    "region": lambda b, at, n: b.region(lambda r: r.add_memset(at["y"], 3.0), dependencies=n),
    "if": lambda b, at, n: b.add_if(
        at["one"], lambda body: body.add_memset(at["y"], 3.0), dependencies=n
    ),
    "child": lambda b, at, n: b.add_child_graph(at["child"], dependencies=n),
}


@pytest.mark.parametrize("kind", BUILDING)
def test_a_build_that_goes_on_after_an_interrupt_is_whole_or_refused(ctx, kind):
    at = {name: ctx.create_buffer(4) for name in "xyz"}
    at["one"] = ctx.to_device(np.ones(1, "u4"))
    at["child"] = fg.DeviceGraph.create(ctx, lambda b: b.add_memset(at["y"], 3.0))
    made = 0
    for number in itertools.count():
        told = Signal(number, ("",))

        def build(b, told=told):
            first = b.add_memset(at["x"], 1.0, name="first")
            with told, contextlib.suppress(KeyboardInterrupt):
                BUILDING[kind](b, at, [first])
            b.add_memset(at["z"], 7.0, dependencies=[first], name="last")

        for name in "xz":
            ctx.memset(at[name], 0.0)
        try:
            graph = fg.DeviceGraph.create(ctx, build, check=False)
        except fg.GraphError as error:
            assert "region" in str(error) or "body" in str(error)
            assert told.raised
            continue
        graph.replay()
        assert (at["x"].numpy() == 1).all()
        assert (at["z"].numpy() == 7).all()
        names = [node.name for node in graph.nodes]
        assert (names[0], names[-1]) == ("first", "last")
        assert [node.id for node in graph.nodes] == list(range(len(names)))
        made += 1
        if not told.raised:
            break
    assert made > 5
