"""Feeds: outputs that go into handles after a run."""

from __future__ import annotations

import os
import sys
import threading

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops
from tests.runtime.models import compiled
from tests.runtime.test_handles import METHODS, accumulate

f4 = np.float32
ONES = np.ones(3, "f4")


@pytest.fixture(params=METHODS)
def method(request):
    """Each way to run; gives the first output."""
    return METHODS[request.param]


def matmul_state(n=4):
    """A state that a product reads to the end: it cannot be computed in place."""
    graph = fg.Graph("matmul_state")
    h, w = graph.input("h", (n, n)), graph.input("w", (n, n))
    graph.output(h @ w, "next")
    return graph


def fed(model, array, handle="acc", output="next", **options):
    model.bind_handle(handle, array)
    model.set_gpu_handle_feed(handle, output, **options)
    return model


def test_accumulates(method):
    model = fed(compiled(accumulate()), np.zeros(3, "f4"))
    assert model.read_handle("acc").tolist() == [0] * 3
    for step in range(1, 6):
        assert (
            method(model, {"delta": np.full(3, step, "f4")}).tolist() == [step * (step + 1) / 2] * 3
        )
        assert model.read_handle("acc").tolist() == [step * (step + 1) / 2] * 3


def test_what_is_computed_in_place_is_not_in_the_arena():
    """Where a sum lies in the handle no copy is made; a product is copied there."""
    model = fed(compiled(accumulate()), np.zeros(3, "f4"))
    home = model.run_slots([ONES, ONES])[0][0]
    assert (home < 0 or home >= model.arena_nbytes) == (model.device == "cpu")
    model = fed(compiled(matmul_state()), np.zeros((4, 4), "f4"), "h")
    square = np.ones((4, 4), "f4")
    assert 0 <= model.run_slots([square, square])[0][0] < model.arena_nbytes


def test_a_product_accumulates(method):
    random = np.random.default_rng(0)
    state, w = random.normal(size=(2, 4, 4)).astype("f4")
    model = fed(compiled(matmul_state()), state, "h")
    for _ in range(3):
        state = state @ w
        np.testing.assert_allclose(method(model, {"w": w}), state, rtol=1e-5)
        np.testing.assert_allclose(model.read_handle("h"), state, rtol=1e-5)


def test_an_explicit_input_beats_it_and_the_feed_still_writes(method):
    model = fed(compiled(accumulate()), np.zeros(3, "f4"))
    assert method(model, {"acc": np.full(3, 10, "f4"), "delta": ONES}).tolist() == [11] * 3
    assert method(model, {"delta": ONES}).tolist() == [12] * 3


def test_it_writes_where_a_buffer_lies(method):
    model = compiled(accumulate())
    talks = [model.context.to_device(np.full(3, i, "f4")) for i in (0, 100)]
    fed(model, talks[0])
    addresses = [talk.ptr for talk in talks]
    for step in range(1, 4):
        for talk, start in zip(talks, (0, 100), strict=True):
            model.bind_handle("acc", talk)
            assert method(model, {"delta": ONES}).tolist() == [start + step] * 3
    assert [talk.numpy()[0] for talk in talks] == [3, 103]
    assert [talk.ptr for talk in talks] == addresses


@pytest.mark.host
def test_in_place_and_by_copy_under_an_active_extent():
    """The active rows go where all would; the others stay as they are."""
    graph = fg.Graph("extent")
    acc, delta = (graph.input(name, (fg.dim("n", 6), 4)) for name in ("acc", "delta"))
    table, index = graph.input("table", (6, 4)), graph.input("index", (fg.dim("n", 6),), "int64")
    graph.output(acc + delta, "next")
    graph.output(ops.take(table, index, axis=0) + delta, "picked")
    model = compiled(graph)
    fed(model, np.zeros((6, 4), "f4"), "acc", "next")
    fed(model, np.zeros((6, 4), "f4"), "table", "picked")
    given_ = {"delta": np.ones((6, 4), "f4"), "index": np.arange(6)}
    model.run(given_)
    model.set_active_extent((2, 6), dim="n")
    model.run(given_)
    model.set_active_extent(None)
    model.run(given_)
    for name in ("acc", "table"):
        assert model.read_handle(name)[:, 0].tolist() == [3, 3, 2, 2, 2, 2], name


