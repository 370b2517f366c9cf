"""Elementwise regions that differ in operands alone are lowered once, others each by itself."""

from __future__ import annotations

import numpy as np

import fastgraph as fg
from fastgraph import ops
from fastgraph._core import isa
from fastgraph.lower.cpu.recorder import HostRecorder
from fastgraph.lower.cpu.registry import Target
from fastgraph.lower.program import lower_calls
from fastgraph.passes import optimise


def lowered(graph):
    target = Target(1, isa.chosen())
    found = optimise(graph)
    return lower_calls(found.graph, found.is_set, HostRecorder(target)), target


def test_layers_that_are_alike():
    graph = fg.Graph()
    x, y = graph.input("x", (4, 8)), graph.input("y", (8,))
    for i in range(3):
        x = ops.softmax(ops.exp(x - y) * 0.5 + x)
        graph.output(x, f"x{i}")
    found, target = lowered(graph)
    regions = [call for _, call in found.run_calls if call.kernel == "region"]
    assert len(regions) == 3
    assert len(target.made) == 1
    assert all(call.params is regions[0].params for call in regions)
    assert len({call.ins for call in regions}) == len({call.outs for call in regions}) == 3
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype("f4") for shape in ((4, 8), (8,)))
    results = fg.Session("cpu").compile(graph).run({"x": a, "y": b})
    for result in results:
        a = np.exp(a - b) * np.float32(0.5) + a
        a = np.exp(a - a.max(-1, keepdims=True))
        a /= a.sum(-1, keepdims=True)
        np.testing.assert_allclose(result, a, rtol=1e-5)


def test_what_is_equal_and_not_the_same():
    graph = fg.Graph()
    a, b = graph.input("a", (4,)), graph.input("b", (4,))
    i = graph.input("i", (4,), "int32")
    # Each is a region of its own.
    made = [
        a * 0.0, a * -0.0, a - b, b - a, a * a, a * b, i + 1, (i + 1).astype("float32"),
        (i + 1).astype("int64"), a.reshape(1, 4) * 0.0, a * np.float32([[0.0]] * 4),
    ]  # fmt: skip
    for number, value in enumerate(made):
        graph.output(value, f"y{number}")
    x, y, n = np.float32([1, -2, 3, 0]), np.float32([5, 6, -7, 0]), np.int32([1, -2, 3, 4])
    wanted = [
        x * 0, x * np.float32(-0.0), x - y, y - x, x * x, x * y, n + 1, (n + 1).astype("f4"),
        (n + 1).astype("i8"), (x * 0).reshape(1, 4), np.tile(x * 0, (4, 1)),
    ]  # fmt: skip
    found = fg.Session("cpu").compile(graph).run({"a": x, "b": y, "i": n})
    for result, one in zip(found, wanted, strict=True):
        assert result.dtype == one.dtype
        np.testing.assert_array_equal(result, one)
        np.testing.assert_array_equal(np.signbit(result), np.signbit(one))


def test_one_that_reads_a_value_twice_is_by_itself():
    plain, graph = fg.Graph(), fg.Graph()
    plain.output(ops.exp(plain.input("a", (4,)) - plain.input("b", (4,))), "y")
    (like,) = optimise(plain).run_nodes
    a, b, c = (graph.input(name, (4,)) for name in "abc")
    for number, inputs in enumerate(((a, a), (b, c), (c, a))):
        graph.output(graph.add_node("region", inputs, like.attrs).outputs[0], f"y{number}")
    x, y, z = np.float32([1, 2, 3, 4]), np.float32([0, 5, 1, 1]), np.float32([2, 2, 2, 3])
    found = fg.Session("cpu").compile(graph).run({"a": x, "b": y, "c": z})
    for result, one in zip(found, (x - x, y - z, z - x), strict=True):
        np.testing.assert_allclose(result, np.exp(one), rtol=1e-5)
