"""Weights of half floats, and of products of few rows, lie as [N, K] where nothing packs them."""

from __future__ import annotations

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops
from fastgraph.ir import reference
from fastgraph.passes import optimise


def product(rows, k, n, dtype="float32", weight="param"):
    g = fg.Graph()
    x = g.input("x", (rows, k), dtype)
    w = getattr(g, weight)("w", (k, n), dtype)
    g.output(ops.relu(x @ w), "y")
    return g


def turned(graph, pack=False):
    found = optimise(graph, pack=pack)
    (node,) = [node for node in found.run_nodes if node.op in ("fused_matmul", "row_product")]
    along = node.op == "row_product" or node.attrs["transpose_b"]
    return [n.op for n in found.set_nodes] == ["transpose"] and along


@pytest.mark.parametrize("rows", [1, 16])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_few_rows_are(rows, dtype):
    assert turned(product(rows, 32, 10, dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_floats_are(dtype):
    assert turned(product(17, 32, 10, dtype)) and turned(product(4096, 32, 10, dtype))


@pytest.mark.parametrize(
    "graph",
    [
        product(17, 30, 10, "float16"),
        product(0, 32, 10, "float16"),
        product(17, 32, 10),
        product(1, 30, 10),
        product(1, 32, 10, "int32"),
        product(1, 32, 10, "float64"),
        product(1, 32, 10, weight="input"),
    ],
)
def test_others_are_not(graph):
    assert not turned(graph)


def test_packed_ones_are_not():
    assert not turned(product(1, 32, 10), pack=True)


def test_products_of_one_weight_share_it_and_stay_what_they_are():
    g = fg.Graph()
    w = g.param("w", (16, 16))
    y = ops.gelu(ops.gelu(g.input("x", (2, 16)) @ w) @ w) @ w.T
    g.output(y, "y")
    found = optimise(g, pack=False)
    assert [node.op for node in found.set_nodes] == ["transpose"]
    random = np.random.default_rng(0)
    x, w = (random.standard_normal((n, 16)).astype("f4") for n in (2, 16))
    one, two = (reference.evaluate(graph, {"x": x}, {"w": w})["y"] for graph in (g, found.graph))
    np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5)
