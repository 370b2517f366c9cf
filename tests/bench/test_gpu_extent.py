"""That the measurement of extents works: on the fake driver its times mean nothing."""

from __future__ import annotations

import pytest

from bench.gpu.extent import Sizes, goals, measure, setting
from bench.gpu.operators import Clock

pytestmark = pytest.mark.cuda


def test_few_rows_are_what_the_compile_for_them_gives(monkeypatch):
    monkeypatch.setattr("bench.gpu.operators.ROUNDS", 1)
    monkeypatch.setattr("bench.gpu.operators.LEAST_SECONDS", 0.0)
    sizes = Sizes(upper=8, widths=(16, 16), few=(1,), sets=4)
    lines = measure(Clock(), sizes, "float32")
    assert [line["rows"] for line in lines] == [8, 1]
    assert len(goals(lines)) == 1
    taken = setting(Clock(), sizes, depth=1)
    assert taken["new_us"] > 0
