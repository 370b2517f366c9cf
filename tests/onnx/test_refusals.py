"""Damaged files and models that cannot be compiled end in errors that name what is wrong."""

from __future__ import annotations

import contextlib
import re
from importlib.resources import files
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import fastgraph as fg
from fastgraph.onnx import from_model, load, proto
from tests.onnx.build import in_bytes, model, node

DIGITS = (files("fastgraph") / "data" / "digits.onnx").read_bytes()


def refused(built: onnx.ModelProto | bytes, *parts: str, **binding: object) -> None:
    """Loading raises CompileError, whose message holds every one of `parts`."""
    data = built if isinstance(built, bytes) else in_bytes(built)
    with pytest.raises(fg.CompileError) as caught:
        load(data, **binding)  # type: ignore[arg-type]
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("length", [1, 10, 1000, 69000, len(DIGITS) - 1])
def test_truncated(length: int) -> None:
    refused(DIGITS[:length], f"the model given as {length} byte", dims={"N": 1})


@given(st.integers(0, len(DIGITS) - 1))
@settings(max_examples=60)
def test_truncated_anywhere(length: int) -> None:
    with pytest.raises(fg.CompileError):
        load(DIGITS[:length], dims={"N": 1})


@given(st.integers(0, len(DIGITS) - 1), st.binary(min_size=1, max_size=4))
@settings(max_examples=100)
def test_overwritten_bytes_end_in_a_graph_or_a_named_error(at: int, patch: bytes) -> None:
    damaged = DIGITS[:at] + patch + DIGITS[at + len(patch) :]
    with contextlib.suppress(fg.FastGraphError):
        load(damaged, dims={"N": 1})


@pytest.mark.parametrize(
    "data", [b"", b"hello, world", b"\x00" * 100, b"\x08\x09", bytes(range(256))]
)
def test_not_a_model(data: bytes) -> None:
    refused(data, "given")


def test_file_that_is_not_there_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none.onnx", tmp_path):
        with pytest.raises(fg.CompileError, match=re.escape(str(path))):
            load(path)


def test_something_that_is_no_file_at_all() -> None:
    for given_, name in ((3, "int"), (None, "NoneType"), ([DIGITS], "list"), (Bytes(), "Bytes")):
        for loads in (load, fg.load):
            with pytest.raises(fg.InputError, match=f"or the bytes of a file, not {name}$"):
                loads(given_)  # type: ignore[operator]
    with pytest.raises(fg.CompileError, match=r"cannot be read: .*null"):
        load("a\0b.onnx")
    assert load(memoryview(DIGITS), {"N": 1}).inputs[0].shape == (1, 64)


class Bytes:
    """A path whose name is bytes."""

    def __fspath__(self) -> bytes:
        return b"m.onnx"


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        ({"dims": 4}, "dims is a mapping of names to sizes, not int"),
        ({"shapes": [("image", (1, 64))]}, "shapes is a mapping of names to sizes, not list"),
        ({"shapes": {"image": 64}}, "shapes['image'] is a sequence of sizes, not 64"),
        ({"shapes": {"image": "64"}}, "shapes['image'] is a sequence of sizes, not '64'"),
    ],
)
def test_sizes_that_are_none(binding: dict[str, object], message: str) -> None:
    with pytest.raises(fg.InputError, match=re.escape(message)):
        load(DIGITS, **binding)  # type: ignore[arg-type]


def test_without_the_onnx_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proto, "_MISSING", ImportError("no onnx"))
    with pytest.raises(fg.UnsupportedError, match=re.escape('"fastgraph-runtime[onnx]"')):
        load(DIGITS)


def test_cycle_names_the_nodes_on_it() -> None:
    refused(
        model(
            [
                node("Add", "x b", "a", "first"),
                node("Neg", "a", "b", "second"),
                node("Neg", "b", "y"),
            ],
            {"x": (2,)},
        ),
        "is cyclic: Add 'first' reads from Neg 'second' reads from Add 'first'",
    )


def test_names_that_nothing_makes_or_two_things_make() -> None:
    refused(
        model(
            [
                node("Add", "x nowhere", "y", "sum"),
                node("Neg", "x", "y", "negated"),
                node("Neg", "x", "x"),
            ],
            {"x": (2,)},
            outputs=("y", "missing", "y"),
        ),
        "Add 'sum' reads 'nowhere', which nothing makes",
        "value 'y' is made twice: by Add 'sum' and by Neg 'negated'",
        "value 'x' is made twice: by input 'x' and by Neg making 'x'",
        "output 'missing' is made by no node",
        "output 'y' is listed twice",
    )


def test_all_unsupported_operators_at_once_with_names_domains_and_opset() -> None:
    custom = helper.make_node("Fancy", ["c"], ["d"], "mine", domain="my.own")
    refused(
        model(
            [
                node("DeformConv", "x w", "c", "conv1"),
                custom,
                node("NonZero", "d", "y"),
                node("Relu", "x", "ok"),
            ],
            {"x": (1, 1, 4, 4), "w": ("K", 1, 3, 3)},
        ),
        "4 problems",
        "DeformConv 'conv1': not supported (opset 20)",
        "Fancy 'mine': domain 'my.own' is not supported",
        "NonZero making 'y': not supported (opset 20)",
        "dimension 'K'",
    )


