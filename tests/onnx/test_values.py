"""Inputs whose values are told when a model is read."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import fastgraph as fg
from fastgraph.ir import reference
from fastgraph.onnx import from_model, load
from tests.onnx.build import in_bytes, model, node


def branch(name: str, *nodes):
    made = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
    return helper.make_graph(list(nodes), name, [], [made])


def chosen():
    """Of two branches the second is not sound for the sizes of `x`; `wide` chooses."""
    return model(
        [
            node("Cast", "wide", "yes", to=TensorProto.BOOL),
            node(
                "If",
                "yes",
                "y",
                then_branch=branch("wide", node("Add", "x x", "t")),
                else_branch=branch("narrow", node("MatMul", "x x", "e")),
            ),
        ],
        {"x": (2, 3), "wide": ()},
    )


def test_a_branch_that_values_leave_out_need_not_be_sound(device):
    with pytest.raises(fg.CompileError, match="pass values= of the inputs it comes from"):
        from_model(chosen())
    graph = from_model(chosen(), values={"wide": 1})
    assert [value.name for value in graph.inputs] == ["x"]
    assert [n.op for n in graph.nodes if n.op not in ("input", "constant")] == ["add"]
    x = np.arange(6, dtype="f4").reshape(2, 3)
    compiled = fg.load(in_bytes(chosen()), device, values={"wide": np.float32(2)})
    np.testing.assert_array_equal(compiled.run({"x": x})[0], x + x)
    with pytest.raises(fg.InputError, match="'wide'"):
        compiled.run({"x": x, "wide": np.float32(1)})


def test_what_depends_on_values_alone_is_known():
    shaped = model(
        [
            node("Mul", "n two", "m"),
            node("Cast", "m", "s", to=TensorProto.INT64),
            node("Reshape", "x s", "y"),
        ],
        {"x": (4, 3), "n": (2,)},
        initialisers={"two": np.float32([2, 2])},
    )
    with pytest.raises(fg.CompileError, match="pass values= of that input"):
        from_model(shaped)
    graph = from_model(shaped, values={"n": np.float32([3, 1])})
    assert graph.outputs[0][1].shape == (6, 2)


def test_sizes_of_values_bind_dimensions_and_nothing_need_be_left():
    added = model([node("Add", "x w", "y")], {"x": ("N", 2), "w": ("N", 2)})
    w = np.float32([[1, 2], [3, 4], [5, 6]])
    graph = from_model(added, values={"w": w})
    w[:] = 0  # it was copied
    assert graph.inputs[0].shape == (3, 2)
    ones = np.ones((3, 2), "f4")
    (found,) = reference.evaluate(graph, {"x": ones}, {}, {}).values()
    np.testing.assert_array_equal(found, [[2, 3], [4, 5], [6, 7]])
    graph = from_model(added, values={"w": ones, "x": ones})
    (found,) = fg.Session("cpu").compile(graph).run({})
    np.testing.assert_array_equal(found, ones + ones)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (3, "values is a mapping of names to arrays, not int"),
        ({"z": 1}, "'z', which is no input of this model; it has 'x', 'n'"),
        ({"n": 1}, r"has shape \(\), but the model declares \(2,\): 1 dimensions, not 0"),
        ({"n": np.zeros(3, "f4")}, r"values\['n'\] gives 3 for axis 0, which the model fixes at 2"),
        ({"n": np.zeros(2)}, r"dtype float64, not float32; nothing is cast: use array.astype"),
        ({"n": [1.0, 2.0]}, "nothing is converted"),
        ({"n": "12"}, "nothing is converted"),
        ({"n": np.ma.array([1, 2], dtype="f4")}, "masked"),
        ({"x": np.zeros((5, 3), "f4")}, r"has shape \(5, 3\), but shapes gives it \(4, 3\)"),
    ],
)
def test_values_that_do_not_fit(values, told):
    built = model([node("Add", "x x", "y")], {"x": ("N", 3), "n": (2,)})
    with pytest.raises(fg.InputError, match=told):
        load(in_bytes(built), shapes={"x": (4, 3)}, values=values)


def test_numbers_fit_the_dtype():
    built = model([node("Add", "n n", "y")], {"n": ()}, dtype=TensorProto.INT8)
    for wrong in (128, 1.5, True):
        with pytest.raises(fg.InputError, match=r"values\['n'\] is int8"):
            from_model(built, values={"n": wrong})
    from_model(built, values={"n": -128})
