"""The benchmark of products and attention: what it builds, and that it sees a wrong result."""

from __future__ import annotations

import numpy as np
import pytest

from bench.gpu.operator_cases import CASES, Attention, Product, Streamed
from bench.gpu.operator_tiles import ways
from bench.gpu.operators import Clock, goals
from fastgraph.ir import reference
from fastgraph.lower.cuda import LOWERINGS, Target
from fastgraph.passes import optimise

SMALL = (
    Product(4, 64, 96, layers=3),
    Product(3, 32, 32, "float32", along=True, layers=2),
    Attention(2, 4, 20, 16, causal=True, key_heads=2, keys=24, layers=2),
    *(Streamed(kind, 6, 40) for kind in ("gelu", "rms_norm", "layer_norm", "softmax")),
)
LONG_ROW, LONG_ATTENTION = Product(1, 4096, 4096, layers=16), Attention(8, 16, 2048, 128, True)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_results_are_compared(case: Product | Attention | Streamed) -> None:
    arrays, graph = case.arrays(), case.build()
    params = {value.name for value in graph.params}
    given = {f"x{i}": array for i, array in enumerate(arrays)}
    (found,) = reference.evaluate(
        graph,
        {name: array for name, array in given.items() if name not in params},
        {name: array for name, array in given.items() if name in params},
    ).values()
    assert case.error(found, arrays) < 2e-3
    wrong = found.copy()
    wrong[..., -1, 0] += np.abs(found).max()
    assert case.error(wrong, arrays) > 0.1


def test_every_case_is_lowered_for_an_h200() -> None:
    target = Target("sm_90", (9, 0), 132, 232448, 50 << 20)
    names = set()
    for case in CASES:
        names.add(case.name)
        nodes = optimise(case.build(), pack=False).graph.nodes
        for node in nodes:
            if node.op in ("fused_matmul", "row_product", "fused_attention"):
                assert LOWERINGS[node.op](node, target)
    assert len(names) == len(CASES)


def test_every_way_is_taken_and_left() -> None:
    target = Target("sm_90", (9, 0), 132, 232448, 50 << 20)
    entries: dict[str, set[str]] = {}
    for case in (LONG_ROW, CASES[2], CASES[10], Product(128, 384, 384), LONG_ATTENTION):
        node = optimise(case.build(), pack=False).graph.nodes[-1]
        before = LOWERINGS[node.op](node, target)[0].code
        entries[case.name] = set()
        for way in ways(case):
            with way.taken():
                call = LOWERINGS[node.op](node, target)[0]
            entries[case.name].add(f"{call.code.entry} {call.grid}")
        assert LOWERINGS[node.op](node, target)[0].code == before
        assert len(entries[case.name]) >= min(3, len(ways(case)))


@pytest.mark.cuda
def test_what_lies_on_the_device_is_used_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.gpu.operators.ROUNDS", 1)
    monkeypatch.setattr("bench.gpu.operators.LEAST_SECONDS", 0.0)
    clock = Clock()
    for case in SMALL:
        if isinstance(case, Streamed | Attention):
            arrays = case.arrays()
            _, found = clock.ours(case, arrays)
            assert case.error(found, arrays) < 2e-3


def test_goals_are_those_of_single_rows_and_of_copies() -> None:
    cases = [SMALL[0], Product(1, 64, 64), SMALL[-1], SMALL[-1]]
    lines = [{"share_of_read": 0.5}, {"share_of_read": 0.9}, {"share_of_copy": 0.9}, {"failed": ""}]
    assert [goal.met for goal in goals(cases, lines)] == [True, False]
