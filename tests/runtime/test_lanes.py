"""Runs that are handed in: several in flight, in order, each with its own data and error."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import threading
import time
import weakref

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops
from fastgraph._core import counters
from tests.conftest import FAKE
from tests.runtime import models
from tests.runtime.models import SUITE, compiled, data_for, ready
from tests.runtime.test_threads import passes, run_all

f4 = np.float32
# Estimated over 20 microseconds, so that lanes run beside the caller; on the fake driver that holds
# for all.
WIDTH = {"cpu": 96, "cuda": 8}


@pytest.fixture(params=["short", "long"])
def width(request, device):
    """A size for which runs are done in the call on the cpu, or beside it."""
    if request.param == "short" and device == "cuda":
        pytest.skip("all are beside the caller")
    return 4 if request.param == "short" else WIDTH[device]


def layers(width, release_gil="auto", threads=1):
    """Three products with one weight, a norm and a scale."""
    graph = fg.Graph("layers")
    x, w = graph.input("x", (width, width)), graph.param("w", (width, width))
    by = graph.scalar("by", "float32", 1.0)
    y = ops.tanh(ops.tanh(x @ w) @ w) @ w
    graph.output(y * by, "y")
    graph.output(ops.sum(x, axis=1), "sums")
    model = compiled(graph, threads=threads, release_gil=release_gil)
    model.set_param("w", np.eye(width, dtype="f4"))
    return model


def sets_of(width, count, seed=0):
    random = np.random.default_rng(seed)
    return [{"x": random.normal(size=(width, width)).astype(f4)} for _ in range(count)]


def bits(outputs):
    return [[y.tobytes() for y in one] for one in outputs]


def gathers(width):
    """Bad indices are seen by the run alone; a product makes it long enough for lanes."""
    graph = fg.Graph("gathers")
    x, index = graph.input("x", (width, width)), graph.input("index", (2,), "int64")
    graph.output(ops.take(ops.tanh(x @ x) @ x @ x, index, axis=0), "y")
    return compiled(graph)


def rows(width, *index):
    return {"x": np.eye(width, dtype="f4"), "index": np.int64(index)}


# ---- run_pipelined


@pytest.mark.parametrize("threads", [1, 2])
def test_run_pipelined_is_many_runs(width, threads):
    model = layers(width, threads=threads)
    sets = sets_of(width, 64)
    expected = [model.run(one) for one in sets]
    found = model.run_pipelined(sets)
    assert bits(found) == bits(expected)
    assert model.output_view(0).tobytes() == expected[-1][0].tobytes()
    for outputs in found:
        for y in outputs:
            y[...] = 0  # the caller's own
    assert bits(model.run_pipelined(iter(sets))) == bits(expected)
    assert model.run_pipelined([]) == []


@pytest.mark.parametrize("name", SUITE)
def test_every_model_of_the_suite(name):
    model, inputs, scalars = ready(name)
    others = data_for(model.inputs, 2)
    sets = [{**one, **scalars} for one in (inputs, others) * 3]
    expected = bits([model.run(inputs, **scalars), model.run(others, **scalars)] * 3)
    assert bits(model.run_pipelined(sets)) == expected
    assert bits(model.pipeline(sets)) == expected
    futures = [model.submit(one, **scalars) for one in (inputs, others) * 3]
    assert bits(future.result() for future in futures) == expected
    for one in (inputs, others):
        model.commit_no_wait(one, **scalars)
    model.sync_pending()
    assert [model.output_view(i).tobytes() for i in range(len(model.outputs))] == expected[1]


def test_scalars_of_a_set(width):
    model = layers(width)
    (one,) = sets_of(width, 1)
    expected = [model.run(one, by=by)[0].tobytes() for by in (1.0, 2.0, 3.0)]
    sets = [{**one, "by": by} for by in (1.0, 2.0, 3.0)]
    assert [y.tobytes() for y, _ in model.run_pipelined(sets)] == expected
    assert [y.tobytes() for y, _ in model.pipeline(sets)] == expected
    assert model.run_pipelined([one])[0][0].tobytes() == expected[0]
    assert model.submit(one, by=3.0).result()[0].tobytes() == expected[2]


BAD_SETS = {
    "missing": ({}, "'x' .* was not given"),
    "unknown": ({"x": 0, "z": 0}, "'z'"),
    "shape": ({"x": np.zeros((1, 1), "f4")}, "shape"),
    "scalar": ({"x": 0, "by": "two"}, "scalar 'by'"),
    "no mapping": (np.zeros((4, 4), "f4"), "a mapping of names"),
}


@pytest.mark.parametrize("name", BAD_SETS)
def test_every_set_is_checked_before_the_first_is_run(width, name):
    model = layers(width)
    good = sets_of(width, 5)
    (before,) = model.run_raw(good[0])[:1]
    kept = before.array().copy()
    bad, match = BAD_SETS[name]
    if isinstance(bad, dict) and isinstance(bad.get("x"), int):
        bad = {**bad, "x": good[0]["x"]}
    with pytest.raises(fg.InputError, match=rf"^set 3: .*{match}"):
        model.run_pipelined([*good[1:4], bad, good[4]])
    np.testing.assert_array_equal(before.array(), kept)
    for wrong in (good[0], 3, None):
        with pytest.raises(fg.InputError, match="takes mappings"):
            model.run_pipelined(wrong)
    assert len(model.run_pipelined(good)) == 5


def test_bad_data_names_the_set(width):
    model = gathers(width)
    good = [rows(width, 0, i % width) for i in range(9)]
    expected = bits([model.run(one) for one in good])
    for number in (0, 4, 8):
        sets = [*good[:number], rows(width, 0, width + 5), *good[number + 1 :]]
        with pytest.raises(fg.InputError, match=rf"^set {number}: node .* index out of range"):
            model.run_pipelined(sets)
        assert bits(model.run_pipelined(good)) == expected


# ---- commit_no_wait, sync_pending


def test_commits_leave_the_last_result(width):
    """SCENARIOS B 18; the caller's array is its own again at once."""
    model = layers(width)
    offsets = model.run_slots([np.zeros((width, width), "f4")])
    given = np.empty((width, width), "f4")
    sets = sets_of(width, 100)
    for one in sets:
        given[...] = one["x"]
        model.commit_no_wait({"x": given})
        given[...] = np.nan
    assert model.sync_pending() is offsets
    expected = fg.CompiledGraph.clone(model).run(sets[-1])
    for i, y in enumerate(expected):
        assert model.output_view(i).tobytes() == y.tobytes()
    assert model.sync_pending() is offsets
    model.commit_no_wait(sets[0])
    (first, _) = model.run(sets[1])
    assert model.output_view(0).tobytes() == first.tobytes()
    model.sync_pending()
    assert model.output_view(0).tobytes() == first.tobytes()


