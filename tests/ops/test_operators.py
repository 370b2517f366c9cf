"""Every operator through a session, against the reference: shapes, strides, special values."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from fastgraph.ir.ops.registry import FUNCTIONS
from tests.ops.agreement import EXACT, agree, graph_of
from tests.ops.cases import CASES, restrided

# What rounding may add up to, in multiples of the table's bounds.
SCALES = {"matmul": 8.0, "mean": 4.0, "layer_norm": 16.0, "rms_norm": 8.0, "power": 4.0}


def test_every_operator_has_a_case():
    assert set(CASES) == set(FUNCTIONS)


@pytest.mark.parametrize("name", sorted(CASES))
@given(st.data())
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
def test_operator(name, data):
    call, arrays = data.draw(CASES[name])
    roles = ["input"] + [
        data.draw(st.sampled_from(["input", "input", "param", "constant"])) for _ in arrays[1:]
    ]
    graph = graph_of(call, arrays, roles)
    given_ = {
        f"x{i}": data.draw(restrided(array)) if role != "constant" else array
        for i, (array, role) in enumerate(zip(arrays, roles, strict=True))
    }
    for key, array in zip(given_, arrays, strict=True):
        np.testing.assert_array_equal(given_[key], array)
    agree(graph, given_, scale=SCALES.get(name, 1.0), exact=name in EXACT)