def test_each_output_into_each_handle():
    """A handle, once swapped with another every run, by outputs that read the other."""
    graph = fg.Graph("swap")
    a, b = graph.input("a", (5,)), graph.input("b", (5,))
    graph.output(b * 1.0, "to_a")
    graph.output(a * 2.0, "to_b")
    model = compiled(graph)
    model.bind_handle("a", np.full(5, 1, "f4"))
    model.bind_handle("b", np.full(5, 10, "f4"))
    model.set_gpu_handle_feed("a", 0)
    model.set_gpu_handle_feed("b", "to_b")
    one, ten = 1, 10
    for _ in range(4):
        one, ten = ten, one * 2
        y, z = model.run({})
        assert (y[0], z[0]) == (one, ten)
        assert (model.read_handle("a")[0], model.read_handle("b")[0]) == (one, ten)


def test_one_output_into_two_handles():
    graph = fg.Graph("two")
    a, b = graph.input("a", (5,)), graph.input("b", (5,))
    graph.output(a + b, "y")
    model = compiled(graph)
    for name, start in (("a", 1), ("b", 2)):
        fed(model, np.full(5, start, "f4"), name, "y")
    for wanted in (3, 6, 12):
        assert model.run({})[0].tolist() == [wanted] * 5
        assert model.read_handle("a").tolist() == model.read_handle("b").tolist() == [wanted] * 5


def test_an_output_that_other_work_reads():
    """Also where it is computed in the handle's memory."""
    graph = fg.Graph("more")
    acc = graph.input("acc", (4, 4))
    following = ops.softmax(acc + 1.0)
    graph.output(following, "next")
    graph.output(following @ following, "square")
    graph.output(following.reshape(16), "flat")
    model = compiled(graph)
    plain = compiled(graph)
    state = np.arange(16, dtype="f4").reshape(4, 4)
    fed(model, state)
    for _ in range(3):
        wanted = plain.run({"acc": state})
        for one, other in zip(wanted, model.run({}), strict=True):
            assert one.tobytes() == other.tobytes()
        state = wanted[0]
        assert model.read_handle("acc").tobytes() == state.tobytes()


def test_an_input_that_is_an_output():
    graph = fg.Graph("same")
    a = graph.input("a", (3,))
    graph.output(a, "a.out")
    graph.output(a + 1.0, "more")
    model = fed(compiled(graph), ONES, "a", "a.out")
    assert [y[0] for y in model.run({"a": np.full(3, 5, "f4")})] == [5, 6]
    assert [y[0] for y in model.run({})] == [5, 6]
    model.set_gpu_handle_feed("a", "more")
    assert [y[0] for y in model.run({})] == [5, 6]
    assert [y[0] for y in model.run({})] == [6, 7]


# What is fed of two handles, and into which: all are views of what another feed may write.
VIEWS = {
    "swap": (lambda a, b: (a, b), {"a": "to_b", "b": "to_a"}, None),
    "rows of itself": (lambda a, b: (a[1:], b), {"a": "to_a"}, "pos"),
    "round itself": (lambda a, b: (a, b), {"a": "to_a", "b": "to_a"}, "pos"),
    "sum and old": (lambda a, b: (a + b, a), {"a": "to_a", "b": "to_b"}, None),
    "row and row": (lambda a, b: (b[2:3], a[:1]), {"a": "to_a", "b": "to_b"}, "pos"),
}


