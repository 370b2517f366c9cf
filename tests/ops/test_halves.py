"""Half types: stored in two bytes, computed in float32, rounded where they are stored."""

from __future__ import annotations

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops
from fastgraph.ir.ops.numerics import convert
from tests.ops.agreement import agree
from tests.ops.cases import SPECIAL

KINDS = ["float16", "bfloat16"]


def model_of(graph: fg.Graph) -> fg.CompiledGraph:
    return fg.Session("cpu", threads=1).compile(graph)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_converts_no_parameter(kind):
    """Weight, bias and scale are converted when they are set; a run converts x and the results."""
    graph = fg.Graph("layers")
    x = graph.input("x", (5, 8), kind)
    scale, shift = graph.param("scale", (8,), kind), graph.constant(np.ones(8, kind))
    w, b = graph.param("w", (8, 4), kind), graph.param("b", (4,), kind)
    stack = graph.param("stack", (2, 8, 3), kind)
    graph.output(ops.layer_norm(x, scale, shift), "norm")
    graph.output(x @ w + b, "packed")
    graph.output(x @ stack, "unpacked")
    random = np.random.default_rng(0)
    values = [*graph.inputs, *graph.params]
    data = {v.name: random.normal(size=v.shape).astype(kind) for v in values}
    data["b"] *= data["b"].dtype.type(0.01)  # so that it cancels nothing that was rounded before
    agree(graph, data, scale=4.0)
    model = model_of(graph)
    assert [node.name for node in model.graph.nodes] == [
        name for name in ("layer_norm", "matmul", "matmul_1") for _ in range(3)
    ]
    model.set_params({name: array for name, array in data.items() if name != "x"})
    first = model.run({"x": data["x"]})
    twin = model.clone()
    twin.set_param("b", np.zeros(4, kind))
    assert model.run({"x": data["x"]})[1].tobytes() == first[1].tobytes()
    assert twin.run({"x": data["x"]})[1].tobytes() != first[1].tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_a_region_rounds_once_and_where_it_is_told_to(kind):
    small = float(np.finfo("f2").eps if kind == "float16" else 2.0**-7)
    graph = fg.Graph("region")
    x = graph.input("x", (1,), kind)
    graph.output((x + small / 4) * 4 - 4, "once")
    graph.output(ops.astype(ops.astype(x, "float32") + small / 4, kind) * 4 - 4, "told")
    found = model_of(graph).run({"x": np.ones(1, kind)})
    assert [y.tolist() for y in found] == [[small], [0.0]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_conversions_round_to_the_nearest_even(kind, source):
    """Every half number, and what lies between two: in the middle, just above and just below."""
    halves = np.arange(2**16, dtype=np.uint16).view(kind)
    halves = halves[np.isfinite(halves.astype("f4"))]
    wide = np.unique(halves.astype("f8"))
    middle = (wide[:-1] + wide[1:]) / 2
    values = [wide, middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)]
    if source == "float32":
        near = middle.astype("f4")
        values[2:] = [np.nextafter(near, np.float32(to)) for to in (np.inf, -np.inf)]
    x = np.concatenate([*values, SPECIAL]).astype(source)
    graph = fg.Graph("cast")
    graph.output(ops.astype(graph.input("x", x.shape, source), kind), "y")
    agree(graph, {"x": x}, exact=True)
    count = len(wide)
    rounded = convert(x, np.dtype(kind)).astype("f8")
    np.testing.assert_array_equal(rounded[:count], wide)
    up, down = rounded[2 * count - 1 : 3 * count - 2], rounded[3 * count - 2 : 4 * count - 3]
    np.testing.assert_array_equal(up, wide[1:])
    np.testing.assert_array_equal(down, wide[:-1])
    even = convert(middle, np.dtype(kind)).view(np.uint16) % 2
    assert not even.any()


@pytest.mark.parametrize("kind", KINDS)
def test_every_half_number_survives_float32(kind):
    x = np.arange(2**16, dtype=np.uint16).view(kind)
    graph = fg.Graph("there")
    wide = ops.astype(graph.input("x", x.shape, kind), "float32")
    graph.output(wide, "wide")
    graph.output(ops.astype(wide, kind), "back")
    agree(graph, {"x": x}, exact=True)
