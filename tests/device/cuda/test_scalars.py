"""Scalars of graphs on a GPU: over several streams, and when the driver fails."""

from __future__ import annotations

import contextlib

import pytest

import fastgraph as fg
from tests import fake_cuda
from tests.device.kernels import Sum


@pytest.fixture(scope="module")
def ctx():
    return fg.DeviceContext("cuda")


@pytest.mark.cuda
def test_values_on_other_streams(ctx, cuda_kernels):
    made, other = Sum(ctx, cuda_kernels), ctx.create_stream()
    for i in range(20):
        made.graph.replay(memory=i, stream=other)
        made.graph.replay(node=i)
        assert made.after(made.graph.replay) == 11
        made.graph.replay(memory=i)
        assert made.after(made.graph.replay, stream=other) == 11
        assert made.after(made.graph.replay, stream=other, memory=100) == 110


@pytest.mark.fake
def test_what_values_cost(ctx, cuda_kernels):
    """One call of the driver for each value, and nothing that waits."""
    fake, made = fake_cuda.load(), Sum(ctx, cuda_kernels)
    made.graph.replay()
    node, memory = "cuGraphExecNodeSetParams", "cuMemcpyHtoDAsync"

    def calls(work, **given):
        fake.forget_calls()
        work(**given)
        return fake.calls(node), fake.calls(memory), fake.calls("cuGraphLaunch")

    with fake.held():
        assert calls(made.graph.replay, node=5) == (1, 0, 1)
        assert calls(made.graph.replay, node=6) == (1, 0, 1)
        assert calls(made.graph.replay) == (1, 0, 1)
        assert calls(made.graph.replay, memory=5) == (0, 1, 1)
        assert calls(made.graph.replay, memory=6) == (0, 1, 1)
        assert calls(made.graph.replay) == (0, 1, 1)
        assert calls(made.graph.replay) == (0, 0, 1)
        assert calls(made.graph.set, node=5) == (1, 0, 0)
        assert calls(made.graph.set, memory=5) == (0, 0, 0)
        assert calls(made.graph.replay) == (0, 1, 1)
        assert calls(made.graph.replay) == (0, 0, 1)
    assert made.x.numpy()[0] == 10


@pytest.mark.fake
@pytest.mark.parametrize("given", [{"node": 20}, {"memory": 20}])
@pytest.mark.parametrize("name", ["cuGraphLaunch", "cuGraphExecNodeSetParams", "cuMemcpyHtoDAsync"])
def test_a_call_that_the_driver_refuses_leaves_nothing_behind(ctx, cuda_kernels, given, name):
    fake, made = fake_cuda.load(), Sum(ctx, cuda_kernels)
    made.graph.replay()
    for call in (made.graph.replay, made.graph.run):
        fake.fail(name, 2)
        with contextlib.suppress(fg.OutOfMemoryError):
            call(**given)
        fake.reset()
        assert made.after(made.graph.replay) == 11
        made.graph.replay(**given)
        assert made.after(made.graph.replay) == 11
