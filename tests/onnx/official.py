"""The node tests that the onnx package ships: those that are run and those that are not.

Run as a script this rewrites the table of what is not collected::

    python -m tests.onnx.official
"""

from __future__ import annotations

import copy
import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, numpy_helper
from onnx.backend.test.loader import load_model_tests

from fastgraph.ir.types import SUPPORTED
from fastgraph.onnx import known_operators

TABLE = Path(__file__).with_name("not_collected.txt")

COMPUTED_IN = {dtype.name for dtype in SUPPORTED}

# Inputs that say which shape, axis or bound is meant: they must be known when a model is compiled,
# so the test data's value becomes an initialiser. Every other input is an input of the run.
STATIC_INPUTS = {
    "ConstantOfShape": (0,),
    "CumSum": (1,),
    "Dropout": (1, 2),
    "Expand": (1,),
    "Loop": (0, 1),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
    **dict.fromkeys(
        (
            "ReduceL1",
            "ReduceL2",
            "ReduceLogSum",
            "ReduceLogSumExp",
            "ReduceMax",
            "ReduceMean",
            "ReduceMin",
            "ReduceProd",
            "ReduceSum",
            "ReduceSumSquare",
        ),
        (1,),
    ),
}

# The same by name, for functions written out in operators that are not asked for theirs.
STATIC_NAMES = {"Range": ("start", "limit", "delta"), "AffineGrid": ("size",)}

# Single cases that are left out for another reason than an operator or a dtype.
OTHER = {
    **{
        f"test_center_crop_pad_{name}_expanded": "widths that depend on an input of the run"
        for name in (
            "crop",
            "crop_and_pad",
            "crop_axes_chw",
            "crop_axes_hwc",
            "crop_negative_axes_hwc",
            "pad",
        )
    },
    **dict.fromkeys(
        (
            f"test_{kind}window{how}_expanded"
            for kind in ("blackman", "hamming", "hann")
            for how in ("", "_symmetric")
        ),
        "a length that only a run knows",
    ),
    "test_maxpool_with_argmax_2d_precomputed_pads": "indices of the largest elements",
    "test_maxpool_with_argmax_2d_precomputed_strides": "indices of the largest elements",
    "test_batchnorm_epsilon_training_mode": "training",
    "test_batchnorm_example_training_mode": "training",
    "test_training_dropout": "training",
    "test_training_dropout_default": "training",
    "test_training_dropout_default_mask": "training",
    "test_training_dropout_mask": "training",
}


@functools.cache
def official_cases() -> dict[str, Any]:
    """Every official node test by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the test generators themselves
        with np.errstate(all="ignore"):
            return {case.name: case for case in load_model_tests(kind="node") if case.model}


def reason_left_out(case: Any) -> str | None:
    """Why a case is not run, or None: an operator, a dtype, or one of `OTHER`."""
    graph = case.model.graph
    known = known_operators()
    for node in graph.node:
        if node.op_type not in known or node.domain not in ("", "ai.onnx"):
            name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
            return f"operator {name}"
    for info in (*graph.input, *graph.output):
        kind = info.type.WhichOneof("value")
        if kind != "tensor_type":
            return f"type {kind}"
        name = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type).name
        if info.type.tensor_type.elem_type == onnx.TensorProto.STRING:
            name = "string"
        if name not in COMPUTED_IN:
            return f"dtype {name}"
    return OTHER.get(case.name)


def as_array(found: Any) -> np.ndarray[Any, Any]:
    """The data of a test, some of which lie in tensor messages."""
    if isinstance(found, onnx.TensorProto):
        return numpy_helper.to_array(found)
    return np.asarray(found)


def collected_cases() -> list[str]:
    """Names of the cases that are run."""
    return [name for name, case in official_cases().items() if reason_left_out(case) is None]


def with_static_inputs_bound(
    model: ModelProto, arrays: dict[str, np.ndarray]
) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """The model with its `STATIC_INPUTS` as initialisers, and the arrays that stay inputs."""
    static = {
        node.input[index]
        for node in model.graph.node
        for index in STATIC_INPUTS.get(node.op_type, ())
        if index < len(node.input)
    }
    for function, names in STATIC_NAMES.items():
        if any(name.startswith(f"{function}_test_") for n in model.graph.node for name in n.output):
            static.update(names)
    bound = copy.deepcopy(model)
    del bound.graph.input[:]
    for info in model.graph.input:
        if info.name in static:
            bound.graph.initializer.append(numpy_helper.from_array(arrays[info.name], info.name))
        else:
            bound.graph.input.append(info)
    return bound, {name: array for name, array in arrays.items() if name not in static}


def table_text() -> str:
    """What is not collected: whole operators in one line, other cases one a line."""
    by_operator: dict[str, int] = {}
    single = []
    for name, case in sorted(official_cases().items()):
        reason = reason_left_out(case)
        if reason is None:
            continue
        if reason.startswith("operator "):
            by_operator[reason] = by_operator.get(reason, 0) + 1
        else:
            single.append(f"{reason}: {name}")
    lines = [f"onnx {onnx.__version__}"]
    lines += [f"{reason}: {count} cases" for reason, count in sorted(by_operator.items())]
    return "\n".join(lines + sorted(single)) + "\n"


if __name__ == "__main__":
    TABLE.write_text(table_text())
