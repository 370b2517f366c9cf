"""The cycle collector rests while graphs are made, and is the user's again afterwards."""

from __future__ import annotations

import gc
import os
import threading

import pytest

import fastgraph as fg
from fastgraph.ir.collector import paused


@pytest.fixture(autouse=True)
def as_before():
    enabled, threshold = gc.isenabled(), gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    (gc.enable if enabled else gc.disable)()


def test_nothing_is_collected_inside_and_the_threshold_comes_back():
    gc.set_threshold(301, 7, 5)
    with paused:
        with paused:
            assert gc.get_threshold()[0] == 0
        assert gc.get_threshold()[0] == 0
    assert gc.get_threshold() == (301, 7, 5)
    with pytest.raises(KeyError), paused:
        raise KeyError
    assert gc.get_threshold() == (301, 7, 5)


def test_what_the_user_does_meanwhile_stays():
    with paused:
        gc.disable()
    assert not gc.isenabled()
    with paused:
        assert not gc.isenabled()
    assert not gc.isenabled()
    gc.enable()
    with paused:
        gc.set_threshold(99)
    assert gc.get_threshold()[0] == 99
    gc.set_threshold(0)
    with paused:
        pass
    assert gc.get_threshold()[0] == 0


def test_threads_that_are_inside_at_once():
    gc.set_threshold(301)
    inside, leave = threading.Barrier(3), [threading.Event(), threading.Event()]

    def stay(i):
        with paused:
            inside.wait()
            leave[i].wait()

    threads = [threading.Thread(target=stay, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    inside.wait()
    for thread, event in zip(threads, leave, strict=True):
        assert gc.get_threshold()[0] == 0
        event.set()
        thread.join()
    assert gc.get_threshold()[0] == 301


@pytest.mark.parametrize("within", [False, True])
def test_a_forked_child_has_its_own_count(within):
    gc.set_threshold(301)
    inside, leave = threading.Event(), threading.Event()

    def stay():
        with paused:
            inside.set()
            leave.wait()

    def child_of_both():
        if child := os.fork():
            return os.waitpid(child, 0)[1]
        os._exit(0 if (gc.get_threshold()[0] == 0) == within else 1)

    thread = threading.Thread(target=stay)
    thread.start()
    inside.wait()
    try:
        if not within:
            assert child_of_both() == 0
            return
        with paused:
            with paused:
                pass  # One in another leaves the count to that.
            assert child_of_both() == 0
            child = os.fork()
        if not child:
            os._exit(0 if gc.get_threshold()[0] == 301 else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        leave.set()
        thread.join()


def test_compiling_rests_it_and_puts_it_back():
    gc.set_threshold(50, 10, 10)
    g = fg.Graph()
    x = g.input("x", (4,))
    for _ in range(300):
        x = fg.ops.softmax(x + 1.0)
    g.output(x, "y")
    began = []
    gc.callbacks.append(lambda phase, info: began.append(phase))
    try:
        fg.Session("cpu").compile(g)
    finally:
        gc.callbacks.pop()
    assert began.count("start") < 40  # one for each 50 objects would be hundreds
    assert gc.get_threshold() == (50, 10, 10)
