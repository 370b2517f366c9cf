"""Driver calls that fail in the middle of a replay, and arrays that change under it."""

from __future__ import annotations

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import cuda_work
from tests import conftest


@pytest.mark.fake
def test_a_pointer_goes_back_after_a_failing_call():
    ctx = fg.DeviceContext("cuda")
    x, y = ctx.to_device(np.full(4, 1, "f4")), ctx.to_device(np.full(4, 2, "f4"))

    def build(b):
        out = b.create_buffer(4)
        b.add_copy(out, b.pointer("p", x))
        b.add_output(out)

    graph = fg.DeviceGraph.create(ctx, build)
    # The first call points the node elsewhere, the second back.
    conftest.FAKE.fail("cuGraphExecNodeSetParams", 2, count=2)
    try:
        with pytest.raises(fg.OutOfMemoryError):
            graph.run(p=y)
    finally:
        conftest.FAKE.reset()
    assert graph.run()[0].tolist() == [1] * 4
    assert graph.run(p=y)[0].tolist() == [2] * 4
    graph.replay()
    assert graph.run()[0].tolist() == [1] * 4


@pytest.mark.cuda
@pytest.mark.parametrize("size", [3, 5, 0, 1 << 21])
def test_arrays_of_another_size_are_not_copied(size):
    ctx = fg.DeviceContext("cuda")
    x = ctx.create_buffer(4)
    with pytest.raises(fg.InputError, match="changed while it was given"):
        cuda_work.upload(ctx.stream, ctx._backend.staging, [(x, np.ones(size, "f4"))])
    with pytest.raises(fg.InputError, match="changed while it was given"):
        cuda_work.copy(ctx.stream, [(x, ctx.create_buffer(size))])
    assert not x.numpy().any()
