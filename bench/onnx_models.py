"""The workloads as ONNX files, for the peers that read them."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from bench.workloads import Layers

__all__ = ["add_model", "chain_model", "layers_model"]


def layers_model(layers: Layers, gelu: str = "op") -> bytes:
    """`layers` with GELU as ONNX's own operator (``"op"``) or spelled out by Erf (``"erf"``)."""
    nodes, constants = [], []
    x = "x"

    def constant(name: str, array: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    root2 = constant("root2", np.float32(math.sqrt(2)))
    one, half = constant("one", np.float32(1)), constant("half", np.float32(0.5))
    for i, (w, b) in enumerate(layers.weights()):
        names = [x, constant(f"w{i}", w)]
        if b is None:
            nodes.append(helper.make_node("MatMul", names, [f"h{i}"], f"matmul{i}"))
        else:
            names.append(constant(f"b{i}", b))
            nodes.append(helper.make_node("Gemm", names, [f"h{i}"], f"gemm{i}"))
        x = f"h{i}"
        if i >= layers.gelu_layers:
            continue
        if gelu == "op":
            nodes.append(helper.make_node("Gelu", [x], [f"g{i}"], f"gelu{i}"))
        else:
            for kind, ins, out in (
                ("Div", [x, root2], "d"),
                ("Erf", [f"d{i}"], "e"),
                ("Add", [f"e{i}", one], "a"),
                ("Mul", [x, f"a{i}"], "m"),
                ("Mul", [f"m{i}", half], "g"),
            ):
                nodes.append(helper.make_node(kind, ins, [f"{out}{i}"], f"{kind}{out}{i}"))
        x = f"g{i}"
    nodes.append(helper.make_node("Identity", [x], ["y"], "result"))
    shape_in = (layers.rows, layers.sizes[0])
    shape_out = (layers.rows, layers.sizes[-1])
    return _model("layers", nodes, shape_in, shape_out, constants)


def add_model(n: int = 16) -> bytes:
    """``y = x + x``."""
    return _model("add", [helper.make_node("Add", ["x", "x"], ["y"], "add")], (n,), (n,), [])


def chain_model(n_nodes: int, width: int = 16) -> bytes:
    """`n_nodes` nodes one after another, of two kinds in turn so that few of them fuse."""
    rows = np.random.default_rng(1).standard_normal((n_nodes, width)).astype("f4")
    nodes, constants, x = [], [], "x"
    for i in range(n_nodes):
        out = "y" if i + 1 == n_nodes else f"h{i}"
        if i % 2:
            nodes.append(helper.make_node("Softmax", [x], [out], f"softmax{i}", axis=-1))
        else:
            constants.append(numpy_helper.from_array(rows[i], f"c{i}"))
            nodes.append(helper.make_node("Add", [x, f"c{i}"], [out], f"add{i}"))
        x = out
    return _model("chain", nodes, (1, width), (1, width), constants)


def _model(name, nodes, shape_in, shape_out, constants) -> bytes:
    used = {operand for node in nodes for operand in node.input}
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape_in)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape_out)],
        [constant for constant in constants if constant.name in used],
    )
    opset = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
