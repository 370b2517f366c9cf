"""That the decode step and the pipelines can be measured: on the fake driver times mean nothing."""

from __future__ import annotations

import numpy as np
import pytest

from bench.gpu import decode, pipeline
from bench.gpu.operator_cases import relative
from bench.gpu.operators import Clock
from fastgraph.ir import reference

SMALL = decode.Sizes(2, 64, 4, 2, 32, 128, 24)


def test_the_reference_is_the_graph():
    arrays = decode.seeded(SMALL)
    graph = decode.build(SMALL)
    names = {value.name for value in graph.params}
    params = {name: arrays[name] for name in names}
    inputs = {v.name: arrays[v.name] for v in graph.inputs if v.name in arrays}
    inputs["past"] = np.array(SMALL.tokens - 1)
    found = reference.evaluate(graph, inputs, params)
    wanted, rows = decode.step(SMALL, arrays)
    assert relative(found["y"], wanted) < 1e-2
    for name, row in rows.items():
        cache = found[f"next {name}"]
        assert relative(cache[-1], row) < 1e-2
        assert cache[:-1].tobytes() == arrays[name][:-1].tobytes()


def test_a_step_of_the_whole_stack_reads_two_gigabytes():
    assert decode.FULL.nbytes == 1_979_711_488


@pytest.mark.cuda
def test_a_step(monkeypatch):
    monkeypatch.setattr("bench.gpu.operators.ROUNDS", 1)
    monkeypatch.setattr("bench.gpu.operators.LEAST_SECONDS", 0.0)
    monkeypatch.setattr(Clock, "read_bytes_per_ns", lambda clock: 1e3)  # runs on a GPU alone
    (line,) = decode.measure(Clock(), SMALL, ())
    assert line["error"] < decode.TOLERANCE
    assert decode.goals([line])[0].value > 0


@pytest.mark.cuda
def test_a_pipeline(monkeypatch):
    monkeypatch.setattr("bench.gpu.operators.ROUNDS", 1)
    monkeypatch.setattr("bench.gpu.operators.LEAST_SECONDS", 0.0)
    monkeypatch.setattr(pipeline, "SETS", 8)
    monkeypatch.setattr(pipeline, "ROUNDS", 1)
    case = pipeline.Case("small", 8, 32, 1, 1.5)
    monkeypatch.setattr(pipeline, "CASES", (case,))
    line = pipeline.measure(Clock(), case)
    assert line["over_loop"] > 0
    assert len(pipeline.goals([line])) == 2
