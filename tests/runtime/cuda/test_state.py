"""Handles and feeds on cuda: what a run enqueues, what a swap costs, memory, streams, faults."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops
from fastgraph._core import counters
from tests import conftest
from tests.interop.arrays import Dlpack, Interface
from tests.runtime.cuda.test_runs import ONE_LAUNCH, UPDATES, enqueued
from tests.runtime.models import compiled
from tests.runtime.test_feeds import cache, faulty, fed, matmul_state
from tests.runtime.test_handles import accumulate

FAKE = conftest.FAKE
pytestmark = pytest.mark.cuda

ONES = np.ones(4, "f4")


def names(model):
    """Names of the nodes of the model as it runs."""
    return [node.name for node in model.graph.nodes]


@pytest.mark.fake
def test_a_run_with_handles_and_feeds_is_one_launch():
    model = fed(compiled(accumulate((4,))), np.zeros(4, "f4"))
    model.bind_handle("delta", ONES)
    model.run({})
    for call in (lambda: model.run({}), lambda: model.run_slots([]), lambda: model.run_raw({})):
        assert enqueued(call) == (ONE_LAUNCH, 0)
    assert names(model)[0] != "inputs"  # nothing is brought in: kernels read the handles


@pytest.mark.fake
def test_another_buffer_is_an_update_and_no_copy(ctx):
    model = fed(compiled(accumulate((4,))), np.zeros(4, "f4"))
    talks = [ctx.to_device(np.full(4, i, "f4")) for i in (0, 100)]
    model.bind_handle("acc", talks[0])
    model.run({"delta": ONES})
    FAKE.forget_calls()
    model.bind_handle("acc", talks[1])
    assert enqueued(lambda: model.run({"delta": ONES})) == (ONE_LAUNCH, 2)  # the sum, and outputs
    assert FAKE.calls("cuGraphInstantiateWithFlags") == 0
    assert talks[1].numpy().tolist() == [101] * 4


@pytest.mark.fake
def test_the_first_handle_makes_another_executable_and_no_later_one():
    model = compiled(accumulate((4,)))
    model.run({"acc": ONES, "delta": ONES})
    FAKE.forget_calls()
    model.bind_handle("acc", ONES)
    model.bind_handle("delta", ONES)
    for _ in range(3):
        model.run({})
    assert FAKE.calls("cuGraphInstantiateWithFlags") == 1
    model.unbind_handle("delta")
    model.run({"delta": ONES})
    model.bind_handle("delta", ONES)
    model.run({})
    model.bind_handle("acc", np.zeros(4, "f4"))
    assert model.run({})[0].tolist() == [1] * 4
    assert FAKE.calls("cuGraphInstantiateWithFlags") == 1
    clone = model.clone()
    clone.run({})
    assert clone.run({})[0].tolist() == [1] * 4


def test_in_place_has_no_node_and_a_copy_has_one():
    assert "feeds" not in names(ran(fed(compiled(accumulate((4,))), np.zeros(4, "f4")),
                                    {"delta": ONES}))  # fmt: skip
    square = np.zeros((4, 4), "f4")
    model = ran(fed(compiled(matmul_state()), square, "h"), {"w": square})
    assert names(model)[-1] == "feeds"
    model.unbind_handle("h")
    assert "feeds" not in names(ran(model, {"h": square, "w": square}))


def ran(model, inputs):
    model.run(inputs)
    return model


def test_many_handles_in_one_node():
    graph = fg.Graph("layers")
    new = graph.input("new", (1, 4))
    graph.scalar("pos", "int32")
    for i in range(40):
        past = graph.input(f"k{i}", (6, 4))
        graph.output(new * float(i), f"row{i}")
        graph.output(ops.sum(past), f"sum{i}")
    model = compiled(graph)
    for i in range(40):
        fed(model, np.zeros((6, 4), "f4"), f"k{i}", f"row{i}", at="pos")
    for pos in (2, 5):
        model.run({"new": np.ones((1, 4), "f4")}, pos=pos)
    assert names(model).count("feeds") == 2
    for i in range(40):
        wanted = np.zeros((6, 4))
        wanted[[2, 5]] = i
        assert model.read_handle(f"k{i}").tolist() == wanted.tolist()
    with pytest.raises(fg.InputError, match="'pos' is 6"):
        model.run({"new": np.ones((1, 4), "f4")}, pos=6)


def test_what_a_run_is_given_for_a_resident_input(ctx):
    """From the host, from the device, from an odd address, from a handle's own memory."""
    model, plain = compiled(matmul_state()), compiled(matmul_state())
    random = np.random.default_rng(1)
    held = ctx.to_device(random.normal(size=(4, 4)).astype("f4"))
    model.bind_handle("w", held)
    model.bind_handle("h", np.eye(4, dtype="f4"))
    odd = ctx.create_buffer((20,), "f4")
    data = random.normal(size=(4, 4)).astype("f4")
    odd.copy_from(np.concatenate([[0], data.ravel(), [0, 0, 0]]).astype("f4"))
    shifted = Interface(odd[1:17], shape=(4, 4))
    for given in (data, ctx.to_device(data), shifted, Dlpack(ctx.to_device(data)), held):
        inputs = {"w": given}
        host = held.numpy() if given is held else data
        (wanted,) = plain.run({"h": np.eye(4, dtype="f4"), "w": host})
        for call in (model.run, model.bind):
            call(inputs) if call == model.run else call(inputs)()
            assert model.output_view(0).tobytes() == wanted.tobytes()
        assert model.run({})[0].tobytes() == held.numpy().tobytes()


