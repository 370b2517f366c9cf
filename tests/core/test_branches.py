"""Branches of a graph on the cpu: side by side where it pays, never against an edge."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import host_graph

LONG_US = 300


@pytest.fixture
def ctx():
    """The cpu."""
    return fg.DeviceContext("cpu")


def on_threads(graph, threads=2):
    """Another executable of the same nodes and memory, with its own number of threads."""
    version = graph._state.version
    return host_graph.instantiate(
        version.program, dict(enumerate(version.blocks)), threads=threads, release_gil=True
    )


def made(ctx, build, threads=2):
    """The executable of a graph of which nothing is checked."""
    return on_threads(fg.DeviceGraph.create(ctx, build, check=False), threads)


def sometimes(graph, spans, runs=60):
    """Run until nodes ran at once; every run must keep the edges."""
    for _ in range(runs):
        graph.run()
        if spans.check():
            return True
    return False


class Spans:
    """Nodes that note when they began and ended, with the ids that each waits for."""

    def __init__(self, ctx, kernels, dependencies, us=LONG_US):
        self.clock = ctx.create_buffer(1, "int64")
        self.readings = [ctx.create_buffer(2, "int64") for _ in dependencies]
        self.dependencies = dependencies
        self.kernel, self.us = kernels.span, us

    def build(self, b):
        """Add the nodes."""
        nodes = []
        for readings, before in zip(self.readings, self.dependencies, strict=True):
            waits = [nodes[i] for i in before]
            nodes.append(self.add(b, readings, dependencies=waits))
        return nodes

    def add(self, b, readings, **options):
        """Add one node."""
        return b.add_function(self.kernel, self.clock, readings, np.int32(self.us), **options)

    def check(self):
        """Every edge was kept; return whether any two nodes ran at once."""
        spans = [readings.numpy().tolist() for readings in self.readings]
        for later, before in enumerate(self.dependencies):
            for earlier in before:
                assert spans[earlier][1] < spans[later][0]
        spans.sort()
        return any(a[1] > b[0] for a, b in itertools.pairwise(spans))


def test_two_slow_branches_meet(ctx, native_kernels):
    """Each of two kernels waits for the other, in vain if they run one after the other."""
    here = [ctx.create_buffer(1, "int32") for _ in range(2)]
    met = [ctx.create_buffer(1, "int32") for _ in range(2)]

    def build(b):
        start = [b.add_memset(buffer, 0) for buffer in here]
        for i in range(2):
            arguments = here[i], here[1 - i], met[i], np.int32(30)
            b.add_function(native_kernels.meet, *arguments, dependencies=start)

    graph = made(ctx, build)
    alone = made(ctx, build, threads=1)
    both = []
    for _ in range(10):
        graph.run()
        both.append([int(m.numpy()[0]) for m in met] == [1, 1])
    assert any(both)
    assert not both[0], "nothing is known of the first run"
    for _ in range(3):
        alone.run()
        assert [int(m.numpy()[0]) for m in met] == [0, 0]
    assert graph.parallel and not alone.parallel


@pytest.mark.parametrize("threads", [2, 5])
def test_edges_are_kept(ctx, native_kernels, threads):
    rng = random.Random(threads)
    for _ in range(4):
        dependencies = [
            sorted(rng.sample(range(i), min(i, rng.choice([0, 1, 1, 2, 3])))) for i in range(12)
        ]
        spans = Spans(ctx, native_kernels, dependencies)
        graph = made(ctx, spans.build, threads)
        for _ in range(10):
            graph.run()
            assert graph.parallel or not spans.check()
            spans.check()


def test_a_chain_stays_one(ctx, native_kernels):
    spans = Spans(ctx, native_kernels, [[], [0], [1], [2]])
    graph = made(ctx, spans.build)
    for _ in range(5):
        graph.run()
        assert not spans.check()
    assert not graph.parallel


def test_short_branches_stay_in_a_row(ctx, native_kernels):
    x = ctx.create_buffer(64)
    graph = made(ctx, lambda b: [b.add_memset(x[i : i + 1], i) for i in range(64)])
    for _ in range(300):
        graph.run()
    assert not graph.parallel
    assert x.numpy().tolist() == list(range(64))


def test_branches_of_a_child_and_of_a_body(ctx, native_kernels):
    """A child graph's branches run side by side; those within a condition do not."""
    flag = ctx.create_buffer(1, "uint32")
    ctx.memset(flag, 1)
    spans = Spans(ctx, native_kernels, [[], [], [0, 1]])
    child = fg.DeviceGraph.create(ctx, spans.build, check=False)

    def inside(b):
        first, last = b.add_empty(), None
        last = b.add_child_graph(child, dependencies=[first])
        b.add_memset(flag, 1, dependencies=[last])

    assert sometimes(made(ctx, inside), spans)
    graph = made(ctx, lambda b: b.add_if(flag, lambda body: spans.build(body)))
    for _ in range(5):
        graph.run()
        assert not spans.check()


