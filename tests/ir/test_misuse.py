"""What cannot be built is refused where it is written, by name, and leaves the graph as it was."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from fastgraph.errors import GraphError, InputError, UnsupportedError
from fastgraph.ir import Graph, Value, ops, reference, types


@pytest.fixture
def graph():
    return Graph("g")


def refused(graph, call, *words):
    """Assert that `call` raises GraphError with `words` in its message and adds no operator."""
    before = len(graph.outputs), len(graph.inputs), len(graph.params), len(graph.scalars)
    operators = [node for node in graph.nodes if not node.is_leaf]
    with pytest.raises(GraphError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)
    assert [node for node in graph.nodes if not node.is_leaf] == operators
    assert before == (
        len(graph.outputs), len(graph.inputs), len(graph.params), len(graph.scalars),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((2, -1), ["'x'", "-1 at axis 1"]),
        ((2, 1.5), ["'x'", "1.5 at axis 1"]),
        ((True,), ["'x'", "True"]),
        ("23", ["'x'", "text"]),
        ((1 << 40, 1 << 40), ["'x'", "larger than"]),
        ((0, 1 << 40, 1 << 40), ["'x'", "larger than"]),
        ((1,) * 65, ["'x'", "65 dimensions", "64"]),
        (None, ["'x'", "None"]),
    ],
)
def test_bad_shapes(graph, shape, words):
    refused(graph, lambda: graph.input("x", shape), *words)
    refused(graph, lambda: graph.param("x", shape), *words)


@pytest.mark.parametrize(
    "dtype", ["float128", "float8_e5m2", "int4", "complex64", "U4", "M8[s]", "O", "nonsense"]
)
def test_bad_dtypes(graph, dtype):
    refused(graph, lambda: graph.input("x", (2,), dtype), "'x'", "bool, int8, int16, int32, int64")


def test_bfloat16_without_its_package(graph, monkeypatch):
    monkeypatch.setattr(types, "_HAS_BFLOAT16", False)
    with pytest.raises(UnsupportedError, match=r"input 'x'.*pip install ml_dtypes"):
        graph.input("x", (2,), "bfloat16")
    assert graph.nodes == []


def test_foreign_byte_order(graph):
    refused(graph, lambda: graph.constant(np.array([1, 2], ">i4")), "byte order")


@pytest.mark.parametrize("name", ["", None, 3])
def test_bad_names(graph, name):
    refused(graph, lambda: graph.input(name, (2,)), "non-empty")


def test_one_set_of_names(graph):
    graph.input("x", (2,))
    refused(graph, lambda: graph.param("x", (2,)), "'x'", "taken by the input", "test_misuse.py")
    refused(graph, lambda: graph.scalar("x", "int32"), "'x'", "taken")


def test_declared_names_win_over_those_of_operators(graph):
    x = graph.input("x", (2,))
    total = x + 1
    assert total.node.name == "add"
    assert graph.input("add", (2,)).node.name == "add"
    assert total.node.name != "add"


def test_outputs(graph):
    x = graph.input("x", (2,))
    assert graph.output(x) is x
    graph.output(x + 1)
    graph.output(x + 2, "y")
    assert [name for name, _ in graph.outputs] == ["x", "output1", "y"]
    refused(graph, lambda: graph.output(x, "y"), "'y'", "another")
    refused(graph, lambda: graph.output(np.zeros(2)), "ndarray")


def test_values_of_another_graph(graph):
    x, other = graph.input("x", (2,)), Graph("h").input("z", (2,))
    for call in (
        lambda: x + other, lambda: graph.output(other), lambda: ops.where(x > 0, x, other),
        lambda: ops.concat([x, other]), lambda: ops.layer_norm(x, other),
    ):  # fmt: skip
        with pytest.raises(GraphError, match="another graph, 'h'"):
            call()


def test_values_hold_no_data(graph):
    x = graph.input("x", (2,))
    refused(graph, lambda: bool(x), "x", "where")
    refused(graph, lambda: list(x), "x", "index")
    refused(graph, lambda: np.asarray(x), "x", "run")
    refused(graph, lambda: 1 in x, "x")
    with pytest.raises(GraphError, match="truth"):
        assert x == x


def test_values_hash_by_identity(graph):
    x, y = graph.input("x", (2,)), graph.input("y", (2,))
    assert {x: 1, y: 2}[x] == 1
    assert isinstance(x == y, Value)
    assert (x != y).dtype == np.bool_


def test_sites(graph):
    x = graph.input("x", (2,))
    y = x + 1
    assert x.node.site.startswith("test_misuse.py:")
    assert int(y.node.site.split(":")[1]) == int(x.node.site.split(":")[1]) + 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda f, i: i + f.astype("bfloat16"), ["add", "int64 and bfloat16", "astype"]),
        (lambda f, i: f.astype("float16") + f.astype("bfloat16"), ["float16 and bfloat16"]),
        (lambda f, i: f + np.complex64(1), ["add", "dtype complex64 is not supported"]),
        (lambda f, i: ops.gelu(i), ["gelu", "int64", "astype"]),
        (lambda f, i: ops.softmax(i), ["softmax", "int64", "astype"]),
        (lambda f, i: f & f, ["bitwise_and", "float32"]),
        (lambda f, i: ~f, ["invert", "float32"]),
        (lambda f, i: i << f.astype("float64"), ["left_shift", "float64"]),
        (lambda f, i: i.astype("uint8") + 256, ["256", "uint8", "0 to 255"]),
        (lambda f, i: i.astype("uint8") * -1, ["-1", "uint8", "0 to 255"]),
        (lambda f, i: ops.celu(f, 0), ["celu", "alpha"]),
        (lambda f, i: ops.softplus(f, beta=0), ["softplus", "beta"]),
        (lambda f, i: ops.prelu(f, np.ones((2, 2, 3), "f4")), ["prelu", "(2, 2, 3)"]),
        (lambda f, i: ops.layer_norm(f, i), ["layer_norm", "weight", "float32", "int64"]),
        (lambda f, i: ops.argmin(f, axis=(0, 1)), ["argmin", "one int"]),
        (lambda f, i: i**-1, ["power", "-1"]),
        (lambda f, i: (f > 0) - (f > 0), ["subtract", "bool"]),
        (lambda f, i: -(f > 0), ["negative", "bool"]),
        (lambda f, i: f @ f, ["matmul", "(2, 3)", "equal"]),
        (lambda f, i: f @ 2, ["matmul", "multiply"]),
        (lambda f, i: f + np.zeros((4,), "f4"), ["add", "(2, 3) and (4,)", "axis -1"]),
        (lambda f, i: i.astype("int32") + 2**31, ["2147483648", "int32", "2147483647"]),
        (lambda f, i: f + "1", ["add", "str"]),
        (lambda f, i: ops.add(f, [1.0, 2.0, 3.0]), ["add", "list"]),
        (lambda f, i: ops.sum(f, axis=2), ["sum", "axis 2", "-2 to 1"]),
        (lambda f, i: ops.sum(f, axis=(0, -2)), ["sum", "twice"]),
        (lambda f, i: ops.sum(f, axis=1.0), ["sum", "1.0"]),
        (lambda f, i: ops.max(f[:, :0], axis=1), ["max", "no elements"]),
        (lambda f, i: ops.argmax(f, axis=(0, 1)), ["argmax", "one int"]),
        (lambda f, i: f.reshape(4), ["reshape", "6 elements"]),
        (lambda f, i: f.reshape(4, -1), ["reshape", "do not fill"]),
        (lambda f, i: f.reshape(-1, -1), ["reshape", "more than one"]),
        (lambda f, i: f.transpose(0, 0), ["transpose", "once"]),
        (lambda f, i: ops.broadcast_to(f, (3, 3)), ["broadcast_to", "(2, 3)"]),
        (lambda f, i: ops.concat([f, f[:, :2]]), ["concat", "beyond axis 0"]),
        (lambda f, i: ops.concat([]), ["concat"]),
        (lambda f, i: ops.concat(f), ["concat", "list"]),
        (lambda f, i: ops.take(f, f), ["take", "float32"]),
        (lambda f, i: ops.take(f, 3, axis=1), ["take", "index 3", "-3 to 2"]),
        (lambda f, i: f[2], ["index 2", "axis 0", "-2 to 1"]),
        (lambda f, i: f[0, 0, 0], ["3 indices", "2 axes"]),
        (lambda f, i: f[..., ...], ["only one"]),
        (lambda f, i: f[f > 0], ["mask", "where"]),
        (lambda f, i: f[::0], ["zero"]),
        (lambda f, i: f[1.0], ["1.0"]),
        (lambda f, i: ops.squeeze(f, 0), ["squeeze", "length 2"]),
        (lambda f, i: ops.softmax(f, axis=2), ["softmax", "axis 2"]),
        (lambda f, i: ops.layer_norm(f, f), ["layer_norm", "weight", "(3,)", "(2, 3)"]),
        (lambda f, i: ops.layer_norm(f, eps=-1.0), ["layer_norm", "eps"]),
        (lambda f, i: ops.rms_norm(f, eps=float("nan")), ["rms_norm", "eps"]),
        (lambda f, i: ops.gelu(f, "quick"), ["gelu", "quick"]),
        (lambda f, i: ops.add(1, 2), ["add", "Value"]),
        (lambda f, i: f.astype("complex64"), ["astype", "complex64"]),
        (lambda f, i: ops.one_hot(i, 1 << 40), ["one_hot", "a constant of", "the limit"]),
        (lambda f, i: ops.pad(f, (0, 1 << 40), "edge"), ["pad", "a constant of"]),
        (lambda f, i: ops.resize(f, (2, 1 << 40)), ["resize", "a constant of"]),
        (lambda f, i: f.astype("bfloat16") + 2**2000, ["add", "bfloat16", "out of range"]),
        (lambda f, i: ops.broadcast_to(f.reshape(6, 1), (6, 1 << 50)), ["larger than"]),
        (lambda f, i: ops.slice(f, (0, 0), (1, 1), axes=(0, -2)), ["slice", "twice"]),
        (lambda f, i: ops.slice(f, (0,), (1, 1)), ["slice", "1 starts", "2 ends"]),
    ],
)
def test_operators_refuse(graph, call, words):
    f, i = graph.input("f", (2, 3)), graph.input("i", (2, 3), "int64")
    with pytest.raises(GraphError) as caught:
        call(f, i)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda f, i: f + np.zeros(4, "f4"),
        lambda f, i: ops.add(x1=np.zeros(4, "f4"), x2=f),
        lambda f, i: ops.concat([i.astype("int32"), i[:, :1]]),
        lambda f, i: ops.clip(f, 0, np.zeros(4, "f4")),
        lambda f, i: ops.take(f, 9),
        lambda f, i: ops.where(f, np.float16(1), np.ones(3, "bfloat16")),
    ],
)
def test_what_is_refused_leaves_nothing(graph, call):
    f, i = graph.input("f", (2, 3)), graph.input("i", (2, 3), "int64")
    i.astype("int32")
    before = list(graph.nodes)
    with pytest.raises(GraphError):
        call(f, i)
    left = [node for node in graph.nodes if node not in before]
    assert [node.op for node in left if node.op not in ("astype", "slice")] == []
    assert (f + 1).node.name == "add"


def test_a_result_too_large(graph):
    a, b = graph.input("a", (1 << 24, 1)), graph.input("b", (1, 1 << 24))
    refused(graph, lambda: a + b, "add", "larger than")


def test_initial_contents_must_fit(graph):
    array = np.zeros((2, 3), "f4")
    refused(graph, lambda: graph.param("w", (3, 2), initial=array), "'w'", "[2, 3]", "[3, 2]")
    graph.param("w", (2, 3), initial=array)
    array[:] = 1
    graph.output(graph.params[0], "y")
    assert reference.evaluate(graph)["y"].max() == 0


@pytest.mark.parametrize(
    ("dtype", "default"), [("int32", 1.5), ("int32", 2**31), ("bool", 2), ("int64", "1")]
)
def test_scalar_defaults_must_fit(graph, dtype, default):
    refused(graph, lambda: graph.scalar("s", dtype, default), "'s'", repr(default))


def test_unknown_operators(graph):
    refused(graph, lambda: graph.add_node("nonsense", []), "nonsense")


def test_evaluate_checks_its_arguments(graph):
    x, s = graph.input("x", (2,)), graph.scalar("s", "float32")
    graph.output(x * s, "y")
    good = np.ones(2, "f4")
    for inputs, scalars, words in (
        ({}, {"s": 1}, "'x' is missing"), ({"x": good}, {}, "'s' is missing"),
        ({"x": good, "z": good}, {"s": 1}, "'z' is unknown"),
        ({"x": good[:1]}, {"s": 1}, r"float32\[1\]"), ({"x": np.ones(2)}, {"s": 1}, "float64"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=words):
            reference.evaluate(graph, inputs, scalars=scalars)
    assert reference.evaluate(graph, {"x": good}, scalars={"s": 3})["y"].tolist() == [3, 3]


def test_copies_are_independent(graph):
    x = graph.input("x", (2,))
    graph.output(x + 1, "y")
    for twin in (graph.copy(), copy.copy(graph), copy.deepcopy(graph)):
        twin.output(ops.relu(twin.outputs[0][1]), "z")
        assert len(twin.nodes) == len(graph.nodes) + 1
        assert len(graph.outputs) == 1
        assert all(node.graph is twin for node in twin.nodes)


def test_a_deep_chain_is_copied_and_dropped(graph):
    x = graph.input("x", (1,))
    for _ in range(10_000):
        x = ops.relu(x)
    graph.output(x, "y")
    twin = copy.deepcopy(graph)
    assert reference.evaluate(twin, {"x": np.float32([2])})["y"] == 2


def test_arguments_of_a_kind_that_nobody_expects(graph):
    x, many = graph.input("x", (2, 3)), np.array([1, 0])
    for reduction in (ops.sum, ops.prod, ops.mean, ops.max, ops.min, ops.argmax):
        refused(graph, lambda f=reduction: f(x, axis=0, keepdims=many), "keepdims")
        assert reduction(x, axis=0, keepdims=np.bool_(True)).shape == (1, 3)
    refused(graph, lambda: ops.gelu(x, many), "approximate")
    refused(graph, lambda: ops.take(x, 2**70), "take: index", "out of range")
    refused(graph, lambda: ops.getitem(1, 0), "getitem", "Value")
    refused(graph, lambda: ops.layer_norm(x, eps=10**400), "eps", "finite")
    refused(graph, lambda: ops.astype(x, "f4,("), "not a dtype")
    refused(graph, lambda: graph.constant([[1], [1, 2]]), "constant", "list")
    refused(graph, lambda: graph.param("p", (2,), initial=[[1], [1, 2]]), "param 'p'", "list")