@pytest.mark.parametrize("kind", [Dlpack, Interface])
def test_arrays_of_other_libraries_are_used_where_they_lie(ctx, kind):
    model = compiled(accumulate((4,)))
    buffer = ctx.to_device(np.zeros(4, "f4"))
    fed(model, kind(buffer))
    for step in (1, 2):
        model.run({"delta": ONES})
        assert buffer.numpy().tolist() == [step] * 4


def test_an_address_that_kernels_cannot_read_wide(ctx):
    model = compiled(accumulate((4,)))
    rows = ctx.to_device(np.zeros(8, "f4"))
    with pytest.raises(fg.InputError, match=r"handle 'acc': .* does not lie at a multiple of 16"):
        model.bind_handle("acc", rows[1:5])


def test_outputs_over_handles_on_the_device(ctx):
    """They are written when all has been read."""
    graph = fg.Graph("late")
    h, w = graph.input("h", (4, 4)), graph.input("w", (4, 4))
    graph.output(h + 1.0, "early")
    graph.output(h @ w, "next")
    model, plain = compiled(graph), compiled(graph)
    random = np.random.default_rng(2)
    h0, w0 = random.normal(size=(2, 4, 4)).astype("f4")
    wanted = plain.run({"h": h0, "w": w0})
    held = ctx.to_device(h0)
    model.bind_handle("h", held)
    model.bind_handle("w", w0)
    other = ctx.create_buffer((4, 4), "f4")
    model.run({}, out=[held, other])
    assert held.numpy().tobytes() == wanted[0].tobytes()
    assert other.numpy().tobytes() == wanted[1].tobytes()
    given = ctx.to_device(h0)
    model.run({"h": given}, out=[given, other])
    assert given.numpy().tobytes() == wanted[0].tobytes()
    assert other.numpy().tobytes() == wanted[1].tobytes()
    held.copy_from(h0)
    model.set_gpu_handle_feed("h", "next")
    with pytest.raises(fg.InputError, match=r"'early' .* which is fed output 'next'"):
        model.run({}, out=[held, other])
    assert held.numpy().tobytes() == h0.tobytes()


def test_an_output_that_is_put_into_its_own_handle_stays_there(ctx):
    model = fed(compiled(accumulate((4,))), np.zeros(4, "f4"))
    held, delta = ctx.to_device(np.zeros(4, "f4")), ctx.to_device(ONES)
    model.bind_handle("acc", held)
    step = model.bind({"delta": delta}, {"next": held}, stream=ctx.stream)
    step()
    if FAKE is not None:
        assert enqueued(step) == (ONE_LAUNCH, 0)
    else:
        step()
    ctx.synchronize()
    assert held.numpy().tolist() == [2] * 4
    assert model.run({"delta": delta})[0].tolist() == [3] * 4
    model.run({"delta": delta}, out=[held])
    assert held.numpy().tolist() == [4] * 4
    other = ctx.to_device(np.full(4, 9, "f4"))
    model.bind_handle("acc", other)
    step()  # what it was bound to is no handle now, and gets the output as any memory does
    ctx.synchronize()
    assert held.numpy().tolist() == other.numpy().tolist() == [10] * 4


def test_runs_on_a_stream_feed_in_order(ctx):
    model = fed(compiled(accumulate((4,))), np.zeros(4, "f4"))
    delta, out = ctx.to_device(ONES), ctx.create_buffer((4,), "f4")
    streams = [ctx.create_stream() for _ in range(2)]
    steps = [model.bind({"delta": delta}, {"next": out}, stream=stream) for stream in streams]
    for i in range(10):
        steps[i % 2]()
        model.run({"delta": delta}, out=[out], stream=streams[(i + 1) % 2])
    assert model.read_handle("acc").tolist() == [20] * 4
    model.bind_handle("acc", np.zeros(4, "f4"))
    steps[0]()
    assert model.read_handle("acc").tolist() == [1] * 4


def test_a_buffer_that_work_of_another_stream_fills(ctx):
    """A run comes behind it."""
    model = compiled(accumulate((1 << 16,)))
    big = np.ones(1 << 16, "f4")
    held = ctx.create_buffer((1 << 16,), "f4")
    model.bind_handle("acc", held)
    for value in range(4):
        ctx.copy(held, ctx.to_device(big * value))
        assert set(model.run({"delta": big})[0].tolist()) == {value + 1}