def test_conditions_beside_one_another(ctx, native_kernels):
    """Whole conditions are branches like other nodes."""
    flags = [ctx.create_buffer(1, "uint32") for _ in range(2)]
    spans = Spans(ctx, native_kernels, [[], []])

    def build(b):
        for flag, readings in zip(flags, spans.readings, strict=True):
            start = b.add_memset(flag, 1)

            def body(w, flag=flag, readings=readings):
                w.add_memset(flag, 0, dependencies=[spans.add(w, readings)])

            b.add_while(flag, body, dependencies=[start])

    graph = made(ctx, build)
    assert sometimes(graph, spans)
    assert [int(flag.numpy()[0]) for flag in flags] == [0, 0]


def test_python_is_called_by_the_calling_thread_alone(ctx, native_kernels):
    spans = Spans(ctx, native_kernels, [[], [], [], []])
    calls, inside = [], []

    def call(number):
        assert not inside
        inside.append(number)
        calls.append((number, threading.get_ident()))
        inside.pop()

    def build(b):
        nodes = spans.build(b)
        for i, node in enumerate(nodes):
            b.add_host_function(lambda i=i: call(i), dependencies=[node])
            b.add_host_function(lambda i=i: call(10 + i))

    graph = made(ctx, build)
    assert sometimes(graph, spans)
    assert {ident for _, ident in calls} == {threading.get_ident()}
    calls.clear()
    graph.run()
    assert sorted(number for number, _ in calls) == [0, 1, 2, 3, 10, 11, 12, 13]


def test_a_call_that_raises_ends_the_run(ctx, native_kernels):
    spans = Spans(ctx, native_kernels, [[], [], [0], [1], [2], [3]], us=2000)
    fails, late = [], ctx.create_buffer(1, "int32")

    def call():
        if fails:
            raise ZeroDivisionError("mine")

    def build(b):
        nodes = spans.build(b)
        b.add_host_function(call, dependencies=[nodes[0]])
        b.add_memset(late, 7, dependencies=nodes)

    graph = made(ctx, build)
    while not graph.parallel:
        graph.run()
    assert late.numpy()[0] == 7
    ctx.memset(late, 0)
    fails.append(1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError, match="mine"):
            graph.run()
        assert late.numpy()[0] == 0
    fails.clear()
    graph.run()
    assert late.numpy()[0] == 7


def test_a_signal_ends_a_run_in_branches(ctx, native_kernels):
    spans = Spans(ctx, native_kernels, [[]] * 4 + [[i] for i in range(200)], us=2000)
    graph = made(ctx, spans.build)
    while not graph.parallel:
        graph.run()
    timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            while True:
                graph.run()
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    graph.run()
    spans.check()


def test_several_graphs_at_once(ctx, native_kernels):
    """One has the workers, the others do their branches themselves."""
    many = [Spans(ctx, native_kernels, [[], [], [0, 1]]) for _ in range(3)]
    graphs = [made(ctx, spans.build) for spans in many]
    wrong = []

    def work(graph, spans):
        for _ in range(30):
            graph.run()
            try:
                spans.check()
            except AssertionError as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(graphs, many, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_in_a_callable(ctx, native_kernels):
    """The child has no workers: its run is cut off, and its next one is whole."""
    spans = Spans(ctx, native_kernels, [[], [], [0, 1]])
    forks, codes = [], []

    def call():
        if forks:
            forks.pop()
            codes.append(os.fork())

    def build(b):
        nodes = spans.build(b)
        b.add_host_function(call)
        b.add_host_function(lambda: None, dependencies=nodes)

    graph = made(ctx, build)
    while not graph.parallel:
        graph.run()
    forks.append(1)
    try:
        graph.run()
        cut_off = ""
    except fg.GraphError as error:
        cut_off = str(error)
    if codes == [0]:
        code = 1
        try:
            graph.run()
            spans.check()
            code = 0 if "cut this run off" in cut_off else 2
        finally:
            os._exit(code)
    assert cut_off == ""
    assert os.waitstatus_to_exitcode(os.waitpid(codes[0], 0)[1]) == 0
    graph.run()
    spans.check()


def test_kernels_have_arguments_of_their_own(ctx, native_kernels):
    """What a kernel does to its arguments, the next replay does not see."""
    x, y = ctx.create_buffer(4), ctx.create_buffer(4)

    def build(b):
        b.add_function(native_kernels.spoil, x, 2.0)
        b.add_function(native_kernels.spoil, y, b.scalar("by", "float32", 3.0))

    graph = fg.DeviceGraph.create(ctx, build)
    for _ in range(3):
        graph.replay()
    assert x.numpy().tolist() == [2, 0, 0, 0]
    assert y.numpy().tolist() == [3, 0, 0, 0]
    graph.replay(by=4.0)
    assert y.numpy().tolist() == [4, 0, 0, 0]