def test_sync_without_commits():
    model = layers(4)
    (y, _) = model.run(sets_of(4, 1)[0])
    model.sync_pending()
    assert model.output_view(0).tobytes() == y.tobytes()


def test_raw_outputs_are_stale_after_a_commit(width):
    model = layers(width)
    one, other = sets_of(width, 2)
    raw, _ = model.run_raw(one)
    model.commit_no_wait(other)
    with pytest.raises(fg.StaleOutputError):
        raw.array()
    model.sync_pending()


NEXT_CALLS = {
    "commit_no_wait": lambda model, one: model.commit_no_wait(one),
    "sync_pending": lambda model, one: model.sync_pending(),
    "run": lambda model, one: model.run(one),
    "run_slots": lambda model, one: model.run_slots(list(one.values())),
    "run_raw": lambda model, one: model.run_raw(one),
    "bind": lambda model, one: model.bind(one)(),
    "run_pipelined": lambda model, one: model.run_pipelined([one]),
    "pipeline": lambda model, one: list(model.pipeline([one])),
    "submit": lambda model, one: model.submit(one).result(),
    "run_async": lambda model, one: asyncio.run(model.run_async(one)),
    "profile": lambda model, one: model.profile(one, 1),
    "set_params": lambda model, one: model.set_params({}),
}