def test_all_ill_typed_nodes_at_once() -> None:
    refused(
        model(
            [
                node("MatMul", "x v", "m", "product"),
                node("Add", "x i", "a", "mixed"),
                node("Reshape", "x shape", "r", "shaped"),
                node("Transpose", "x", "t", "turned", perm=[0, 0]),
                node("Relu", "m", "y"),
            ],
            {"x": (2, 3)},
            outputs=("y", "a", "r", "t"),
            initialisers={
                "v": np.zeros((4, 2), "f4"),
                "i": np.zeros((2, 3), "i8"),
                "shape": np.array([4, 4]),
            },
        ),
        "4 problems",
        "MatMul 'product': ",
        "Add 'mixed': its inputs must have one dtype, found float32 and int64",
        "Reshape 'shaped': shape (2, 3) of 6 elements cannot become (4, 4)",
        "Transpose 'turned': perm (0, 0) is no permutation of 2 axes",
    )


def test_unknown_attributes_and_numbers_of_inputs() -> None:
    refused(
        model(
            [
                node("Relu", "x", "a", alpha=1.0),
                node("Add", "x", "b"),
                node("Gemm", "x -", "y"),
                node("Softmax", "x", "s", axis=0.5),
                node("Constant", "", "c", value_float=[1.0]),
            ],
            {"x": (2, 2)},
            outputs=("a", "b", "y", "s", "c"),
        ),
        "Softmax making 's': attribute 'axis' must be of type int",
        "Constant making 'c': attribute 'value_float' must be of type float",
        "Relu making 'a': attribute 'alpha' is not known in opset 20",
        "Add making 'b': takes 2 to 2 inputs, found 1",
        "Gemm making 'y': takes 2 to 3 inputs, found 1",
    )


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (TensorProto.COMPLEX64, "complex64"),
        (TensorProto.STRING, "string"),
        (TensorProto.FLOAT8E4M3FN, "float8e4m3fn"),
        (99, "unknown element type 99"),
        (0, "undefined"),
    ],
)
def test_dtypes_of_inputs(dtype: int, name: str) -> None:
    built = model([node("Identity", "x", "y")], {"x": (2,)}, dtype=dtype)
    refused(built, f"input 'x' has dtype {name}; graphs compute in bool, int8, int16, int32")


def test_dtypes_of_initialisers_casts_and_outputs() -> None:
    refused(
        model(
            [
                node("Add", "x w", "a", "sum"),
                node("Cast", "x", "b", "narrowed", to=TensorProto.FLOAT8E5M2),
                node("Neg", "x", "y"),
            ],
            {"x": (2,)},
            outputs=("y", "a", "b"),
            initialisers={"w": np.zeros(2, "c8")},
            output_dtype=TensorProto.INT64,
        ),
        "Add 'sum': 'w' has dtype complex64; graphs compute in",
        "Cast 'narrowed': casts to float8e5m2; graphs compute in",
        "output 'y' is declared int64, but is float32",
    )


@pytest.mark.parametrize(
    ("dtype", "name"), [(99, "unknown element type 99"), (TensorProto.STRING, "string")]
)
def test_dtypes_of_what_is_made_at_import(dtype: int, name: str) -> None:
    built = model([node("EyeLike", "x", "y", "ones", dtype=dtype, k=-(2**63))], {"x": (2, 2)})
    refused(built, f"EyeLike 'ones': casts to {name}; graphs compute in")


def test_inputs_that_are_no_tensors() -> None:
    built = model([node("Identity", "x", "y")], {})
    kind = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [2])
    built.graph.input.append(kind)
    refused(built, "input 'x' is of type sequence, not a tensor")


def test_initialisers_whose_data_do_not_fit() -> None:
    built = model([node("Add", "x w", "y")], {"x": (2,)}, initialisers={"w": np.zeros(2, "f4")})
    for dims, data_type in (([3], 1), ([1 << 40, 1 << 20], 1), ([-2], 1), ([2], 77), ([2], 8)):
        tensor = built.graph.initializer[0]
        del tensor.dims[:]
        tensor.dims.extend(dims)
        tensor.data_type = data_type
        refused(built, "initialiser 'w': ")


def test_names_that_are_no_text() -> None:
    broken = in_bytes(model([node("Relu", "x", "yyyy")], {"x": (2,)}, outputs=("yyyy",)))
    refused(broken.replace(b"yyyy", b"y\xff\xfey"), "is damaged: b'y\\xff\\xfey' is no UTF-8 text")


