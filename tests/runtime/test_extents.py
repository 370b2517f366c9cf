"""Active extents: fewer rows than a model was compiled for, without compiling again."""

from __future__ import annotations

import copy
import threading

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops
from tests.device.test_interrupted import interrupts
from tests.runtime.extents import UNTOUCHED, Pair, active, graph_of, random
from tests.runtime.models import compiled

f4 = np.float32


def test_rows_past_the_extent_keep_what_they_hold():
    graph = fg.Graph("relu")
    graph.output(ops.relu(graph.input("x", (15,))), "y")
    model = compiled(graph)
    ones = np.ones(15, "f4")
    (full,) = model.run({"x": ones})
    assert full.tolist() == [1] * 15
    model.set_active_extent((5, 15))
    out = np.ones(15, "f4")
    model.run_slots([-ones])
    assert model.output_view(0).tolist() == [0] * 5 + [1] * 10
    model.run({"x": -ones}, out=[out])
    assert out.tolist() == [0] * 5 + [1] * 10
    assert model.run({"x": -ones})[0].tolist() == [0] * 5
    model.set_active_extent(None)
    assert model.run({"x": -ones})[0].tolist() == [0] * 15


def rows(n, width=9, dtype="float32", name="x"):
    return lambda graph: graph.input(name, (n, width), dtype)


LEADING = {
    "elementwise": lambda g, n: [g.input("x", (n, 4)) + g.input("y", (n, 4)) * 2],
    "one axis": lambda g, n: [ops.exp(g.input("x", (n,)))],
    "broadcast": lambda g, n: [g.input("x", (n, 1)) * g.input("y", (4,)), g.input("z", (n,)) + 1],
    "product of rows": lambda g, n: [
        ops.gelu(g.input("x", (n, 8)) @ g.param("w", (8, 6)) + g.param("b", (6,)))
    ],
    "contraction": lambda g, n: [
        g.input("x", (n, 9)).T @ g.input("y", (n, 5)),
        g.inputs[0] @ g.inputs[0].T,
    ],
    "softmax": lambda g, n: [
        ops.softmax(g.input("x", (n, 9)), axis=0),
        ops.softmax(g.inputs[0], axis=1),
    ],
    "norms": lambda g, n: [
        ops.layer_norm(g.input("x", (n, 9)), g.param("w", (9,)), g.param("b", (9,))),
        ops.rms_norm(g.inputs[0]),
        ops.layer_norm(g.inputs[0], axis=0),
    ],
    "sums": lambda g, n: [
        ops.sum(g.input("x", (n, 9)), axis=0),
        ops.sum(g.inputs[0], axis=1),
        ops.prod(g.inputs[0], axis=0),
        ops.sum(g.inputs[0]),
    ],
    "slices": lambda g, n: [
        g.input("x", (n, 9))[1:],
        g.inputs[0][:-1] + g.inputs[0][1:],
        g.inputs[0][::2],
        g.inputs[0][::-1],
        g.inputs[0][2:7],
        g.inputs[0][:, 3:5],
    ],
    "joined": lambda g, n: [
        ops.concat([g.input("x", (n, 3)), g.input("y", (n, 3))], axis=0),
        ops.concat([g.inputs[0], g.inputs[1]], axis=1),
        ops.pad(g.inputs[0], ((1, 2), (0, 0))),
        ops.tile(g.inputs[0], (2, 1)),
    ],
    "turned": lambda g, n: [
        g.input("x", (n, 9)).reshape(-1, 3),
        g.inputs[0].reshape(g.inputs[0].shape[0], 3, 3).transpose(1, 0, 2),
        g.inputs[0].T,
    ],
    "triangles": lambda g, n: [
        ops.tril(g.input("x", (n, 9)) @ g.inputs[0].T),
        ops.triu(g.inputs[0]),
    ],
    "running sums": lambda g, n: [
        ops.cumulative_sum(g.input("x", (n, 9)), axis=0),
        ops.cumulative_sum(g.inputs[0], axis=0, reverse=True),
    ],
    "indices": lambda g, n: [
        ops.take(g.param("table", (20, 6)), g.input("i", (n,), "int64"), axis=0)
    ],
    "experts": lambda g, n: [
        ops.grouped_matmul(
            g.input("x", (n, 5)), g.param("w", (3, 5, 4)), g.input("ids", (n,), "int32")
        )
    ],
    "attention": lambda g, n: [
        ops.attention(*(heads(g.input(name, (n, 16))) for name in "qkv")),
        ops.attention(*(heads(value) for value in g.inputs), is_causal=True),
    ],
    "float64": lambda g, n: [g.input("x", (n, 8), "float64") @ g.param("w", (8, 6), "float64")],
}  # fmt: skip


