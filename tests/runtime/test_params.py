"""Parameters: set between runs, whole or not at all, shared between clones until one side sets."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops
from fastgraph._core import counters
from tests.runtime import models
from tests.runtime.models import compiled, data_for, ready

f4 = np.float32


def test_runs_wait_for_all_parameters():
    model = compiled(models.layer())
    x = {"x": np.eye(4, dtype="f4")[:2]}
    for call in (
        lambda: model.run(x), lambda: model.run_raw(x), lambda: model.run_slots([x["x"]]),
        model.bind(x), lambda: model.profile(x),
    ):  # fmt: skip
        with pytest.raises(fg.InputError, match=r"parameters \['w', 'b'\] have no value yet"):
            call()
    model.set_param("w", np.zeros((4, 3), "f4"))
    with pytest.raises(fg.InputError, match=r"parameters \['b'\] have no value yet"):
        model.run(x)
    with pytest.raises(fg.InputError, match=r"\['b'\]"):
        model.clone().run(x)
    model.set_params({})
    model.set_param("b", np.ones(3, "f4"))
    assert model.run(x)[0].shape == (2, 3)


W = np.zeros((4, 3), "f4")
BAD = {
    "unknown": ({"v": W}, r"no parameter 'v'; it has \['w', 'b'\]"),
    "an input": ({"x": W}, r"'x' is an input, .*; the parameters are \['w', 'b'\]"),
    "shape": ({"w": W.T}, r"'w' was given float32\[3, 4\]; it is declared float32\[4, 3\]"),
    "flat": ({"w": W.reshape(12)}, r"'w' was given float32\[12\]"),
    "dtype": ({"w": W.astype("f8")}, r"given float64\[4, 3\]"),
    "byte order": ({"w": W.astype(">f4")}, r"given >f4\[4, 3\]"),
    "masked": ({"w": np.ma.masked_array(W)}, "'w' is a masked array"),
    "list": ({"w": W.tolist()}, "'w' is a list"),
    "none": ({"w": None}, "'w' is a NoneType"),
    "number": ({"b": 1.0}, "'b' is a float"),
    "second one": ({"w": W + 1, "b": np.zeros(2, "f4")}, "'b' was given"),
    "second unknown": ({"w": W + 1, "c": W}, "no parameter 'c'"),
    "no mapping": ([("w", W)], "set_params takes a mapping"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_parameters_change_nothing(name):
    given_, match = BAD[name]
    model, inputs, _ = ready("layer")
    (wanted,) = model.run(inputs)
    with pytest.raises(fg.InputError, match=match):
        model.set_params(given_)
    np.testing.assert_array_equal(model.run(inputs)[0], wanted)


def test_strides_and_own_copies():
    model, inputs, _ = ready("layer")
    w = data_for(model.params)["w"]
    (wanted,) = model.run(inputs)
    for array in (
        np.asfortranarray(w), w[::-1, ::-1].copy()[::-1, ::-1], np.repeat(w, 2, axis=1)[:, ::2],
        fg.DeviceContext("cpu").to_device(w),
    ):  # fmt: skip
        model.set_param("w", np.zeros((4, 3), "f4"))
        model.set_param("w", array)
        if isinstance(array, np.ndarray):
            array[...] = 9
        np.testing.assert_array_equal(model.run(inputs)[0], wanted)
        w = data_for(model.params)["w"]


@pytest.mark.parametrize("threads", [1, 2])
def test_every_run_sees_the_newest_weight(threads):
    model = compiled(models.identities(), threads=threads)
    eye = np.eye(64, dtype="f4")
    model.set_params({f"w{i}": eye for i in range(6)})
    other = model.clone()
    x = data_for(model.inputs)["x"]
    factors = [1.0] * 6
    for step in range(40):
        factor = 1 + step % 12
        factors[step % 6] = factor
        model.set_param(f"w{step % 6}", eye * f4(factor))
        (y,) = model.run({"x": x})
        np.testing.assert_allclose(y, x * np.prod(factors), rtol=1e-5)
        if step % 10 == 0:
            np.testing.assert_array_equal(other.run({"x": x})[0], x)
    other.set_param("w0", eye * 3)
    np.testing.assert_array_equal(other.run({"x": x})[0], x * 3)
    np.testing.assert_allclose(model.run({"x": x})[0], x * np.prod(factors), rtol=1e-5)


def joint():
    """Set nodes of one, two and three parameters, some read by others and by the run too."""
    graph = fg.Graph("joint")
    x = graph.input("x", (2, 3))
    a, b, c = (graph.param(name, (3, 3)) for name in "abc")
    ab = a * b
    graph.output(x @ ab, "ab")
    graph.output(x @ (ab @ c), "abc")
    graph.output(x @ a.T + ops.sum(b), "a")
    graph.output(x[:, 0] * c[0, 0], "c")
    graph.output(ab, "product")
    graph.output(a, "itself")
    return graph


def joint_values(x, a, b, c):
    ab = a * b
    return [x @ ab, x @ (ab @ c), x @ a.T + b.sum(), x[:, 0] * c[0, 0], ab, a]


@pytest.mark.parametrize("fuse", [True, False])
def test_parameters_that_are_joined(fuse):
    model = compiled(joint(), fuse=fuse)
    random = np.random.default_rng(0)
    x = random.normal(size=(2, 3)).astype("f4")
    now = {name: random.normal(size=(3, 3)).astype("f4") for name in "abc"}
    for name in "cab":
        with pytest.raises(fg.InputError):
            model.run({"x": x})
        model.set_param(name, now[name])
    models_ = [(model, now), (model.clone(), dict(now))]
    for step in range(24):
        one, known = models_[step % 2]
        names = [["a"], ["b"], ["c"], ["a", "c"], ["b", "c"], ["a", "b", "c"]][step % 6]
        known.update({name: random.normal(size=(3, 3)).astype("f4") for name in names})
        one.set_params({name: known[name] for name in names})
        for each, values in models_:
            for y, wanted in zip(each.run({"x": x}), joint_values(x, **values), strict=True):
                np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)


def test_a_run_computes_nothing_of_parameters_alone():
    model = compiled(joint())
    record, setup = model._compilation.program.record, model._compilation.program.setup
    assert len(setup.record.nodes) >= 3
    for node in record.nodes:
        reads = [record.memories[op.memory].kind for op in node.operands if op.reads]
        # Copies into the output block are all that such nodes may be.
        copies = node.kernel == "copy_bytes" or node.name == "outputs"
        assert copies or set(reads) & {"input", "arena", "output"}


def test_an_index_out_of_range_among_parameters():
    graph = fg.Graph("rows")
    table, index = graph.param("table", (4, 2)), graph.param("index", (3,), "int64")
    x = graph.input("x", (2,))
    graph.output(ops.take(table, index, axis=0) * x, "y")
    model = compiled(graph)
    table = np.arange(8, dtype="f4").reshape(4, 2)
    model.set_params({"table": table, "index": np.array([0, 3, -4])})
    wanted = model.run({"x": np.ones(2, "f4")})[0]
    np.testing.assert_array_equal(wanted, table[[0, 3, 0]])
    for bad in (4, -5, 2**62, -(2**63)):
        with pytest.raises(
            fg.InputError,
            match=r"^parameters 'index', 'table': node 'take' \(take, \w+\.py:\d+\) met an index "
            "out of range while they were set; no parameter has changed$",
        ):
            model.set_params({"index": np.array([0, bad, 1]), "table": table * 0})
        np.testing.assert_array_equal(model.run({"x": np.ones(2, "f4")})[0], wanted)
    model.set_param("index", np.array([1, 1, 1]))
    np.testing.assert_array_equal(model.run({"x": np.ones(2, "f4")})[0], table[[1, 1, 1]])


@pytest.mark.parametrize("fuse", [True, False])
def test_an_index_out_of_range_names_its_node_and_the_parameters_it_reads(fuse):
    graph = fg.Graph("two")
    x, w = graph.input("x", (2,)), graph.param("w", (2,))
    table, first, second = graph.param("t", (4,)), *(
        graph.param(name, (2,), "int64") for name in ("first", "second")
    )  # fmt: skip
    graph.output(x * ops.tanh(w) + ops.take(ops.exp(table), first, axis=0), "y")
    graph.output(x + ops.take(ops.exp(table), second, axis=0), "z")
    model = compiled(graph, fuse=fuse)
    good = {"w": np.ones(2, "f4"), "t": np.ones(4, "f4")} | {
        name: np.array([0, 3]) for name in ("first", "second")
    }
    with pytest.raises(
        fg.InputError, match=r"^parameters 't', 'second': node 'take_1' \(take, \w+\.py:\d+\) met"
    ):
        model.set_params(good | {"second": np.array([0, 4])})
    model.set_params(good)
    wanted = model.run({"x": np.ones(2, "f4")})
    with pytest.raises(
        fg.InputError, match=r"^parameter 'first': node 'take' \(take, \w+\.py:\d+\) met"
    ):
        model.set_params({"w": np.zeros(2, "f4"), "first": np.array([4, 0])})
    for y, right in zip(model.run({"x": np.ones(2, "f4")}), wanted, strict=True):
        np.testing.assert_array_equal(y, right)


@pytest.mark.parametrize("fuse", [True, False])
def test_an_index_out_of_range_among_constants(fuse):
    graph = fg.Graph("rows")
    table, index = graph.constant(np.ones(4, "f4")), graph.constant(np.array([0, 3]))
    graph.output(graph.input("x", (2,)) + ops.take(table, index + 1, axis=0), "y")
    with pytest.raises(
        fg.CompileError, match=r"^node 'take' \(take, \w+\.py:\d+\) meets .* constants$"
    ):
        compiled(graph, fuse=fuse)


def test_names_that_are_no_parameters():
    graph = models.layer()
    graph.scalar("pos", "int32", default=0)
    graph.fixed["shape"] = "is a constant: node 'flat' depends on it"
    for model in (compiled(graph), compiled(graph).clone(), compiled(graph.copy())):
        for name, message in (
            ("x", "'x' is an input, which every run is given; the parameters are"),
            ("pos", "'pos' is a scalar, which runs take by keyword; the parameters are"),
            ("shape", "^'shape' is a constant: node 'flat' depends on it$"),
        ):
            with pytest.raises(fg.InputError, match=message):
                model.set_param(name, np.zeros(1, "f4"))


@pytest.mark.parametrize("threads", [1, 2])
def test_an_index_out_of_range_among_inputs(threads):
    graph = fg.Graph("rows")
    table, index = graph.param("table", (5, 400)), graph.input("index", (300,), "int64")
    rows = ops.take(table, index, axis=0)
    graph.output(ops.softmax(rows), "y")
    graph.output(index + 1, "next")
    model = compiled(graph, threads=threads)
    model.set_params(data_for(model.params))
    good = np.arange(300) % 10 - 5
    wanted = model.run({"index": good})
    for bad in (5, -6, 2**40, -(2**63)):
        broken = good.copy()
        broken[bad % 300] = bad
        out = [np.full(y.shape, 7, y.dtype) for y in wanted]
        calls = (
            lambda b=broken: model.run({"index": b}),
            lambda b=broken, out=out: model.run({"index": b}, out=out),
            lambda b=broken: model.run_raw({"index": b}),
            lambda b=broken: model.run_slots([b]),
            model.bind({"index": broken}),
            lambda b=broken: model.profile({"index": b}, 1),
        )
        for call in calls:
            with pytest.raises(
                fg.InputError, match=r"node 'take' \(take, \w+\.py:\d+\) met an index out of range"
            ):
                call()
            assert all((array == 7).all() for array in out)
            for y, right in zip(model.run({"index": good}), wanted, strict=True):
                np.testing.assert_array_equal(y, right)


def test_parameters_set_beside_runs():
    """Each run sees every parameter of one call of set_params or none of them."""
    n = 96
    graph = fg.Graph("race")
    x = graph.input("x", (1, n))
    a, b = graph.param("a", (n, n)), graph.param("b", (n,))
    h = x @ a
    for _ in range(4):
        h = h + ops.sum(h) * 0
    graph.output(h + b, "y")
    model = compiled(graph, threads=2, release_gil=True)
    eye = np.eye(n, dtype="f4")

    def state(k):
        return {"a": eye * f4(k), "b": np.full(n, 1000 * k, "f4")}

    model.set_params(state(1))
    wrong, enough, counts = [], 200, [0, 0]
    # Only so that nothing waits for ever; no machine is that slow.
    until = time.monotonic() + 60

    def goes_on():
        return min(counts) < enough and time.monotonic() < until

    def run():
        ones = np.ones((1, n), "f4")
        while goes_on():
            y = model.run({"x": ones})[0]
            counts[0] += 1
            if y.min() != y.max() or y[0, 0] % 1001:
                wrong.append(y)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    while goes_on():
        counts[1] += 1
        model.set_params(state(1 + counts[1] % 7))
    for thread in threads:
        thread.join()
    assert not wrong
    assert min(counts) >= enough


def test_clones_share_until_one_side_sets():
    model, inputs, _ = ready("mlp")
    before = counters.snapshot()["block_bytes"]
    other = model.clone()
    grown = counters.snapshot()["block_bytes"] - before
    assert grown < 2 * model.arena_nbytes + 8192
    assert grown < sum(np.prod(info.shape) * 4 for info in model.params) / 10
    (wanted,) = model.run(inputs)
    other.set_param("b2", np.zeros(10, "f4"))
    np.testing.assert_array_equal(model.run(inputs)[0], wanted)
    model.set_param("b2", data_for(model.params)["b2"] * 2)
    (third,) = model.clone().run(inputs)
    np.testing.assert_array_equal(third, model.run(inputs)[0])
    assert not np.array_equal(third, wanted)


def test_packed_weights_are_not_kept_twice():
    before = counters.snapshot()["block_bytes"]
    model = compiled(models.mlp())
    model.set_params(data_for(model.params))
    plain = sum(int(np.prod(info.shape)) * 4 for info in model.params)
    assert counters.snapshot()["block_bytes"] - before < 1.2 * plain + 100_000


@pytest.mark.parametrize("fuse", [True, False])
def test_what_depends_on_parameters_and_has_no_elements(fuse):
    """No call writes a value of no bytes; others are computed from it all the same."""
    graph = fg.Graph("nothing")
    x, p, e = graph.input("x", (2, 4)), graph.param("p", (0, 4)), graph.param("e", (4, 0))
    none = ops.softmax(ops.tanh(p)) * 2
    graph.output(ops.sum(none, axis=0), "zeros")
    graph.output(x + ops.sum(none, axis=0), "x")
    graph.output(ops.tanh(e) @ none, "product")
    graph.output(x @ ops.tanh(e) @ ops.tanh(p), "run")
    graph.output(ops.concat([x, none], axis=0), "joined")
    graph.output(none, "none")
    model = compiled(graph, fuse=fuse)
    model.set_params({"p": np.zeros((0, 4), "f4"), "e": np.zeros((4, 0), "f4")})
    x = data_for(model.inputs)["x"]
    zeros, same, product, run, joined, none = model.run({"x": x})
    assert zeros.tolist() == [0] * 4
    for found in (same, joined):
        np.testing.assert_array_equal(found, x)
    assert product.tolist() == [[0] * 4] * 4
    assert run.tolist() == [[0] * 4] * 2
    assert none.shape == (0, 4)