def test_a_position_that_only_the_device_knows():
    """Bad ones are found by the kernel, which then copies nothing."""
    graph = fg.Graph("counting")
    past, new = graph.input("cache", (3, 4)), graph.input("new", (1, 4))
    other = graph.input("other", (3, 4))
    pos = graph.input("pos", (1,), "int64")
    graph.output(pos + 1, "following")
    graph.output(new * 1.0, "row")
    graph.output(past + other, "seen")
    model = compiled(graph)
    fed(model, np.zeros((3, 4), "f4"), "cache", "row", at="pos")
    model.bind_handle("other", np.zeros((3, 4), "f4"))
    fed(model, np.int64([0]), "pos", "following")
    for step in range(1, 4):
        model.run({"new": np.full((1, 4), step, "f4")})
    with pytest.raises(fg.InputError, match=r"node 'feeds' \(feed, handles 'cache'"):
        model.run({"new": np.full((1, 4), 9, "f4")})
    assert model.read_handle("cache")[:, 0].tolist() == [1, 2, 3]
    assert model.read_handle("pos") == 3  # copied last, for the position is looked at to the end
    assert names(model).count("feeds") == 2
    model.bind_handle("pos", np.int64([-1]))
    with pytest.raises(fg.InputError, match="feed, handles"):
        model.run({"new": np.full((1, 4), 9, "f4")})
    model.bind_handle("pos", np.int64([1]))
    model.run({"new": np.full((1, 4), 7, "f4")})
    assert model.read_handle("cache")[:, 0].tolist() == [1, 7, 3]


def test_a_fault_that_nobody_waited_for(ctx):
    """The next call tells of it; copies kept out, what was fed in place is not valid."""
    stream, out = ctx.create_stream(), ctx.create_buffer((3, 2), "f4")
    bad, good = ctx.to_device(np.full(3, 9, "i8")), ctx.to_device(np.zeros(3, "i8"))
    model = compiled(faulty())
    model.set_param("table", np.ones((3, 2), "f4"))
    fed(model, np.zeros((3, 2), "f4"))
    model.run({"index": good}, out=[out], stream=stream)
    model.run({"index": bad}, out=[out], stream=stream)
    stream.synchronize()
    with pytest.raises(fg.InputError, match="a run that was enqueued before"):
        model.run({"index": good}, out=[out], stream=stream)
    with pytest.raises(fg.InputError, match="handle 'acc' is not valid"):
        model.read_handle("acc")


def test_nothing_is_left(ctx):
    before = counters.snapshot()
    model = fed(compiled(cache()), np.zeros((4, 2), "f4"), "cache", "rows", at="pos")
    model.run({"new": np.ones((1, 2), "f4"), "where": np.int64([0])}, pos=1)
    clone = model.clone()
    clone.run({"new": np.ones((1, 2), "f4"), "where": np.int64([0])}, pos=2)
    assert clone.read_handle("cache")[:, 0].tolist() == [0, 2, 2, 0]
    del model, clone
    gc.collect()
    after = counters.snapshot()
    assert conftest.growth(before, after) == {}


@pytest.mark.fake
def test_a_call_that_fails_while_handles_settle_leaves_the_model_usable():
    """Whatever the driver refuses amid the first run, the second one does it all."""
    for name in ("cuGraphInstantiateWithFlags", "cuMemAlloc", "cuGraphLaunch"):
        for count in range(1, 4):
            model = compiled(accumulate((4,)))
            model.run({"acc": ONES, "delta": ONES})
            fed(model, np.zeros(4, "f4"))
            FAKE.fail(name, 2, count)
            try:
                model.run({"delta": ONES})
                done = 1
            except fg.OutOfMemoryError:
                done = 0
            finally:
                FAKE.reset()
            assert model.run({"delta": ONES})[0].tolist() == [done + 1] * 4
            assert model.read_handle("acc").tolist() == [done + 1] * 4


@pytest.mark.fake
def test_an_update_that_is_refused_when_a_buffer_is_swapped(ctx):
    model = fed(compiled(accumulate((4,))), np.zeros(4, "f4"))
    talks = [ctx.to_device(np.full(4, i, "f4")) for i in (0, 100)]
    model.bind_handle("acc", talks[0])
    model.run({"delta": ONES})
    for name in UPDATES[:2]:
        model.bind_handle("acc", talks[1])
        FAKE.fail(name, 2)
        try:
            model.run({"delta": ONES})
        except fg.OutOfMemoryError:
            model.run({"delta": ONES})
        finally:
            FAKE.reset()
        model.bind_handle("acc", talks[0])
        model.run({"delta": ONES})
    assert [talk.numpy()[0] for talk in talks] == [3, 102]
