"""If and Loop from ONNX, beside ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import fastgraph as fg
from tests.onnx.build import in_bytes, model, node

ort = pytest.importorskip("onnxruntime")
f4 = np.float32
FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def body(name, nodes, outputs, inputs=(), initialisers=None):
    """A graph for an attribute; inputs as (name, type, shape), outputs as (name, type)."""
    return helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info(*one) for one in inputs],
        [helper.make_tensor_value_info(n, kind, None) for n, kind in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (initialisers or {}).items()],
    )


def compared(built, inputs, kinds=()):
    """The outputs of a run, equal to ONNX Runtime's; which kinds of nodes the record has."""
    data = in_bytes(built)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    wanted = ort.InferenceSession(data, options, ["CPUExecutionProvider"]).run(None, inputs)
    loaded = fg.load(data, device="cpu")
    found = loaded.run(inputs)
    for one, right in zip(found, wanted, strict=True):
        assert (one.shape, one.dtype) == (right.shape, right.dtype)
        np.testing.assert_allclose(one, right, rtol=1e-5)
    assert {n.kind for n in loaded.graph.nodes} & {"if", "while"} == set(kinds)
    return found, loaded


def choice(condition_nodes):
    """An If over ``x`` whose branches read a weight outside, one inside, and the same names."""
    branches = {
        key: body(
            key, [node("MatMul", "x w", "m"), node(op, "m inside", "out")], [("out", FLOAT)],
            initialisers={"inside": np.full(3, k, "f4")},
        )
        for key, op, k in (("then_branch", "Add", 1), ("else_branch", "Mul", 2))
    }  # fmt: skip
    return model(
        [*condition_nodes, node("If", "c", "b", name="pick", **branches), node("Neg", "b", "y")],
        {"x": (2, 3)},
        initialisers={"w": np.arange(9, dtype="f4").reshape(3, 3), "zero": np.zeros((), "f4")},
        output_dtype=FLOAT,
    )


def test_a_condition_of_the_run():
    for sign in (1, -1):
        built = choice([node("ReduceSum", "x", "s", keepdims=0), node("Greater", "s zero", "c")])
        _, loaded = compared(built, {"x": np.full((2, 3), sign, "f4")}, {"if"})
    # Weights in branches are parameters as well, under names of their own.
    assert sorted(info.name for info in loaded.params)[:2] == ["inside", "inside_1"]
    loaded.set_param("w", np.eye(3, dtype="f4"))
    loaded.set_param("inside_1", np.full(3, 5, "f4"))
    assert loaded.run({"x": -np.ones((2, 3), "f4")})[0].tolist() == [[5, 5, 5]] * 2


def test_both_branches_must_be_sound_where_only_a_run_knows():
    built = choice([node("ReduceSum", "x", "s", keepdims=0), node("Greater", "s zero", "c")])
    built.graph.node[2].attribute[0].g.node[0].op_type = "Unheard"
    with pytest.raises(
        fg.CompileError, match=r"Unheard making 'm'[^$]*where 'c' is always the same"
    ):
        fg.load(in_bytes(built))


@pytest.mark.parametrize("known", [True, False])
def test_a_known_condition_leaves_one_branch(known):
    """Also where it is worked out from initialisers; the other may hold what is not known."""
    built = choice([node("Greater", "one zero", "c") if known else node("Less", "one zero", "c")])
    built.graph.initializer.append(numpy_helper.from_array(np.ones((), "f4"), "one"))
    compared(built, {"x": np.ones((2, 3), "f4")})
    untaken = built.graph.node[1].attribute[not known].g
    assert untaken.name == ("else_branch" if known else "then_branch")
    untaken.node[0].op_type = "Unheard"
    loaded = fg.load(in_bytes(built))
    assert {info.name for info in loaded.params} == {"w", "inside"}
    built.graph.node[1].attribute[known].g.node[0].op_type = "Unheard"
    with pytest.raises(fg.CompileError, match="Unheard making 'm': not supported"):
        fg.load(in_bytes(built))


