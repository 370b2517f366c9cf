"""Small ONNX models for the tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Dims = Sequence[int | str | None] | None


def node(op_type: str, inputs: str, outputs: str, name: str = "", **attributes: Any) -> NodeProto:
    """A node with its values as words; ``-`` is an input that is not given."""
    given = ["" if word == "-" else word for word in inputs.split()]
    return helper.make_node(op_type, given, outputs.split(), name or None, **attributes)


def model(
    nodes: Sequence[NodeProto],
    inputs: dict[str, Dims] | None = None,
    outputs: Sequence[str] = ("y",),
    initialisers: dict[str, Any] | None = None,
    *,
    opset: int = 20,
    dtype: int = TensorProto.FLOAT,
    output_dtype: int | None = None,
) -> ModelProto:
    """A model, not checked by the onnx package, of nodes over named inputs."""
    graph = helper.make_graph(
        nodes,
        "tested",
        [helper.make_tensor_value_info(n, dtype, s) for n, s in (inputs or {}).items()],
        [helper.make_tensor_value_info(n, output_dtype or 0, None) for n in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (initialisers or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def in_bytes(built: onnx.ModelProto) -> bytes:
    """The file's contents."""
    return built.SerializeToString()
