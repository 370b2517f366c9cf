"""What whole models were promised to take, from what was measured."""

from __future__ import annotations

import pytest

from bench.gpu.models import RECIPE, TOKENS, goals, shown


def test_goals_are_of_what_was_measured():
    encoder = f"encoder, float16, batch 1, {TOKENS} tokens"
    lines = [
        {"case": "perceptron, run_slots", "us": 12.0},
        {"case": "perceptron, a loop in C on the same executable", "us": 11.5},
        {"case": RECIPE, "us": 10.0, "recipe": "by hand"},
        {"case": encoder, "us": 150.0},
        {"case": f"{encoder}: torch eager", "us": 300.0},
        {"case": f"{encoder}: torch default", "us": 200.0},
    ]
    found = [(goal.what, goal.limit, goal.value, goal.met) for goal in goals(lines)]
    assert found == [
        ("perceptron over the best recipe in C++", 1.1, pytest.approx(1.2), False),
        ("perceptron: microseconds over a loop in C", 1.0, pytest.approx(0.5), True),
        (f"{encoder}, over PyTorch's best", 0.7, pytest.approx(0.75), False),
    ]
    assert not goals([]) and not goals(lines[3:4])
    assert "recipe by hand" in shown(lines[2])
