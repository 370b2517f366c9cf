"""That the measurement of experts works: on the fake driver its times mean nothing."""

from __future__ import annotations

import pytest

from bench.gpu.experts import Sizes, goal, measure
from bench.gpu.operators import Clock


@pytest.mark.cuda
def test_three_budgets(monkeypatch):
    monkeypatch.setattr("bench.gpu.operators.ROUNDS", 1)
    monkeypatch.setattr("bench.gpu.operators.LEAST_SECONDS", 0.0)
    lines = measure(Clock(), Sizes(rows=4, experts=8, k=16, n=32))
    assert [line["resident"] for line in lines] == ["none", "a quarter", "all"]
    rates = [line["hit_rate"] for line in lines]
    assert rates[0] == 0 < rates[1] < 1 == rates[2]
    moved = [line["bus_bytes"] for line in lines]
    assert moved[0] > moved[1] > moved[2] == 0
    assert goal(lines).value > 0
