"""The official ONNX node tests, through the public API, with all data given at run time."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import fastgraph as fg
from fastgraph.ir.types import is_float
from fastgraph.onnx import known_operators
from tests.onnx.official import (
    STATIC_INPUTS,
    TABLE,
    as_array,
    collected_cases,
    official_cases,
    table_text,
    with_static_inputs_bound,
)

# What results may differ by. The expected ones of half types were computed in them throughout.
RELATIVE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 2e-5}

# Expected results that were written with four digits.
WRITTEN = {"test_averagepool_2d_ceil_last_window_starts_on_pad"}


@pytest.mark.parametrize("name", collected_cases())
def test_node(name: str, device: str) -> None:
    case = official_cases()[name]
    for given, expected in case.data_sets:
        names = [info.name for info in case.model.graph.input]
        model, arrays = with_static_inputs_bound(
            case.model, dict(zip(names, map(as_array, given), strict=True))
        )
        shapes = {key: array.shape for key, array in arrays.items()}
        compiled = fg.load(model.SerializeToString(), device=device, shapes=shapes)
        assert [value.name for value in compiled.inputs] == list(arrays)
        found = compiled.run(arrays)
        assert len(found) == len(expected)
        for got, want in zip(found, map(as_array, expected), strict=True):
            assert got.dtype == want.dtype
            assert got.shape == want.shape
            if is_float(got.dtype):
                relative = 1e-3 if name in WRITTEN else RELATIVE[got.dtype.name]
                np.testing.assert_allclose(
                    got.astype("f8"), want.astype("f8"), rtol=relative, atol=relative / 10
                )
            else:
                np.testing.assert_array_equal(got, want)


def test_every_operator_has_a_case() -> None:
    run = {
        node.op_type
        for name in collected_cases()
        for node in official_cases()[name].model.graph.node
    }
    assert run == set(known_operators())


def test_static_inputs_are_the_only_ones_bound() -> None:
    assert set(STATIC_INPUTS) <= set(known_operators())
    for name in collected_cases():
        case = official_cases()[name]
        operators = {node.op_type for node in case.model.graph.node}
        arrays = {i.name: np.zeros(1) for i in case.model.graph.input}
        _, left = with_static_inputs_bound(case.model, arrays)
        assert len(left) == len(arrays) or operators & set(STATIC_INPUTS)


def test_table_of_what_is_left_out_is_true() -> None:
    recorded, found = TABLE.read_text().splitlines(), table_text().splitlines()
    if recorded[0] == f"onnx {onnx.__version__}":
        assert recorded == found, "run python -m tests.onnx.official"
    # Another onnx has other cases, but none that is recorded as left out may have been run.
    left_out = {line.rpartition(": ")[2] for line in recorded if line.count(": test_")}
    assert not left_out & set(collected_cases())
