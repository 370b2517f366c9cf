"""Products of a single row take in the norm before them and the gate beside them, for a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops
from fastgraph.ir import reference
from fastgraph.passes import optimise


def layer(rows=1, k=32, n=24, dtype="float16", *, seen=(), other=False, scaled=True, eps=1e-3):
    """A gated perceptron behind a norm; of `seen` others read what is between."""
    g = fg.Graph("layer")
    x = g.input("x", (rows, k), dtype)
    normed = ops.rms_norm(x, g.param("scale", (k,), dtype) if scaled else None, eps=eps)
    gate = normed @ g.param("gate", (k, n), dtype)
    up = (x if other else normed) @ g.param("up", (k, n), dtype)
    y = (ops.silu(gate) * up) @ g.param("down", (n, k), dtype) + x
    for name, value in (("normed", normed), ("gate", gate), ("up", up)):
        if name in seen:
            g.output(value, name)
    g.output(y, "y")
    return g


def data(graph):
    random = np.random.default_rng(3)
    return [
        {v.name: random.normal(size=v.shape).astype(v.dtype) for v in values}
        for values in (graph.inputs, graph.params)
    ]


def run_ops(graph, **options):
    found = [node.op for node in optimise(graph, pack=False, **options).run_nodes]
    return [op for op in found if op != "reshape"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("scaled", [True, False])
def test_a_layer_is_two_products(dtype, scaled):
    graph = layer(dtype=dtype, scaled=scaled)
    assert run_ops(graph) == ["row_product", "row_product"]
    inputs, params = data(graph)
    found = optimise(graph, pack=False).graph
    one, two = (reference.evaluate(g, inputs, params)["y"].astype("f4") for g in (graph, found))
    # The parts round where the whole does not.
    np.testing.assert_allclose(two, one, atol=0.05 * np.abs(one).max())


def test_float32_agrees_to_its_last_digits():
    graph = layer(dtype="float32")
    inputs, params = data(graph)
    found = optimise(graph, pack=False).graph
    one, two = (reference.evaluate(g, inputs, params)["y"] for g in (graph, found))
    np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("graph", "wanted"),
    [
        (layer(rows=2), "rms_norm"),
        (layer(k=30), "rms_norm"),  # rows of 60 bytes
        (layer(seen=("normed",)), "rms_norm"),
        (layer(dtype="float64"), "rms_norm"),
        (layer(seen=("gate",)), "region"),
        (layer(seen=("up",)), "region"),
        (layer(other=True), "region"),
    ],
)
def test_what_others_read_or_what_does_not_fit_stays(graph, wanted):
    assert wanted in run_ops(graph)
    inputs, params = data(graph)
    found = optimise(graph, pack=False).graph
    for name, one in reference.evaluate(graph, inputs, params).items():
        two = reference.evaluate(found, inputs, params)[name]
        np.testing.assert_allclose(
            two.astype("f4"), one.astype("f4"), atol=0.05 * float(np.abs(one).max())
        )


def test_nothing_of_it_where_weights_are_packed_or_nothing_is_fused():
    graph = layer(dtype="float32")
    assert "row_product" not in [node.op for node in optimise(graph).run_nodes]
    assert "row_product" not in run_ops(graph, fuse=False)


def test_joined_products_share_one_norm():
    g = fg.Graph()
    x = g.input("x", (1, 32), "float16")
    normed = ops.rms_norm(x)
    parts = [normed @ g.param(f"w{i}", (32, 8), "float16") for i in range(3)]
    g.output(ops.softmax(parts[0]) + ops.exp(parts[1]) * parts[2], "y")
    assert run_ops(g).count("row_product") == 1
    assert "rms_norm" not in run_ops(g)


@pytest.mark.parametrize(
    ("width", "dtype", "wanted"),
    [
        (1024, "float32", "row_product"),
        (2048, "float32", "fused_matmul"),
        (4096, "bfloat16", "row_product"),
    ],
)
def test_large_weights_of_float32_are_read_by_the_kernel_of_few_rows(width, dtype, wanted):
    g = fg.Graph()
    g.output(g.input("x", (1, width), dtype) @ g.param("w", (width, width), dtype), "y")
    assert run_ops(g) == [wanted]
