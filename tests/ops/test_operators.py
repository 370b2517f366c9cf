"""Every operator through a session, against the reference: shapes, strides, special values."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import fastgraph as fg
from fastgraph import ops
from fastgraph.ir.ops.registry import FUNCTIONS
from fastgraph.ir.types import SUPPORTED
from tests.ops import cases, composed, images
from tests.ops.agreement import EXACT, agree, bits, graph_of

CASES = {**cases.CASES, **composed.CASES, **images.CASES}

# What rounding may add up to, in multiples of the table's bounds.
SCALES = {
    "matmul": 8.0,
    "sum": 50.0,
    "reduce_l1": 50.0,
    "reduce_sum_square": 50.0,
    "mean": 8.0,
    "var": 8.0,
    "std": 8.0,
    "prod": 20.0,
    "layer_norm": 16.0,
    "rms_norm": 8.0,
    "power": 4.0,
    "attention": 40.0,
    "cond": 40.0,
    "while_loop": 40.0,
    "group_norm": 16.0,
    "grouped_matmul": 8.0,
    "log_softmax": 4.0,
    "scatter_add": 4.0,
    "scatter_elements": 4.0,
    "average_pool": 8.0,
    "conv": 8.0,
    "conv_transpose": 8.0,
    "gru": 16.0,
    "lstm": 16.0,
    "resize": 16.0,
    "rnn": 16.0,
}


def test_every_operator_has_a_case():
    assert set(CASES) == set(FUNCTIONS)


@pytest.mark.parametrize("name", sorted(CASES))
@given(st.data())
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
def test_operator(name, data):
    call, arrays = data.draw(CASES[name])
    roles = ["input"] + [
        data.draw(st.sampled_from(["input", "input", "param", "constant"])) for _ in arrays[1:]
    ]
    graph = graph_of(call, arrays, roles)
    given_ = {
        f"x{i}": data.draw(cases.restrided(array)) if role != "constant" else array
        for i, (array, role) in enumerate(zip(arrays, roles, strict=True))
    }
    for key, array in zip(given_, arrays, strict=True):
        assert bits(given_[key]) == bits(array)
    agree(graph, given_, scale=SCALES.get(name, 1.0), exact=name in EXACT)


def test_any_byte_but_zero_is_true():
    """Arrays of bools that were made from bytes, as NumPy takes them."""
    odd = np.array([[2, 0, 255, 1], [0, 4, 4, 0]], "u1").view(bool)
    plain = odd.view("u1") != 0
    graph = fg.Graph("bools")
    x, y = graph.input("x", odd.shape, "bool"), graph.input("y", odd.shape, "bool")
    pairs = (
        ops.logical_and, ops.logical_or, ops.equal, ops.not_equal, ops.less, ops.less_equal,
        ops.greater, ops.greater_equal, ops.maximum, ops.minimum, ops.add, ops.multiply,
    )  # fmt: skip
    values = [pair(*order) for pair in pairs for order in ((x, y), (y, x), (x, x))]
    values += [function(x) for function in (ops.logical_not, ops.sum, ops.max, ops.min, ops.argmax)]
    values += [ops.astype(x, dtype) for dtype in SUPPORTED]
    values += [ops.max(x, axis=0), ops.argmax(x, axis=0), ops.argmax(x, axis=1), ops.prod(x)]
    values += [ops.where(x, ops.astype(y, "int32"), 5), ops.logical_not(x[:, 1:])]
    for value in values:
        graph.output(value, f"y{len(graph.outputs)}")
    other = plain[:, ::-1]
    model = fg.Session("cpu").compile(graph)
    for found, wanted in zip(
        model.run({"x": odd, "y": other}), model.run({"x": plain, "y": other}), strict=True
    ):
        assert found.tolist() == wanted.tolist()
