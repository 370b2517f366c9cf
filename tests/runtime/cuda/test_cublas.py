"""Products that cuBLASLt does: values, rebinding, one launch a run, and what is left to kernels."""

from __future__ import annotations

from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops
from fastgraph._core import counters
from fastgraph.device.cuda import cublas as module
from fastgraph.lower.cuda import LOWERINGS, Target, library, tiles
from fastgraph.passes import optimise
from fastgraph.passes.extents import Source, resized
from tests.runtime import models
from tests.runtime.cuda.test_runs import FAKE, ONE_LAUNCH, enqueued
from tests.runtime.models import compiled

pytestmark = pytest.mark.cuda

LONG_K = 128  # where the fake library's algorithm has a workspace and three nodes
# Of the largest element.
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 3e-6, "tf32": 3e-3, "float64": 1e-13}


class Case(NamedTuple):
    """One product."""

    m: int = 24
    k: int = 32
    n: int = 40
    x_transposed: bool = False
    w_transposed: bool = False
    batched: str = ""  # which operands are batches: "x", "w", "xw"
    end: str = "none"


ENDS = {
    "none": lambda y, b, r, o: y,
    "bias": lambda y, b, r, o: y + b,
    "bias_relu": lambda y, b, r, o: o.relu(y + b),
    "bias_gelu_tanh": lambda y, b, r, o: o.gelu(y + b, "tanh"),
    "residual": lambda y, b, r, o: y + r,
    "residual_relu": lambda y, b, r, o: o.relu(y + b + r),
    "bias_gelu": lambda y, b, r, o: o.gelu(y + b, "none"),
    "relu_residual": lambda y, b, r, o: o.relu(y + b) + r,
    "silu": lambda y, b, r, o: o.silu(y),
}
LAYOUTS = (
    Case(x_transposed=True, end="bias"),
    Case(w_transposed=True, end="bias"),
    Case(x_transposed=True, w_transposed=True),
    Case(m=17, k=23, n=29, end="bias"),
    Case(k=LONG_K, end="residual_relu"),
    Case(k=LONG_K, w_transposed=True, end="relu_residual"),
    Case(batched="xw"),
    Case(batched="xw", k=LONG_K, x_transposed=True),
    Case(batched="x"),
    Case(batched="w", w_transposed=True),
)


class Numbers:
    """What `ENDS` ask of `fastgraph.ops`, in float64."""

    @staticmethod
    def relu(y):
        return np.maximum(y, 0)

    @staticmethod
    def silu(y):
        return y / (1 + np.exp(-y))

    @staticmethod
    def gelu(y, approximate):
        graph = fg.Graph("gelu")
        graph.output(ops.gelu(graph.input("y", y.shape, "float64"), approximate), "z")
        return fg.Session("cpu").compile(graph).run({"y": y})[0]


def swapped(value):
    axes = tuple(range(len(value.shape) - 2))
    return ops.transpose(value, (*axes, len(axes) + 1, len(axes)))


def graph_of(cases, dtype):
    """A graph of products, their arrays, and what they give."""
    random = np.random.default_rng(0)
    graph, given, wanted = fg.Graph("products"), {}, []
    real = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)

    def new(shape):
        name = f"x{len(given)}"
        given[name] = random.standard_normal(shape).astype(real)
        return graph.input(name, shape, dtype), given[name].astype("f8")

    for i, case in enumerate(cases):
        m, k, n = case.m, case.k, case.n
        x_shape, w_shape = ((k, m) if case.x_transposed else (m, k)), (k, n)
        if case.w_transposed:
            w_shape = (n, k)
        x, x8 = new((3, *x_shape) if "x" in case.batched else x_shape)
        w, w8 = new((3, *w_shape) if "w" in case.batched else w_shape)
        b, b8 = new((n,))
        if case.x_transposed:
            x, x8 = swapped(x), np.swapaxes(x8, -1, -2)
        if case.w_transposed:
            w, w8 = swapped(w), np.swapaxes(w8, -1, -2)
        y8 = x8 @ w8
        r, r8 = new(y8.shape)
        graph.output(ENDS[case.end](x @ w, b, r, ops), f"y{i}")
        wanted.append(ENDS[case.end](y8, b8, r8, Numbers))
    return graph, given, wanted


