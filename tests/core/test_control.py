"""Bodies, jumps and Python calls: what records say and host programs do."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from fastgraph._core import buffer, host_graph, isa
from fastgraph._core.host_program import HostProgram
from fastgraph._core.lock import GraphLock
from fastgraph._core.record import Operand, PythonCall, Record, accesses_of
from fastgraph.errors import GraphError, HazardError


class Made:
    """A record over `n` words of uint32, each a memory, with the nodes of the tests."""

    def __init__(self, n=6):
        self.record = Record()
        self.words = [self.record.add_memory("buffer", f"w{i}", 4) for i in range(n)]
        self.block = [buffer.allocate(4) for _ in range(n)]

    def store(self, record, word, value, name="store", **options):
        record.add_node(
            name,
            "memset",
            "set_bytes",
            [Operand(word, 0, 4, False, True)],
            (4, 4, value),
            **options,
        )

    def control(self, record, kind, word, *bodies, **options):
        inner = []
        for write in bodies:
            inner.append(record.body())
            write(inner[-1])
        operands = [] if word is None else [Operand(word, 0, 4, True, False)]
        return record.add_node(kind, kind, None, operands, bodies=inner, **options)

    def call(self, record, function, *words, **options):
        operands = [Operand(word, 0, 4, True, True) for word in words]
        arguments = [("array", i, (1,), np.dtype("u4")) for i in range(len(words))]
        record.add_node(
            "call", "function", None, operands, call=PythonCall(function, tuple(arguments)),
            **options,
        )  # fmt: skip

    def graph(self, **options):
        program = HostProgram(self.record, isa.chosen())
        return host_graph.instantiate(program, dict(enumerate(self.block)), **options)

    def view(self, word):
        return np.asarray(buffer.view(self.block[word], 0, (1,), "u4", "cpu"))

    def values(self):
        return [int(self.view(word)[0]) for word in self.words]


def test_if_with_and_without_else():
    made = Made()
    made.control(made.record, "if", 0, lambda b: made.store(b, 1, 7))
    made.control(
        made.record,
        "if",
        0,
        lambda b: made.store(b, 2, 7),
        lambda b: made.store(b, 2, 8),
        dependencies=[0],
    )
    graph = made.graph()
    graph.run()
    assert made.values()[:3] == [0, 0, 8]
    made.view(0)[0] = 5
    graph.run()
    assert made.values()[:3] == [5, 7, 7]


def count_down(word):
    """One turn less."""
    word -= 1


def test_while_and_what_follows():
    made, turns = Made(), []
    made.store(made.record, 0, 3)

    def body(record):
        made.call(record, count_down, 0)
        made.call(record, lambda: turns.append(1), dependencies=[0])

    made.control(made.record, "while", 0, body, dependencies=[0])
    made.store(made.record, 1, 9, dependencies=[1])
    graph = made.graph()
    for _ in range(2):
        graph.run()
    assert made.values()[:2] == [0, 9]
    assert len(turns) == 6
    times = graph.run_timed()
    assert len(times) == 3


@pytest.mark.parametrize(("value", "want"), [(0, 10), (1, 11), (2, 12), (3, 0), (2**32 - 1, 0)])
def test_switch(value, want):
    made = Made()
    made.view(0)[0] = value
    bodies = [lambda b, i=i: made.store(b, 1, 10 + i) for i in range(3)]
    made.control(made.record, "switch", 0, *bodies)
    made.control(made.record, "switch", 0, dependencies=[0])
    made.store(made.record, 2, 1, dependencies=[1])
    made.graph().run()
    assert made.values()[1:3] == [want, 1]


def test_bodies_in_bodies_and_child():
    made = Made()
    made.view(0)[0] = 1

    def inner(record):
        made.control(record, "if", 0, lambda b: made.store(b, 2, 2), lambda b: made.store(b, 2, 3))
        made.control(record, "child", None, lambda b: made.store(b, 3, 4), dependencies=[0])

    made.control(made.record, "if", 0, inner)
    graph = made.graph()
    graph.run()
    assert made.values()[2:4] == [2, 4]
    node = made.record.nodes[0]
    assert [o.memory for o in accesses_of(node)] == [0, 0, 2, 2, 3]


def test_subsets_take_whole_bodies():
    made = Made()
    made.view(0)[0] = 1
    made.store(made.record, 1, 1)
    made.control(made.record, "if", 0, lambda b: made.store(b, 1, 2), dependencies=[0])
    made.store(made.record, 1, 3, dependencies=[1])
    graph = made.graph()
    for order, want in (([0], 1), ([1], 2), ([0, 1], 2), ([2, 1], 2), ([2], 3), ([], 3)):
        graph.run_subset(order)
        assert made.values()[1] == want
    with pytest.raises(GraphError, match="no node 3"):
        graph.run_subset([3])


def test_python_calls_see_the_binding_and_raise():
    made = Made()
    made.call(made.record, lambda word: word.__setitem__(0, word[0] + 1), 0)
    first, second = made.graph(), made.graph()
    other = buffer.allocate(4)
    second.bind(0, other)
    for graph in (first, first, second):
        graph.run()
    assert made.values()[0] == 2
    assert np.asarray(buffer.view(other, 0, (1,), "u4", "cpu"))[0] == 1

    def fails():
        raise ZeroDivisionError("mine")

    made = Made()
    made.call(made.record, fails)
    made.store(made.record, 0, 1, dependencies=[0])
    graph = made.graph()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="mine"):
            graph.run()
    assert made.values()[0] == 0


def test_hazards_in_and_around_bodies():
    def two(first, second, **options):
        made = Made()
        for write in (first, second):
            if write == "plain":
                made.store(made.record, 1, 1, name="plain")
            else:
                made.control(made.record, "if", 0, lambda b, w=write: made.store(b, w, 1))
        made.record.check_hazards()

    two("plain", 2)
    two(1, 2)
    for pair in (("plain", 1), (1, 1)):
        with pytest.raises(HazardError):
            two(*pair)
    made = Made()
    made.control(
        made.record, "if", 0, lambda b: [made.store(b, 1, v, name=f"n{v}") for v in (1, 2)]
    )
    with pytest.raises(HazardError, match=r"'n1' and \d+ 'n2'"):
        made.record.check_hazards()


def test_accesses_of_which_nothing_is_said_are_no_hazards():
    made = Made()
    made.store(made.record, 0, 1)
    made.record.add_node("unknown", "empty", None, [Operand(0, 0, 4, False, False)])
    made.record.check_hazards()
    made.record.add_node("known", "empty", None, [Operand(0, 0, 4, True, False)])
    with pytest.raises(HazardError, match=r"'store' and \d+ 'known'"):
        made.record.check_hazards()


def test_records_are_copied_and_replaced():
    made = Made()
    made.store(made.record, 0, 1)
    twin = made.record.copy()
    twin.replace_node(0, twin.nodes[0]._replace(params=(4, 4, 2)))
    twin.add_memory("buffer", "more", 4)
    assert made.record.nodes[0].params == (4, 4, 1)
    assert len(twin.memories) == len(made.record.memories) + 1
    for record, want in ((made.record, 1), (twin, 2)):
        program = HostProgram(record, isa.chosen())
        places = [*made.block, made.block[5]][: len(record.memories)]
        host_graph.instantiate(program, dict(enumerate(places))).run()
        assert made.values()[0] == want


def test_one_lock_for_several_graphs():
    """Of graphs that share a lock one runs at a time; others do not wait."""
    made, lock = Made(), GraphLock()
    started, go, done = threading.Event(), threading.Event(), []

    def wait():
        started.set()
        assert go.wait(30)

    made.call(made.record, wait)
    simple = Made()
    simple.store(simple.record, 0, 1)
    slow, sharing, alone = made.graph(lock=lock), simple.graph(lock=lock), simple.graph()
    assert not lock.held
    threads = [threading.Thread(target=slow.run)]
    threads[0].start()
    assert started.wait(30)
    assert lock.held
    alone.run()
    threads.append(threading.Thread(target=lambda: [sharing.run(), done.append(1)]))
    threads[1].start()
    threads[1].join(0.05)
    assert not done
    go.set()
    for thread in threads:
        thread.join(30)
    assert done and not lock.held


def test_work_with_the_lock():
    made = Made()
    made.store(made.record, 0, 1)
    graph, seen = made.graph(), []

    def work():
        with pytest.raises(GraphError, match="running in this very thread"):
            graph.run()
        graph.run(held=True)
        graph.run_subset([0], held=True)
        graph.bind(0, made.block[1], held=True)
        graph.run(held=True)
        seen.extend(made.values()[:2])
        return 5

    assert graph.locked(work) == 5
    assert seen == [1, 1]
    for act in (
        lambda: graph.run(held=True),
        lambda: graph.run_subset([0], held=True),
        lambda: graph.bind(0, made.block[0], held=True),
    ):
        with pytest.raises(GraphError, match="for work of"):
            act()
    with pytest.raises(ZeroDivisionError):
        graph.locked(lambda: 1 // 0)
    graph.run()
