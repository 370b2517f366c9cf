"""Constant folding, canonical forms, the set program and the schedule."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fastgraph.errors import InputError
from fastgraph.ir import Graph, ops, reference
from fastgraph.passes import canonicalise, dead, fold, optimise, schedule
from tests.passes.graphs import arguments


@pytest.fixture
def graph():
    return Graph("g")


def canonical(graph, value):
    """Return the operators left of a graph with the one output `value`, checked to mean it."""
    graph.output(value, "y")
    found = dead.run(canonicalise.run(graph))
    data = arguments(graph)
    wanted = reference.evaluate(graph, **data)["y"]
    np.testing.assert_allclose(reference.evaluate(found, **data)["y"], wanted, rtol=1e-4, atol=1e-5)
    return [node for node in found.nodes if not node.is_leaf]


def names(nodes):
    return [node.op for node in nodes]


@pytest.mark.parametrize(
    ("call", "left"),
    [
        (lambda x: x.T.T, []),
        (lambda x: x.transpose(1, 0, 2).transpose(2, 0, 1), ["transpose"]),
        (lambda x: x[:1].transpose(1, 0, 2), ["slice", "reshape"]),
        (lambda x: x.reshape(6, 4).reshape(2, 3, 4), []),
        (lambda x: x.reshape(6, 4).reshape(4, 6), ["reshape"]),
        (lambda x: ops.broadcast_to(x, (2, 3, 4)), []),
        (lambda x: ops.broadcast_to(x, (1, 2, 3, 4)), ["reshape"]),
        (lambda x: ops.broadcast_to(ops.broadcast_to(x, (2, 2, 3, 4)), (5, 2, 2, 3, 4)),
         ["broadcast_to"]),
        (lambda x: ops.broadcast_to(x[:1], (2, 3, 4)) + x, ["slice", "add"]),
        (lambda x: ops.tanh(ops.broadcast_to(x[:1], (2, 3, 4))),
         ["slice", "broadcast_to", "tanh"]),
        (lambda x: ops.concat([x]), []),
        (lambda x: ops.concat([x, x[:0]]), []),
        (lambda x: ops.concat([x, x[:0], x]), ["concat"]),
        (lambda x: ops.take(x, 1, axis=1), ["slice", "reshape"]),
        (lambda x: ops.take(x, -1, axis=1), ["slice", "reshape"]),
        (lambda x: x ** np.float32([[[[2]]]]), ["power"]),
        (lambda x: x ** np.ones((5, 1, 1, 1), "f4"), ["power"]),
        (lambda x: ops.take(x[:1], np.array([[-1]]), axis=0), ["slice", "reshape"]),
        (lambda x: ops.sum(x[:1], axis=0), ["slice", "reshape"]),
        (lambda x: x**1, []),
        (lambda x: x**2, ["square"]),
        (lambda x: x**3, ["power"]),
        (lambda x: x * ops.sigmoid(x), ["silu"]),
        (lambda x: ops.sigmoid(x) * x, ["silu"]),
        (lambda x: x[..., ::-1], ["slice"]),
    ],
)  # fmt: skip
def test_forms(graph, call, left):
    assert names(canonical(graph, call(graph.input("x", (2, 3, 4))))) == left


SQRT = math.sqrt(2.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x * (ops.erf(x / SQRT) + 1) * 0.5,
        lambda x: x * 0.5 * (1 + ops.erf(x / SQRT)),
        lambda x: 0.5 * (x * (ops.erf(x * (1 / SQRT)) + 1)),
        lambda x: (1 + ops.erf(x * np.float32(0.70710677))) * (0.5 * x),
    ],
)
def test_gelu_written_out(graph, call):
    (node,) = canonical(graph, call(graph.input("x", (5,))))
    assert (node.op, node.attrs) == ("gelu", {"approximate": "none"})


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64"])
def test_gelu_written_out_in_other_dtypes(kind):
    graph = Graph()
    x = graph.input("x", (4,), kind)
    graph.output(x * (ops.erf(x / SQRT) + 1) * 0.5, "exact")
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    graph.output(0.5 * x * (1 + ops.tanh(inner)), "tanh")
    found = optimise(graph)
    assert [step.op for node in found.run_nodes for step in node.attrs["body"]] == ["gelu"] * 2


@pytest.mark.parametrize(
    "call",
    [
        lambda x: 0.5 * x * (1 + ops.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        lambda x: x * 0.5 * (ops.tanh((x * x * x * 0.044715 + x) * 0.7978845608) + 1),
        lambda x: 0.5 * x * (1 + ops.tanh(x * 0.7978845608 * (1 + 0.044715 * x * x))),
    ],
)
def test_gelu_by_tanh_written_out(graph, call):
    (node,) = canonical(graph, call(graph.input("x", (5,))))
    assert (node.op, node.attrs) == ("gelu", {"approximate": "tanh"})


@pytest.mark.parametrize(
    "call",
    [
        lambda x, z: x * (ops.erf(x / 1.5) + 1) * 0.5,
        lambda x, z: x * (ops.erf(x / SQRT) + 1) * 0.6,
        lambda x, z: x * (ops.erf(z / SQRT) + 1) * 0.5,
        lambda x, z: x * (ops.erf(x / SQRT) + 1.1) * 0.5,
        lambda x, z: 0.5 * x * (1 + ops.tanh(0.8 * (x + 0.044715 * x**3))),
        lambda x, z: 0.5 * x * (1 + ops.tanh(0.79788456 * (x + 0.044715 * x**2))),
        lambda x, z: x * ops.sigmoid(z),
        lambda x, z: x * (ops.erf(x / SQRT) + 1) * np.float32([[0.5]]),
    ],
)
def test_what_is_almost_an_activation(graph, call):
    nodes = canonical(graph, call(graph.input("x", (5,)), graph.input("z", (5,))))
    assert not {"gelu", "silu"} & set(names(nodes))


def written_norm(x, eps=1e-5, power=lambda d: d * d):
    d = x - ops.mean(x, axis=-1, keepdims=True)
    return d / ops.sqrt(ops.mean(power(d), axis=-1, keepdims=True) + eps)


@pytest.mark.parametrize("power", [lambda d: d * d, lambda d: d**2, ops.square])
def test_layer_norm_written_out(graph, power):
    x, w, b = graph.input("x", (3, 4)), graph.param("w", (4,)), graph.param("b", (1, 4))
    found = canonical(graph, written_norm(x, power=power) * w + b)
    assert names(found) == ["reshape", "layer_norm"]
    attrs = found[1].attrs
    assert (attrs["axis"], attrs["weight"], attrs["bias"]) == ((1,), True, True)
    assert math.isclose(attrs["eps"], 1e-5, rel_tol=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, v: x * ops.rsqrt(v),
        lambda x, v: x / ops.sqrt(v),
        lambda x, v: x * ops.reciprocal(ops.sqrt(v)),
        lambda x, v: (1 / ops.sqrt(v)) * x,
    ],
)
def test_rms_norm_written_out(graph, call):
    x, w = graph.input("x", (3, 4)), graph.param("w", (4,))
    variance = ops.mean(x**2, axis=-1, keepdims=True) + 1e-6
    assert names(canonical(graph, w * call(x, variance))) == ["rms_norm"]


def test_a_norm_that_is_seen_keeps_its_weight_apart(graph):
    x, w = graph.input("x", (3, 4)), graph.param("w", (4,))
    y = ops.layer_norm(x)
    graph.output(y, "plain")
    assert names(canonical(graph, y * w)) == ["layer_norm", "multiply"]


@pytest.mark.parametrize("axis", [0, (0, 1), 1, (0, 2), ()])
def test_norms_over_leading_axes(graph, axis):
    x = graph.input("x", (2, 3, 4))
    axes = axis if isinstance(axis, tuple) else (axis,)
    w = graph.param("w", tuple(x.shape[i] for i in axes))
    nodes = canonical(graph, ops.layer_norm(x, w, axis=axis))
    (norm,) = (node for node in nodes if node.op == "layer_norm")
    assert norm.attrs["axis"][-1] == norm.inputs[0].ndim - 1


@pytest.mark.parametrize(
    ("a", "b", "call", "left", "flags"),
    [
        ((2, 3), (4, 3), lambda a, b: a @ b.T, ["fused_matmul"], (False, True)),
        ((3, 2), (3, 4), lambda a, b: a.T @ b, ["fused_matmul"], (True, False)),
        ((5, 2, 3), (5, 4, 3), lambda a, b: a @ b.transpose(0, 2, 1), ["fused_matmul"],
         (False, True)),
        ((1, 2, 8, 3), (1, 8, 2, 3), lambda a, b: a @ b.transpose(0, 2, 3, 1),
         ["transpose", "fused_matmul"], (False, True)),
        ((2, 8, 3), (8, 3, 2), lambda a, b: a @ b.transpose(2, 1, 0),
         ["transpose", "fused_matmul"], (False, False)),
        ((3,), (3, 4), lambda a, b: a @ b, ["reshape", "fused_matmul", "reshape"], (False, False)),
        ((2, 3), (3,), lambda a, b: a @ b, ["reshape", "fused_matmul", "reshape"], (False, False)),
        ((3,), (3,), lambda a, b: a @ b, ["reshape", "reshape", "fused_matmul", "reshape"],
         (False, False)),
    ],
)  # fmt: skip
def test_products(graph, a, b, call, left, flags):
    nodes = canonical(graph, call(graph.input("a", a), graph.input("b", b)))
    assert names(nodes) == left
    (product,) = (node for node in nodes if node.op == "fused_matmul")
    assert (product.attrs["transpose_a"], product.attrs["transpose_b"]) == flags


def test_folding(graph):
    x = graph.input("x", (4,))
    graph.output(x + (graph.constant(np.float32([1, 2, 3, 4])) * 2).reshape(2, 2).reshape(4), "y")
    found = dead.run(fold.run(graph))
    assert names(found.nodes) == ["input", "constant", "add"]
    assert found.nodes[1].attrs["value"].tolist() == [2, 4, 6, 8]


def test_what_would_only_grow_is_not_folded(graph):
    x = graph.input("x", (1024, 1024))
    graph.output(x + ops.broadcast_to(graph.constant(np.ones((1024, 1), "f4")), x.shape), "y")
    assert "broadcast_to" in names(fold.run(graph).nodes)
    found = optimise(graph)
    assert names(found.run_nodes) == ["region"]
    assert not found.set_nodes


def test_folding_leaves_data_faults_to_the_run(graph):
    """The index is found to be bad only once it is computed."""
    index = graph.constant(np.array([1])) * 5
    graph.output(ops.take(graph.constant(np.ones(3, "f4")), index) + graph.input("x", (1,)), "y")
    found = optimise(graph).graph
    with pytest.raises(InputError):
        reference.evaluate(found, {"x": np.zeros(1, "f4")})


def test_the_set_program_holds_all_that_parameters_decide(graph):
    x, w, s = graph.input("x", (2, 4)), graph.param("w", (3, 4)), graph.param("s", (3, 1))
    graph.output(x @ (ops.exp(w) * s).T + ops.sum(w, axis=1), "y")
    found = optimise(graph)
    assert names(found.run_nodes) == ["fused_matmul"]
    assert sorted(names(found.set_nodes)) == ["pack_weight", "region", "sum"]
    (pack,) = (node for node in found.set_nodes if node.op == "pack_weight")
    assert pack.attrs == {"k": 4, "n": 3, "transposed": True}


def test_products_share_a_packed_weight(graph):
    x, w = graph.input("x", (4, 4)), graph.param("w", (4, 4))
    graph.output(x @ w @ w @ w.T, "y")
    found = optimise(graph)
    assert sorted(node.attrs["transposed"] for node in found.set_nodes) == [False, True]


def test_a_transposed_operand_of_a_packed_product_is_moved(graph):
    x, w = graph.input("x", (4, 2)), graph.param("w", (4, 3))
    graph.output(x.T @ w, "y")
    assert names(optimise(graph).run_nodes) == ["transpose", "fused_matmul"]


def test_a_weight_that_a_run_computes_is_not_packed(graph):
    x, w = graph.input("x", (2, 4)), graph.input("w", (4, 3))
    graph.output(x @ w, "y")
    (node,) = optimise(graph).run_nodes
    assert not node.attrs["packed"]


def test_packing_is_padded_to_panels():
    w = np.arange(2 * 18, dtype="f4").reshape(2, 18)
    graph = Graph()
    attrs = {"k": 2, "n": 18, "transposed": False}
    node = graph.add_node("pack_weight", [graph.param("w", (2, 18))], attrs)
    graph.output(node.outputs[0], "y")
    packed = reference.evaluate(graph, params={"w": w})["y"].reshape(2, 2, 16)
    np.testing.assert_array_equal(packed[0], w[:, :16])
    np.testing.assert_array_equal(packed[1, :, :2], w[:, 16:])
    assert not packed[1, :, 2:].any()


def test_the_schedule_keeps_few_bytes_live(graph):
    """Written breadth first, four branches are wide at once; depth first, one is."""
    x = graph.input("x", (1000,))
    wide = [ops.softmax(x * float(i)) for i in range(4)]
    total = None
    for value in wide:
        small = ops.sum(value, keepdims=True)
        total = small if total is None else ops.concat([total, small])
    graph.output(total, "y")
    written = schedule.peak_bytes(graph)
    found = schedule.run(graph)
    assert schedule.peak_bytes(found) <= 8100 < 16000 <= written
    assert schedule.run(found) is found


def test_the_schedule_is_never_worse_than_what_was_written(graph):
    x = graph.input("x", (10,))
    a, b = ops.exp(x), ops.tanh(x)
    graph.output(ops.concat([a, b, a + b]), "y")
    assert schedule.peak_bytes(schedule.run(graph)) <= schedule.peak_bytes(graph)
