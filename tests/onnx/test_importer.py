"""What becomes of initialisers, symbolic dimensions and shape arithmetic."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import fastgraph as fg
from fastgraph.ir import reference
from fastgraph.onnx import from_model, load
from tests.onnx.build import in_bytes, model, node

DIGITS = files("fastgraph") / "data" / "digits.onnx"


def evaluated(built: onnx.ModelProto, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    graph = from_model(built, shapes={name: a.shape for name, a in inputs.items()})
    params = {value.name: value.node.attrs["initial"] for value in graph.params}
    return reference.evaluate(graph, inputs, params, {})


def kinds(graph: fg.Graph) -> list[str]:
    return [n.op for n in graph.nodes if n.op not in ("input", "param", "constant")]


def test_digits_becomes_the_graph_that_was_written() -> None:
    graph = load(DIGITS.read_bytes(), dims={"N": 3})
    assert [(v.name, v.shape, v.dtype.name) for v in graph.inputs] == [
        ("image", (3, 64), "float32")
    ]
    names = [f"fc{i}.{kind}" for i in range(3) for kind in ("weight", "bias")]
    assert [v.name for v in graph.params] == names
    assert all(v.node.attrs["initial"].shape == v.shape for v in graph.params)
    # Where it was loaded, whatever stands between.
    sites = {v.node.site.partition(":")[0] for v in (*graph.inputs, *graph.params)}
    assert sites == {Path(__file__).name}
    assert [(name, v.shape) for name, v in graph.outputs] == [("probabilities", (3, 10))]
    operators = {n.name: n.op for n in graph.nodes}
    assert {"fc0": "matmul", "gelu0": "gelu", "softmax": "softmax"}.items() <= operators.items()
    assert operators["pixel_scale"] == "constant"
    assert next(n for n in graph.nodes if n.name == "gelu0").site == "ONNX Gelu 'gelu0'"


def test_path_bytes_and_views_of_bytes_are_the_same(tmp_path: Path) -> None:
    data = DIGITS.read_bytes()
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    graphs = [load(m, {"N": 1}) for m in (path, str(path), data, bytearray(data), memoryview(data))]
    assert len({repr(g) for g in graphs}) == 1


def test_initialisers_are_set_parameters_unless_a_shape_needs_them() -> None:
    built = model(
        [node("Reshape", "x shape", "r"), node("Add", "r w", "y")],
        {"x": (2, 3)},
        initialisers={"shape": np.array([3, 2]), "w": np.float32([1, 2]), "unused": np.zeros(2)},
    )
    graph = from_model(built)
    assert [value.name for value in graph.params] == ["w"]
    found = evaluated(built, x=np.arange(6, dtype="f4").reshape(2, 3))["y"]
    np.testing.assert_array_equal(found, np.arange(6).reshape(3, 2) + np.array([1, 2]))


def test_set_param_says_why_an_initialiser_is_a_constant() -> None:
    built = model(
        [
            node("Cast", "small", "h", "cast", to=TensorProto.FLOAT),
            node("Concat", "rows columns", "shape", "joined", axis=0),
            node("Reshape", "x shape", "r", "flat"),
            node("Clip", "r low", "c", "bounded"),
            node("ReduceSum", "c axes", "s", "summed"),
            node("Add", "s h", "y", "added"),
        ],
        {"x": (2, 3)},
        initialisers={
            "rows": np.array([3]),
            "columns": np.array([2]),
            "low": np.float32(0),
            "axes": np.array([1]),
            "small": np.ones(1, ml_dtypes.float8_e4m3fn),
            "unused": np.zeros(2),
        },
    )
    compiled = fg.load(in_bytes(built))
    fixed = "{!r} is a constant of the model, not a parameter: input {} depends on it and is fixed "
    for name, reason in {
        "rows": "'shape' of Reshape 'flat'",
        "columns": "'shape' of Reshape 'flat'",
        "axes": "'axes' of ReduceSum 'summed'",
    }.items():
        with pytest.raises(fg.InputError, match=re.escape(fixed.format(name, reason))):
            compiled.set_param(name, np.array([1]))
    with pytest.raises(
        fg.InputError, match=r"'small' is a constant .*: it has dtype float8_e4m3fn; graphs"
    ):
        compiled.clone().set_param("small", np.float16([2]))
    with pytest.raises(fg.InputError, match="'unused' is an initialiser that nothing"):
        compiled.set_param("unused", np.zeros(2))
    with pytest.raises(fg.InputError, match="'x' is an input"):
        compiled.set_param("x", np.zeros((2, 3), "f4"))


def test_old_files_that_list_initialisers_among_inputs() -> None:
    built = model(
        [node("Add", "x w", "y")],
        {"x": (2,), "w": (2,)},
        initialisers={"w": np.float32([1, 2])},
        opset=8,
    )
    graph = from_model(built)
    assert [v.name for v in graph.inputs] == ["x"]
    assert [v.name for v in graph.params] == ["w"]


def test_shape_arithmetic_is_worked_out_at_import() -> None:
    built = model(
        [
            node("Shape", "x", "dims"),
            node("Gather", "dims zero", "n0"),
            node("Gather", "dims one", "n1"),
            node("Mul", "n1 two", "doubled"),
            node("Div", "n0 two", "halved"),
            node("Unsqueeze", "halved axes", "h"),
            node("Unsqueeze", "doubled axes", "d"),
            node("Concat", "h d", "shape", axis=0),
            node("Reshape", "x shape", "y"),
        ],
        {"x": ("N", 3)},
        initialisers={
            "zero": np.int64(0),
            "one": np.int64(1),
            "two": np.int64(2),
            "axes": np.array([0]),
        },
    )
    graph = from_model(built, {"N": 4})
    assert kinds(graph) == ["reshape"]
    assert graph.params == []
    assert graph.outputs[0][1].shape == (2, 6)


def test_constants_of_other_dtypes_may_be_cast() -> None:
    built = model(
        [
            node("Constant", "", "c", value=onnx.numpy_helper.from_array(np.float64([0.5]))),
            node("Cast", "c", "half", to=TensorProto.FLOAT),
            node("Mul", "x half", "y"),
        ],
        {"x": (2,)},
    )
    np.testing.assert_array_equal(evaluated(built, x=np.float32([2, 4]))["y"], [1, 2])


def test_nodes_in_any_order_and_constant_or_passed_through_outputs() -> None:
    built = model(
        [
            node("Relu", "a", "y"),
            node("Neg", "x", "a"),
            node("Constant", "", "c", value_ints=[1, 2]),
            node("Identity", "x", "same"),
        ],
        {"x": (2,)},
        outputs=("y", "c", "same", "w"),
        initialisers={"w": np.float32([7])},
    )
    found = evaluated(built, x=np.float32([-1, 2]))
    assert list(found) == ["y", "c", "same", "w"]
    np.testing.assert_array_equal(found["y"], [1, 0])
    np.testing.assert_array_equal(found["c"], [1, 2])
    np.testing.assert_array_equal(found["same"], [-1, 2])
    np.testing.assert_array_equal(found["w"], [7])


def test_functions_of_the_model_are_inlined() -> None:
    body = helper.make_function(
        "own", "Twice", ["a"], ["b"], [node("Add", "a a", "b")], [helper.make_opsetid("", 20)]
    )
    built = model([helper.make_node("Twice", ["x"], ["y"], domain="own")], {"x": (2,)})
    built.functions.append(body)
    built.opset_import.append(helper.make_opsetid("own", 1))
    graph = load(in_bytes(built))
    assert kinds(graph) == ["add"]


def test_external_data_beside_the_file(tmp_path: Path) -> None:
    w = np.arange(600, dtype="f4").reshape(2, 300)
    built = model([node("MatMul", "x w", "y")], {"x": (1, 2)}, initialisers={"w": w})
    onnx.save_model(
        built,
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="m.bin",
        size_threshold=0,
    )
    graph = load(tmp_path / "m.onnx")
    np.testing.assert_array_equal(graph.params[0].node.attrs["initial"], w)


def test_symbols_bind_by_dims_by_shapes_and_from_another_input() -> None:
    built = model([node("Add", "a b", "y")], {"a": ("N", 3), "b": ("N", 1)})
    for graph in (
        from_model(built, {"N": 2}),
        from_model(built, shapes={"a": (2, 3), "b": (2, 1)}),
        from_model(built, shapes={"b": (2, 1)}),
        from_model(built, {"N": 2}, {"a": [2, np.int64(3)]}),
    ):
        assert [v.shape for v in graph.inputs] == [(2, 3), (2, 1)]


def test_a_symbol_of_size_zero_is_a_size() -> None:
    built = model([node("Relu", "x", "y")], {"x": ("N", 3)})
    assert from_model(built, {"N": 0}).outputs[0][1].shape == (0, 3)


def test_unbound_dimensions_are_listed_with_their_places_and_what_to_pass() -> None:
    built = model(
        [node("Add", "a b", "s"), node("Add", "s c", "t"), node("Add", "t d", "y")],
        {"a": ("N", "T"), "b": ("N", 1), "c": (None, 4), "d": None},
    )
    with pytest.raises(fg.CompileError) as caught:
        from_model(built)
    assert str(caught.value) == (
        "the model 'tested' cannot be compiled, 4 problems:\n"
        "  axis 0 of input 'c' has neither size nor name: pass shapes={'c': (size, 4)}\n"
        "  input 'd' declares no shape: pass shapes={'d': (size, ...)}\n"
        "  dimension 'N' (axis 0 of input 'a' and axis 0 of input 'b') has no size: "
        "pass dims={'N': size} or shapes={'a': (N, T)}\n"
        "  dimension 'T' (axis 1 of input 'a') has no size: "
        "pass dims={'T': size} or shapes={'a': (N, T)}"
    )


@pytest.mark.parametrize(
    ("dims", "shapes", "message"),
    [
        ({"M": 1}, None, "dims names 'M', which is no dimension of this model; it has 'N'"),
        ({"N": -1}, None, "dims['N'] must be a size of 0 or more, not -1"),
        ({"N": 1.0}, None, "dims['N'] must be a size of 0 or more, not 1.0"),
        ({"N": True}, None, "dims['N'] must be a size of 0 or more, not True"),
        (None, {"z": (1, 3)}, "shapes names 'z', which is no input of this model; it has 'x'"),
        (None, {"x": (3,)}, "the model declares (N, 3): 2 dimensions, not 1"),
        (None, {"x": (1, 4)}, "shapes['x'] gives 4 for axis 1, which the model fixes at 3"),
        (
            {"N": 2},
            {"x": (1, 3)},
            "gives 1 for dimension 'N' (axis 0), which is already bound to 2",
        ),
    ],
)
def test_bindings_that_do_not_fit(dims: object, shapes: object, message: str) -> None:
    built = model([node("Relu", "x", "y")], {"x": ("N", 3)})
    with pytest.raises(fg.InputError) as caught:
        from_model(built, dims, shapes)  # type: ignore[arg-type]
    assert message in str(caught.value)


@pytest.mark.parametrize("opset", [9, 11, 12])
def test_softmax_before_13_runs_over_all_later_axes(opset: int) -> None:
    built = model([node("Softmax", "x", "y")], {"x": (2, 3, 4)}, opset=opset)
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("f4")
    exped = np.exp(x - x.max(axis=(1, 2), keepdims=True))
    expected = exped / exped.sum(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(evaluated(built, x=x)["y"], expected, rtol=1e-6)


def test_forms_of_old_opsets() -> None:
    x = np.arange(-6, 6, dtype="f4").reshape(1, 3, 4)
    old = model(
        [
            node("Slice", "x", "s", starts=[1, -3], ends=[9, -1], axes=[1, 2]),
            node("Squeeze", "s", "q", axes=[0]),
            node("Unsqueeze", "q", "u", axes=[0, 3]),
            node("Clip", "u", "c", min=-1.0, max=2.0),
            node("ReduceSum", "c", "r", axes=[1], keepdims=0),
            node("Dropout", "r", "d", ratio=0.5),
            node("Split", "d", "y z", axis=1, split=[1, 1]),
        ],
        {"x": (1, 3, 4)},
        outputs=("y", "z"),
        opset=9,
    )
    found = evaluated(old, x=x)
    summed = np.clip(x[0, 1:, 1:3], -1, 2).sum(axis=0)[None, :, None]
    np.testing.assert_array_equal(found["y"], summed[:, :1])
    np.testing.assert_array_equal(found["z"], summed[:, 1:])


@pytest.mark.parametrize("step", [-(2**63), -2, -1, 1, 2])
def test_slices_from_and_to_beyond_the_ends(step: int) -> None:
    far = 2**63
    for dim in (0, 1, 3):
        x = np.arange(dim, dtype=np.float32)
        for start in (-far, -7, -4, -3, -1, 0, 1, 2, 3, 7, far - 1):
            for end in (-far, -7, -4, -3, -1, 0, 1, 2, 3, 7):
                first, last = (at + dim if at < 0 else at for at in (start, end))
                low, high = (0, dim) if step > 0 else (-1, dim - 1)
                first = min(max(first, 0), high)
                wanted = x[list(range(first, min(max(last, low), high), step))] if dim else x
                bounds = {"s": [start], "e": [end], "a": [0], "t": [step]}
                bounds = {name: np.array(found, np.int64) for name, found in bounds.items()}
                built = model([node("Slice", "x s e a t", "y")], {"x": [dim]}, initialisers=bounds)
                found = reference.evaluate(load(in_bytes(built)), {"x": x})["y"]
                assert found.tolist() == wanted.tolist(), (dim, start, end, step)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64", "uint8"])
def test_initialisers_of_every_kind_are_parameters(kind: str) -> None:
    element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    built = model(
        [node("MatMul", "x w", "y")],
        {"x": (1, 2)},
        initialisers={"w": np.array([[1, 2], [3, 4]]).astype(kind)},
        dtype=element,
    )
    compiled = fg.load(in_bytes(built))
    (y,) = compiled.run({"x": np.ones((1, 2), kind)})
    assert (y.dtype, y.tolist()) == (np.dtype(kind), [[4, 6]])
    compiled.set_param("w", np.eye(2).astype(kind))
    assert compiled.run({"x": np.ones((1, 2), kind)})[0].tolist() == [[1, 1]]


@pytest.mark.parametrize("k", [-(2**63), -3, 3, 2**63 - 1])
def test_a_diagonal_beyond_the_corners_is_all_zeros(k: int) -> None:
    built = model([node("EyeLike", "x", "y", k=k)], {"x": (2, 3)})
    assert not evaluated(built, x=np.ones((2, 3), "f4"))["y"].any()
