"""Random graphs: fused against unfused against the reference, and the same bits twice."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings

import fastgraph as fg
from tests.ops.agreement import SETS, bits, reference_of
from tests.passes.graphs import arguments, graphs

# A graph of fifteen steps may magnify the roundings of its first ones.
RELATIVE, ABSOLUTE = 2e-4, 2e-4


def near(found, wanted):
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    finite = np.abs(wanted[np.isfinite(wanted)])
    reach = float(finite.max()) if finite.size else 0.0
    np.testing.assert_allclose(found, wanted, rtol=RELATIVE, atol=ABSOLUTE * max(1.0, reach))


@given(graphs(("float32", "float32", "float64")))
@settings(max_examples=120, suppress_health_check=list(HealthCheck))
def test_fused_unfused_and_reference_agree(graph):
    given_ = arguments(graph)
    data = {**given_["inputs"], **given_["params"]}
    wanted = reference_of(graph, data)
    plain = []
    for options in (
        {"fuse": False},
        *({"isa": name} for name in SETS),
    ):
        model = fg.Session("cpu", threads=2).compile(graph, fg.CompileOptions(**options))
        model.set_params(given_["params"])
        found = model.run(given_["inputs"])
        again = model.run(given_["inputs"])
        assert [bits(array) for array in found] == [bits(array) for array in again]
        for one, right in zip(found, wanted, strict=True):
            near(one, right)
        plain = plain or found
        for one, other in zip(found, plain, strict=True):
            near(one, other)
