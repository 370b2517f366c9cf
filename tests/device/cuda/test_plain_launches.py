"""The short way of plain arguments into a launch gives what the long way gives."""

from __future__ import annotations

import numpy as np
import pytest

import fastgraph as fg
from fastgraph.device.backend import LaunchOptions, LaunchSpec
from tests.conftest import CUDA_PROBLEM

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(CUDA_PROBLEM is not None, reason=str(CUDA_PROBLEM)),
]

SOURCE = """
extern "C" __global__ void mixed(float *out, const float *in, int i, unsigned long long u, double d,
                                 float f, bool b, signed char c) {}
"""


@pytest.fixture(scope="module")
def ctx():
    return fg.DeviceContext("cuda")


@pytest.fixture(scope="module")
def mixed(ctx):
    return ctx.compile_function(SOURCE, "mixed")


def recorded(ctx, function, *calls, **options):
    def build(b):
        last = []
        for args in calls:
            args = [x(b) if callable(x) else x for x in args]
            last = [b.add_function(function, *args, block_dim=32, dependencies=last, **options)]

    return fg.DeviceGraph.create(ctx, build)


def test_both_ways_give_the_same(ctx, mixed):
    x, y = ctx.create_buffer(4), ctx.create_buffer(4)
    plain = (x, y, -3, 2**40, 0.25, 1.5, True, -128)
    typed = (fg.InOut(x), y, np.int32(-3), np.uint64(2**40), np.float64(0.25), np.float32(1.5),
             np.bool_(True), np.int8(-128))  # fmt: skip
    assert mixed.plan.launch_call(plain, ctx.device, None) is not None
    assert mixed.plan.launch_call(typed, ctx.device, None) is None
    short, long = recorded(ctx, mixed, plain, typed)._recorded().nodes
    assert short.call == long.call
    assert short.operands == long.operands
    values = [a[1] for a in short.call.arguments if a[0] == "value"]
    assert [len(value) for value in values] == [4, 8, 8, 4, 1, 1]
    assert values[-1] == b"\x80"


def test_scratch_is_plain_and_written_where_the_parameter_says(ctx, mixed):
    x = ctx.create_buffer(4)
    rest = (0, 0, 0.0, 0.0, False, 0)
    graph = recorded(ctx, mixed, (lambda b: b.create_buffer(4), x, *rest))
    out, given = graph._recorded().nodes[0].operands
    assert (out.reads, out.writes) == (True, True)
    assert (given.reads, given.writes) == (True, False)


@pytest.mark.parametrize(
    ("position", "value"),
    [(0, 1.0), (2, 1.5), (2, 2**31), (3, -1), (4, 2**53 + 1), (6, 2), (7, 128), (7, None)],
)
def test_what_does_not_fit_is_refused_as_ever(ctx, mixed, position, value):
    x = ctx.create_buffer(4)
    args = [x, x, 1, 2, 0.5, 0.5, True, 0]
    args[position] = value
    with pytest.raises(fg.InputError, match=f"argument {position}"):
        recorded(ctx, mixed, args)


def test_sizes_are_checked_however_often_they_fitted(ctx, mixed):
    x = ctx.create_buffer(4)
    args = (x, x, 1, 2, 0.5, 0.5, True, 0)
    for _ in range(2):
        with pytest.raises(fg.GraphError, match="block_dim"):
            fg.DeviceGraph.create(ctx, lambda b: b.add_function(mixed, *args, block_dim=2048))
        recorded(ctx, mixed, args)
    for grid in range(1, 200):
        fg.DeviceGraph.create(ctx, lambda b, g=grid: b.add_function(mixed, *args, grid_dim=g))
    assert len(mixed.fitting) <= 64


@pytest.mark.parametrize("options", [{"shared_mem_bytes": 64}, {"cooperative": True}])
def test_more_than_sizes_goes_the_long_way(ctx, mixed, options):
    x = ctx.create_buffer(4)
    args = (x, x, 1, 2, 0.5, 0.5, True, 0)
    call = recorded(ctx, mixed, args, **options)._recorded().nodes[0].call
    assert call.shared_bytes == options.get("shared_mem_bytes", 0)
    assert call.cooperative == options.get("cooperative", False)


def test_an_update_changes_one_argument_of_a_plain_launch(ctx, mixed):
    x = ctx.create_buffer(4)
    graph = recorded(ctx, mixed, (x, x, 1, 2, 0.5, 0.5, True, 0))
    graph.update(0, args=(x, x, 7, 2, 0.5, 0.5, True, 0), grid_dim=3)
    call = graph._recorded().nodes[0].call
    assert call.grid == (3, 1, 1)
    assert call.block == (32, 1, 1)
    assert call.arguments[2] == ("value", (7).to_bytes(4, "little"))


def test_what_a_launch_was_made_of_is_a_mapping():
    spec = LaunchSpec("f", (1, 2), LaunchOptions(grid_dim=4), ("grid_dim", "block_dim"))
    assert dict(spec) == {"f": "f", "args": (1, 2), "grid_dim": 4, "block_dim": 1}
    assert len(spec) == 4
    assert "priority" not in spec
    with pytest.raises(KeyError):
        spec["priority"]