@pytest.mark.parametrize("name", NEXT_CALLS)
def test_the_next_call_tells_of_a_commit_that_failed(device, name):
    model = gathers(WIDTH[device])
    good = rows(WIDTH[device], 1, 0)
    (expected,) = model.run(good)
    model.commit_no_wait(good)
    model.sync_pending()
    model.commit_no_wait(rows(WIDTH[device], 0, 7 + WIDTH[device]))
    await_runs(model)
    with pytest.raises(fg.InputError, match="index out of range") as caught:
        NEXT_CALLS[name](model, good)
    assert "handed in before" in caught.value.__notes__[0]
    NEXT_CALLS[name](model, good)
    assert model.run(good)[0].tobytes() == expected.tobytes()


def await_runs(model):
    """Wait until what is in lanes is over, without a call on the model."""
    lanes = model._lanes
    for lane in range(lanes.depth):
        if (ticket := lanes.ticket(lane)) is not None:
            lanes.wait(ticket)


def test_several_commits_that_fail(device):
    width = WIDTH[device]
    model = gathers(width)
    told = 0
    for call in [lambda: model.commit_no_wait(rows(width, 0, width))] * 2 + [model.sync_pending]:
        try:
            call()
        except fg.InputError as error:
            assert "index out of range" in str(error)
            told += 1
    assert told >= 1
    model.sync_pending()
    model.commit_no_wait(rows(width, 0, 1))
    model.sync_pending()


def test_bad_inputs_hand_in_nothing(width):
    model = layers(width)
    (one,) = sets_of(width, 1)
    expected = model.run(one)[0].tobytes()
    for call in (model.commit_no_wait, model.submit, lambda x: asyncio.run(model.run_async(x))):
        with pytest.raises(fg.InputError, match="shape"):
            call({"x": np.zeros((1, 1), "f4")})
        with pytest.raises(fg.InputError, match="takes a mapping"):
            call([one["x"]])
        model.sync_pending()
        assert model.output_view(0).tobytes() == expected
    for call in (model.commit_no_wait, model.submit):
        with pytest.raises(fg.InputError, match="no scalar 'z'"):
            call(one, z=1)


def test_runs_wait_for_all_parameters(device):
    model = compiled(models.identities(2, 8))
    x = {"x": np.ones((1, 8), "f4")}
    for call in (
        lambda: model.commit_no_wait(x), lambda: model.submit(x), lambda: model.run_pipelined([x]),
        lambda: list(model.pipeline([x])), lambda: asyncio.run(model.run_async(x)),
    ):  # fmt: skip
        with pytest.raises(fg.InputError, match=r"\['w0', 'w1'\] have no value yet"):
            call()
    model.sync_pending()
    model.set_params({f"w{i}": np.eye(8, dtype="f4") for i in range(2)})
    assert model.submit(x).result()[0].tolist() == [[1] * 8]


def test_parameters_between_commits(width):
    """Each run sees the weights that were set before it, in every lane; a clone only its own."""
    model = layers(width)
    eye = np.eye(width, dtype="f4")
    x = {"x": eye}
    other = model.clone()
    tickets = []
    for step in range(12):
        model.set_param("w", eye * f4(step))
        tickets.append(model.submit(x))
        if step == 5:
            model.commit_no_wait(x)
    expected = []
    for step in range(12):
        other.set_param("w", eye * f4(step))
        expected.append(other.run(x))
    assert bits(future.result() for future in tickets) == bits(expected)
    other.set_param("w", eye)
    model.set_param("w", eye * 2)
    for _ in range(4):  # every lane
        assert model.submit(x).result()[0].tobytes() != other.submit(x).result()[0].tobytes()


# ---- pipeline


