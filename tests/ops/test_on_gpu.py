"""Every operator on a real GPU, against the reference; the host only emulates the kernels."""

from __future__ import annotations

import hypothesis.strategies as st
import ml_dtypes  # noqa: F401 - NumPy's bfloat16
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import fastgraph as fg
from fastgraph.ir import ops
from tests.ops import cases
from tests.ops.agreement import EXACT, assert_close, bits, graph_of, reference_of
from tests.ops.test_operators import CASES, SCALES

pytestmark = [pytest.mark.cuda, pytest.mark.gpu]


def run_twice(graph, data, **options):
    """Compile, run on two models; the same bits both times."""
    model = fg.Session("cuda").compile(graph, fg.CompileOptions(**options))
    model.set_params({info.name: data[info.name] for info in model.params})
    inputs = {info.name: data[info.name] for info in model.inputs}
    found = model.run(inputs)
    again = model.clone().run(inputs)
    assert [bits(array) for array in found] == [bits(array) for array in again]
    return found


@pytest.mark.parametrize("name", sorted(CASES))
@given(st.data())
@settings(
    max_examples=4,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),
)
def test_operator(name, data):
    call, arrays = data.draw(CASES[name])
    roles = ["input"] + [data.draw(st.sampled_from(["input", "param"])) for _ in arrays[1:]]
    graph = graph_of(call, arrays, roles)
    values = {f"x{i}": data.draw(cases.restrided(array)) for i, array in enumerate(arrays)}
    wanted = reference_of(graph, values)
    for one, right in zip(run_twice(graph, values), wanted, strict=True):
        assert_close(one, right, scale=SCALES.get(name, 1.0), exact=name in EXACT)


@pytest.mark.parametrize("length", [64, 128])
@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        ("float16", {}),
        ("float16", {"is_causal": True}),
        ("float16", {"scale": 3.0}),
        ("float16", {"window": 100, "is_causal": True}),
        ("bfloat16", {"is_causal": True}),
    ],
)
def test_attention_of_many_heads(length, dtype, options):
    # As many blocks as make warp groups worth while, where a GPU has them.
    rng = np.random.default_rng(21)
    shapes = (4, 34, 130, length), (4, 17, 170, length), (4, 17, 170, length)
    values = {
        f"x{i}": rng.standard_normal(shape, "f4").astype(dtype) for i, shape in enumerate(shapes)
    }
    graph = graph_of(lambda *x: ops.attention(*x, **options), list(values.values()), ["input"] * 3)
    (found,), (wanted,) = run_twice(graph, values), reference_of(graph, values)
    # Weights of halves are rounded before they meet the values, whose mean may be near zero.
    bound = 4e-3 if dtype == "float16" else 3e-2
    wide = (array.astype("f4") for array in (found, wanted))
    np.testing.assert_allclose(*wide, rtol=bound, atol=bound)
