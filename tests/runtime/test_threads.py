"""Threads, signals and forks: no run sees another one's, and none is waited for too long."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import counters
from tests.conftest import FAKE
from tests.runtime import models
from tests.runtime.models import compiled, data_for, ready

f4 = np.float32
SEARCH = os.pathsep.join(path for path in sys.path if path)


def in_process(code: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own."""
    program = textwrap.dedent(code)
    return subprocess.run(
        # From Python 3.12 on a fork beside other threads warns, which is what some programs test.
        [sys.executable, "-X", "faulthandler", "-W", "ignore::DeprecationWarning", "-c", program],
        env={**os.environ, "PYTHONPATH": SEARCH},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def passes(code: str) -> str:
    result = in_process(code)
    assert result.returncode == 0, result.stderr + result.stdout
    assert not result.stderr
    return result.stdout


@pytest.mark.parametrize("release_gil", [True, False])
def test_one_model_by_many_threads(release_gil):
    model = compiled(models.residuals(), threads=2, release_gil=release_gil)
    model.set_params(data_for(model.params))
    given_ = [data_for(model.inputs, seed) for seed in range(6)]
    wanted = [model.run(inputs)[0].tobytes() for inputs in given_]
    wrong = []

    def work(number):
        for _ in range(60):
            if model.run(given_[number])[0].tobytes() != wanted[number]:
                wrong.append(number)

    run_all([threading.Thread(target=work, args=(number,)) for number in range(6)])
    assert not wrong


def run_all(threads):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_clones_by_threads_at_once():
    model = compiled(models.identities(), threads=2, release_gil=True)
    eye = np.eye(64, dtype="f4")
    model.set_params({f"w{i}": eye for i in range(6)})
    wrong = []

    def work(one, factor):
        x = np.ones((1, 64), "f4")
        for step in range(40):
            one.set_param("w3", eye * f4(factor + step))
            (y,) = one.run({"x": x})
            if y.tolist() != [[factor + step] * 64]:
                wrong.append((factor, step, y))

    run_all([threading.Thread(target=work, args=(model.clone(), 100 * n)) for n in (1, 2, 3)])
    assert not wrong
    assert model.run({"x": np.ones((1, 64), "f4")})[0].tolist() == [[1] * 64]


def test_two_runs_overlap(device):
    """Runs on clones do not wait for each other: here both must be under way to end."""
    graph = fg.Graph("long")
    # The fake driver is slow enough with little.
    n, times = {"cpu": (512, 40), "cuda": (2048, 40) if FAKE is None else (128, 2)}[device]
    x = graph.input("x", (n, n))
    y = x
    for _ in range(times):
        y = y @ x
    graph.output(y, "y")
    one = compiled(graph, release_gil=True)
    other = one.clone()
    data = {"x": np.zeros((n, n), "f4")}
    spans = []

    def work(model):
        start = time.monotonic()
        model.run(data)
        spans.append((start, time.monotonic()))

    # A busy machine may start the second thread when the first is done; hardly ten times.
    for _ in range(10):
        spans.clear()
        run_all([threading.Thread(target=work, args=(model,)) for model in (one, other)])
        (a, b), (c, d) = spans
        if max(a, c) < min(b, d):
            break
    assert max(a, c) < min(b, d)


def test_a_waiting_thread_gets_its_turn(device):
    """Threads that run in a loop do not keep the model for ever."""
    graph = fg.Graph("product")
    n = 384 if device == "cpu" else 32
    x = graph.input("x", (n, n))
    graph.output(x @ x, "y")
    model = compiled(graph, release_gil=True)
    stop = threading.Event()
    x = {"x": np.zeros((n, n), "f4")}

    def loop():
        while not stop.is_set():
            model.run(x)

    threads = [threading.Thread(target=loop) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        start = time.monotonic()
        for _ in range(15):
            model.set_params({})
            model.run(x)
        assert time.monotonic() - start < 2
    finally:
        stop.set()
        for thread in threads:
            thread.join()


LONG = """
    import os, signal, threading, time
    import numpy as np
    import fastgraph as fg
    from fastgraph import ops
    def matmuls():
        g = fg.Graph("matmuls")
        x = g.input("x", (2048, 2048))
        y = x
        for _ in range(400):
            y = y @ x
        g.output(y, "y")
        return g, {"x": np.zeros((2048, 2048), "f4")}
    def elements():
        g = fg.Graph("elements")
        x = g.input("x", (1 << 24,))
        y = x
        for _ in range(400):
            y = ops.tanh(y) + ops.erf(y)
        g.output(y, "y")
        return g, {"x": np.zeros(1 << 24, "f4")}
    def softmaxes():
        g = fg.Graph("softmaxes")
        x = g.input("x", (4096, 1024))
        y = x
        for _ in range(1500):
            y = ops.softmax(y, 0)
        g.output(y, "y")
        return g, {"x": np.zeros((4096, 1024), "f4")}
"""


@pytest.mark.host
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("work", ["matmuls", "elements", "softmaxes"])
def test_an_interrupt_ends_a_long_run(work, threads):
    code = (
        LONG
        + f"""
    graph, data = {work}()
    model = fg.Session("cpu", threads={threads}).compile(graph)
    slots = list(data.values())
    for call in (lambda: model.run(data), lambda: model.run_slots(slots), model.bind(data)):
        sent = []
        def send():
            time.sleep(0.1)
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        thread = threading.Thread(target=send)
        thread.start()
        try:
            call()
            print("not interrupted")
        except KeyboardInterrupt:
            late = time.monotonic() - sent[0]
            assert late < 0.5, late
        thread.join()
        assert model.executable.bound(0) is not None
    g = fg.Graph("after")
    g.output(g.input("x", (3,)) + 1, "y")
    after = fg.Session("cpu", threads={threads}).compile(g)
    assert after.run({{"x": np.zeros(3, "f4")}})[0].tolist() == [1, 1, 1]
    print("done")
    """
    )
    assert passes(code) == "done\n"


@pytest.mark.host
def test_a_model_is_whole_after_an_interrupt():
    code = (
        LONG
        + """
    g = fg.Graph("chain")
    x, w = g.input("x", (256, 512)), g.param("w", (512, 512))
    y = x
    for _ in range(60):
        y = ops.softmax(y @ w)
    g.output(y, "y")
    model = fg.Session("cpu", threads=2).compile(g)
    model.set_param("w", np.random.default_rng(0).normal(size=(512, 512)).astype("f4"))
    x = {"x": np.ones((256, 512), "f4")}
    (wanted,) = model.run(x)
    out = np.zeros((256, 512), "f4")
    step = model.bind(x, {"y": out})
    out_ = [np.zeros((256, 512), "f4")]
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    interrupted = 0
    for i in range(9):
        signal.setitimer(signal.ITIMER_REAL, 0.01 + 0.003 * i)
        try:
            [step, lambda: model.run(x, out=out_), lambda: model.run_raw(x)][i % 3]()
        except KeyboardInterrupt:
            interrupted += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        if i % 3 == 1:
            # Whole or untouched: on a fast machine the run may be over before the signal.
            np.testing.assert_array_equal(out_[0], wanted if out_[0].any() else 0)
            out_[0][:] = 0
        np.testing.assert_array_equal(model.run(x)[0], wanted)
    assert interrupted > 2, interrupted
    step()
    np.testing.assert_array_equal(out, wanted)
    print("done")
    """
    )
    assert passes(code) == "done\n"


@pytest.mark.host
def test_parameters_are_whole_after_interrupts():
    """Wherever the signal comes, a call of set_params is done or undone, and the lock free."""
    code = (
        LONG
        + """
    g = fg.Graph("whole")
    x = g.input("x", (1, 64))
    a, b, c = g.param("a", (64, 64)), g.param("b", (64,)), g.param("c", (64,))
    g.output(x @ a + b * c, "y")
    model = fg.Session("cpu", threads=1).compile(g)
    eye, ones = np.eye(64, dtype="f4"), np.ones((1, 64), "f4")
    states = [{"a": eye * k, "b": np.full(64, 100 * k, "f4"), "c": np.full(64, k, "f4")}
              for k in map(np.float32, range(1, 8))]
    model.set_params(states[0])
    class Stop(Exception):
        pass
    armed = False
    def handler(*_):
        if armed:
            raise Stop
    signal.signal(signal.SIGALRM, handler)
    stopped = 0
    random = np.random.default_rng(0)
    # The time is only so that nothing goes on for ever.
    until = time.monotonic() + 60
    i = 0
    while (i < 500 or stopped <= 20) and time.monotonic() < until:
        i += 1
        before = model.run({"x": ones})[0][0, 0]
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 1.5e-4))
            try:
                model.set_params(states[i % 7])
            finally:
                armed = False
        except Stop:
            stopped += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        y = model.run({"x": ones})[0]
        k = 1 + i % 7
        now = k + 100 * k * k
        assert y.min() == y.max() and y[0, 0] in (before, now), (before, now, y)
        assert not model._params.unset
    assert stopped > 20, stopped
    print("done")
    """
    )
    assert passes(code) == "done\n"


@pytest.mark.host
def test_an_interrupt_undoes_a_long_setting_of_parameters():
    code = (
        LONG
        + """
    n = 1536
    g = fg.Graph("powers")
    x, w = g.input("x", (1, n)), g.param("w", (n, n))
    power = w
    for _ in range(100):
        power = ops.softmax(power @ w)
    g.output(x @ power, "y")
    model = fg.Session("cpu", threads=2).compile(g)
    assert len(model.graph.nodes) == 1
    x = {"x": np.ones((1, n), "f4")}
    def send():
        time.sleep(0.1)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    for _ in range(2):
        sent = []
        thread = threading.Thread(target=send)
        thread.start()
        try:
            model.set_param("w", np.zeros((n, n), "f4"))
            print("not interrupted")
        except KeyboardInterrupt:
            late = time.monotonic() - sent[0]
            assert late < 0.5, late
        thread.join()
        try:
            model.run(x)
            print("not refused")
        except fg.InputError as error:
            assert "['w'] have no value yet" in str(error)
    print("done")
    """
    )
    assert passes(code) == "done\n"


@pytest.mark.host
def test_a_signal_handler_may_not_enter_the_running_model():
    code = (
        LONG
        + """
    graph, data = matmuls()
    model = fg.Session("cpu", threads=2).compile(graph)
    seen = []
    class Enough(Exception):
        pass
    def handler(*_):
        run, run_raw = (lambda: model.run(data)), (lambda: model.run_raw(data))
        for call in (run, run_raw, lambda: model.set_params({})):
            try:
                call()
            except fg.GraphError as error:
                seen.append(str(error))
        other = model.clone()
        raise Enough
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        model.run(data)
    except Enough:
        pass
    assert len(seen) == 3 and all("running in this very thread" in s for s in seen), seen
    print("done")
    """
    )
    assert passes(code) == "done\n"


FORK = (
    LONG
    + """
    def check_child(work):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                work()
                code = 0
            except BaseException as error:
                os.write(2, repr(error).encode())
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
"""
)


@pytest.mark.host
@pytest.mark.parametrize("threads", [1, 2])
def test_a_child_uses_what_its_parent_was_running(threads):
    """Also where a step with outputs of its own was under way: they are the parent's alone."""
    code = (
        FORK
        + f"""
    g = fg.Graph("chain")
    x, w = g.input("x", (128, 512)), g.param("w", (512, 512))
    y = x
    for _ in range(60):
        y = ops.softmax(y @ w)
    g.output(y, "y")
    model = fg.Session("cpu", threads={threads}).compile(g)
    model.set_param("w", np.random.default_rng(0).normal(size=(512, 512)).astype("f4"))
    x = {{"x": np.ones((128, 512), "f4")}}
    (wanted,) = model.run(x)
    other = {{"x": np.zeros((128, 512), "f4")}}
    (zeros,) = model.run(other)
    out = np.zeros((128, 512), "f4")
    step = model.bind(other, {{"y": out}})
    stop = []
    def loop():
        while not stop:
            step()
    thread = threading.Thread(target=loop)
    thread.start()
    def work():
        np.testing.assert_array_equal(model.run(x)[0], wanted)
        model.set_param("w", np.zeros((512, 512), "f4"))
        np.testing.assert_allclose(model.run(x)[0], 1 / 512, rtol=1e-4)
        model.clone().run(x)
    for i in range(3):
        time.sleep(0.01 + 0.003 * i)
        check_child(work)
    stop.append(1)
    thread.join()
    np.testing.assert_array_equal(out, zeros)
    np.testing.assert_array_equal(model.run(x)[0], wanted)
    print("done")
    """
    )
    assert passes(code) == "done\n"


@pytest.mark.host
def test_the_process_ends_quietly_amid_runs():
    code = (
        LONG
        + """
    graph, data = matmuls()
    model = fg.Session("cpu", threads=2).compile(graph)
    def loop():
        while True:
            model.run(data)
    for _ in range(2):
        threading.Thread(target=loop, daemon=True).start()
    time.sleep(0.2)
    print("done", flush=True)
    """
    )
    assert passes(code) == "done\n"


def test_models_and_steps_in_cycles_are_collected():
    """Through attributes of a subclass of arrays that are bound, and closures."""

    class Holder(np.ndarray):
        pass

    gc.collect()
    before = counters.snapshot()
    for _ in range(3):
        model, inputs, _ = ready("layer")
        array = inputs["x"].view(Holder)
        step = model.bind({"x": array})
        array.step = step
        array.model = model
        step()
        del model, step, array, inputs
    gc.collect()
    assert counters.snapshot() == before


def test_scalars_are_checked_before_inputs_are_held():
    """A scalar that runs Python code may change the caller's list: the run reads what is there."""
    graph = fg.Graph("held")
    x, s = graph.input("x", (1 << 12,)), graph.scalar("s", "float32")
    graph.output(fg.ops.max(x) * s, "y")
    model = compiled(graph, release_gil=False)
    arrays = [np.ones(1 << 12, "f4")]

    class Swap(float):
        @property
        def __class__(self):
            arrays[0] = np.full(1 << 12, 3.0, "f4")
            return float

    model.run_slots(arrays, s=Swap(2.0))
    assert model.output_view(0) == 6.0


@pytest.mark.host
def test_fork_in_a_handler_amid_a_pooled_run():
    """The child has none of the workers whose parts it waits for: it goes on or says so."""
    passes(
        """
        import os, random, signal, time
        import numpy as np, fastgraph as fg

        g = fg.Graph()
        y = x = g.input("x", (700, 700))
        for _ in range(6):
            y = y @ x * 0.01
        g.output(y)
        model = fg.Session("cpu", threads=2).compile(g)
        data = {"x": np.random.default_rng(0).random((700, 700), "f4") * 0.01}
        wanted = model.run(data)[0].tobytes()
        child = None

        def handler(*_):
            global child
            child = os.fork()

        signal.signal(signal.SIGALRM, handler)
        for _ in range(6):
            child = None
            signal.setitimer(signal.ITIMER_REAL, 0.01 + random.random() * 0.04)
            while child is None:
                try:
                    same = model.run(data)[0].tobytes() == wanted
                except fg.GraphError:
                    assert child == 0
                    same = model.run(data)[0].tobytes() == wanted
            if child == 0:
                os._exit(0 if same else 3)
            assert same
            until = time.monotonic() + 20
            while (done := os.waitpid(child, os.WNOHANG))[0] == 0:
                assert time.monotonic() < until, "the child hangs"
                time.sleep(0.01)
            assert done[1] == 0, done
        """
    )
