"""What compiled graphs give, figure by figure."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastgraph as fg
from fastgraph import ops
from tests.runtime import models
from tests.runtime.models import compiled, data_for, ready

f4 = np.float32


def test_linear_with_exact_gelu():
    model = compiled(models.layer())
    model.set_params({"w": np.eye(4, dtype="f4")[:, :3], "b": f4([0.5, -0.5, 0])})
    (y,) = model.run({"x": np.eye(4, dtype="f4")[:2]})
    half = 0.34573
    np.testing.assert_allclose(y, [[1.39979, -0.15427, 0], [half, half, 0]], atol=1e-5)
    gelu_of_b = [0.5 * b * (1 + math.erf(b / 2**0.5)) for b in (0.5, -0.5, 0.0)]
    (y,) = model.run({"x": np.zeros((2, 4), "f4")})
    np.testing.assert_allclose(y, [gelu_of_b] * 2, atol=1e-6)


def outcome(function, *arrays):
    """What a compiled graph of `function` gives for arrays as inputs."""
    graph = fg.Graph("figure")
    values = [graph.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    graph.output(function(*values), "y")
    (y,) = compiled(graph).run({f"x{i}": array for i, array in enumerate(arrays)})
    return y


ROWS = np.arange(1, 7, dtype="f4").reshape(2, 3)
FIGURES = {
    "running sums": (ops.cumulative_sum, [f4([1, 2, 3])], [1, 3, 6]),
    "the two largest": (lambda x: ops.top_k(x, 2)[0], [f4([0.1, 0.9, 0.3, 0.7, 0.5])], [0.9, 0.7]),
    "their places": (lambda x: ops.top_k(x, 2)[1], [f4([0.1, 0.9, 0.3, 0.7, 0.5])], [1, 3]),
    "ties": (lambda x: ops.top_k(x, 3)[1], [f4([1, 2, 2, 1, 2])], [1, 2, 4]),
    "added by index": (ops.scatter_add, [f4([0, 0, 0]), np.array([0, 0]), f4([5, 7])], [12, 0, 0]),
    "add": (ops.add, [f4([1, 2, 3, 4]), f4([10, 20, 30, 40])], [11, 22, 33, 44]),
    "relu": (ops.relu, [f4([-2, -0.5, 0, 1, 3])], [0, 0, 0, 1, 3]),
    "matmul": (ops.matmul, [ROWS, np.arange(7, 13, dtype="f4").reshape(3, 2)],
               [[58, 64], [139, 154]]),
    "sum": (lambda x: ops.sum(x, axis=1), [ROWS], [6, 15]),
    "max": (lambda x: ops.max(x, axis=1), [f4([[1, 5, 2], [9, 3, 4]])], [5, 9]),
    "softmax": (ops.softmax, [f4([1, 2, 3])], [0.09003, 0.24473, 0.66524]),
    "argmax": (ops.argmax, [f4([0.1, 0.5, 0.2, 0.9, 0.3])], 3),
    "argmax of equals": (ops.argmax, [f4([1, 3, 3, 2])], 1),
    "gather": (lambda x, i: ops.take(x, i, axis=0), [ROWS, np.int64([1, 0, -1])], ROWS[[1, 0, -1]]),
    "narrow": (lambda x: x[:, 1:3], [ROWS], ROWS[:, 1:3]),
    "concat": (lambda x: ops.concat([x, x], axis=1), [ROWS], np.tile(ROWS, (1, 2))),
    "transpose": (ops.transpose, [ROWS], ROWS.T),
    "expand": (lambda x: ops.broadcast_to(x, (2, 3)), [f4([[1], [2]])], [[1] * 3, [2] * 3]),
    "broadcast": (ops.add, [np.ones((2, 3, 4), "f4"), f4([1, 2, 3, 4])],
                  np.broadcast_to(f4([2, 3, 4, 5]), (2, 3, 4))),
    "both ways": (ops.multiply, [f4([[1], [2], [3], [4]]), f4([[1, 10, 100]])],
                  np.outer([1, 2, 3, 4], [1, 10, 100])),
    "0-d": (ops.add, [f4(3).reshape(()), f4([1, 2])], [4, 5]),
}  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
def test_figures(name):
    function, arrays, wanted = FIGURES[name]
    y = outcome(function, *arrays)
    np.testing.assert_allclose(y, wanted, atol=1e-5)
    assert y.shape == np.shape(wanted)


def test_norms_of_one_to_four():
    y = outcome(ops.layer_norm, f4([1, 2, 3, 4]))
    assert abs(y.mean()) < 1e-6
    assert abs(y.var() - 1) < 1e-4
    y = outcome(ops.rms_norm, f4([1, 2, 3, 4]))
    np.testing.assert_allclose(y, f4([1, 2, 3, 4]) / 7.5**0.5, rtol=1e-5)


@pytest.mark.parametrize("fuse", [True, False])
def test_a_fused_region_has_the_bits_of_its_steps(fuse):
    graph = fg.Graph("region")
    a, b, c = (graph.input(name, (4, 33)) for name in "abc")
    graph.output(ops.relu((a + b) * c), "y")
    model = compiled(graph, fuse=fuse)
    data = data_for(model.inputs)
    (y,) = model.run(data)
    np.testing.assert_array_equal(y, np.maximum((data["a"] + data["b"]) * data["c"], 0))


# Values that only the dtype itself holds: past the integers of float32, at the ends of ranges.
KEPT = {
    "float16": 65504.0,
    "bfloat16": 3.0 * 2**120,
    "float32": 0.5,
    "float64": 1 + 2**-52,
    "bool": True,
    **{f"int{bits}": 2 ** (bits - 1) - 1 for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": 2**bits - 1 for bits in (8, 16, 32, 64)},
}


def test_declared_dtypes_are_kept_and_integers_exact():
    graph = fg.Graph("typed")
    for kind in KEPT:
        x, p = graph.input(f"x.{kind}", (3,), kind), graph.param(f"p.{kind}", (3,), kind)
        graph.output(ops.maximum(x, p), kind)
    model = compiled(graph)
    model.set_params({f"p.{kind}": np.full(3, value, kind) for kind, value in KEPT.items()})
    data = {f"x.{kind}": np.zeros(3, kind) for kind in KEPT}
    ways = [model.run(data), [raw.array() for raw in model.run_raw(data)]]
    model.run_slots(list(data.values()))
    ways.append([model.output_view(i) for i in range(len(KEPT))])
    out = [np.empty(3, kind) for kind in KEPT]
    model.run({name: np.stack([x, x], 1)[:, 0] for name, x in data.items()}, out=out)
    bound = {kind: np.empty(3, kind) for kind in KEPT}
    model.bind(data, bound)()
    ways += [out, list(bound.values())]
    typed = model.run_typed([(name, x.tobytes(), x.dtype.name) for name, x in data.items()])
    ways.append([np.frombuffer(raw, kind) for raw, kind in typed])
    for found in ways:
        for (kind, value), y in zip(KEPT.items(), found, strict=True):
            assert y.dtype == kind
            assert y.tolist() == [value] * 3
    assert [info.dtype for info in model.outputs] == [np.dtype(kind) for kind in KEPT]


@pytest.mark.parametrize("kind", [kind for kind in KEPT if kind != "bool"])
def test_scalars_of_every_dtype(kind):
    graph = fg.Graph("scalar")
    s = graph.scalar("s", kind, default=1)
    graph.output(graph.input("x", (2,), kind) * s, "y")
    model = compiled(graph)
    value = int(KEPT[kind]) if "int" in kind else float(KEPT[kind])
    (y,) = model.run({"x": np.ones(2, kind)}, s=value)
    assert (y.dtype, y.tolist()) == (np.dtype(kind), [value] * 2)
    assert model.run({"x": np.ones(2, kind)})[0].tolist() == [1, 1]


@pytest.mark.parametrize(
    "dtype", ["float128", "float8_e4m3fn", "int4", "complex64", "M8[s]", ">f4"]
)
def test_other_dtypes_are_refused_by_name(dtype):
    with pytest.raises(fg.GraphError, match=r"input 'x': dtype .* is not supported"):
        fg.Graph("typed").input("x", (3,), dtype)


ALL_WAYS = [*models.SUITE]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ALL_WAYS)
def test_all_run_methods_give_the_same_bits(name, threads):
    model, inputs, scalars = ready(name, threads=threads)
    wanted = [y.tobytes() for y in model.run(inputs, **scalars)]
    assert [y.array().tobytes() for y in model.run_raw(inputs, **scalars)] == wanted
    model.run_slots([inputs[info.name] for info in model.inputs], **scalars)
    views = [model.output_view(i) for i in range(len(model.outputs))]
    assert [view.tobytes() for view in views] == wanted
    filled = {info.name: np.zeros(info.shape, info.dtype) for info in model.outputs}
    model.bind(inputs, filled)(**scalars)
    assert [array.tobytes() for array in filled.values()] == wanted
    model.bind(inputs)(**scalars)
    assert [view.tobytes() for view in views] == wanted
    out = [np.zeros(info.shape, info.dtype) for info in model.outputs]
    given_ = model.run(inputs, out=out, **scalars)
    assert all(a is b for a, b in zip(given_, out, strict=True))
    assert [array.tobytes() for array in out] == wanted
    model.profile(inputs, 2, **scalars)
    assert [view.tobytes() for view in views] == wanted
    assert [y.tobytes() for y in model.clone().run(inputs, **scalars)] == wanted


@pytest.mark.parametrize("release_gil", [True, False, "auto"])
def test_the_gil_rule_changes_no_bit(release_gil):
    one, inputs, _ = ready("encoder")
    other, _, _ = ready("encoder", release_gil=release_gil, threads=2)
    assert other.run(inputs)[0].tobytes() == one.run(inputs)[0].tobytes()


@given(st.integers(1, 9), st.integers(0, 3))
def test_sizes_of_nothing(rows, empty):
    graph = fg.Graph("nothing")
    shape = [rows, 2, 3]
    shape[empty % 3] = 0
    x = graph.input("x", tuple(shape))
    graph.output(ops.sum(x), "sum")
    graph.output(x + 1, "same")
    graph.output(ops.concat([x, x], 0), "more")
    total, same, more = compiled(graph).run({"x": np.zeros(shape, "f4")})
    assert total == 0
    assert same.shape == tuple(shape)
    assert more.size == 0


def test_a_graph_of_constants_alone():
    graph = fg.Graph("constants")
    c = graph.constant(f4([1, 2]))
    graph.output(c, "c")
    graph.output(c * 2, "d")
    graph.output(c.reshape(2, 1), "e")
    model = compiled(graph)
    for found in (model.run({}), [y.array() for y in model.run_raw({})]):
        assert [y.tolist() for y in found] == [[1, 2], [2, 4], [[1], [2]]]
    model.run_slots([])
    model.bind()()


def test_a_graph_without_outputs_is_refused():
    graph = fg.Graph("nothing")
    graph.input("x", (1,))
    with pytest.raises(fg.CompileError, match="no outputs"):
        compiled(graph)


BAD_SESSIONS = {
    "no threads": (lambda: fg.Session("cpu", threads=0), "threads is 0"),
    "bool threads": (lambda: fg.Session("cpu", threads=True), "threads is True"),
    "too many threads": (lambda: fg.Session("cpu", threads=5000), "threads is 5000"),
    "text threads": (lambda: fg.Session("cpu", threads="2"), "threads is '2'"),
    "gil rule": (lambda: fg.Session("cpu", release_gil="yes"), "release_gil is 'yes'"),
    "no graph": (lambda: fg.Session("cpu").compile(models.twice), "compile takes a Graph"),
    "options": (
        lambda: fg.Session("cpu").compile(models.twice(), {}),
        "options are CompileOptions",
    ),
    "instruction set": (lambda: compiled(models.twice(), isa="z80"), "isa 'z80'"),
}


@pytest.mark.parametrize("name", BAD_SESSIONS)
def test_bad_sessions(name):
    call, match = BAD_SESSIONS[name]
    with pytest.raises(fg.InputError, match=match):
        call()


def test_the_graph_is_copied_at_compile():
    graph = models.twice()
    model = compiled(graph)
    graph.output(graph.inputs[0] * 9, "more")
    assert [info.name for info in model.outputs] == ["y"]
    assert len(model.run({"x": f4([1, 2, 3])})) == 1


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_windows_on_images(device, axes):
    """B 4: convolutions, their transposes and pools."""
    graph = fg.Graph("windows")
    image = np.arange(1, 1 + 4**axes, dtype=f4).reshape(1, 1, *(4,) * axes)
    ones = np.ones((1, 1, *(2,) * axes), f4)
    x = graph.input("x", image.shape)
    graph.output(ops.conv(x, ones, f4([0.5]), strides=2), "sums")
    graph.output(ops.average_pool(x, 2, strides=2), "means")
    graph.output(ops.max_pool(x, 2, strides=2), "largest")
    graph.output(ops.resize(x, scales=[1, 1] + [0.5] * axes, mode="linear"), "halves")
    graph.output(ops.conv_transpose(ops.max_pool(x, 4), ones * 2, strides=2), "spread")
    model = fg.Session(device).compile(graph)
    sums, means, largest, halves, spread = model.run({"x": image})
    np.testing.assert_allclose(halves, means, rtol=1e-6)
    np.testing.assert_allclose(sums, means * 2**axes + 0.5, rtol=1e-6)
    assert largest.ravel()[-1] == image.max() and largest.shape == (1, 1, *(2,) * axes)
    assert (spread == 2 * image.max()).all() and spread.shape == (1, 1, *(2,) * axes)
    if axes == 1:
        assert (sums.tolist(), means.tolist()) == ([[[3.5, 7.5]]], [[[1.5, 3.5]]])


def test_block_quantised_weights(device):
    g = fg.Graph("quantised")
    x, w = g.input("x", (1, 4)), g.param("w", (4, 1), "int8")
    scale = g.param("scale", (2, 1))
    g.output(x @ ops.dequantize(w, scale, axis=0, block_size=2), "y")
    model = fg.Session(device).compile(g)
    model.set_params({"w": np.int8([[2], [3], [4], [5]]), "scale": f4([[1], [1]])})
    assert model.run({"x": np.ones((1, 4), "f4")})[0].tolist() == [[14]]
    model.set_params({"scale": f4([[1], [10]])})
    assert model.run({"x": np.ones((1, 4), "f4")})[0].tolist() == [[95]]
