"""Positions and masks that each layer computes are computed once."""

from __future__ import annotations

import numpy as np

import fastgraph as fg
from fastgraph import ops
from fastgraph.ir import reference
from fastgraph.passes import optimise, same


def caches(layers=3, rows=8):
    g = fg.Graph("caches")
    at = g.input("at", (1, 1), "int64")
    for i in range(layers):
        new = g.input(f"new{i}", (1, 4))
        cache = ops.scatter_nd(g.input(f"cache{i}", (rows, 4)), at, new)
        seen = ops.greater_equal(at, np.arange(rows)).reshape(rows, 1)
        g.output(ops.where(seen, cache, 0.0), f"y{i}")
    return g


def count(graph, op):
    return sum(node.op == op for node in graph.nodes)


def test_of_each_layer_the_same():
    graph = caches()
    found = same.run(graph)
    # One is the mask, the other tells negative positions from others.
    assert count(graph, "greater_equal") == 6
    assert count(found, "greater_equal") == 2
    nodes = [len(optimise(caches(n)).run_nodes) for n in (1, 2, 3)]
    assert nodes[2] - nodes[1] == nodes[1] - nodes[0] < nodes[0]
    random = np.random.default_rng(0)
    inputs = {v.name: random.normal(size=v.shape).astype(v.dtype) for v in graph.inputs}
    inputs["at"] = np.array([[5]])
    for g in (found, optimise(graph).graph):
        for name, wanted in reference.evaluate(graph, inputs).items():
            np.testing.assert_array_equal(reference.evaluate(g, inputs)[name], wanted)


def test_what_differs_stays_apart():
    g = fg.Graph()
    x, big = g.input("x", (4,), "int32"), g.input("big", (5000,), "int32")
    f = g.input("f", (4,))
    pairs = [
        (x + 1, x + 2),  # another number
        ((x + 1).astype("int64"), (x + 1).astype("int16")),
        (x.reshape(2, 2), x.reshape(4, 1)),
        (big + 1, big + 1),  # too much to be kept
        (f * 2.0, f * 2.0),  # not a position
    ]
    for i, (one, two) in enumerate(pairs):
        g.output(one, f"one{i}")
        g.output(two, f"two{i}")
    found = dict(same.run(g).outputs)
    for i in range(len(pairs)):
        assert found[f"one{i}"] is not found[f"two{i}"]
    assert same.run(found["one0"].graph) is found["one0"].graph


def test_true_is_not_one():
    g = fg.Graph()
    x = g.input("x", (4,), "bool")
    g.output(ops.logical_and(x, g.constant(np.array(True))), "y")
    g.output(ops.logical_and(x, g.constant(np.array(False))), "z")
    found = dict(same.run(g).outputs)
    assert found["y"] is not found["z"]
