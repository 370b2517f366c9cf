"""Which nodes are left after fusion, and what must stay visible."""

from __future__ import annotations

import numpy as np
import pytest

from fastgraph.ir import Graph, ops, reference
from fastgraph.passes import optimise
from fastgraph.passes.regions import MAX_INPUTS, MAX_INSTRUCTIONS
from tests.passes.graphs import arguments, mlp


@pytest.fixture
def graph():
    return Graph("g")


def run_ops(graph):
    """Return the operators of a run, checked to mean the same as the graph."""
    found = optimise(graph)
    data = arguments(graph)
    wanted = reference.evaluate(graph, **data)
    for name, array in reference.evaluate(found.graph, **data).items():
        np.testing.assert_allclose(array, wanted[name], rtol=1e-4, atol=1e-5)
    return [node.op for node in found.run_nodes]


def only(graph, op="fused_matmul"):
    """Return the one node of the run."""
    (node,) = optimise(graph).run_nodes
    assert node.op == op
    return node


def instructions(node):
    """Return the operators of a region without its constants."""
    return [instr.op for instr in node.attrs["body"] if instr.op != "const"]


def test_the_mlp_is_three_products():
    graph = mlp((78, 51, 51, 10))
    found = optimise(graph)
    assert run_ops(graph) == ["fused_matmul"] * 3
    assert [node.op for node in found.set_nodes] == ["pack_weight"] * 3
    products = found.run_nodes
    assert [node.attrs["activation"] for node in products] == ["gelu", "gelu", None]
    for node in products:
        assert node.attrs["packed"]
        assert node.inputs[node.attrs["bias"]].node.op == "param"


def test_the_classic_example(graph):
    """SCENARIOS B1."""
    x, w, b = graph.input("x", (2, 4)), graph.param("w", (4, 3)), graph.param("b", (3,))
    graph.output(ops.gelu(x @ w + b), "y")
    node = only(graph)
    y = reference.evaluate(
        optimise(graph).graph, {"x": np.eye(4, dtype="f4")[:2]},
        {"w": np.eye(4, dtype="f4")[:, :3], "b": np.float32([0.5, -0.5, 0])},
    )["y"]  # fmt: skip
    np.testing.assert_allclose(y, [[1.39979, -0.15427, 0], [0.34573, 0.34573, 0]], atol=1e-5)
    assert (node.name, node.attrs["k"], node.attrs["n"]) == ("matmul", 4, 3)


@pytest.mark.parametrize(
    ("function", "name"),
    [(ops.relu, "relu"), (ops.gelu, "gelu"), (lambda x: ops.gelu(x, "tanh"), "gelu_tanh"),
     (ops.silu, "silu"), (ops.sigmoid, "sigmoid"), (ops.tanh, "tanh")],
)  # fmt: skip
def test_epilogues(graph, function, name):
    x, w = graph.input("x", (2, 4)), graph.param("w", (4, 3))
    b, r = graph.input("b", (1, 3)), graph.input("r", (2, 3))
    graph.output(function(b + x @ w) + r, "y")
    assert "fused_matmul" in run_ops(graph)
    node = next(n for n in optimise(graph).run_nodes if n.op == "fused_matmul")
    assert node.attrs["activation"] == name
    assert not node.attrs["residual_first"]
    assert node.inputs[node.attrs["residual"]].name == "r"
    assert node.inputs[node.attrs["bias"]].shape == (3,)


def test_a_residual_before_the_activation(graph):
    x, w, r = graph.input("x", (2, 4)), graph.param("w", (4, 3)), graph.input("r", (2, 3))
    graph.output(ops.relu(x @ w + r), "y")
    assert run_ops(graph) == ["fused_matmul"]
    assert only(graph).attrs["residual_first"]


def test_no_second_residual_or_activation(graph):
    x, w, r = graph.input("x", (2, 4)), graph.param("w", (4, 3)), graph.input("r", (2, 3))
    graph.output(ops.relu(ops.relu(x @ w + r) + r), "y")
    assert run_ops(graph) == ["fused_matmul", "region"]


def test_two_products_of_one_sum(graph):
    x, w, v = graph.input("x", (2, 4)), graph.param("w", (4, 3)), graph.param("v", (4, 3))
    graph.output(x @ w + x @ v, "y")
    assert run_ops(graph) == ["fused_matmul"] * 2


