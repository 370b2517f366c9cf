"""Products of few rows and the norms of these become one node, for a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops
from fastgraph.ir import reference
from fastgraph.passes import optimise


def layer(rows=4, k=32, n=24, dtype="float16", norm="layer_norm", *, axis=-1, given=False, seen=()):
    """A product, a residual and their norm; `given`: the norm's weight is an input."""
    g = fg.Graph("layer")
    x = g.input("x", (rows, n), dtype)
    y = ops.relu(g.input("z", (rows, k), dtype) @ g.param("w", (k, n), dtype)) + x
    weight = g.input("scale", (n,), dtype) if given else g.param("scale", (n,), dtype)
    normed = getattr(ops, norm)(y, weight if axis == -1 else None, axis=axis)
    for name, value in (("sum", y), ("normed", normed)):
        if name in seen:
            g.output(value, name)
    g.output(ops.exp(normed) * 2, "y")
    return g


def check(graph):
    """Operators of a run; results are those of the graph as written."""
    random = np.random.default_rng(3)
    inputs, params = (
        {v.name: random.normal(size=v.shape).astype(v.dtype) for v in values}
        for values in (graph.inputs, graph.params)
    )
    found = optimise(graph, pack=False)
    for name, one in reference.evaluate(graph, inputs, params).items():
        two = reference.evaluate(found.graph, inputs, params)[name]
        np.testing.assert_allclose(
            two.astype("f4"), one.astype("f4"), atol=0.02 * float(np.abs(one.astype("f4")).max())
        )
    return [node.op for node in found.run_nodes if node.op != "reshape"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("seen", [(), ("sum",), ("sum", "normed")])
def test_a_product_and_its_norm_are_one_node(dtype, norm, seen):
    assert check(layer(dtype=dtype, norm=norm, seen=seen)) == ["normed_matmul", "region"]


@pytest.mark.parametrize(
    "graph",
    [
        layer(rows=1),
        layer(rows=1024),
        layer(n=1),
        layer(n=8193, k=2),
        layer(dtype="float64"),
        layer(axis=(0, 1)),
        layer(given=True),
    ],
)
def test_what_gains_nothing_stays(graph):
    assert "normed_matmul" not in check(graph)


def test_a_norm_with_a_residual_of_its_own_stays():
    g = fg.Graph()
    x, w = g.input("x", (4, 8), "float16"), g.param("w", (8, 8), "float16")
    y = ops.relu(ops.relu(x @ w) + x)
    g.output(ops.layer_norm(y + x), "y")
    assert "normed_matmul" not in check(g)


def test_only_for_a_gpu_and_where_nodes_are_fused():
    graph = layer()
    for options in ({}, {"pack": False, "fuse": False}):
        assert "normed_matmul" not in [n.op for n in optimise(graph, **options).run_nodes]