def done_by(model):
    """How many products the library does, and how many a kernel."""
    lines = str(model.summary()).split("\n")
    library = sum("cuBLASLt" in line for line in lines)
    products = sum("fused_matmul" in line and "_matmul, end" not in line for line in lines)
    return library, products - library


def linear(m=24, k=32, n=40, layers=1):
    """Products one after another, each with a bias and relu."""
    graph = fg.Graph("linear")
    x = graph.input("x", (m, k))
    for i in range(layers):
        x = ops.relu(x @ graph.param(f"w{i}", (k, n)) + graph.param(f"b{i}", (n,)))
        k = n
    graph.output(x, "y")
    return graph


def ready(graph, seed=0, **options):
    """A model with its parameters set, and what it gives."""
    model = compiled(graph, **options)
    params = models.data_for(model.params, seed)
    model.set_params(params)

    def wanted(x, params=params):
        for i in range(len(params) // 2):
            x = np.maximum(x @ params[f"w{i}"] + params[f"b{i}"], 0)
        return x

    return model, wanted


def x_of(model, seed=1):
    return models.data_for(model.inputs, seed)["x"]


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


# ---- values


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_products_of_every_kind(cublas, dtype):
    ends = ENDS if dtype in ("float16", "float64") else ("bias_relu", "bias_gelu_tanh")
    cases = [*(Case(end=end) for end in ends), *LAYOUTS]
    real = "float32" if dtype == "tf32" else dtype
    graph, given, wanted = graph_of(cases, real)
    model = compiled(graph, tf32=dtype == "tf32")
    found = model.run(given)
    for case, mine, his in zip(cases, found, wanted, strict=True):
        worst = np.abs(mine.astype("f8") - his).max() / np.abs(his).max()
        assert worst < TOLERANCE[dtype], case
    if cublas is not None:
        assert done_by(model) == (len(cases), 0)
    again, other = model.run(given), model.clone().run(given)
    for a, b, c in zip(found, again, other, strict=True):
        assert a.tobytes() == b.tobytes() == c.tobytes()


@pytest.mark.fake
def test_tf32_is_used_where_it_is_asked_for_and_nowhere_else(cublas):
    x = np.full((24, 24), 1 + 2.0**-12, "f4")
    for tf32, wanted in ((False, x @ x), (True, np.full((24, 24), 24, "f4"))):
        graph = fg.Graph("square")
        a = graph.input("x", (24, 24))
        graph.output(a @ a, "y")
        np.testing.assert_allclose(compiled(graph, tf32=tf32).run({"x": x})[0], wanted, rtol=1e-6)
    assert cublas.calls("Matmul") == 2


# ---- which products


@pytest.mark.fake
def test_small_products_do_not_even_look_for_it(cublas, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(module, "locate", lambda: pytest.fail("looked for"))
    monkeypatch.setattr(module, "_known", [])
    model, wanted = ready(linear(layers=2))
    assert done_by(model) == (0, 2)
    close(model.run({"x": x_of(model)})[0], wanted(x_of(model)))


@pytest.mark.fake
def test_an_option_says_no(cublas):
    model, wanted = ready(linear(), cublas=False)
    assert done_by(model) == (0, 1)
    assert cublas.calls("MatmulAlgoGetHeuristic") == 0
    close(model.run({"x": x_of(model)})[0], wanted(x_of(model)))
    with pytest.raises(fg.InputError, match="cublas is 1"):
        compiled(linear(), cublas=1)


@pytest.mark.fake
def test_without_an_algorithm_a_kernel_does_it(cublas):
    cublas.without_algorithms()
    model, wanted = ready(linear())
    assert cublas.calls("MatmulAlgoGetHeuristic") == 2  # also without the end
    assert done_by(model) == (0, 1)
    close(model.run({"x": x_of(model)})[0], wanted(x_of(model)))


@pytest.mark.fake
def test_without_an_algorithm_for_its_end_a_kernel_ends_it(cublas):
    cublas.fail("MatmulAlgoGetHeuristic", 15)
    model, wanted = ready(linear())
    assert done_by(model) == (1, 0)
    assert [node.name for node in model.graph.nodes].count("matmul") == 2
    close(model.run({"x": x_of(model)})[0], wanted(x_of(model)))


@pytest.mark.fake
def test_without_the_library_a_kernel_does_it(cublas, monkeypatch):
    monkeypatch.setattr(module, "locate", lambda: None)
    model, wanted = ready(linear())
    assert done_by(model) == (0, 1)
    close(model.run({"x": x_of(model)})[0], wanted(x_of(model)))


@pytest.mark.fake
@pytest.mark.parametrize(
    "build",
    [
        pytest.param(
            lambda g, x: (
                ops.reshape(ops.reshape(x, (1536,))[1:1489], (48, 31)) @ g.param("w", (31, 8))
            ),
            id="view",
        ),
        pytest.param(
            lambda g, x: ops.reshape(x, (2, 1, 24, 32)) @ g.param("w", (3, 32, 8)), id="two batches"
        ),
        pytest.param(
            lambda g, x: ops.astype(x, "int32") @ g.param("w", (32, 8), "int32"), id="int"
        ),
        pytest.param(lambda g, x: x[:1] @ g.param("w", (32, 8)), id="row"),
        pytest.param(lambda g, x: x + (g.param("w", (48, 32)) @ g.param("v", (32, 32))), id="set"),
    ],
)
def test_what_is_left_to_kernels(cublas, build):
    graph = fg.Graph("left")
    graph.output(build(graph, graph.input("x", (48, 32))), "y")
    model = compiled(graph)
    params = models.data_for(model.params)
    model.set_params(params)
    assert cublas.calls("Matmul") == 0
    x = models.data_for(model.inputs, 1)["x"]
    reference = fg.Session("cpu").compile(graph)
    reference.set_params(params)
    close(model.run({"x": x})[0], reference.run({"x": x})[0])


class Recording:
    """A library that has no algorithm, and is asked for all the same."""

    def __init__(self):
        self.wanted = []

    def plan(self, **wanted):
        self.wanted.append((wanted["m"], wanted["k"], wanted["n"]))


def test_sizes_that_follow_an_extent_are_left_to_kernels(monkeypatch):
    monkeypatch.setattr(library, "library_ns", lambda *shape: 0.0)
    graph = fg.Graph("rows")
    x = graph.input("x", (fg.dim("rows", 48), 32))
    graph.output(x @ graph.param("w", (32, 40)), "y")
    graph.output(graph.input("z", (48, 32)) @ graph.param("v", (32, 24)), "still")
    rows, _ = resized(Source.of(graph), [("rows", 48)])
    sized = optimise(rows, pack=False).graph
    target = Target("sm_90", (9, 0), 132, 232448, 50 << 20, library=Recording())
    products = [node for node in sized.nodes if node.op == "fused_matmul"]
    assert len(products) == 2
    for node in products:
        LOWERINGS[node.op](node, target)
    assert target.library.wanted == [(48, 32, 24)]


def own_ns(kind, shape):
    """What the tables expect of our own kernels on an H200."""
    if kind == "f64":
        return tiles.plain_ns(shape, 132)
    table = {"f32": tiles.SIMT, "tf32": tiles.TF32}.get(kind, (*tiles.WGMMA, *tiles.MMA))
    return tiles.expected_ns(tiles.choose(table, shape, 132, 232448), shape, 132)


@pytest.mark.parametrize("kind", tiles.LIBRARY)
def test_large_products_are_worth_it_and_small_ones_are_not(kind):
    small, large = tiles.Shape(1, 24, 24, 16), tiles.Shape(1, 4096, 4096, 4096)
    assert tiles.library_ns(kind, small, 132, 0) > own_ns(kind, small)
    assert tiles.library_ns(kind, large, 132, 0) < own_ns(kind, large)


def test_an_end_by_a_kernel_has_its_price():
    shape = tiles.Shape(1, 4096, 1536, 384)
    end = 8 * 4096 * 1536
    assert tiles.library_ns("f16", shape, 132, end) > 2 * tiles.library_ns("f16", shape, 132, 0)
    assert tiles.library_ns("f16", shape, 132, end) > own_ns("f16", shape)


# ---- runs


@pytest.mark.fake
@pytest.mark.parametrize("k", [32, LONG_K])
def test_a_run_is_one_launch_and_captures_nothing(cublas, k, ctx):
    model, wanted = ready(linear(k=k, n=k, layers=3))
    x = x_of(model)
    assert model.graph.nodes[-1].name == "outputs"  # what it writes is never the host's memory
    close(model.run({"x": x})[0], wanted(x))
    assert cublas.calls("Matmul") == 3
    x_there, y_there = ctx.to_device(x), ctx.create_buffer((24, k))
    step = model.bind({"x": x_there}, {"y": y_there})
    step()
    calls = (
        lambda: model.run({"x": x}), lambda: model.run_slots([x]), lambda: model.run_raw({"x": x}),
        step,
    )  # fmt: skip
    for call in calls:
        call()
        assert enqueued(call)[0] == ONE_LAUNCH
    close(y_there.numpy(), wanted(x))
    assert cublas.calls("Matmul") == 3  # no address of theirs is the caller's


def test_clones_lanes_and_what_is_left_of_a_model(cublas):
    model, wanted = ready(linear(k=LONG_K, layers=2))
    xs = [x_of(model, seed) for seed in range(5)]
    twin = model.clone()
    for i, (y,) in enumerate(model.run_pipelined([{"x": x} for x in xs])):
        close(y, wanted(xs[i]))
    del model
    close(twin.run({"x": xs[0]})[0], wanted(xs[0]))
    if cublas is not None:
        # An executable each of the model, its two more lanes and the twin.
        assert cublas.calls("Matmul") % 2 == 0
        assert cublas.calls("MatmulAlgoGetHeuristic") == 2


def test_parameters_that_move(cublas):
    """A clone that sets one gets memory of its own for it: the call is captured for that."""
    model, wanted = ready(linear(layers=3))
    x = x_of(model)
    twin = model.clone()
    before = cublas and cublas.calls("Matmul")
    params = models.data_for(model.params)
    params["w1"] = params["w1"] * 2
    twin.set_param("w1", params["w1"])
    close(twin.run({"x": x})[0], wanted(x, params))
    close(model.run({"x": x})[0], wanted(x))
    if cublas is not None:
        assert cublas.calls("Matmul") == before + 1


def test_handles_and_feeds(cublas, ctx):
    graph = fg.Graph("state")
    state, w = graph.input("state", (24, 32)), graph.param("w", (32, 32))
    graph.output(ops.relu(state @ w) * 0.5, "next")
    model = compiled(graph)
    w = models.data_for(model.params)["w"]
    model.set_params({"w": w})
    wanted = np.ones((24, 32), "f4")
    model.bind_handle("state", wanted)
    model.set_gpu_handle_feed("state", "next")
    for _ in range(3):
        wanted = np.maximum(wanted @ w, 0) * 0.5
        close(model.run({})[0], wanted)
    other = ctx.to_device(np.full((24, 32), 2, "f4"))
    model.bind_gpu_handle("state", other)
    wanted = np.maximum(np.full((24, 32), 2, "f4") @ w, 0) * 0.5
    close(model.run({})[0], wanted)
    close(other.numpy(), wanted)


def test_in_bodies_of_conditionals(cublas):
    graph = fg.Graph("control")
    x, w, n = graph.input("x", (24, 24)), graph.param("w", (24, 24)), graph.input("n", (), "int32")

    def body(i, y):
        return i + 1, ops.cond(i < 1, lambda y: y @ w, lambda y: (y @ w) * 0.5, y)

    _, y = ops.while_loop(lambda i, y: i < n, body, np.int32(0), x)
    graph.output(y, "y")
    model = compiled(graph)
    w = models.data_for(model.params)["w"]
    model.set_params({"w": w})
    x = models.data_for(model.inputs, 1)["x"]
    for model_ in (model, model.clone()):
        for count in (0, 1, 3):
            wanted = x
            for i in range(count):
                wanted = (wanted @ w) * (1 if i < 1 else 0.5)
            close(model_.run({"x": x, "n": np.int32(count)})[0], wanted)
    model.set_param("w", w * 2)
    close(model.run({"x": x, "n": np.int32(1)})[0], x @ w * 2)


def test_a_model_in_a_graph_of_the_users_own(cublas, ctx):
    graph = fg.Graph("part")
    x, s = graph.input("x", (24, 32)), graph.scalar("s", "float32", 2.0)
    graph.output(ops.relu(x @ graph.param("w", (32, 40))) * s, "y")
    model = compiled(graph)
    w = models.data_for(model.params)["w"]
    model.set_params({"w": w})
    x = models.data_for(model.inputs, 1)["x"]

    def build(b, stable):
        k = b.scalar("k", "float32", 3.0, where="memory")
        (y,) = b.add_child_graph(model, inputs={"x": stable, "s": k}).outputs
        b.add_output(y)

    mine = fg.DeviceGraph.create(ctx, build, x, verify=1)
    close(mine.run(x)[0], np.maximum(x @ w, 0) * 3)
    close(mine.clone().run(x + 1, k=4.0)[0], np.maximum((x + 1) @ w, 0) * 4)


def test_a_residual_whose_bytes_become_the_result(cublas):
    graph = fg.Graph("residual")
    x = graph.input("x", (64, 64))
    y = ops.relu(x)
    for i in range(4):
        y = y + x @ graph.param(f"w{i}", (64, 64))
    graph.output(y * 2, "y")
    model = compiled(graph)
    params = models.data_for(model.params)
    model.set_params(params)
    x = models.data_for(model.inputs, 1)["x"]
    wanted = np.maximum(x, 0) + sum(x @ w for w in params.values())
    close(model.run({"x": x})[0], 2 * wanted)


def test_a_profile_has_them(cublas):
    model, _ = ready(linear(k=LONG_K, layers=2))
    nodes = {node.name: node for node in model.profile({"x": x_of(model)}, 2).nodes}
    done = [node for node in nodes.values() if "cuBLASLt" in node.operator]
    assert len(done) == 2
    assert all(node.us > 0 and node.flops_per_s > 0 for node in done)


# ---- failing calls


@pytest.mark.fake
def test_a_call_that_fails_names_its_node_and_leaves_the_model(cublas):
    model = compiled(linear(layers=2))
    params = models.data_for(model.params)
    live, before = cublas.live(), FAKE.settled()
    cublas.fail("Matmul", 13, 2)
    with pytest.raises(fg.DriverError, match="CUBLAS_STATUS_EXECUTION_FAILED") as caught:
        model.set_params(params)
    assert caught.value.node == "matmul_1"
    assert any("matmul_1" in note for note in caught.value.__notes__)
    assert cublas.live() == live
    assert FAKE.settled()["graphs"] == before["graphs"]
    assert FAKE.settled()["execs"] == before["execs"]
    model.set_params(params)
    x = x_of(model)
    wanted = x
    for i in range(2):
        wanted = np.maximum(wanted @ params[f"w{i}"] + params[f"b{i}"], 0)
    close(model.run({"x": x})[0], wanted)
    cublas.fail("Matmul", 13)
    with pytest.raises(fg.DriverError, match="cublas=False"):
        model.clone()
    close(model.run({"x": x})[0], wanted)


@pytest.mark.fake
def test_models_that_go_leave_nothing(cublas):
    live, before = None, None
    for _ in range(2):
        model, _ = ready(linear(k=LONG_K, layers=2))
        model.clone().run({"x": x_of(model)})
        del model
        FAKE.settled()
        now = cublas.live(), counters.snapshot()["products"]
        assert live is None or now == (live, before)
        live, before = now


# ---- extents


def test_with_an_extent_all_products_are_left_to_kernels(cublas):
    graph = fg.Graph("rows")
    x, z = graph.input("x", (fg.dim("rows", 48), 32)), graph.input("z", (40, 24))
    y = x @ graph.param("w", (32, 24))
    graph.output(ops.relu(y), "y")
    graph.output(z @ graph.param("v", (24, 32)), "still")
    model = compiled(graph)
    params = models.data_for(model.params)
    model.set_params(params)
    given = models.data_for(model.inputs, 1)
    whole = model.run(given)
    if cublas is not None:
        assert done_by(model) == (2, 0)
    model.set_active_extent((17, 48), dim="rows")
    assert cublas is None or cublas.calls("Matmul") == 2
    for model_ in (model, model.clone()):
        found = model_.run({"x": given["x"][:17], "z": given["z"]})
        close(found[0], np.maximum(given["x"][:17] @ params["w"], 0))
        close(found[1], given["z"] @ params["v"])
    model.set_active_extent(None)
    again = model.run(given)
    assert [y.tobytes() for y in again] == [y.tobytes() for y in whole]
