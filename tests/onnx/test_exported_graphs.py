"""Graphs as exporters write them, with shape arithmetic and operators taken apart."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

import fastgraph as fg
from tests.onnx.build import in_bytes, model, node

WIDTH, HEADS = 12, 3


def split_heads(source: str, out: str, *, keys: bool = False) -> list[NodeProto]:
    """[N, T, WIDTH] to [N, HEADS, T, WIDTH / HEADS], with the sizes read from the tensor itself."""
    return [
        node("Shape", source, f"{out}_dims"),
        node("Gather", f"{out}_dims index0", f"{out}_n", axis=0),
        node("Gather", f"{out}_dims index1", f"{out}_t", axis=0),
        node("Unsqueeze", f"{out}_n axes0", f"{out}_n1"),
        node("Unsqueeze", f"{out}_t axes0", f"{out}_t1"),
        node("Concat", f"{out}_n1 {out}_t1 heads last", f"{out}_shape", axis=0),
        node("Reshape", f"{source} {out}_shape", f"{out}_split"),
        node("Transpose", f"{out}_split", out, perm=[0, 2, 3, 1] if keys else [0, 2, 1, 3]),
    ]


def taken_apart_norm(source: str, out: str) -> list[NodeProto]:
    return [
        node("ReduceMean", source, f"{out}_mean", axes=[-1]),
        node("Sub", f"{source} {out}_mean", f"{out}_centred"),
        node("Constant", "", f"{out}_two", value_float=2.0),
        node("Pow", f"{out}_centred {out}_two", f"{out}_squared"),
        node("ReduceMean", f"{out}_squared", f"{out}_variance", axes=[-1]),
        node("Add", f"{out}_variance eps", f"{out}_safe"),
        node("Sqrt", f"{out}_safe", f"{out}_deviation"),
        node("Div", f"{out}_centred {out}_deviation", f"{out}_unit"),
        node("Mul", f"{out}_unit gain", f"{out}_scaled"),
        node("Add", f"{out}_scaled offset", out),
    ]


def taken_apart_gelu(source: str, out: str) -> list[NodeProto]:
    return [
        node("Constant", "", f"{out}_root", value_float=float(np.sqrt(2.0))),
        node("Constant", "", f"{out}_one", value_float=1.0),
        node("Constant", "", f"{out}_half", value_float=0.5),
        node("Div", f"{source} {out}_root", f"{out}_z"),
        node("Erf", f"{out}_z", f"{out}_erf"),
        node("Add", f"{out}_erf {out}_one", f"{out}_sum"),
        node("Mul", f"{source} {out}_sum", f"{out}_twice"),
        node("Mul", f"{out}_twice {out}_half", out),
    ]


def encoder_block(opset: int = 17) -> ModelProto:
    """Embedding, masked attention, norm, GELU: a transformer block over tokens [N, T]."""
    rng = np.random.default_rng(3)
    weights = {
        name: (rng.normal(size=shape) / np.sqrt(shape[0])).astype("f4")
        for name, shape in {
            "table": (20, WIDTH),
            "wq": (WIDTH, WIDTH),
            "wk": (WIDTH, WIDTH),
            "wv": (WIDTH, WIDTH),
            "wo": (WIDTH, WIDTH),
            "w1": (WIDTH, 2 * WIDTH),
            "w2": (2 * WIDTH, WIDTH),
            "gain": (WIDTH,),
            "offset": (WIDTH,),
            "bq": (WIDTH,),
        }.items()
    }
    small = {
        "index0": np.int64(0),
        "index1": np.int64(1),
        "axes0": np.array([0]),
        "axes12": np.array([1, 2]),
        "heads": np.array([HEADS]),
        "last": np.array([WIDTH // HEADS]),
        "merged": np.array([0, 0, WIDTH]),
        "eps": np.float32(1e-5),
        "scale": np.float32(1 / np.sqrt(WIDTH / HEADS)),
        "one": np.float32(1),
        "far": np.float32(-1e9),
    }
    nodes = [
        node("Gather", "table tokens", "x"),
        node("MatMul", "x wq", "q0"),
        node("Add", "bq q0", "q1"),
        node("MatMul", "x wk", "k1"),
        node("MatMul", "x wv", "v1"),
        *split_heads("q1", "q"),
        *split_heads("k1", "k", keys=True),
        *split_heads("v1", "v"),
        node("MatMul", "q k", "scores0"),
        node("Mul", "scores0 scale", "scores1"),
        node("Cast", "mask", "mask_f", to=TensorProto.FLOAT),
        node("Sub", "one mask_f", "hidden"),
        node("Mul", "hidden far", "penalty0"),
        node("Unsqueeze", "penalty0 axes12", "penalty"),
        node("Add", "scores1 penalty", "scores"),
        node("Softmax", "scores", "attention", axis=-1),
        node("MatMul", "attention v", "mixed"),
        node("Transpose", "mixed", "mixed_t", perm=[0, 2, 1, 3]),
        node("Reshape", "mixed_t merged", "joined"),
        node("MatMul", "joined wo", "o"),
        node("Add", "o x", "r"),
        *taken_apart_norm("r", "h"),
        node("MatMul", "h w1", "up"),
        *taken_apart_gelu("up", "active"),
        node("MatMul", "active w2", "down"),
        node("Add", "down h", "y"),
        node("Slice", "y starts ends axes1", "first"),
        node("Squeeze", "first axes1", "pooled0"),
        node("Tanh", "pooled0", "pooled"),
        node("ArgMax", "y", "best", axis=-1, keepdims=0),
    ]
    small |= {"starts": np.array([0]), "ends": np.array([1]), "axes1": np.array([1])}
    built = model(nodes, {}, ("y", "pooled", "best"), weights | small, opset=opset)
    for name in ("tokens", "mask"):
        built.graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT64, ["N", "T"]))
    for info, kind in zip(built.graph.output, (1, 1, 7), strict=True):
        info.type.tensor_type.elem_type = kind
    return built


@pytest.mark.parametrize("shape", [(1, 5), (2, 7), (3, 1)])
def test_encoder_block_equals_onnx_runtime(shape: tuple[int, int], device: str) -> None:
    data = in_bytes(encoder_block())
    rng = np.random.default_rng(sum(shape))
    inputs = {
        "tokens": rng.integers(-20, 20, shape),
        "mask": (np.arange(shape[1]) < rng.integers(1, shape[1] + 1, (shape[0], 1))).astype("i8"),
    }
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    peer = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    expected = peer.run(None, inputs)
    compiled = fg.load(data, device=device, dims={"N": shape[0], "T": shape[1]}, threads=1)
    y, pooled, best = compiled.run(inputs)
    np.testing.assert_allclose(y, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(pooled, expected[1], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(best, expected[2])


def test_shape_arithmetic_leaves_no_node_behind() -> None:
    graph = fg.onnx.from_model(encoder_block(), {"N": 2, "T": 7})
    integers = [n for n in graph.nodes if not n.is_leaf and n.outputs[0].dtype.kind == "i"]
    assert [n.op for n in integers] == ["argmax"]
    assert {value.name for value in graph.params} >= {"table", "wq", "gain", "scale"}
    assert not {value.name for value in graph.params} & {"heads", "last", "merged", "axes12"}