@pytest.mark.parametrize("shape", [(3,), (2, 1), (1, 1), ()])
def test_a_summand_that_is_no_row(graph, shape):
    """Only one value a column is a bias; a column, or one number, goes into a region."""
    x, w, b = graph.input("x", (2, 4)), graph.param("w", (4, 3)), graph.param("b", shape)
    graph.output(x @ w + b, "y")
    assert run_ops(graph) == ["fused_matmul"] + ["region"] * (shape != (3,))


def test_a_sum_larger_than_the_product(graph):
    x, w, b = graph.input("x", (1, 4)), graph.param("w", (4, 3)), graph.input("b", (5, 3))
    graph.output(x @ w + b, "y")
    assert run_ops(graph) == ["fused_matmul", "region"]


def test_a_vector_keeps_its_epilogue(graph):
    x, w, b = graph.input("x", (4,)), graph.param("w", (4, 3)), graph.param("b", (3,))
    graph.output(ops.relu(x @ w + b), "y")
    assert run_ops(graph) == ["reshape", "fused_matmul", "reshape"]


def test_an_intermediate_with_two_readers_stays(graph):
    x, w, b = graph.input("x", (2, 4)), graph.param("w", (4, 3)), graph.param("b", (3,))
    total = x @ w + b
    graph.output(ops.relu(total), "y")
    graph.output(ops.sum(total, axis=0), "z")
    assert sorted(run_ops(graph)) == ["fused_matmul", "region", "sum"]


def test_an_output_stays(graph):
    x, w, b = graph.input("x", (2, 4)), graph.param("w", (4, 3)), graph.param("b", (3,))
    product = x @ w
    graph.output(product, "product")
    graph.output(ops.relu(product + b), "y")
    assert run_ops(graph) == ["fused_matmul", "region"]
    a = graph.input("a", (4,))
    half = a * 0.5
    graph.output(half, "half")
    graph.output(ops.tanh(half), "t")
    assert run_ops(graph).count("region") == 3


def test_a_value_read_twice_within_a_region_is_inside(graph):
    a = graph.input("a", (4,))
    b = ops.exp(a)
    graph.output(b * 2 + ops.tanh(b), "y")
    assert run_ops(graph) == ["region"]
    node = only(graph, "region")
    assert instructions(node) == ["exp", "multiply", "tanh", "add"]
    assert len(node.inputs) == 1


def test_a_value_that_leaves_and_comes_back_is_seen(graph):
    """Fusing exp with the sum would need the softmax between them."""
    b = ops.exp(graph.input("a", (4,)))
    graph.output(b + ops.softmax(b), "y")
    assert run_ops(graph) == ["region", "softmax", "region"]


def test_a_small_value_is_not_computed_often(graph):
    a, b = graph.input("a", (4,)), graph.input("b", (100, 4))
    graph.output(ops.exp(a) + b, "y")
    assert run_ops(graph) == ["region", "region"]


def test_numbers_go_into_the_region(graph):
    a, s = graph.input("a", (3, 4)), graph.scalar("s", "float32", 2.0)
    graph.output(ops.clip(a * np.float32([[3]]) + s, 0, 6), "y")
    node = only(graph, "region")
    assert [value.name for value in node.inputs] == ["a", "s"]
    numbers = [i.attrs["value"] for i in node.attrs["body"] if i.op == "const"]
    assert sorted(numbers) == [0, 3, 6]
    assert all(type(number) is float for number in numbers)


def test_numbers_with_axes_keep_the_shape(graph):
    graph.output(graph.input("a", ()) + np.float32([[1]]), "y")
    assert run_ops(graph) == ["region"]
    assert only(graph, "region").outputs[0].shape == (1, 1)


def test_what_parameters_decide_is_not_done_in_the_run(graph):
    x, w = graph.input("x", (4,)), graph.param("w", (4,))
    graph.output(x + ops.exp(w * 2), "y")
    assert run_ops(graph) == ["region"]
    assert instructions(only(graph, "region")) == ["add"]


