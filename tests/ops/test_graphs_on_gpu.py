"""Whole graphs compiled for a GPU beside the reference: many calls in one, random ones, clones."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import fastgraph as fg
from tests.ops.agreement import EXACT, assert_close, bits, reference_of
from tests.ops.test_operators import CASES, SCALES
from tests.ops.test_random import near
from tests.passes.graphs import arguments, graphs

pytestmark = pytest.mark.gpu

# So many cases of one operator are one graph: their kernels are compiled side by side.
TOGETHER = 12


def on_gpu(graph, inputs, params, **options):
    """What runs give, the same bits twice."""
    model = fg.Session("cuda").compile(graph, fg.CompileOptions(**options))
    model.set_params(params)
    found = model.run(inputs)
    again = model.run(inputs)
    assert [bits(array) for array in found] == [bits(array) for array in again]
    return found


@pytest.mark.parametrize("name", sorted(CASES))
@given(st.data())
@settings(max_examples=1, deadline=None, suppress_health_check=list(HealthCheck))
def test_many_calls_of_an_operator(name, data):
    graph = fg.Graph("cases")
    inputs, params = {}, {}
    for number in range(TOGETHER):
        call, arrays = data.draw(CASES[name])
        values = []
        for i, array in enumerate(arrays):
            key = f"x{number}.{i}"
            role = data.draw(st.sampled_from(["input", "param", "constant"])) if i else "input"
            if role == "constant":
                values.append(graph.constant(array))
                continue
            values.append(getattr(graph, role)(key, array.shape, array.dtype))
            (inputs if role == "input" else params)[key] = array
        graph.output(call(*values), f"y{number}")
    wanted = reference_of(graph, {**inputs, **params})
    for found, right in zip(on_gpu(graph, inputs, params), wanted, strict=True):
        assert_close(found, right, scale=SCALES.get(name, 1.0), exact=name in EXACT)


@given(graphs())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_graphs(graph):
    given_ = arguments(graph)
    wanted = reference_of(graph, {**given_["inputs"], **given_["params"]})
    for fuse in (True, False):
        found = on_gpu(graph, given_["inputs"], given_["params"], fuse=fuse)
        for one, right in zip(found, wanted, strict=True):
            near(one, right)


def test_large_products_do_not_depend_on_what_else_runs():
    """Bits of products in parts: the same in a clone that runs beside others."""
    graph = fg.Graph("large")
    x, w = graph.input("x", (64, 4096), "float16"), graph.param("w", (4096, 512), "float16")
    graph.output(fg.ops.softmax(x @ w), "y")
    random = np.random.default_rng(0)
    model = fg.Session("cuda").compile(graph)
    model.set_param("w", random.normal(size=(4096, 512)).astype("f2"))
    data = {"x": random.normal(size=(64, 4096)).astype("f2")}
    (wanted,) = model.run(data)
    clones = [model.clone() for _ in range(3)]
    out = [fg.DeviceContext("cuda").create_buffer((64, 512), "float16") for _ in clones]
    streams = [clone.stream for clone in clones]
    for _ in range(10):
        for clone, y, stream in zip(clones, out, streams, strict=True):
            clone.run(data, out=[y], stream=stream)
        for y in out:
            np.testing.assert_array_equal(y.numpy(), wanted)
