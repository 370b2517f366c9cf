"""Which form convolutions take, and what they take in."""

from __future__ import annotations

import numpy as np
import pytest

from fastgraph.ir import Graph, ops, reference
from fastgraph.passes import optimise
from tests.passes.graphs import arguments


@pytest.fixture
def graph():
    return Graph("g")


def run_nodes(graph, **options):
    """Return the nodes of a run, checked to mean the same as the graph."""
    found = optimise(graph, **options)
    data = arguments(graph)
    wanted = reference.evaluate(graph, **data)
    for name, array in reference.evaluate(found.graph, **data).items():
        np.testing.assert_allclose(array, wanted[name], rtol=1e-4, atol=1e-5)
    return found.run_nodes


def names(nodes):
    return [node.op for node in nodes if node.op != "reshape"]


def layer(graph, x, outs, size=3, **options):
    """A convolution with parameters."""
    i = len(graph.params)
    w = graph.param(f"w{i}", (outs, x.shape[1], *(size for _ in x.shape[2:])), x.dtype)
    return ops.conv(x, w, graph.param(f"b{i}", (outs,), x.dtype), **options)


def test_a_small_network_for_images(graph):
    """A residual block between convolutions, as networks for images have them."""
    x = graph.input("x", (1, 3, 20, 20))
    h = ops.max_pool(ops.relu(layer(graph, x, 8, 5, strides=1, pads=2)), 2, strides=2)
    inner = layer(graph, ops.relu(layer(graph, h, 8, pads=1)), 8, pads=1)
    h = ops.relu(inner + h)
    h = ops.mean(h, axis=(2, 3))
    graph.output(h @ graph.param("head", (8, 10)), "y")
    for pack, product in ((True, "fused_matmul"), (False, "row_product")):
        nodes = run_nodes(graph, pack=pack)
        assert names(nodes) == ["conv", "pool", "conv", "conv", "mean", product]
        first, _, second, third, *_ = nodes
        assert [n.attrs["activation"] for n in (first, second, third)] == ["relu"] * 3
        assert third.attrs["residual"] is not None and third.attrs["residual_first"]


def test_bias_of_another_node(graph):
    x, w = graph.input("x", (1, 2, 40)), graph.param("w", (3, 2, 3))
    graph.output(ops.tanh(ops.conv(x, w) + graph.param("b", (3, 1))), "y")
    (node,) = run_nodes(graph)
    assert node.op == "conv" and node.attrs["activation"] == "tanh"
    assert node.inputs[node.attrs["bias"]].shape == (3,)


def test_scales_and_shifts_go_into_the_weights(graph):
    h = layer(graph, graph.input("x", (1, 3, 20, 20)), 8)
    h = h * graph.param("scale", (8, 1, 1)) + graph.param("shift", (1, 8, 1, 1))
    graph.output(ops.relu(h), "y")
    w = graph.param("bare", (4, 3, 30))
    bare = ops.conv(graph.input("z", (1, 3, 60)), w)
    graph.output(2 * bare + graph.param("row", (4, 1)), "z")
    assert names(run_nodes(graph)) == ["conv", "conv"]


def test_other_scales_stay(graph):
    """Of a position, of a run, and where the result itself is wanted too."""
    x = graph.input("x", (1, 3, 60))
    graph.output(layer(graph, x, 4) * graph.param("places", (58,)), "places")
    graph.output(layer(graph, x, 4) * graph.input("given", (4, 1)), "given")
    seen = layer(graph, x, 4)
    graph.output(seen, "seen")
    graph.output(seen * graph.param("scale", (4, 1)), "scaled")
    assert names(run_nodes(graph)) == ["conv", "region"] * 3


def test_double_has_no_epilogue(graph):
    graph.output(ops.relu(layer(graph, graph.input("x", (1, 2, 40), "float64"), 3)), "y")
    assert names(run_nodes(graph)) == ["conv", "region"]


@pytest.mark.parametrize("pack", [True, False])
def test_few_positions_are_products_with_channels_last(graph, pack):
    x = graph.input("x", (1, 5, 6))
    h = ops.relu(layer(graph, x, 7, pads=1))
    h = ops.sqrt(h[:, :4] ** 2 + h[:, 3:] ** 2 + 1)
    h = ops.relu(layer(graph, h, 8, pads=1, strides=2))
    graph.output(layer(graph, h, 2, 1), "y")
    nodes = run_nodes(graph, pack=pack)
    ops_found = names(nodes)
    assert ops_found.count("fused_matmul") == 3 and "conv" not in ops_found
    # In and out alone are turned: between them the channels stay last.
    assert ops_found.count("transpose") == 2
    # The last convolution's windows are the rows as they lie.
    assert ops_found.count("patches") == 2
    products = [node for node in nodes if node.op == "fused_matmul"]
    assert [node.attrs["activation"] for node in products] == ["relu", "relu", None]


def test_one_position_moves_nothing(graph):
    graph.output(ops.sigmoid(layer(graph, graph.input("x", (4, 5, 1)), 3, 1)), "y")
    assert names(run_nodes(graph)) == ["fused_matmul"]


def test_one_element_windows_that_skip_or_overhang(graph):
    x = graph.input("x", (1, 5, 3))
    graph.output(layer(graph, x, 2, 1, strides=2, pads=1), "y")
    graph.output(layer(graph, x, 2, 1, strides=2), "z")
    graph.output(layer(graph, x, 2, 1, pads=(0, 2)), "longer")
    graph.output(layer(graph, x, 2, 1, strides=2, pads=(0, 2)), "as long")
    graph.output(layer(graph, x, 2, 1, strides=4), "first")
    single = graph.input("single", (1, 5, 1))
    graph.output(layer(graph, single, 2, 1, strides=3, pads=1), "before")
    assert names(run_nodes(graph)).count("patches") == 6


def test_a_recurrent_layer_projects_all_steps_at_once(graph):
    x, w = graph.input("x", (9, 2, 3)), graph.param("w", (2, 20, 3))
    r, b = graph.param("r", (2, 20, 5)), graph.param("b", (2, 40))
    for i, value in enumerate(ops.lstm(x, w, r, b, direction="bidirectional")):
        graph.output(value, f"y{i}")
    nodes = run_nodes(graph)
    assert names(nodes) == ["fused_matmul", "recurrence"]
    assert nodes[0].outputs[0].shape == (9, 2, 40)
    assert nodes[0].attrs["bias"] is not None
