"""The short way of plain arguments gives what the long way gives, or leaves it to that."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import fastgraph as fg
from fastgraph._core.calls import fill, plain_word
from fastgraph.device.values import element_word, pattern, word
from fastgraph.errors import InputError

DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]
EDGES = [0, 1, -1, 2**24, 2**24 + 1, 2**53, 2**53 + 1, 65504, 65505]
EDGES += [
    sign * 2**n + d for n in (7, 8, 15, 16, 31, 32, 63, 64) for d in (-1, 0) for sign in (1, -1)
]
FLOATS = [0.0, -0.0, 1.5, 65503.9, 65504.0, 1e39, -1e39, math.inf, -math.inf, math.nan]


def long_way(value, dtype):
    try:
        return word(pattern(value, dtype))
    except InputError:
        return None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [*EDGES, *FLOATS, True, False, np.int32(3), np.float32(1.5)])
def test_edges(value, dtype):
    kind = np.dtype(dtype)
    assert plain_word(value, kind) in (None, long_way(value, kind))


@given(st.sampled_from(DTYPES), st.integers() | st.floats())
@example("i4", 2**31 - 1)
def test_any_number(dtype, value):
    kind = np.dtype(dtype)
    wanted = long_way(value, kind)
    assert plain_word(value, kind) in (None, wanted)
    if wanted is not None:
        assert element_word(value, kind) == wanted


@pytest.mark.parametrize(("value", "dtype"), [(7, "i4"), (-7, "i8"), (7, "u1"), (0.5, "f4")])
def test_the_common_ones_are_plain(value, dtype):
    assert plain_word(value, np.dtype(dtype)) == long_way(value, np.dtype(dtype))


def kernel():
    return fg.NativeKernel(4096, "float *out, const float *a, int n, double s, void *any")


def test_a_plain_call_reads_as_the_long_way_has_it(monkeypatch):
    ctx = fg.DeviceContext("cpu")
    x, y = ctx.create_buffer(4), ctx.create_buffer(4)

    def build(b):
        scratch = b.create_buffer(4)
        first = b.add_memset(scratch, 0.0)
        args = (scratch, y, -3, 0.25, x)
        b.add_function(kernel(), *args, grid_dim=(2, 3), block_dim=5, dependencies=[first])
        args = (fg.InOut(scratch), y, np.int32(-3), np.float64(0.25), x)
        b.add_function(kernel(), *args, grid_dim=(2, 3, 1), block_dim=(5,), dependencies=[first])

    graph = fg.DeviceGraph.create(ctx, build, check=False)
    _, short, long = graph._recorded().nodes
    assert short.params == long.params
    assert short.operands == long.operands


@pytest.mark.parametrize(
    ("position", "value"),
    [(0, 1.0), (0, np.zeros(4, "f4")), (2, 1.5), (2, 2**31), (3, 2**53 + 1), (2, "n"), (4, None)],
)
def test_what_is_not_plain_is_left_to_the_long_way(position, value):
    ctx = fg.DeviceContext("cpu")
    x = ctx.create_buffer(4)
    args = [x, x, 1, 0.5, x]
    args[position] = value
    f = kernel()
    assert f.plan.array_call(tuple(args), "cpu", None, (1, 1, 1), (1, 1, 1)) is None
    assert f.plan.array_call(tuple(args[:4]), "cpu", None, (1, 1, 1), (1, 1, 1)) is None
    assert f.plan.array_call((x, x, 1, 0.5, x), "cuda:0", None, (1, 1, 1), (1, 1, 1)) is None
    with pytest.raises(InputError, match=f"argument {position}"):
        fg.DeviceGraph.create(ctx, lambda b: b.add_function(f, *args))


def test_twins_are_filled_from_whatever_lies_on_the_host():
    ctx = fg.DeviceContext("cpu")
    values = np.arange(12, dtype="f4").reshape(3, 4)
    large = np.arange(40_000, dtype="f4")
    for source in (values, np.asfortranarray(values), np.repeat(values, 2, 0)[::2], values[::-1]):
        twins = [ctx.create_buffer((3, 4)), ctx.create_buffer(()), ctx.create_buffer(40_000)]
        fill(twins, [source, np.array(5, "f4"), large])
        assert (twins[0].numpy() == source).all()
        assert twins[1].numpy() == 5
        assert (twins[2].numpy() == large).all()
        again = ctx.create_buffer((3, 4))
        fill([again, twins[2][1:]], [twins[0], twins[2][:-1]])
        assert (again.numpy() == source).all()
        assert (twins[2].numpy()[1:] == large[:-1]).all()
    with pytest.raises(TypeError):
        fill([values], [values])