def test_external_data_that_are_missing_short_or_outside(tmp_path: Path) -> None:
    w = np.arange(600, dtype="f4")
    built = model([node("Add", "x w", "y")], {"x": (600,)}, initialisers={"w": w})
    path = tmp_path / "m.onnx"
    onnx.save_model(built, path, save_as_external_data=True, location="m.bin", size_threshold=0)
    with pytest.raises(fg.CompileError, match="initialiser 'w' keeps its data in an external file"):
        load(path.read_bytes())
    (tmp_path / "m.bin").write_bytes(b"\0" * 100)
    with pytest.raises(fg.CompileError, match="initialiser 'w'"):
        load(path)
    (tmp_path / "m.bin").unlink()
    with pytest.raises(fg.CompileError, match="external data of initialiser 'w'"):
        load(path)
    parsed = onnx.load(path, load_external_data=False)
    for entry in parsed.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "../outside.bin"
    path.write_bytes(in_bytes(parsed))
    with pytest.raises(fg.CompileError, match="external data of initialiser 'w'"):
        load(path)


def test_opsets_outside_what_is_known() -> None:
    refused(
        model([node("Relu", "x", "y")], {"x": (2,)}, opset=99),
        "uses ONNX opset 99; known are 1 to 28",
    )
    # Add took other attributes until opset 6; Relu has not changed since.
    old = [node("Relu", "x", "r"), node("Add", "r r", "y", "sum")]
    refused(model(old, {"x": (2,)}, opset=6), "1 problem", "Add 'sum': not supported (opset 6)")
    built = model([node("Relu", "x", "y")], {"x": (2,)})
    built.opset_import[0].domain = "other"
    refused(built, "imports no version of the ONNX operator set")


def test_shapes_that_only_a_run_would_know() -> None:
    built = model(
        [node("Cast", "x", "i", to=TensorProto.INT64), node("Reshape", "x i", "y", "shaped")],
        {"x": (2,)},
    )
    refused(built, "Reshape 'shaped': its input 1 ('i') must be known when the model is loaded")


def test_huge_constants_are_refused_before_they_are_made() -> None:
    sizes = np.array([1 << 30, 1 << 30])
    built = model(
        [node("ConstantOfShape", "s", "c", "big"), node("Add", "x c", "y")],
        {"x": (1,)},
        initialisers={"s": sizes},
    )
    refused(built, "ConstantOfShape 'big': constant_of_shape: a constant of")
    built = model([node("Expand", "x s", "y", "wide")], {"x": (1,)}, initialisers={"s": sizes})
    refused(built, "Expand 'wide': ")


@pytest.mark.parametrize(
    ("start", "limit", "delta", "message"),
    [
        (np.int64(0), np.int64(5), np.int64(0), "make no sequence"),
        (np.float32(0), np.float32(np.inf), np.float32(1), "make no sequence"),
        (np.float32(0), np.float32(1), np.float32(np.nan), "make no sequence"),
        (np.bool_(0), np.bool_(1), np.bool_(1), "must be numbers of one dtype"),
        (np.int64(0), np.int64(5), np.int32(1), "must be numbers of one dtype"),
        (np.zeros(0, "i8"), np.int64(5), np.int64(1), "must be scalars"),
        (np.int64(0), np.int64(1 << 62), np.int64(1), "a constant of"),
    ],
)
def test_ranges(start: object, limit: object, delta: object, message: str) -> None:
    built = model(
        [node("Range", "s l d", "y", "counted")],
        {},
        initialisers={"s": start, "l": limit, "d": delta},
    )
    refused(built, "Range 'counted': ", message)


def test_training_dropout_and_bare_graphs() -> None:
    built = model(
        [node("Dropout", "x r t", "y", "drop")],
        {"x": (2,)},
        initialisers={"r": np.float32(0.5), "t": np.bool_(True)},
    )
    refused(built, "Dropout 'drop': training_mode is true: export the model for inference")
    masked = model([node("Dropout", "x", "y m", "drop")], {"x": (2,)}, ("y", "m"), opset=10)
    refused(masked, "Dropout 'drop': its mask has no contents in inference before opset 12")
    empty = model([node("Relu", "x", "y")], {"x": (2,)}, outputs=())
    refused(empty, "the graph has no output")


def test_a_parsed_model_is_left_as_it_was() -> None:
    built = model([node("Relu", "x", "y")], {"x": ("N",)})
    before = in_bytes(built)
    from_model(built, {"N": 2})
    assert in_bytes(built) == before


def test_a_function_that_calls_itself() -> None:
    built = model([onnx.helper.make_node("F", ["x"], ["y"], domain="own")], {"x": [2]})
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    inner = helper.make_node("F", ["a"], ["b"], domain="own")
    built.functions.append(helper.make_function("own", "F", ["a"], ["b"], [inner], imports))
    built.opset_import.append(imports[1])
    refused(built, "functions cannot be inlined")


@pytest.mark.parametrize("size", [2**42, 2**30])
def test_a_constant_too_large_to_make_at_import(size: int) -> None:
    shape = node("Constant", "", "shape", value_ints=[size])
    one = node("Constant", "", "one", value_float=1.0)
    refused(model([shape, one, node("Expand", "one shape", "y")]), "Expand", "the limit is")
