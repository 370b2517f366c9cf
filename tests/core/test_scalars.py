"""Values of scalars by name: the short way gives what the long one gives."""

from __future__ import annotations

import numpy as np
import pytest

from fastgraph._core.scalars import ScalarTable
from fastgraph.device.values import pattern
from fastgraph.errors import InputError

DTYPES = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")
VALUES = (
    *(0, 1, -1, 2, 127, 128, -128, -129, 255, 256, 2**24, 2**24 + 1, 2**31, -(2**31), 2**32 - 1),
    *(2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), 10**400),
    *(0.0, -0.0, 1.5, 0.1, 65504.0, 65520.0, 1e39, -1e39, 1e308, float("inf"), float("nan")),
    *(True, False, None, "1", 1j, np.float32(2), np.float64(2), np.int32(2), np.bool_(True)),
    *(np.array(3), np.array([3]), np.ma.masked_array(3, True)),
)


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_are_read_as_the_pattern_says(dtype):
    dtype = np.dtype(dtype)
    table = ScalarTable({"v": ((2, 8), dtype)}, pattern)
    for value in VALUES:
        try:
            want = pattern(value, dtype).tobytes()
        except InputError as error:
            with pytest.raises(InputError) as raised:
                table.read({"v": value})
            assert str(raised.value) == f"scalar 'v': {error}"
        else:
            assert table.read({"v": value}) == {(2, 8): want}


def test_a_name_that_is_no_scalars_has_the_long_way():
    table = ScalarTable({"v": ((0, 0), np.dtype("i4")), "w": ((0, 8), np.dtype("f8"))}, pattern)
    assert table.read({}) == {}
    assert table.read({"w": 1, "v": 2}) == {
        (0, 8): np.float64(1).tobytes(),
        (0, 0): np.int32(2).tobytes(),
    }
    assert table.read({"v": 1, "p": 2}) is None
