"""The harness: processes of their own, rounds in turn, and wrong results that are noticed."""

from __future__ import annotations

import os

import numpy as np
import pytest

from bench import rounds
from bench.rounds import Effort, Entry, Processes, Timing, WrongResult, compare
from bench.timing import Call, Stopwatch
from bench.workloads import Layers

EFFORT = Effort(rounds=3, budget=1e-4)
LAYERS = Layers(2, (8, 6, 4), True, 1)


def entries():
    common = {"threads": 1}
    return [
        Entry("fastgraph", "ours", LAYERS.spec(how="run_slots", **common)),
        Entry("NumPy", "theirs", LAYERS.spec(**common)),
    ]


@pytest.fixture(scope="module")
def processes():
    with Processes(1, ("fastgraph", "NumPy")) as started:
        yield started


@pytest.mark.parametrize("cold", [False, True], ids=["hot", "cold"])
def test_rows_come_from_every_contender_and_round(processes, cold):
    timings = compare(processes, entries(), LAYERS.inputs, LAYERS.reference, EFFORT, cold=cold)
    assert list(timings) == ["ours", "theirs"]
    for timing in timings.values():
        row = timing.row("case")
        assert row["correct"] is True
        assert len(row["round_p50_us"]) == row["rounds"] == 3
        assert 0 < row["p50_us"] <= row["p99_us"]


def test_a_wrong_result_is_noticed(processes):
    with pytest.raises(WrongResult, match="ours: differs by"):
        compare(processes, entries(), LAYERS.inputs, lambda x: LAYERS.reference(x) + 1e-3, EFFORT)
    with pytest.raises(WrongResult, match="ours: shape"):
        compare(processes, entries(), LAYERS.inputs, lambda x: LAYERS.reference(x)[:1], EFFORT)


def test_a_contender_is_alone_with_its_threads_and_no_harmful_setting(monkeypatch):
    monkeypatch.setitem(os.environ, rounds.HARMFUL[0], "Prescott")
    child = rounds.Process("NumPy", 1)
    try:
        environment, modules = child("about")
        assert rounds.HARMFUL[0] not in environment
        assert environment["OPENBLAS_NUM_THREADS"] == "1"
        assert "numpy" in modules
        assert "fastgraph" not in modules
    finally:
        child.close()


def test_what_a_worker_raises_is_raised_here(processes):
    with pytest.raises(RuntimeError, match="KeyError"):
        processes["NumPy"]("round", "nobody", 1, False)


def test_a_missing_peer_is_named(monkeypatch):
    monkeypatch.setitem(rounds.PEERS, "nobody", ("bench.nobody", ("no_such_module",), 0.0))
    with Processes(1, ("nobody",)) as started:
        assert started.missing == {"nobody": "nobody: not installed"}
        assert "nobody" not in started


def test_a_peer_that_cannot_be_imported_is_named(monkeypatch):
    monkeypatch.setitem(rounds.PEERS, "nobody", ("bench.nobody", ("numpy",), 0.0))
    with Processes(1, ("nobody",)) as started:
        assert "No module named" in started.missing["nobody"]


def test_ratios_are_taken_round_by_round():
    entry = Entry("fastgraph", "x", {})
    ours = Timing(entry, "", [[1000.0], [4000.0], [2000.0]])
    theirs = Timing(entry, "", [[2000.0], [8000.0], [4000.0]])
    assert ours.ratio(theirs) == (0.5, 0.5, 0.5)
    assert (ours.p50, theirs.round_p50) == (2.0, [2.0, 8.0, 4.0])


def test_a_block_is_timed_as_its_mean():
    counted = []
    call = Call("add(1)", {"add": counted.append}, [], lambda: np.zeros(0))
    taken = Stopwatch(call, block=10).hot(4)
    assert len(taken) == 4
    assert len(counted) == 10 * (4 + 3)
    walked = []
    Stopwatch(call).cold(5, lambda: walked.append(1))
    assert len(walked) == 5 + 1
