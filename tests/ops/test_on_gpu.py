"""Every operator on a real GPU, against the reference; the host only emulates the kernels."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import fastgraph as fg
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
