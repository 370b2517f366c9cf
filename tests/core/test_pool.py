"""The worker threads: settings, many runs at once, and forks."""

from __future__ import annotations

import math
import os
import threading
import time

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import pool


def large_model(threads=2):
    """A model whose nodes have several parts."""
    g = fg.Graph("large")
    x = g.input("x", (64, 256))
    w = g.param("w", (256, 256))
    g.output(fg.ops.softmax(fg.ops.relu(x @ w), axis=-1), "y")
    model = fg.Session("cpu", threads=threads).compile(g)
    rng = np.random.default_rng(3)
    model.set_param("w", rng.standard_normal((256, 256)).astype("f4"))
    return model, rng.standard_normal((64, 256)).astype("f4")


@pytest.fixture
def spin():
    """Settings as they were, afterwards."""
    seconds = pool.state()["spin"]
    yield seconds
    pool.set_spin(seconds)


def test_state(spin):
    state = pool.state()
    assert set(state) == {"workers", "spin"}
    assert state["workers"] >= 0
    pool.set_spin(0.25)
    assert pool.state()["spin"] == 0.25
    pool.set_spin(0)
    assert pool.state()["spin"] == 0
    assert 1 <= pool.available_cores() <= os.cpu_count()


@pytest.mark.parametrize("seconds", [-1e-9, 1.1, math.nan, math.inf, -math.inf])
def test_spin_out_of_range(spin, seconds):
    with pytest.raises(fg.InputError, match="0 to 1 is possible"):
        pool.set_spin(seconds)
    assert pool.state()["spin"] == spin


@pytest.mark.parametrize("seconds", ["x", None, []])
def test_spin_of_rubbish(spin, seconds):
    with pytest.raises(TypeError):
        pool.set_spin(seconds)


@pytest.mark.parametrize("seconds", [0, 50e-6])
def test_results_do_not_depend_on_threads(spin, seconds):
    pool.set_spin(seconds)
    one, x = large_model(1)
    (want,) = one.run({"x": x})
    for threads in (2, 3, 8):
        model, _ = large_model(threads)
        for _ in range(20):
            (got,) = model.run({"x": x})
            np.testing.assert_array_equal(got, want)
        assert pool.state()["workers"] >= threads - 1


def test_many_runs_from_several_threads():
    """One run has the workers; the others do their parts themselves, with the same bits."""
    model, x = large_model(2)
    (want,) = model.run({"x": x})
    clones = [model.clone() for _ in range(3)]
    wrong = []

    def work(mine):
        for _ in range(40):
            (got,) = mine.run({"x": x})
            if not np.array_equal(got, want):
                wrong.append(mine)

    # Two threads share the first clone.
    threads = [threading.Thread(target=work, args=(m,)) for m in (*clones, clones[0])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def exit_code_of_child(work, seconds=30):
    """Fork, do `work` in the child, and return its exit code: 0 where it gave True."""
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if work() is True else 2
        finally:
            os._exit(code)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_child_runs_models_and_graphs():
    model, x = large_model(2)
    (want,) = model.run({"x": x})
    ctx = fg.DeviceContext("cpu")
    y = ctx.create_buffer(16, "i4")
    graph = fg.DeviceGraph.create(ctx, lambda b: b.add_memset(y, 3))

    def work():
        workers = pool.state()["workers"]
        (got,) = model.run({"x": x})
        fresh, _ = large_model(2)
        (again,) = fresh.run({"x": x})
        graph.replay()
        own = pool.state()["workers"]
        same = np.array_equal(got, want) and np.array_equal(again, want)
        return bool(same and y.numpy().tolist() == [3] * 16 and workers == 0 and own == 1)

    assert exit_code_of_child(work) == 0
    # The child's memory is its own, and the parent's workers go on.
    assert y.numpy().tolist() == [0] * 16
    (got,) = model.run({"x": x})
    np.testing.assert_array_equal(got, want)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork_amid_a_run_of_another_thread():
    """The run that the fork cut off does not lock the child out."""
    model, x = large_model(2)
    (want,) = model.run({"x": x})
    stop = threading.Event()

    def work():
        while not stop.is_set():
            model.run({"x": x})

    thread = threading.Thread(target=work)
    thread.start()
    try:
        codes = [
            exit_code_of_child(lambda: bool(np.array_equal(model.run({"x": x})[0], want)))
            for _ in range(5)
        ]
    finally:
        stop.set()
        thread.join()
    assert codes == [0] * 5


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("nbytes", [0, 1, (256 << 10) - 1, 256 << 10, (1 << 20) + 13])
def test_copies(nbytes, threads):
    source = np.random.default_rng(nbytes).integers(0, 256, nbytes, "u1")
    to = np.full(nbytes + 2, 7, "u1")
    pool.copy(source, to[1:-1], threads)
    assert (to[1:-1] == source).all()
    assert to[0] == to[-1] == 7


def test_copies_of_other_sizes():
    with pytest.raises(fg.InputError, match="3 bytes do not fit 4"):
        pool.copy(bytes(3), bytearray(4), 2)


def test_copies_beside_runs():
    model, x = large_model()
    expected = model.run({"x": x})[0]
    source, to = np.random.default_rng(1).bytes(1 << 20), bytearray(1 << 20)
    over = threading.Event()
    runs = []

    def run():
        while not over.is_set():
            runs.append((model.run({"x": x})[0] == expected).all())

    thread = threading.Thread(target=run)
    thread.start()
    for _ in range(50):
        to[:] = bytes(1 << 20)
        pool.copy(source, to, 2)
        assert to == source
    over.set()
    thread.join()
    assert runs
    assert all(runs)
