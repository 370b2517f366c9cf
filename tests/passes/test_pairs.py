"""Scatters of the same numbers are put in one node, for a GPU."""

from __future__ import annotations

import numpy as np

import fastgraph as fg
from fastgraph import ops
from fastgraph.ir import reference
from fastgraph.passes import optimise, pairs


def caches(layers=2, *, chained=False, crossed=False, dtypes=("float32", "float32")):
    g = fg.Graph("caches")
    at = g.input("at", (2, 1), "int64")
    for i in range(layers):
        rows = [g.input(f"{name}{i}", (2, 4), d) for name, d in zip("kv", dtypes, strict=True)]
        found = []
        for name, row, dtype in zip(("keys", "values"), rows, dtypes, strict=True):
            if chained and found:
                row = row + ops.sum(found[0], axis=0)
            cache = g.input(f"{name}{i}", (8, 4), dtype)
            found.append(g.output(ops.scatter_nd(cache, at, row), f"next {name}{i}"))
        g.output(ops.softmax(found[0]) * 2.0, f"y{i}")
    return g


def run_ops(graph):
    return [node.op for node in optimise(graph, pack=False).run_nodes]


def same(graph, found):
    random = np.random.default_rng(1)
    inputs = {v.name: random.normal(size=v.shape).astype(v.dtype) for v in graph.inputs}
    inputs["at"] = np.array([[5], [-1]])
    wanted = reference.evaluate(graph, inputs)
    for name, array in reference.evaluate(found, inputs).items():
        np.testing.assert_allclose(array, wanted[name], rtol=1e-5)


def test_two_of_a_layer_are_one():
    graph = caches()
    assert run_ops(graph).count("scatter_pair") == 2
    assert "scatter" not in run_ops(graph)
    same(graph, optimise(graph, pack=False).graph)
    assert "scatter_pair" not in [node.op for node in optimise(graph).run_nodes]


def test_what_needs_the_other_first_or_differs_stays_apart():
    for graph in (caches(1, chained=True), caches(1, dtypes=("float32", "float16"))):
        assert "scatter_pair" not in run_ops(graph)
        same(graph, optimise(graph, pack=False).graph)


def test_pairs_that_wait_for_each_other_stay_apart():
    g = fg.Graph()
    one, two = (g.input(name, (1, 1), "int64") for name in ("at", "other"))
    x, row = g.input("x", (8, 4)), g.input("row", (1, 4))
    a = ops.scatter_nd(x, one, row)
    b = ops.scatter_nd(x + 1.0, two, row)
    c = ops.scatter_nd(x + 2.0, two, ops.sum(a, axis=0).reshape(1, 4))
    d = ops.scatter_nd(x + 3.0, one, ops.sum(b, axis=0).reshape(1, 4))
    for i, value in enumerate((a, b, c, d)):
        g.output(value, f"y{i}")
    assert pairs.run(g) is g
    assert len(optimise(g, pack=False).run_nodes) > 4
