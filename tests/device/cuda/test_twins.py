"""Where the twins of inputs lie."""

from __future__ import annotations

import numpy as np
import pytest

import fastgraph as fg
from tests import conftest

COPIES = ("cuMemcpyAsync", "cuMemcpyHtoDAsync", "cuMemcpyBatchAsync")


@pytest.mark.fake
@pytest.mark.parametrize("sizes", [(4096, 4096), (1, 3, 5000, 2), (1 << 20, 8)])
def test_host_inputs_take_one_copy(sizes):
    """Whatever their sizes, the twins of one graph lie side by side."""
    ctx = fg.DeviceContext("cuda")
    arrays = [np.full(size, i + 1, "u1") for i, size in enumerate(sizes)]

    def build(b, *twins):
        for twin in twins:
            b.add_output(twin)

    graph = fg.DeviceGraph.create(ctx, build, *arrays)
    conftest.FAKE.forget_calls()
    graph.replay(*arrays)
    assert sum(conftest.FAKE.calls(name) for name in COPIES) == 1
    for array, out in zip(arrays, graph.run(*arrays), strict=True):
        np.testing.assert_array_equal(out, array)
