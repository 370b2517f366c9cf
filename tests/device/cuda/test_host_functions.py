"""Python functions as nodes: their order, their exceptions, and the GIL."""

from __future__ import annotations

import contextlib
import gc
import threading
import time

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import counters
from tests.device.kernels import N, fill, inc

pytestmark = [pytest.mark.cuda, pytest.mark.timeout(60)]


def calling(ctx, *functions):
    """A graph that calls functions one after another."""

    def build(b):
        with b.region():
            for f in functions:
                b.add_host_function(f)

    return fg.DeviceGraph.create(ctx, build)


def test_they_run_in_order_between_other_nodes(ctx, kernels):
    x, back = ctx.create_buffer(N), ctx.create_host_buffer(N)
    view, seen = np.asarray(back), []

    def build(b):
        with b.region():
            fill(b, kernels, x, 1.0)
            b.add_copy(back, x)
            b.add_host_function(lambda: seen.append(float(view[0])))
            inc(b, kernels, x, 1.0)
            b.add_copy(back, x)
            b.add_host_function(lambda: seen.append(float(view[N - 1])))

    graph = fg.DeviceGraph.create(ctx, build)
    assert seen == []
    for _ in range(3):
        graph.replay()
    ctx.synchronize()
    assert seen == [1, 2] * 3


def test_they_run_in_a_thread_of_the_drivers(ctx):
    seen = []
    graph = calling(ctx, lambda: seen.append(threading.get_ident()))
    graph.run()
    assert seen
    assert seen[0] != threading.get_ident()


@pytest.mark.parametrize("call", ["synchronize", "numpy", "replay", "run", "event", "stream"])
def test_exceptions_come_out_of_the_next_wait(ctx, kernels, call):
    x = ctx.create_buffer(N)
    wrong = [True]

    def f():
        if wrong[0]:
            raise KeyError("mine")

    def build(b):
        first = b.add_host_function(f, name="careful")
        fill(b, kernels, x, 5.0, dependencies=[first])

    graph = fg.DeviceGraph.create(ctx, build)
    graph.replay()
    while not graph._state.executable.idle:
        time.sleep(0.001)
    waits = {
        "synchronize": ctx.synchronize,
        "numpy": x.numpy,
        "replay": graph.replay,
        "run": graph.run,
        "event": lambda: ctx.execution_time(lambda: None),
        "stream": ctx.stream.synchronize,
    }
    if call in ("synchronize", "replay", "run"):
        with pytest.raises(KeyError, match="mine") as caught:
            waits[call]()
        assert any("careful" in note for note in caught.value.__notes__)
    else:
        # A wait for a device, a stream or an event tells of it, or leaves it to the graph.
        try:
            waits[call]()
        except KeyError:
            pass
        else:
            with pytest.raises(KeyError, match="mine"):
                graph.replay()
    wrong[0] = False
    assert (x.numpy() == 5).all()  # the nodes behind it ran all the same
    graph.run()
    ctx.synchronize()


def test_an_exception_is_told_once(ctx):
    def f():
        raise KeyError("mine")

    graph = calling(ctx, f, f)
    graph.replay()
    with pytest.raises(KeyError):
        ctx.synchronize()
    ctx.synchronize()
    with pytest.raises(KeyError):
        graph.run()
    ctx.synchronize()


def test_an_exception_nobody_asks_for(ctx):
    before = counters.snapshot()

    def f():
        raise KeyError("mine")

    graph = calling(ctx, f)
    graph.replay()
    graph.close()
    del graph
    gc.collect()
    with contextlib.suppress(KeyError):
        ctx.synchronize()
    ctx.synchronize()
    assert counters.snapshot() == before


def test_calling_us_inside_is_told_plainly(ctx, kernels):
    x = ctx.create_buffer(N)
    other = fg.DeviceGraph.create(ctx, lambda b: fill(b, kernels, x, 1.0, name="fill"))
    calls = [
        other.replay,
        other.run,
        other.clone,
        ctx.synchronize,
        x.numpy,
        lambda: x.copy_from(np.zeros(N, "f4")),
        lambda: ctx.create_buffer(4),
        lambda: ctx.create_host_buffer(4),
        lambda: ctx.memset(x, 1.0),
        lambda: ctx.copy(x, x),
        lambda: ctx.launch(kernels.fill, x, 1.0, N),
        lambda: ctx.memory_info,
        ctx.create_stream,
        ctx.create_event,
        lambda: other.update("fill", grid_dim=1),
        lambda: fg.DeviceGraph.create(ctx, lambda b: b.add_memset(x, 1.0)),
        lambda: ctx.wait_for(fg.DeviceContext("cuda")),
    ]
    answers = []

    def f():
        for number, call in enumerate(calls):
            try:
                call()
            except (fg.GraphError, fg.DriverError) as error:
                answers.append((number, str(error)))
            else:
                answers.append((number, None))

    graph = calling(ctx, f)
    graph.run()
    taken = [number for number, words in answers if words is None]
    assert len(answers) == len(calls)
    assert taken == []
    for number, words in answers:
        assert "host function" in words, (number, words)
    # Nothing is broken by it.
    other.replay()
    assert (x.numpy() == 1).all()