def test_pipeline_takes_sets_as_it_needs_them(device):
    model = layers(WIDTH[device])
    sets = sets_of(WIDTH[device], 8)
    taken = []

    def given():
        for number in itertools.count():
            taken.append(number)
            yield sets[number % 8]

    outputs = model.pipeline(given(), depth=3)
    assert taken == []
    found = [next(outputs) for _ in range(10)]
    assert len(taken) == 13
    assert bits(found) == bits([model.run(sets[i % 8]) for i in range(10)])
    # Runs of others go between, and what was handed in comes out all the same.
    assert bits([next(outputs)]) == bits([model.run(sets[10 % 8])])
    outputs.close()
    assert bits(model.run_pipelined(sets[:2])) == bits([model.run(one) for one in sets[:2]])


def test_two_pipelines_at_once(width):
    model = layers(width)
    one, other = sets_of(width, 12), sets_of(width, 12, seed=1)
    expected = bits([model.run(each) for pair in zip(one, other, strict=True) for each in pair])
    found = [
        each
        for pair in zip(model.pipeline(one), model.pipeline(other, depth=2), strict=True)
        for each in pair
    ]
    assert bits(found) == expected


def test_errors_of_a_pipeline_come_in_turn(device):
    width = WIDTH[device]
    model = gathers(width)
    good = rows(width, 1, 0)
    expected = model.run(good)[0].tobytes()

    def failing():
        yield good
        yield good
        raise KeyError("no more")

    for sets, error, match in (
        ([good, good, rows(width, 0, width)], fg.InputError, "^set 2: node"),
        ([good, good, {"x": good["x"]}, good], fg.InputError, "^set 2: .*'index'"),
        ([good, good, 3], fg.InputError, "^set 2: a set is a mapping"),
        (failing(), KeyError, "no more"),
    ):
        outputs = model.pipeline(sets)
        assert [next(outputs)[0].tobytes() for _ in range(2)] == [expected] * 2
        with pytest.raises(error, match=match):
            next(outputs)
        assert list(outputs) == []
    assert [y.tobytes() for (y,) in model.pipeline([good] * 3)] == [expected] * 3


def test_arguments_of_pipeline():
    model = layers(4)
    for depth in (0, -1, 65, 2**70, 2.0, "2", True):
        with pytest.raises(fg.InputError, match="depth"):
            model.pipeline([], depth=depth)
    for wrong in ({}, 3):
        with pytest.raises(fg.InputError, match="an iterable of mappings"):
            model.pipeline(wrong)
    assert list(model.pipeline([], depth=1)) == []


def test_a_pipeline_that_nobody_finishes(device):
    model = layers(WIDTH[device])
    sets = sets_of(WIDTH[device], 8)
    outputs = model.pipeline(sets)
    next(outputs)
    del outputs
    gc.collect()
    model.close()
    again = layers(WIDTH[device]).pipeline(sets)
    next(again)
    del again  # the last reference to its model


# ---- futures


def test_futures(width):
    model = layers(width)
    sets = sets_of(width, 20)
    order = []
    futures = []
    given = np.empty((width, width), "f4")
    for number, one in enumerate(sets):
        given[...] = one["x"]
        future = model.submit({"x": given})
        given[...] = np.nan
        future.add_done_callback(lambda _, number=number: order.append(number))
        assert not future.cancel()
        futures.append(future)
    found = [future.result(60) for future in futures]
    assert bits(found) == bits([model.run(one) for one in sets])
    deadline = time.monotonic() + 10
    while len(order) < 20 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert order == list(range(20))


def test_bad_data_is_the_future_s_own(device):
    width = WIDTH[device]
    model = gathers(width)
    futures = [model.submit(rows(width, 0, i)) for i in (0, width, 1, width + 1, 2)]
    for i, future in enumerate(futures):
        if i % 2:
            with pytest.raises(fg.InputError, match="index out of range"):
                future.result(60)
        else:
            assert future.result(60)[0].shape == (2, width)
    model.run(rows(width, 0, 1))