def heads(x):
    return x.reshape(1, -1, 2, 8).transpose(0, 2, 1, 3)


@pytest.mark.parametrize("dim", [None, "n"])
@pytest.mark.parametrize("what", LEADING)
def test_leading_axes(what, dim):
    Pair(LEADING[what], 33, dim).check(33, 20, 1, 2, 0)


CHOOSING = {
    "largest": lambda g, n: [ops.max(g.input("x", (n, 9)), axis=0), ops.min(g.inputs[0])],
    "places": lambda g, n: [ops.argmax(g.input("x", (n, 9)), axis=0), ops.argmin(g.inputs[0], 1)],
    "mean": lambda g, n: [ops.mean(g.input("x", (n, 9)), axis=0), ops.var(g.inputs[0], axis=0)],
    "last row": lambda g, n: [g.input("x", (n, 9))[-1]],
}


@pytest.mark.parametrize("what", CHOOSING)
def test_axes_that_must_not_be_empty(what):
    Pair(CHOOSING[what], 33).check(33, 20, 1)


def test_the_first_of_rows():
    Pair(lambda g, n: list(ops.top_k(g.input("x", (n, 9)), 3, axis=0)), 33).check(33, 3, 10)


INNER = {
    "elementwise": lambda g, n: [g.input("x", (3, n, 5)) * 2 + 1, g.inputs[0].transpose(1, 0, 2)],
    "reduced": lambda g, n: [
        g.input("x", (3, n, 5)).sum(axis=1),
        ops.softmax(g.inputs[0], axis=1),
        g.inputs[0].mean(axis=(0, 2)),
    ],
    "last": lambda g, n: [
        g.input("x", (3, 5, n)) * 2,
        ops.softmax(g.inputs[0]),
        ops.layer_norm(g.inputs[0]),
        g.inputs[0].sum(axis=2),
    ],
    "products": lambda g, n: [
        g.input("x", (3, n, 8)) @ g.param("w", (8, 6)) + g.param("b", (6,)),
        ops.gelu(g.inputs[0] @ g.params[0]),
        g.inputs[0] @ g.inputs[0].transpose(0, 2, 1),
        g.inputs[0].transpose(0, 2, 1) @ g.inputs[0],
    ],
    "cut parameters": lambda g, n: [g.input("x", (3, n, 8)) + g.param("pos", (40, 8))[:n]],
    "attention": lambda g, n: [
        ops.attention(*(g.input(name, (2, 2, n, 8)) for name in "qkv"), is_causal=True),
        ops.attention(*g.inputs[:3], mask=g.input("mask", (2, 1, 1, n))),
    ],
    "rotary": lambda g, n: [
        ops.rotary_embedding(
            g.input("x", (2, 3, n, 8)),
            *(g.param(name, (40, 4))[:n].reshape(1, n, 4) for name in ("cos", "sin")),
        ),
        ops.rotary_embedding(
            g.inputs[0], g.params[0], g.params[1], g.input("at", (2, n), "int64")
        ),
    ],
    "scattered": lambda g, n: [
        ops.scatter_nd(g.param("t", (5, 4)), g.input("i", (n, 1), "int64"), g.input("u", (n, 4)))
    ],
    "half": lambda g, n: [g.input("x", (3, n, 8), "float16") @ g.param("w", (8, 6), "float16")],
    "nothing of few": lambda g, n: [g.input("x", (3, n, 5))[:, 2:9], g.inputs[0][:, 1:] * 2],
    "two axes": lambda g, n: [g.input("x", (n, 3, n)) * 2, g.inputs[0].sum(axis=0)],
    "worked out": lambda g, n: [
        g.input("x", (2, n * 3)).reshape(2, n, 3) @ g.param("w", (3, 4)),
        g.input("y", (n // 2, 3)) + 1,
    ],
}  # fmt: skip


@pytest.mark.parametrize("what", INNER)
def test_named_dimensions(what):
    tolerance = 2e-3 if what == "half" else 2e-5
    Pair(INNER[what], 33, "n").check(33, 20, 1, 2, 0, rtol=tolerance, atol=tolerance)


WINDOWS = {
    "images": lambda g, n: [
        ops.conv(g.input("x", (2, 4, n, 9)), g.param("k", (6, 4, 3, 3)), pads=1),
        ops.average_pool(g.inputs[0], 2, pads=1),
    ],
    "channels": lambda g, n: [
        ops.conv(g.input("x", (2, 6, n)), g.param("k", (6, 1, 3)), pads=1, group=6)
    ],
    "conv": lambda g, n: [
        ops.conv(g.input("x", (2, 4, n)), g.param("k", (6, 4, 3)), strides=2),
        ops.conv(g.inputs[0], g.params[0]),
        ops.max_pool(g.inputs[0], 3, strides=2),
    ],
    "conv_transpose": lambda g, n: [
        ops.conv_transpose(g.input("x", (2, 4, n)), g.param("k", (4, 6, 3)), strides=2)
    ],
    "recurrent": lambda g, n: [
        ops.lstm(g.input("x", (n, 3, 6)), g.param("w", (1, 32, 6)), g.param("r", (1, 32, 8)))[0],
        ops.gru(g.inputs[0], g.param("v", (1, 24, 6)), g.param("s", (1, 24, 8)))[0],
    ],
}


@pytest.mark.parametrize("what", WINDOWS)
def test_axes_of_windows_and_steps(what):
    pair = Pair(WINDOWS[what], 19, "n")
    pair.check(19, 12, 5, 3)
    pair.set(3)
    if what == "recurrent":
        with pytest.raises(fg.InputError, match="has no steps"):
            pair.set(0)
    elif what == "conv":
        with pytest.raises(fg.InputError, match="axis 2 of less than 0"):
            pair.set(1)


def encoder(g, n):
    """Two layers in the shape of MiniLM's: embeddings by position, heads, residuals, a pool."""
    width, inner, count = 32, 64, 4
    ids, mask = g.input("ids", (2, n), "int64"), g.input("mask", (2, n))
    x = ops.take(g.param("words", (50, width)), ids, axis=0)
    x = ops.layer_norm(x + g.param("positions", (80, width))[:n], g.param("g", (width,)))
    hidden = (ops.reshape(mask, (2, 1, 1, n)) - 1) * 1e9
    for i in range(2):
        q, k, v = (
            (x @ g.param(f"{name}{i}", (width, width)))
            .reshape(2, n, count, -1)
            .transpose(0, 2, 1, 3)
            for name in "qkv"
        )
        scores = ops.softmax(q @ k.transpose(0, 1, 3, 2) * 0.35 + hidden)
        x = x + (scores @ v).transpose(0, 2, 1, 3).reshape(2, n, width) @ g.param(
            f"o{i}", (width,) * 2
        )
        x = ops.layer_norm(x, g.param(f"n{i}", (width,)), g.param(f"m{i}", (width,)))
        x = x + ops.gelu(x @ g.param(f"a{i}", (width, inner))) @ g.param(f"b{i}", (inner, width))
    weights = ops.expand_dims(mask, -1)
    return [x, (x * weights).sum(axis=1) / weights.sum(axis=1)]


@pytest.mark.parametrize("fuse", [True, False])
def test_an_encoder_of_37_of_64_tokens(fuse):
    pair = Pair(encoder, 64, "seq", fuse=fuse)
    pair.inputs["mask"] = (np.arange(64) < 30).astype("f4") * np.ones((2, 1), "f4")
    pair.check(37, 64, 31, rtol=1e-4, atol=5e-4)


def test_four_keys_with_two_active():
    pair = Pair(LEADING["attention"], 4)
    pair.check(2)


def two_dims():
    graph = fg.Graph("two")
    a, b = fg.dim("a", 6), fg.dim("b", 8)
    x, y = graph.input("x", (a, 5)), graph.input("y", (5, b))
    graph.output(x @ y, "product")
    graph.output(ops.softmax(x @ y, axis=0).sum(axis=1), "s")
    return graph


def test_two_dimensions_at_once():
    model = compiled(two_dims())
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((6, 5), f4), rng.standard_normal((5, 8), f4)
    inputs = {"x": x, "y": y}
    full = model.run(inputs)

    def check(a, b):
        product, s = model.run(inputs)
        wanted = x[:a] @ y[:, :b]
        np.testing.assert_allclose(product, wanted, rtol=1e-5, atol=1e-5)
        weights = np.exp(wanted) / np.exp(wanted).sum(axis=0)
        np.testing.assert_allclose(s, weights.sum(axis=1), rtol=1e-5)

    model.set_active_extent((4, 6), dim="a")
    check(4, 8)
    model.set_active_extent((3, 8), dim="b")
    assert model.active_extents == {"a": (4, 6), "b": (3, 8)}
    check(4, 3)
    model.set_active_extent((2, 6), dim="a")
    check(2, 3)
    model.set_active_extent(None, dim="a")
    check(6, 3)
    model.set_active_extent(None)
    assert [a.tobytes() for a in model.run(inputs)] == [a.tobytes() for a in full]


def test_without_a_name_inputs_of_that_leading_size_follow():
    graph = fg.Graph("some")
    x, y = graph.input("x", (6, 2)), graph.input("y", (4, 2))
    graph.output(x * 2, "x2")
    graph.output(y * 2, "y2")
    model = compiled(graph)
    ones = {"x": np.ones((6, 2), f4), "y": np.ones((4, 2), f4)}
    model.set_active_extent((1, 6))
    assert [a.shape for a in model.run(ones)] == [(1, 2), (4, 2)]
    model.set_active_extent((3, 4))
    assert [a.shape for a in model.run(ones)] == [(1, 2), (3, 2)]


@pytest.mark.parametrize(
    ("extent", "dim", "words"),
    [
        ((-1, 6), None, "0 to 6"),
        ((7, 6), None, "0 to 6"),
        ((1, 7), None, "leading axis of size 7"),
        ((1, 6), "rows", "no dimension 'rows'"),
        ((1, 6), "b", "'b' has size 8, not 6"),
        (3, None, "(actual, upper)"),
        ((1.0, 6), None, "two ints"),
        ((True, 6), None, "two ints"),
        ((1, 2, 3), None, "two ints"),
        ((1, 6), "", "no dimension"),
    ],
)
def test_what_is_no_extent(extent, dim, words):
    model = compiled(two_dims())
    inputs = {"x": np.ones((6, 5), f4), "y": np.ones((5, 8), f4)}
    model.set_active_extent((4, 6), dim="a")
    before = model.run(inputs)
    with pytest.raises(fg.InputError) as caught:
        model.set_active_extent(extent, dim=dim)
    assert words in str(caught.value)
    assert [a.tobytes() for a in model.run(inputs)] == [a.tobytes() for a in before]


REFUSED = {
    "reshape": lambda g, x: x.reshape(3, 2, 4),
    "add": lambda g, x: x + g.param("p", (6, 4)),
    "concat": lambda g, x: ops.concat([x, g.param("p", (6, 1))], axis=1),
    "broadcast_to": lambda g, x: ops.broadcast_to(x, (6, 4)),
    "divide": lambda g, x: x.sum(axis=0) / x.shape[0],
    "matmul": lambda g, x: g.param("p", (2, 6)) @ x,
}


@pytest.mark.parametrize("op", REFUSED)
def test_operators_that_cannot_follow_are_named(op):
    graph = fg.Graph("fixed")
    graph.output(REFUSED[op](graph, graph.input("x", (6, 4))), "y")
    model = compiled(graph)
    for info in model.params:
        model.set_param(info.name, np.ones(info.shape, f4))
    x = np.arange(24, dtype="f4").reshape(6, 4)
    before = model.run({"x": x})
    with pytest.raises(fg.UnsupportedError, match=rf"\({op}, test_extents.py:\d+\)"):
        model.set_active_extent((2, 6))
    assert model.active_extents == {}
    assert model.run({"x": x})[0].tobytes() == before[0].tobytes()


def test_extents_too_small_for_an_operator_are_refused_by_it():
    graph = fg.Graph("first")
    graph.output(ops.max(graph.input("x", (6, 4)), axis=0), "y")
    model = compiled(graph)
    model.set_active_extent((3, 6))
    with pytest.raises(fg.InputError, match=r"max \(max, .*chooses among no elements"):
        model.set_active_extent((0, 6))
    assert model.active_extents == {"": (3, 6)}


def test_indices_beyond_the_extent_are_faults():
    graph = fg.Graph("take")
    x, i = graph.input("x", (6, 2)), graph.input("i", (), "int64")
    graph.output(ops.take(x, i, axis=0), "y")
    model = compiled(graph)
    inputs = {"x": np.arange(12, dtype="f4").reshape(6, 2), "i": np.int64(4)}
    model.run(inputs)
    model.set_active_extent((3, 6))
    with pytest.raises(fg.InputError, match="out of range"):
        model.run(inputs)
    assert model.run({**inputs, "i": np.int64(-1)})[0].tolist() == [4, 5]


def scaled():
    graph = fg.Graph("scaled")
    x = (
        graph.input("x", (6, 4)) @ graph.param("w", (4, 4))
        + graph.param("pos", (9, 4))[: graph.inputs[0].shape[0]]
    )
    graph.output(x * graph.scalar("by", "float32", default=1.0), "y")
    return graph


def test_parameters_set_while_an_extent_is():
    model = compiled(scaled())
    x = np.ones((6, 4), f4)
    model.set_active_extent((2, 6))
    with pytest.raises(fg.InputError, match="no value yet"):
        model.run({"x": x})
    for k in (1, 2):
        model.set_params({"w": k * np.eye(4, dtype="f4"), "pos": np.full((9, 4), 10 * k, f4)})
        assert model.run({"x": x})[0].tolist() == [[11.0 * k] * 4] * 2
        assert model.run({"x": x}, by=2.0)[0].tolist() == [[22.0 * k] * 4] * 2
    model.set_active_extent(None)
    assert model.run({"x": x})[0].tolist() == [[22.0] * 4] * 6
    model.set_param("pos", np.zeros((9, 4), f4))
    model.set_active_extent((3, 6))
    assert model.run({"x": x})[0].tolist() == [[2.0] * 4] * 3


def test_clones_have_the_extent_and_go_their_own_way():
    model = compiled(scaled())
    model.set_params({"w": np.eye(4, dtype="f4"), "pos": np.zeros((9, 4), f4)})
    x = np.ones((6, 4), f4)
    model.set_active_extent((2, 6))
    for other in (model.clone(), copy.deepcopy(model)):
        assert other.run({"x": x})[0].shape == (2, 4)
        other.set_active_extent((5, 6))
        assert other.run({"x": x})[0].shape == (5, 4)
        assert model.run({"x": x})[0].shape == (2, 4)
        other.set_active_extent(None)
        assert other.run({"x": x})[0].shape == (6, 4)
        assert model.run({"x": x})[0].shape == (2, 4)
    assert copy.copy(model) is model


def test_steps_follow_extents_that_are_set_after_them():
    graph = fg.Graph("twice")
    graph.output(graph.input("x", (6, 2)) * 2, "y")
    model = compiled(graph)
    x, y = np.ones((6, 2), f4), np.full((6, 2), UNTOUCHED, f4)
    step = model.bind({"x": x}, {"y": y})
    model.set_active_extent((2, 6))
    step()
    assert y.tolist() == [[2, 2]] * 2 + [[UNTOUCHED] * 2] * 4
    model.set_active_extent(None)
    step()
    assert y.tolist() == [[2, 2]] * 6


def test_a_step_in_place_keeps_the_rows_beyond():
    graph = fg.Graph("state")
    graph.output(graph.input("x", (6, 2))[::-1] + 1, "y")
    model = compiled(graph)
    state = np.arange(12, dtype="f4").reshape(6, 2)
    step = model.bind({"x": state}, {"y": state})
    model.set_active_extent((3, 6))
    step()
    assert state.tolist() == [[5, 6], [3, 4], [1, 2], [6, 7], [8, 9], [10, 11]]


def test_a_view_of_the_model_as_its_input():
    graph = fg.Graph("twice")
    graph.output(graph.input("x", (6, 2)) * 2, "y")
    model = compiled(graph)
    model.run_slots([np.ones((6, 2), f4)])
    model.set_active_extent((2, 6))
    view = model.output_view(0)
    assert model.run({"x": view})[0].tolist() == [[4, 4]] * 2
    assert model.run({"x": view[2:4]})[0].tolist() == [[4, 4]] * 2


def test_profiles_tell_the_nodes_that_ran():
    model = compiled(graph_of(LEADING["norms"], 33))
    model.set_params({info.name: np.ones(info.shape, f4) for info in model.params})
    model.set_active_extent((5, 33))
    x = np.ones((33, 9), f4)
    assert len(model.profile({"x": x}, n=2).slowest(99)) == len(model._timed.record.nodes)


def test_closed_models_take_no_extent():
    model = compiled(graph_of(LEADING["norms"], 33))
    model.set_active_extent((5, 33))
    model.close()
    with pytest.raises(fg.GraphError, match="closed"):
        model.set_active_extent((4, 33))


def test_extents_change_between_runs_of_other_threads():
    graph = fg.Graph("sums")
    graph.output(graph.input("x", (64, 8)).sum(axis=0), "y")
    model = compiled(graph)
    x = np.ones((64, 8), f4)
    model.set_active_extent((1, 64))
    bad = []

    def run():
        for _ in range(300):
            (y,) = model.run({"x": x})
            if not (y == y[0]).all() or not 1 <= y[0] <= 64:
                bad.append(y)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(600):
        model.set_active_extent((1 + i % 64, 64))
    for thread in threads:
        thread.join()
    assert not bad


class Meanwhile(str):
    """A name, or what stands for a number, that does something whenever it is looked at."""

    def __new__(cls, name, work):
        self = super().__new__(cls, name)
        self.work = work
        return self

    def __eq__(self, other):
        work, self.work = self.work, lambda: None
        work()
        return super().__eq__(other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("extent", [(1, 4), None])
def test_extents_set_meanwhile_stay(extent):
    """A thread that sets the extent of one dimension while another sets that of another one."""
    a, b = fg.dim("a", 4), fg.dim("b", 5)
    graph = fg.Graph("two")
    graph.output(graph.input("x", (a, b)) + 1, "y")
    model = compiled(graph)
    model.set_active_extent((3, 4), dim="a")
    other = Meanwhile("a", lambda: model.set_active_extent((2, 5), dim="b"))
    model.set_active_extent(extent, dim=other)
    wanted = {"b": (2, 5), **({} if extent is None else {"a": extent})}
    assert model.active_extents == wanted
    assert model.run({"x": np.zeros((4, 5), "f4")})[0].shape == (1 if extent else 4, 2)


@pytest.mark.parametrize("before", [None, 2])
@pytest.mark.parametrize("after", [None, 3])
@pytest.mark.parametrize("fed", [False, True])
def test_an_interrupt_leaves_the_extent_before_or_after(before, after, fed):
    graph = fg.Graph("interrupted")
    x, kept = graph.input("x", (fg.dim("n", 4), 3)), graph.input("kept", (3,))
    graph.output(ops.softmax(x, axis=0), "y")
    graph.output(kept + ops.sum(x, axis=0), "sum")
    model = compiled(graph)
    if fed:
        model.bind_handle("kept", np.zeros(3, "f4"))
        model.set_gpu_handle_feed("kept", "sum")
    x, rest = random((4, 3), "f4", 1), {} if fed else {"kept": np.zeros(3, "f4")}

    def pair(n):
        return n and (n, 4)

    wanted = {}
    for n in (before, after):
        model.set_active_extent(pair(n), dim="n")
        wanted[n] = model.run({"x": x, **rest})[0].tobytes()
    model.set_active_extent(pair(before), dim="n")
    files = "runtime/extents.py", "runtime/host.py", "runtime/cuda_extents.py"
    for _ in interrupts(lambda: model.set_active_extent(pair(after), dim="n"), *files):
        found, _ = model.active_extents.get("n", (None, 4))
        assert found in (before, after)
        assert model.run({"x": x, **rest})[0].tobytes() == wanted[found]
        model.set_active_extent(pair(before), dim="n")
    assert model.run({"x": x, **rest})[0].tobytes() == wanted[after]


def test_numbers_that_are_no_dimension():
    for name, upper in (("", 4), (3, 4), ("n", 0), ("n", -1), ("n", 2.0), ("n", True)):
        with pytest.raises(fg.GraphError, match="dim"):
            fg.dim(name, upper)


def test_a_dimension_is_an_int():
    n = fg.dim("n", 12)
    assert isinstance(n, int)
    assert (n, n + 1, 2 * n, n // 5, n % 5, -n, 30 - n) == (12, 13, 24, 2, 2, -12, 18)
    graph = fg.Graph("g")
    x = graph.input("x", (n, 3))
    assert x.shape == (12, 3)
    assert x.reshape(3, -1).shape == (3, 12)
    assert active(None, x.shape) == (slice(0, 12), slice(0, 3))
    assert copy.deepcopy(n) == n


def test_feeds_write_the_active_rows_alone():
    graph = fg.Graph("next")
    state = graph.input("state", (6, 2))
    graph.output(ops.softmax(state @ graph.param("w", (2, 2))) * 0 + state[::-1] + 1, "next")
    graph.output(state * 2, "twice")
    model = compiled(graph)
    model.set_param("w", np.eye(2, dtype="f4"))
    model.bind_handle("state", np.zeros((6, 2), f4))
    model.set_gpu_handle_feed("state", "next")
    model.set_active_extent((2, 6))
    for step in range(3):
        assert model.run({})[0].tolist() == [[step + 1.0] * 2] * 2
    assert model.read_handle("state").tolist() == [[3, 3]] * 2 + [[0, 0]] * 4
    model.set_active_extent((4, 6))
    assert model.run({})[0].tolist() == [[1, 1]] * 2 + [[4, 4]] * 2
    model.set_active_extent((0, 6))
    assert model.run({})[0].shape == (0, 2)
    model.set_active_extent(None)
    before = model.read_handle("state")
    model.run({})
    assert (model.read_handle("state") == before[::-1] + 1).all()
    model.set_active_extent((1, 6))
    found = model.run_feed_gpu_handle({}, "state", "twice")
    assert found.shape == (1, 2)
    assert (model.read_handle("state")[0] == found[0]).all()


def test_a_feed_in_place_keeps_the_rows_beyond():
    graph = fg.Graph("count")
    graph.output(graph.input("n", (6,)) + 1, "next")
    model = compiled(graph)
    model.bind_handle("n", np.zeros(6, f4))
    model.set_gpu_handle_feed("n", "next")
    model.run({})
    model.set_active_extent((2, 6))
    for _ in range(3):
        model.run({})
    assert model.read_handle("n").tolist() == [4, 4, 1, 1, 1, 1]
    other = model.clone()
    other.run({})
    assert other.read_handle("n").tolist() == [5, 5, 1, 1, 1, 1]
    assert model.read_handle("n").tolist() == [4, 4, 1, 1, 1, 1]


def test_rows_fed_at_a_position():
    graph = fg.Graph("append")
    rows, cache = graph.input("rows", (4, 2)), graph.input("cache", (8, 2))
    graph.scalar("pos", "int32")
    graph.output(rows + 1, "new")
    graph.output(cache.sum(axis=0), "sum")
    model = compiled(graph)
    model.bind_handle("cache", np.zeros((8, 2), f4))
    model.set_gpu_handle_feed("cache", "new", at="pos")
    model.set_active_extent((1, 4))
    one = np.ones((1, 2), f4)
    for pos in (0, 1, 7):
        model.run({"rows": one * pos}, pos=pos)
    assert model.read_handle("cache")[:, 0].tolist() == [1, 2, 0, 0, 0, 0, 0, 8]


def test_feeds_of_other_rows_than_the_leading_ones_are_refused():
    graph = fg.Graph("inner")
    graph.output(graph.input("x", (2, fg.dim("n", 6))) + 1, "next")
    model = compiled(graph)
    model.bind_handle("x", np.zeros((2, 6), f4))
    model.set_gpu_handle_feed("x", "next")
    with pytest.raises(fg.UnsupportedError, match="feed of handle 'x'"):
        model.set_active_extent((2, 6), dim="n")
    assert model.run({})[0].tolist() == [[1] * 6] * 2