def test_its_own_graph_inside(ctx):
    errors = []
    held = []

    def f():
        for call in (held[0].replay, held[0].run, held[0].close, held[0].clone):
            try:
                call()
            except (fg.GraphError, fg.DriverError) as error:
                errors.append(error)

    graph = calling(ctx, f)
    held.append(graph.__copy__())
    graph.run()
    assert len(errors) >= 3
    graph.run()
    held.clear()


def test_many_replays_do_not_deadlock(ctx, kernels):
    """The queue fills while functions want the GIL that the enqueuing thread has."""
    x = ctx.create_buffer(N)
    count = [0]

    def f():
        count[0] += 1
        time.sleep(0.0002)

    def build(b):
        first = b.add_host_function(f)
        inc(b, kernels, x, 1.0, dependencies=[first])

    graph = fg.DeviceGraph.create(ctx, build)
    plain = fg.DeviceGraph.create(ctx, lambda b: inc(b, kernels, x, 1.0))
    for _ in range(1500):
        graph.replay()
        plain.replay()
    ctx.synchronize()
    assert count[0] == 1500
    assert (x.numpy() == 3000).all()


@pytest.mark.fake
def test_an_enqueue_that_blocks_lets_the_functions_go_on(ctx, kernels, fake):
    """Held: the driver does nothing, so that all of this is only put there."""
    count = [0]

    def f():
        count[0] += 1

    graph = calling(ctx, f)
    with fake.held():
        for _ in range(100):
            graph.replay()
        assert count[0] == 0
    ctx.synchronize()
    assert count[0] == 100


def test_frees_while_functions_are_pending(ctx, kernels):
    """Letting memory and streams go waits for work that waits for the GIL."""
    graph = calling(ctx, lambda: time.sleep(0.005))
    for _ in range(10):
        graph.replay()
        x = ctx.create_buffer(1 << 16)
        ctx.memset(x, 1.0)
        stream = ctx.create_stream()
        graph.replay(stream=stream)
        del x, stream
        gc.collect()
    graph.close()
    ctx.synchronize()


def test_the_last_reference_may_go_inside(ctx, kernels):
    before = counters.snapshot()
    held = [ctx.create_buffer(N), fg.DeviceGraph.create(ctx, lambda b: b.add_empty())]
    held[1].replay()
    graph = calling(ctx, held.clear)
    graph.run()
    assert held == []
    graph.close()
    del graph
    ctx.create_buffer(1)  # what could not be freed there is now
    fg.DeviceGraph.create(ctx, lambda b: None)
    gc.collect()
    ctx.synchronize()
    assert counters.snapshot() == before


def test_updates_and_clones(ctx, kernels):
    seen = []
    graph = calling(ctx, lambda: seen.append(1))
    twin = graph.clone()
    graph.run()
    twin.run()
    assert seen == [1, 1]
    with pytest.raises(fg.GraphError, match="nothing that can be changed"):
        graph.update(0, enabled=False)
    flag = ctx.to_device(np.ones(1, "u4"))
    with pytest.raises(fg.UnsupportedError):
        fg.DeviceGraph.create(
            ctx, lambda b: b.add_if(flag, lambda inner: inner.add_host_function(seen.clear))
        )
    for bad in (None, 7, "f"):
        with pytest.raises(fg.GraphError, match="callable"):
            fg.DeviceGraph.create(ctx, lambda b, bad=bad: b.add_host_function(bad))


def test_threads_replay_with_functions(ctx):
    lock, count = threading.Lock(), [0]

    def f():
        with lock:
            count[0] += 1

    graph = calling(ctx, f)

    def work():
        for _ in range(25):
            graph.run()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count[0] == 200