@pytest.mark.parametrize("what", VIEWS)
def test_a_feed_is_what_the_handles_held_before_the_run(what):
    build, feeds, at = VIEWS[what]
    graph = fg.Graph("views")
    a, b = graph.input("a", (5, 4)), graph.input("b", (5, 4))
    graph.scalar("pos", "int32", 0)
    for name, value in zip(("to_a", "to_b"), build(a, b), strict=True):
        graph.output(value, name)
    model = compiled(graph)
    state = {"a": np.arange(20, dtype="f4").reshape(5, 4), "b": np.full((5, 4), 50, "f4")}
    state["b"] += state["a"]
    for name, output in feeds.items():
        fed(model, state[name], name, output, at=at, ring=at is not None)
    for name in state.keys() - feeds.keys():
        model.bind_handle(name, state[name])
    for pos in range(1, 4):
        new = dict(zip(("to_a", "to_b"), build(state["a"], state["b"]), strict=True))
        new = {name: array.copy() for name, array in new.items()}
        model.run({}, pos=pos)
        for name, output in feeds.items():
            rows = len(new[output])
            state[name][(np.arange(rows) + pos * (at is not None)) % 5] = new[output]
        for name, array in state.items():
            assert model.read_handle(name).tolist() == array.tolist()


def test_a_state_that_is_read_late_is_not_overwritten_early():
    """The last reader comes after the output was computed."""
    graph = fg.Graph("late")
    acc = graph.input("acc", (6, 6))
    following = ops.softmax(acc)
    graph.output(following, "next")
    graph.output(ops.softmax(following @ acc, 0), "y")
    model, plain = compiled(graph), compiled(graph)
    state = np.linspace(-1, 1, 36, dtype="f4").reshape(6, 6)
    fed(model, state)
    for _ in range(3):
        wanted = plain.run({"acc": state})
        found = model.run({})
        assert [y.tobytes() for y in found] == [y.tobytes() for y in wanted]
        state = wanted[0]


def test_memory_that_another_handle_reads_is_not_overwritten_early():
    graph = fg.Graph("overlap")
    acc, other = graph.input("acc", (64,)), graph.input("other", (64,))
    graph.output(acc + 1.0, "next")
    graph.output(ops.sum(other * acc).reshape(1), "y")
    model = compiled(graph)
    rows = model.context.to_device(np.zeros(96, "f4"))
    model.bind_handle("other", rows[32:96])
    fed(model, rows[:64])
    assert model.run({})[1].tolist() == [0]
    assert model.run({})[1].tolist() == [32]  # of `other` half are ones by now
    assert rows.numpy().tolist() == [2] * 64 + [0] * 32


def test_an_explicit_array_over_the_handles_memory():
    """Of this input or of another: what it held before the run is what the run reads."""
    graph = fg.Graph("aliased")
    acc, other = graph.input("acc", (8, 8)), graph.input("other", (8, 8))
    following = acc + 1.0
    graph.output(following, "next")
    graph.output(ops.softmax(following @ other), "y")
    model, plain = compiled(graph), compiled(graph)
    state = np.linspace(-1, 1, 64, dtype="f4").reshape(8, 8)
    held = model.context.to_device(state)
    fed(model, held)
    same = np.asarray(held) if model.device == "cpu" else held
    for given in ({"other": same}, {"other": same, "acc": same}):
        for run in (lambda given=given: model.run(given), model.bind(given)):
            held.copy_from(state)
            run()
            wanted = plain.run({"acc": state, "other": state})
            assert [model.output_view(i).tobytes() for i in range(2)] == [
                y.tobytes() for y in wanted
            ]
            assert held.numpy().tobytes() == wanted[0].tobytes()


def test_views_and_offsets_follow_what_is_fed():
    model = compiled(accumulate())
    offsets, view = model.run_slots([ONES, ONES]), model.output_view(0)
    talks = [model.context.to_device(np.full(3, i, "f4")) for i in (0, 100)]
    fed(model, talks[0])
    for talk, wanted in ((talks[0], 1), (talks[1], 101), (talks[0], 2)):
        model.bind_handle("acc", talk)
        ((offset, count),) = model.run_slots([None, ONES])
        assert model.run_slots([np.full(3, wanted - 1, "f4"), ONES]) is model.run_slots(
            [np.full(3, wanted - 1, "f4"), ONES]
        )
        at = np.ctypeslib.as_array(
            (np.ctypeslib.ctypes.c_float * count).from_address(model.arena_ptr + offset)
        )
        assert at.tolist() == model.output_view(0).tolist() == [wanted] * 3
        assert model.output_view(0) is model.output_view(0)
    taken = model.output_view(0)
    model.unbind_handle("acc")
    assert model.run_slots([ONES, ONES]) == offsets
    assert model.output_view(0).tolist() == view.tolist() == [2] * 3
    del talks, talk
    assert taken.tolist() == [2] * 3


