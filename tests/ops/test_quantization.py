"""What quantised integers stand for, element by element and in plain Python."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fastgraph.ir import ops, reference

SHAPE = (3, 5)
# Where scales differ: their shape, block size, and which one an element has.
WAYS = {
    "whole": ((), 0, lambda i, j: ()),
    "axis": ((5,), 0, lambda i, j: (j,)),
    "block": ((3, 3), 2, lambda i, j: (i, j // 2)),
    "even block": ((3, 1), 5, lambda i, j: (i, 0)),
}


@pytest.mark.parametrize("stored", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("way", WAYS)
def test_there_and_back(way, stored):
    shape, size, place = WAYS[way]
    random, limits = np.random.default_rng(3), np.iinfo(stored)
    scale = np.exp2(random.integers(-1, 3, shape)).astype("f4")
    zero = random.integers(1, 100, shape, stored)
    whole = random.integers(limits.min, limits.max, SHAPE, stored, endpoint=True)
    whole[0, :2] = limits.min, limits.max
    real = (random.normal(size=SHAPE) * 50).astype("f4")
    real[0] = 1e6, -1e6, 0.0, scale[place(0, 3)] * 0.5, scale[place(0, 4)] * 1.5
    numbers = reference.apply(ops.dequantize, whole, scale, zero, block_size=size)
    integers = reference.apply(ops.quantize, real, scale, zero, block_size=size)
    assert (numbers.dtype, integers.dtype) == (np.dtype("f4"), np.dtype(stored))
    nan = reference.apply(ops.quantize, np.full(SHAPE, np.nan, "f4"), scale, zero, block_size=size)
    assert not nan.any()
    for i, j in itertools.product(*map(range, SHAPE)):
        by, at = float(scale[place(i, j)]), int(zero[place(i, j)])
        assert numbers[i, j] == (int(whole[i, j]) - at) * by
        # Python rounds halves to the even number, too.
        found = round(float(real[i, j]) / by) + at
        assert integers[i, j] == min(max(found, limits.min), limits.max)