def test_a_region_of_mixed_dtypes(graph):
    a, i = graph.input("a", (4,)), graph.input("i", (4,), "int64")
    graph.output(ops.where(i > 2, a, i.astype("float32")), "y")
    assert run_ops(graph) == ["region"]
    assert [x.dtype.name for x in only(graph, "region").attrs["body"]] == [
        "int64", "bool", "float32", "float32",
    ]  # fmt: skip


def test_regions_are_limited(graph):
    a = graph.input("a", (4,))
    for _ in range(3 * MAX_INSTRUCTIONS):
        a = ops.tanh(a)
    graph.output(a, "y")
    found = optimise(graph).run_nodes
    assert len(found) == 3
    assert all(len(node.attrs["body"]) <= MAX_INSTRUCTIONS for node in found)


def test_region_inputs_are_limited(graph):
    total = graph.input("a", (4,))
    for i in range(3 * MAX_INPUTS):
        total = total + graph.input(f"a{i}", (4,))
    graph.output(total, "y")
    found = optimise(graph).run_nodes
    assert 3 < len(found) < 6
    assert all(len(node.inputs) <= MAX_INPUTS for node in found)


def test_norm_and_residual(graph):
    a, b = graph.input("a", (3, 4)), graph.input("b", (3, 4))
    w = graph.param("w", (4,))
    graph.output(ops.rms_norm(a + b, w), "y")
    assert run_ops(graph) == ["rms_norm"]
    node = only(graph, "rms_norm")
    assert node.attrs["residual"]
    assert len(node.outputs) == 1


def test_a_norm_of_a_broadcast_sum(graph):
    a, b = graph.input("a", (3, 4)), graph.input("b", (4,))
    graph.output(ops.layer_norm(a + b), "y")
    assert run_ops(graph) == ["region", "layer_norm"]


def test_a_product_of_parameters_takes_nothing_of_the_run(graph):
    x, v, w = graph.input("x", (2, 3)), graph.param("v", (2, 4)), graph.param("w", (4, 3))
    graph.output(ops.relu(v @ w + x), "y")
    assert run_ops(graph) == ["region"]
    assert [n.op for n in optimise(graph).set_nodes] == ["pack_weight", "fused_matmul"]


def test_a_bias_with_more_axes(graph):
    x, w, b = graph.input("x", (2, 4)), graph.param("w", (4, 3)), graph.param("b", (1, 1, 3))
    graph.output(ops.relu(x @ w + b), "y")
    assert run_ops(graph) == ["fused_matmul", "reshape"]


def test_norm_and_residual_that_is_seen(graph):
    a, b = graph.input("a", (3, 4)), graph.input("b", (3, 4))
    w = graph.param("w", (4,))
    total = a + b
    before = ops.tanh(total)  # Written before the norm, read after it.
    graph.output(ops.layer_norm(total, w * 2) + before + total, "y")
    assert run_ops(graph) == ["layer_norm", "region"]
    assert len(optimise(graph).run_nodes[0].outputs) == 2


def test_norm_whose_weight_comes_of_the_sum(graph):
    a, b = graph.input("a", (4,)), graph.input("b", (4,))
    total = a + b
    graph.output(ops.layer_norm(total, ops.tanh(total)), "y")
    assert run_ops(graph) == ["region", "region", "layer_norm"]


def test_dead_nodes_go_and_declared_inputs_stay(graph):
    x, _ = graph.input("x", (2,)), graph.input("unused", (2,))
    graph.param("w", (2,))
    graph.scalar("s", "int32")
    ops.exp(x) @ x
    graph.output(x * 2, "y")
    found = optimise(graph)
    assert run_ops_names(found) == ["region"]
    assert [value.name for value in found.graph.inputs] == ["x", "unused"]
    assert [value.name for value in found.graph.params] == ["w"]
    assert [value.name for value in found.graph.scalars] == ["s"]


def run_ops_names(found):
    return [node.op for node in found.graph.nodes if not node.is_leaf]


def test_an_input_that_is_the_output(graph):
    x = graph.input("x", (2,))
    graph.output(x, "a")
    graph.output(x, "b")
    assert run_ops(graph) == []


def test_without_fusion_each_operator_is_by_itself():
    found = [node.op for node in optimise(mlp((8, 8, 4)), fuse=False).run_nodes]
    assert found == ["fused_matmul", "region", "region", "fused_matmul", "region"]