def test_raw_outputs_of_a_feed():
    model = fed(compiled(accumulate()), np.zeros(3, "f4"))
    (first,) = model.run_raw({"delta": ONES})
    array = first.array()
    assert array.tolist() == [1] * 3
    assert not array.flags.writeable
    (second,) = model.run_raw({"delta": ONES})
    with pytest.raises(fg.StaleOutputError):
        first.array()
    assert second.array().tolist() == [2] * 3
    model.bind_handle("acc", np.full(3, 50, "f4"))
    assert array.shape == (3,)


BAD = {
    "handle": (("b", "next"), {}, "no input 'b'"),
    "not bound": (("delta", "next"), {}, "no handle is bound to input 'delta'"),
    "output": (("acc", "nope"), {}, r"no output 'nope'; it has \['next', 'wide'"),
    "number": (("acc", 9), {}, "no output 9"),
    "negative": (("acc", -1), {}, "no output -1"),
    "bool": (("acc", True), {}, "no output True"),
    "shape": (
        ("acc", "wide"),
        {},
        r"output 'wide', float32\[6\], does not go into handle 'acc'",
    ),
    "dtype": (("acc", "int"), {}, "output 'int', int32.*nothing is cast"),
    "ring alone": (("acc", "next"), {"ring": True}, "ring=True without at="),
    "rows": (("acc", "wide"), {"at": "pos"}, "'wide'.* is not rows of handle 'acc'"),
    "no position": (("acc", "one"), {"at": "nope"}, "at='nope' is neither a scalar nor an input"),
    "position": (("acc", "one"), {"at": "delta"}, r"input 'delta' has float32\[3\]"),
    "float": (("acc", "one"), {"at": "by"}, "scalar 'by' is float32; a position is an integer"),
}


def many():
    graph = fg.Graph("many")
    acc, delta = graph.input("acc", (3,)), graph.input("delta", (3,))
    graph.scalar("pos", "int32", 0)
    by = graph.scalar("by", "float32", 1.0)
    graph.output(acc + delta * by, "next")
    graph.output(ops.concat([acc, delta]), "wide")
    graph.output(acc.astype("int32"), "int")
    graph.output(acc[:1], "one")
    return graph


@pytest.mark.parametrize("case", BAD)
def test_a_refused_feed_changes_nothing(case):
    names, options, match = BAD[case]
    model = fed(compiled(many()), np.zeros(3, "f4"))
    with pytest.raises(fg.InputError, match=match):
        model.set_gpu_handle_feed(*names, **options)
    for _ in range(2):
        model.run({"delta": ONES})
    assert model.read_handle("acc").tolist() == [2] * 3


@pytest.mark.parametrize("case", [name for name in BAD if not BAD[name][1]])
def test_a_refused_run_feed_runs_nothing(case):
    names, _, match = BAD[case]
    model = compiled(many())
    model.bind_handle("acc", np.zeros(3, "f4"))
    (first, *_) = model.run_raw({"delta": ONES})
    with pytest.raises(fg.InputError, match=match):
        model.run_feed_gpu_handle({"delta": ONES}, *names)
    assert first.array().tolist() == [1] * 3


def test_two_feeds_never_write_the_same_memory():
    graph = fg.Graph("two")
    a, b = graph.input("a", (8,)), graph.input("b", (8,))
    graph.output(a + b, "y")
    graph.output(a - b, "z")
    model = compiled(graph)
    rows = model.context.to_device(np.zeros(12, "f4"))
    fed(model, rows[:8], "a", "y")
    model.bind_handle("b", rows[4:])
    with pytest.raises(fg.InputError, match="handles 'a' and 'b' have feeds and share memory"):
        model.set_gpu_handle_feed("b", "z")
    fed(model, np.zeros(8, "f4"), "b", "z")
    with pytest.raises(fg.InputError, match="handles 'a' and 'b' have feeds and share memory"):
        model.bind_handle("b", rows[4:])
    model.run({})
    assert model.read_handle("b").tolist() == [0] * 8