def test_callbacks_that_raise_or_call_the_model(width, caplog):
    """What one raises is logged as everywhere; the next futures are done."""
    model = layers(width)
    one, other = sets_of(width, 2)
    expected = bits([model.run(other)])
    found = []

    def failing(_):
        raise KeyError("in a callback")

    def running(_):
        found.append(model.run(other))
        found.append(model.submit(other))

    with caplog.at_level(logging.CRITICAL + 1):
        futures = [model.submit(one) for _ in range(3)]
        futures[0].add_done_callback(failing)
        futures[1].add_done_callback(running)
        last = model.submit(one)
        assert last.result(60)[0].shape == (width, width)
    assert bits(found[:1]) == expected
    assert bits([found[1].result(60)]) == expected


def test_run_async(width):
    model = layers(width)
    sets = sets_of(width, 12)
    expected = bits([model.run(one) for one in sets])

    async def serve():
        ticks = 0

        async def beside():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(beside())
        found = await asyncio.gather(*[model.run_async(one) for one in sets])
        task.cancel()
        return found, ticks

    found, ticks = asyncio.run(serve())
    assert bits(found) == expected
    assert ticks


def test_cancelled_tasks(device):
    width = WIDTH[device]
    model = gathers(width)
    good = rows(width, 1, 0)
    expected = bits([model.run(good)])

    async def serve():
        tasks = [asyncio.create_task(model.run_async(good)) for _ in range(6)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        with pytest.raises(fg.InputError, match="index out of range"):
            await model.run_async(rows(width, 0, width))
        return found

    found = asyncio.run(serve())
    assert all(isinstance(one, asyncio.CancelledError) for one in found[::2])
    assert bits(found[1::2]) == expected * 3
    assert bits([model.run(good)]) == expected


# ---- memory


def test_lanes_are_made_when_they_are_needed_and_freed_at_close(device):
    model = layers(WIDTH[device])
    (one,) = sets_of(WIDTH[device], 1)
    model.run(one)
    names = ("block_bytes", "device_bytes", "pinned_bytes")

    def held():
        now = counters.snapshot()
        return sum(now[name] for name in names)

    alone = held()
    model.sync_pending()
    assert held() == alone
    model.commit_no_wait(one)
    with_lanes = held()
    assert with_lanes >= alone + model.arena_nbytes
    for _ in range(5):
        model.commit_no_wait(one)
    model.sync_pending()
    assert held() == with_lanes
    list(model.pipeline([one], depth=5))
    deep = held()
    assert deep > with_lanes
    list(model.pipeline([one] * 9, depth=2))
    assert held() == deep
    clone = model.clone()
    assert held() < deep + 2 * (with_lanes - alone) + alone
    clone.close()
    model.close()
    assert held() < alone
    for call in (model.commit_no_wait, model.submit):
        with pytest.raises(fg.GraphError, match="closed"):
            call(one)
    with pytest.raises(fg.GraphError, match="closed"):
        model.sync_pending()


def test_short_runs_need_no_lanes():
    """On the cpu nothing is handed over that would be done sooner here."""
    if models.DEVICE != "cpu":
        pytest.skip("about the cpu")
    model = layers(4)
    (one,) = sets_of(4, 1)
    model.run_pipelined([one] * 3)
    assert model._lanes.depth == 1


def test_no_memory_for_a_lane(device, monkeypatch):
    model = layers(WIDTH[device])
    (one,) = sets_of(WIDTH[device], 1)
    expected = bits([model.run(one)])
    code = type(model._compilation.code)
    real = code.runner

    def failing(self, params, title):
        if title.startswith("lane 2 of"):
            raise fg.OutOfMemoryError(f"no room for the arena of {title}")
        return real(self, params, title)

    before = counters.snapshot()
    monkeypatch.setattr(code, "runner", failing)
    with pytest.raises(fg.OutOfMemoryError, match="lane 2 of the compiled model 'layers'"):
        model.pipeline([one], depth=3)
    monkeypatch.undo()
    gc.collect()
    assert counters.snapshot()["block_bytes"] <= before["block_bytes"]
    assert bits(model.pipeline([one] * 4, depth=3)) == expected * 4


def test_the_last_reference_waits(device):
    """A model that goes while its runs are under way; futures keep theirs."""
    model = layers(WIDTH[device])
    sets = sets_of(WIDTH[device], 4)
    expected = bits([model.run(sets[0])])
    for one in sets:
        model.commit_no_wait(one)
    gone = weakref.ref(model)
    del model
    assert gone() is None
    futures = [layers(WIDTH[device]).submit(sets[0]) for _ in range(3)]
    assert bits(future.result(60) for future in futures) == expected * 3


def test_close_waits_for_what_was_handed_in(device):
    model = layers(WIDTH[device])
    sets = sets_of(WIDTH[device], 6)
    expected = bits([model.run(one) for one in sets])
    futures = [model.submit(one) for one in sets]
    outputs = model.pipeline(sets)
    next(outputs)
    model.close()
    assert bits(future.result(60) for future in futures) == expected
    with pytest.raises(fg.GraphError, match="closed"):
        list(outputs)


# ---- threads


def test_many_threads(device):
    """Whoever hands in gets his own; runs, parameters and pipelines go between."""
    width = WIDTH[device]
    model = layers(width, release_gil=True, threads=2)
    sets = sets_of(width, 6)
    expected = bits([model.run(one) for one in sets])
    eye = np.eye(width, dtype="f4")
    wrong = []

    def check(number, found):
        if bits([found]) != [expected[number]]:
            wrong.append(number)

    def submits():
        for _ in range(6):
            futures = [model.submit(one) for one in sets]
            for number, future in enumerate(futures):
                check(number, future.result(60))

    def pipelines():
        for _ in range(4):
            for number, found in enumerate(model.pipeline(sets)):
                check(number, found)
            for number, found in enumerate(model.run_pipelined(sets)):
                check(number, found)

    def runs():
        for turn in range(20):
            check(turn % 6, model.run(sets[turn % 6]))
            model.set_param("w", eye)

    def commits():
        for turn in range(20):
            model.commit_no_wait(sets[turn % 6])
        model.sync_pending()

    run_all([threading.Thread(target=work) for work in (submits, pipelines, runs, commits)])
    assert not wrong


def test_clones_hand_in_at_once(device):
    width = WIDTH[device]
    model = layers(width)
    sets = sets_of(width, 8)
    eye = np.eye(width, dtype="f4")
    wrong = []

    def work(one, factor):
        one.set_param("w", eye * f4(factor))
        expected = bits([one.run(each) for each in sets])
        for _ in range(3):
            if bits(one.run_pipelined(sets)) != expected:
                wrong.append(factor)

    run_all([threading.Thread(target=work, args=(model.clone(), n)) for n in (1, 2, 3)])
    assert not wrong


# ---- ends of processes

START = """
    import gc, os, signal, sys, threading, time
    import numpy as np
    import fastgraph as fg
    g = fg.Graph("products")
    x = y = g.input("x", (N, N))
    for _ in range(REPEAT):
        y = y @ x
    g.output(y, "y")
    model = fg.Session("cpu", threads=THREADS).compile(g)
    one = {"x": np.eye(N, dtype="f4") * np.float32(0.5)}
"""


def program(n, repeat, code, threads=2):
    start = START.replace("N,", f"{n},").replace("N)", f"{n})").replace("REPEAT", str(repeat))
    return passes(start.replace("THREADS", str(threads)) + code)


@pytest.mark.host
def test_exit_with_runs_in_flight():
    code = """
    futures = [model.submit(one) for _ in range(2)]
    model.commit_no_wait(one)
    other = model.clone()
    other.commit_no_wait(one)
    outputs = other.pipeline([one] * 9)
    next(outputs)
    def never_ends(_):
        if threading.current_thread() is not threading.main_thread():
            time.sleep(60)
    futures[1].add_done_callback(never_ends)
    keep = [model]
    keep.append(keep)
    print("end", flush=True)
    """
    assert program(256, 20, code) == "end\n"


@pytest.mark.host
def test_fork_with_runs_in_flight():
    """In the child they are gone, and say so; new ones are run by a thread of its own."""
    code = """
    for _ in range(2):
        model.run_pipelined([one] * 3)
        futures = [model.submit(one) for _ in range(2)]
        model.commit_no_wait(one)
        child = os.fork()
        if not child:
            try:
                cut_off = 0
                for future in futures:
                    try:
                        future.result(20)
                    except fg.GraphError:
                        cut_off += 1
                assert cut_off, "the child has runs of its parent"
                try:
                    model.sync_pending()
                except fg.GraphError:
                    cut_off += 1
                wanted = model.run(one)[0].tobytes()
                assert [y.tobytes() for (y,) in model.run_pipelined([one] * 4)] == [wanted] * 4
                assert model.submit(one).result(20)[0].tobytes() == wanted
                del model, futures
                gc.collect()
            except BaseException as error:
                print("child", repr(error), flush=True)
                os._exit(3)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status == 0, status
        wanted = model.run(one)[0].tobytes()
        assert [future.result(20)[0].tobytes() for future in futures] == [wanted] * 2
        model.sync_pending()
    print("end")
    """
    assert program(384, 30, code) == "end\n"


@pytest.mark.host
def test_an_interrupt_ends_a_wait():
    """The run goes on; it was run, and what comes after it is right."""
    code = """
    def send():
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)
    for call in (model.sync_pending, lambda: model.run(one), lambda: model.run_pipelined([one] * 9),
                 lambda: list(model.pipeline([one] * 9))):
        for _ in range(2):
            model.commit_no_wait(one)
        thread = threading.Thread(target=send)
        thread.start()
        start = time.monotonic()
        try:
            call()
            print("not interrupted")
        except KeyboardInterrupt:
            assert time.monotonic() - start < 5
        thread.join()
    model.sync_pending()
    assert model.output_view(0)[0, 1] == 0
    print("end")
    """
    assert program(640, 40, code) == "end\n"


# ---- on cuda


@pytest.mark.cuda
@pytest.mark.fake
def test_commits_do_not_wait(device):
    """Four are under way while the device does nothing; the fifth would have to wait."""
    if device != "cuda":
        pytest.skip("about cuda")
    model = layers(8)
    sets = sets_of(8, 4)
    expected = bits([model.run(one) for one in sets])
    model.run_pipelined(sets)  # makes the lanes
    assert model._lanes.depth == 4
    with FAKE.held():
        launches = FAKE.calls("cuGraphLaunch")
        futures = [model.submit(one) for one in sets]
        assert FAKE.calls("cuGraphLaunch") == launches + 4
        assert model._lanes.full(model)
        assert not any(future.done() for future in futures)
    assert bits(future.result(60) for future in futures) == expected


@pytest.mark.cuda
@pytest.mark.fake
def test_a_later_lane_may_be_done_first(device):
    """Lanes have streams of their own: nothing orders their runs but the order of their outputs."""
    if device != "cuda":
        pytest.skip("about cuda")
    model = layers(8)
    sets = sets_of(8, 3)
    expected = bits([model.run(one) for one in sets])
    model.run_pipelined(sets)
    with FAKE.held():
        futures = [model.submit(one) for one in sets]
        streams = {id(runner_stream(model, i)) for i in range(3)}
        assert len(streams) == 3
    assert bits(future.result(60) for future in futures) == expected


def runner_stream(model, lane):
    return model._lanes.stream(lane)


@pytest.mark.cuda
def test_arrays_on_the_device(device):
    """They are read in the order of streams; buffers may be filled again at once."""
    if device != "cuda":
        pytest.skip("about cuda")
    model = layers(8)
    sets = sets_of(8, 9)
    expected = bits([model.run(one) for one in sets])
    buffer = model.context.create_buffer((8, 8))
    futures = []
    for one in sets:
        buffer.copy_from(one["x"])
        futures.append(model.submit({"x": buffer}))
    assert bits(future.result(60) for future in futures) == expected
    on_device = [{"x": model.context.to_device(one["x"])} for one in sets]
    assert bits(model.run_pipelined(on_device)) == expected
    assert bits(model.pipeline(on_device)) == expected
    with pytest.raises(fg.InputError, match=r"^set 1: input 'x' is float32\[8, 8\], not"):
        model.run_pipelined([on_device[0], {"x": model.context.create_buffer((8, 4))}])