def turns(nodes, count=None, condition=None, scans=0, initialisers=None, opset=20):
    """A Loop that carries ``x``, and what it gathers."""
    inputs = [("i", INT, ()), ("go", BOOL, ()), ("v", FLOAT, (2,))]
    outputs = [("again", BOOL), ("next", FLOAT), *((f"s{k}", FLOAT) for k in range(scans))]
    loop = node(
        "Loop", f"{'n' if count is not None else '-'} {condition or '-'} x",
        " ".join(["y", *(f"all{k}" for k in range(scans))]), name="turns",
        body=body("turn", nodes, outputs, inputs),
    )  # fmt: skip
    given = {"n": np.array(count)} if isinstance(count, int) else {}
    built = model(
        [loop], {"x": (2,)}, ["y", *(f"all{k}" for k in range(scans))],
        initialisers={**given, **(initialisers or {})}, opset=opset, output_dtype=FLOAT,
    )  # fmt: skip
    if count == "input":
        built.graph.input.append(helper.make_tensor_value_info("n", INT, ()))
    return built


DOUBLE = [node("Identity", "go", "again"), node("Add", "v v", "next")]


@pytest.mark.parametrize("opset", [11, 13, 20])
def test_a_number_of_turns_of_the_run(opset):
    for n in (0, 1, 4):
        compared(
            turns(DOUBLE, "input", opset=opset), {"x": f4([1, 2]), "n": np.array(n)}, {"while"}
        )


def test_a_condition_that_a_turn_gives():
    nodes = [
        node("Add", "v v", "next"), node("ReduceSum", "next", "sum", keepdims=0),
        node("Less", "sum limit", "again"),
    ]  # fmt: skip
    limit = {"limit": np.float32(20)}
    for count in (None, 2, 100):
        built = turns(nodes, count, initialisers=limit)
        compared(built, {"x": f4([1, 2])}, {"while"})


def test_few_known_turns_are_written_out():
    """What counts turns is known then, also to what must be known at import."""
    nodes = [
        *DOUBLE, node("Cast", "i", "f", to=FLOAT), node("Add", "v f", "s0"),
        node("Constant", "", "one", value_ints=[1]), node("Reshape", "i one", "r"),
        node("Add", "r one", "size"), node("Expand", "small size", "wide"),
        node("ReduceSum", "wide", "s1", keepdims=0),
    ]  # fmt: skip
    built = turns(nodes, 3, scans=2, initialisers={"small": f4([1])})
    found, _ = compared(built, {"x": f4([1, 2])})
    assert found[1].shape == (3, 2)
    assert found[2].tolist() == [1, 2, 3]


def test_many_known_turns_stay_a_loop():
    compared(turns(DOUBLE, 100), {"x": f4([1e-20, 2e-20])}, {"while"})
    compared(turns(DOUBLE, 0), {"x": f4([1, 2])})


def test_what_turns_gather_needs_a_known_number():
    for count in ("input", 65):
        built = turns([*DOUBLE, node("Neg", "v", "s0")], count, scans=1)
        with pytest.raises(fg.CompileError, match=r"Loop 'turns': gathers the results of turns"):
            fg.load(in_bytes(built))


def test_bodies_in_bodies():
    inner = body("odd", [node("Mul", "v w", "p")], [("p", FLOAT)], initialisers={"w": f4([2, 3])})
    other = body("even", [node("Sub", "v outside", "q")], [("q", FLOAT)])
    nodes = [
        node("Identity", "go", "again"), node("Constant", "", "two", value_int=2),
        node("Mod", "i two", "rest"), node("Cast", "rest", "c", to=BOOL),
        node("If", "c", "next", then_branch=inner, else_branch=other),
    ]  # fmt: skip
    constants = {"outside": f4([1, 1])}
    compared(
        turns(nodes, "input", initialisers=constants),
        {"x": f4([1, 2]), "n": np.array(5)},
        {"while"},
    )
    compared(turns(nodes, 5, initialisers=constants), {"x": f4([1, 2])})


def test_what_is_wrong_in_a_body_is_told():
    for nodes, message in (
        ([*DOUBLE[:1], node("Unheard", "v", "next")], "Unheard making 'next': not supported"),
        ([*DOUBLE[:1], node("Neg", "nothing", "next")], "reads 'nothing', which nothing makes"),
        ([*DOUBLE[:1], node("Concat", "v v", "next", axis=0)], "shapes and dtypes stay the same"),
    ):
        with pytest.raises(fg.CompileError, match=message):
            fg.load(in_bytes(turns(nodes, "input")), dims={})