def test_unbinding_ends_a_feed_and_binding_does_not():
    model = fed(compiled(accumulate()), np.zeros(3, "f4"))
    model.run({"delta": ONES})
    model.bind_handle("acc", np.full(3, 5, "f4"))
    model.run({"delta": ONES})
    assert model.read_handle("acc").tolist() == [6] * 3
    model.unbind_handle("acc")
    model.bind_handle("acc", np.full(3, 5, "f4"))
    model.run({"delta": ONES})
    assert model.read_handle("acc").tolist() == [5] * 3


def test_a_clone_feeds_its_own_copies():
    model = fed(compiled(accumulate()), np.zeros(3, "f4"))
    model.run({"delta": ONES})
    other = model.clone()
    for _ in range(3):
        other.run({"delta": ONES})
    assert model.read_handle("acc").tolist() == [1] * 3
    assert other.read_handle("acc").tolist() == [4] * 3
    model.unbind_handle("acc")
    other.run({"delta": ONES})
    assert other.read_handle("acc").tolist() == [5] * 3


def test_no_part_of_another_graph():
    model = fed(compiled(accumulate()), ONES)
    context = model.context

    def build(builder):
        builder.add_child_graph(model.graph, inputs={"acc": buffer, "delta": buffer})

    buffer = context.create_buffer((3,), "f4")
    with pytest.raises(fg.UnsupportedError, match="'accumulate' has feeds"):
        fg.DeviceGraph.create(context, build)
    model.unbind_handle("acc")
    fg.DeviceGraph.create(context, build).close()


def test_run_feed_writes_once():
    model = compiled(accumulate())
    model.bind_handle("acc", np.zeros(3, "f4"))
    y = model.run_feed_gpu_handle({"delta": ONES}, "acc", "next")
    assert y.tolist() == model.read_handle("acc").tolist() == [1] * 3
    model.run({"delta": ONES})
    y[:] = 9
    assert model.read_handle("acc").tolist() == [1] * 3
    model.set_gpu_handle_feed("acc", "next")
    assert model.run_feed_gpu_handle({"delta": ONES}, "acc", 0).tolist() == [2] * 3
    assert model.read_handle("acc").tolist() == [2] * 3
    assert model.run_feed_gpu_handle({"acc": ONES, "delta": ONES}, "acc", 0).tolist() == [2] * 3
    with pytest.raises(fg.InputError, match=r"'delta'.*was not given"):
        model.run_feed_gpu_handle({}, "acc", 0)


# ---- rows at a position


def cache(rows=4, width=2, n=1, at="int32"):
    """A sum over a cache, and rows to append."""
    graph = fg.Graph("cache")
    cache, new = graph.input("cache", (rows, width)), graph.input("new", (n, width))
    graph.scalar("pos", at)
    graph.input("where", (1,), "int64")
    graph.output(ops.sum(cache, axis=0), "sum")
    graph.output(new * 2.0, "rows")
    return graph


def appended(model, row, pos, at="pos"):
    n, width = model.inputs[1].shape
    new = (row + np.arange(n * width, dtype="f4").reshape(n, width)) / 2
    where = np.array([pos if at == "where" else 0], "i8")
    (total, _) = model.run({"new": new, "where": where}, pos=pos if at == "pos" else 0)
    return total


@pytest.mark.parametrize("at", ["pos", "where"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_rows_are_written_at_a_position(at, n):
    rows, width = 8, 3
    model = fed(compiled(cache(rows, width, n)), np.zeros((rows, width), "f4"), "cache", "rows",
                at=at)  # fmt: skip
    wanted = np.zeros((rows, width), "f4")
    for step, pos in enumerate((0, 3, 5, 2)):
        total = appended(model, 10 * step, pos, at)
        assert total.tolist() == wanted.sum(0).tolist()
        wanted[pos : pos + n] = 10 * step + np.arange(n * width).reshape(n, width)
        assert model.read_handle("cache").tolist() == wanted.tolist()


@pytest.mark.parametrize("at", ["pos", "where"])
def test_a_position_out_of_range(at):
    model = fed(compiled(cache(4, 2, 2)), np.zeros((4, 2), "f4"), "cache", "rows", at=at)
    appended(model, 1, 2, at)
    before = model.read_handle("cache")
    (raw, _) = model.run_raw({"new": np.zeros((2, 2), "f4"), "where": np.int64([0])}, pos=0)
    model.bind_handle("cache", before)
    for pos in (3, 4, -1, 2**31 - 1, -(2**31)):
        with pytest.raises(
            fg.InputError,
            match=rf"feed of handle 'cache': '{at}' is {pos}; output 'rows' of 2 rows goes into "
            "4 rows at row 0 to 2",
        ):
            appended(model, 5, pos, at)
        assert model.read_handle("cache").tolist() == before.tolist()
    assert raw.array().tolist() == model.output_view(0).tolist()  # nothing has run
    appended(model, 7, 0, at)
    assert model.read_handle("cache")[0].tolist() == [7, 8]


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16", "uint32", "int64", "uint64"])
def test_positions_of_every_integer(kind):
    model = fed(compiled(cache(4, 2, 1, kind)), np.zeros((4, 2), "f4"), "cache", "rows", at="pos")
    appended(model, 5, 3)
    assert model.read_handle("cache").tolist() == [[0, 0]] * 3 + [[5, 6]]
    info = np.iinfo(kind)
    for pos in {int(info.max), int(info.min) or 4}:
        with pytest.raises(fg.InputError, match=f"'pos' is {pos}"):
            appended(model, 5, pos)
    model.set_gpu_handle_feed("cache", "rows", at="pos", ring=True)
    appended(model, 8, int(info.max))
    assert model.read_handle("cache")[int(info.max) % 4].tolist() == [8, 9]


@pytest.mark.parametrize("n", [1, 3, 4])
def test_a_ring_keeps_the_last_rows(n):
    rows, width = 4, 2
    model = fed(compiled(cache(rows, width, n)), np.zeros((rows, width), "f4"), "cache", "rows",
                at="pos", ring=True)  # fmt: skip
    wanted = np.zeros((rows, width), "f4")
    for pos in range(0, 40, n):
        assert appended(model, pos, pos).tolist() == wanted.sum(0).tolist()
        new = pos + np.arange(n * width).reshape(n, width)
        for row in range(n):
            wanted[(pos + row) % rows] = new[row]
        assert model.read_handle("cache").tolist() == wanted.tolist()
    with pytest.raises(fg.InputError, match=r"'pos' is -1.* at row 0 or later, and round"):
        appended(model, 0, -1)


def test_a_position_that_is_a_fed_handle_itself():
    """A ring that counts by itself: nothing is given but the new row."""
    graph = fg.Graph("counting")
    cache, new = graph.input("cache", (3, 2)), graph.input("new", (1, 2))
    pos = graph.input("pos", (), "int32")
    graph.output(pos + 1, "following")
    graph.output(new, "row")
    graph.output(cache * 1.0, "seen")
    model = compiled(graph)
    fed(model, np.zeros((3, 2), "f4"), "cache", "row", at="pos", ring=True)
    fed(model, np.int32(0), "pos", "following")
    for step in range(5):
        model.run({"new": np.full((1, 2), step, "f4")})
    assert model.read_handle("cache")[:, 0].tolist() == [3, 4, 2]
    assert model.read_handle("pos") == 5


def test_each_feed_has_a_position_of_its_own():
    graph = fg.Graph("two positions")
    a, b = graph.input("a", (4, 4)), graph.input("b", (4, 4))
    graph.input("first", (1,), "int64")
    graph.scalar("second", "int32")
    graph.output(graph.input("new", (1, 4)) + 1.0, "row")
    graph.output(a + b, "seen")
    model = compiled(graph)
    fed(model, np.zeros((4, 4), "f4"), "a", "row", at="first")
    fed(model, np.zeros((4, 4), "f4"), "b", "row", at="second")
    model.run({"new": np.zeros((1, 4), "f4"), "first": np.int64([2])}, second=1)
    assert model.read_handle("a")[:, 0].tolist() == [0, 0, 1, 0]
    assert model.read_handle("b")[:, 0].tolist() == [0, 1, 0, 0]


def test_positions_apart_from_what_is_fed():
    graph = fg.Graph("positions")
    cache, new = graph.input("cache", (4, 4), "int32"), graph.input("new", (1, 4), "int32")
    pos, other = graph.input("pos", (1,), "int32"), graph.input("other", (1,), "int32")
    graph.output(new + 1, "row")
    graph.output(pos + other, "following")
    graph.output(cache + 1, "seen")
    model = compiled(graph)
    rows = model.context.to_device(np.zeros((5, 4), "i4"))
    flat = model.context.to_device(np.zeros(20, "i4"))
    fed(model, rows[:4], "cache", "row", at="pos")
    fed(model, np.int32([0]), "pos", "following")
    with pytest.raises(
        fg.InputError, match="'pos' tells the row for handle 'cache': a feed writes"
    ):
        model.set_gpu_handle_feed("pos", "following", at="other")
    graph = fg.Graph("flat")
    cache, pos = graph.input("cache", (16,), "int32"), graph.input("pos", (1,), "int32")
    graph.output(cache[:1] + pos, "row")
    model = compiled(graph)
    model.bind_handle("pos", flat[12:13])
    model.bind_handle("cache", flat[:16])
    with pytest.raises(fg.InputError, match="'pos' tells a row and shares memory with 'cache'"):
        model.set_gpu_handle_feed("cache", "row", at="pos")
    model.bind_handle("pos", flat[16:17])
    model.set_gpu_handle_feed("cache", "row", at="pos")
    with pytest.raises(fg.InputError, match="'pos' tells a row and shares memory with 'cache'"):
        model.bind_handle("pos", flat[12:13])
    model.run({})


# ---- bad data


def faulty(at=False):
    """A state, and an index of the run that may be out of range."""
    graph = fg.Graph("faulty")
    acc, table = graph.input("acc", (3, 2)), graph.param("table", (3, 2))
    index = graph.input("index", (1 if at else 3,), "int64")
    rows = ops.take(table, index, axis=0)
    if at:
        graph.scalar("pos", "int32", 0)
        graph.output(rows * 1.0, "next")
        graph.output(acc + 0.0, "seen")
    else:
        graph.output(acc + rows, "next")
    return graph


@pytest.mark.parametrize("at", [False, True])
def test_a_run_that_fails_feeds_nothing_by_copy(at):
    model = compiled(faulty(at))
    model.set_param("table", np.ones((3, 2), "f4"))
    rows = model.context.to_device(np.zeros((6, 2), "f4"))  # two rows lie at 16 bytes
    good = np.zeros(1 if at else 3, "i8")
    fed(model, rows[:3], **({"at": "pos"} if at else {}))
    if not at:
        # Two handles over the same bytes: nothing is computed in place.
        graph = faulty()
        graph.input("other", (3, 2))
        model = compiled(graph)
        model.set_param("table", np.ones((3, 2), "f4"))
        model.bind_handle("other", rows[2:5])
        fed(model, rows[:3])
    model.run({"index": good})
    before = model.read_handle("acc")
    with pytest.raises(fg.InputError, match=r"take.* met an index out of range"):
        model.run({"index": good + 3})
    assert model.read_handle("acc").tolist() == before.tolist()
    model.run({"index": good})


def test_a_run_that_fails_spoils_a_handle_fed_in_place(method):
    model = compiled(faulty())
    model.set_param("table", np.ones((3, 2), "f4"))
    fed(model, np.zeros((3, 2), "f4"))
    good = np.zeros(3, "i8")
    method(model, {"index": good})
    with pytest.raises(fg.InputError, match="met an index out of range"):
        method(model, {"index": good + 3})
    match = "handle 'acc' is not valid: a run that was to write it where it lies has failed; bind"
    for call in (
        lambda: method(model, {"index": good}),
        lambda: model.read_handle("acc"),
        lambda: model.set_gpu_handle_feed("acc", "next"),
        lambda: model.run_feed_gpu_handle({"index": good}, "acc", "next"),
    ):
        with pytest.raises(fg.InputError, match=match + "|inputs .'acc'. were not bound"):
            call()
    assert method(model, {"acc": np.ones((3, 2), "f4"), "index": good}).tolist() == [[2, 2]] * 3
    with pytest.raises(fg.InputError, match=match):
        model.clone().run({"index": good})
    model.bind_handle("acc", np.zeros((3, 2), "f4"))
    assert method(model, {"index": good}).tolist() == [[1, 1]] * 3
    with pytest.raises(fg.InputError, match="met an index out of range"):
        method(model, {"index": good + 3})
    model.unbind_handle("acc")
    model.bind_handle("acc", np.zeros((3, 2), "f4"))
    assert method(model, {"index": good}).tolist() == [[1, 1]] * 3
    assert model.read_handle("acc").tolist() == [[0, 0]] * 3


def test_run_feed_of_a_run_that_fails_writes_nothing():
    model = compiled(faulty())
    model.set_param("table", np.ones((3, 2), "f4"))
    model.bind_handle("acc", np.zeros((3, 2), "f4"))
    with pytest.raises(fg.InputError, match="met an index out of range"):
        model.run_feed_gpu_handle({"index": np.full(3, 9, "i8")}, "acc", "next")
    assert model.read_handle("acc").tolist() == [[0, 0]] * 3


# ---- threads and processes


def test_runs_of_several_threads_all_count():
    model = fed(compiled(accumulate((64,)), release_gil=True), np.zeros(64, "f4"))
    one = np.ones(64, "f4")

    def work():
        for _ in range(50):
            model.run({"delta": one})

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert model.read_handle("acc").tolist() == [200] * 64


def test_a_forked_child_has_its_own(device):
    if device != "cpu":
        pytest.skip("nothing on a GPU works in a child")
    model = fed(compiled(accumulate()), np.zeros(3, "f4"))
    model.run({"delta": ONES})
    read, write = os.pipe()
    if not (child := os.fork()):
        for _ in range(4):
            model.run({"delta": ONES})
        os.write(write, model.read_handle("acc").tobytes())
        os._exit(0)
    assert np.frombuffer(os.read(read, 12), "f4").tolist() == [5] * 3
    os.waitpid(child, 0)
    os.close(read)
    os.close(write)
    assert model.read_handle("acc").tolist() == [1] * 3


def test_nothing_is_allocated_by_a_run():
    """Blocks of the interpreter's, over many runs."""
    model = fed(compiled(accumulate()), np.zeros(3, "f4"))
    given_ = [None, ONES]
    for _ in range(100):
        model.run_slots(given_)
    before = sys.getallocatedblocks()
    for _ in range(100):
        model.run_slots(given_)
    assert sys.getallocatedblocks() - before < 10


def test_an_output_may_not_go_where_a_feed_puts_another(device):
    g = fg.Graph("sums")
    h, k = g.input("h", (4,)), g.input("k", (4,))
    g.output(h + k, "y")
    g.output(h - k, "z")
    model = fg.Session(device).compile(g)
    held = model.context.to_device(np.ones(4, "f4"))
    model.bind_handle("h", held)
    model.set_gpu_handle_feed("h", "z")
    three, apart = np.full(4, 3, "f4"), np.zeros(4, "f4")
    there = np.asarray(held) if device == "cpu" else held
    with pytest.raises(fg.InputError, match=r"output 'y' .* handle 'h', which is fed output 'z'"):
        model.run({"k": three}, out=[there, apart])
    with pytest.raises(fg.InputError, match=r"output 'y' .* handle 'h', which is fed output 'z'"):
        model.bind({"k": three}, {"y": there})
    np.testing.assert_array_equal(model.read_handle("h"), 1)
    model.run({"k": three}, out=[apart, there])
    np.testing.assert_array_equal(apart, 4)
    np.testing.assert_array_equal(model.read_handle("h"), -2)
