"""The cost of a call: sixteen floats added, through Python."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from bench.native import compiled
from bench.outcome import Goal, Outcome, microseconds
from bench.rounds import FULL, Effort, Entry, Processes, WrongResult, compare, digits
from bench.workloads import add_inputs

__all__ = ["main"]

BLOCK = 500
COUNTED_CALLS = 20_000
BUSY_SECONDS = 0.1


def main(effort: Effort = FULL) -> Outcome:
    """Compare run_slots, bind and run with NumPy, ONNX Runtime and a loop in C."""
    outcome = Outcome(
        "call",
        "A 16-float add, whole Python call, one thread",
        ["call", "p50 µs", "p99 µs", "against np.add", "10 % … 90 %"],
    )
    spec = {"workload": "add", "threads": 1}
    entries = [
        Entry("fastgraph", "fastgraph run_slots", {**spec, "how": "run_slots"}),
        Entry("fastgraph", "fastgraph bind step", {**spec, "how": "bind"}),
        Entry("fastgraph", "fastgraph run", {**spec, "how": "run"}),
        Entry("fastgraph", "fastgraph run_raw", {**spec, "how": "run_raw"}),
        Entry("fastgraph", "the recorded graph alone", {**spec, "how": "executable"}),
        Entry("NumPy", "np.add(x, x, out=y)", spec),
        Entry("ONNX Runtime", "ONNX Runtime run_with_iobinding", {**spec, "how": "bound"}),
        Entry("ONNX Runtime", "ONNX Runtime run", {**spec, "how": "run"}),
    ]
    with Processes(1, ("fastgraph", "NumPy", "ONNX Runtime")) as processes:
        timings = compare(
            processes, entries, add_inputs, lambda x: 2 * x[0].astype("f8"), effort, block=BLOCK
        )
        base = timings["np.add(x, x, out=y)"]
        for label, timing in timings.items():
            middle, low, high = timing.ratio(base)
            cells = [label, microseconds(timing.p50), microseconds(timing.p99)]
            outcome.cells.append([*cells, f"{middle:.2f}", f"{low:.2f} … {high:.2f}"])
            outcome.rows.append(timing.row("add 16"))
        _native_twin(outcome, timings["fastgraph run_slots"].p50)
        own = timings["fastgraph run_slots"]
        outcome.goals += [
            Goal("run_slots over np.add", 0.4, own.ratio(base)[0]),
            Goal("run_slots in µs", 0.15, own.p50),
        ]
        if bound := timings.get("ONNX Runtime run_with_iobinding"):
            outcome.goals.append(
                Goal("ONNX Runtime bound over run_slots", 10, bound.ratio(own)[0], least=True)
            )
        _allocations(outcome, processes)
    outcome.notes += processes.missing.values()
    outcome.notes.append(f"a sample is the mean of {BLOCK} calls")
    _beside_busy(outcome, effort)
    return outcome


def _native_twin(outcome: Outcome, own_us: float) -> None:
    library = compiled(["-march=native"])
    x = add_inputs(0)[0]
    y = np.zeros_like(x)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (y, x)]
    taken = [library.time_add(*pointers, ctypes.c_int64(100_000)) for _ in range(31)]
    if not np.array_equal(y, x + x):
        raise WrongResult("the loop in C adds wrongly")
    ns = float(np.median(taken))
    label = "C, a call in a loop"
    p99 = float(np.percentile(taken, 99))
    outcome.cells.append([label, microseconds(ns / 1e3), microseconds(p99 / 1e3), "", ""])
    outcome.rows.append(
        {
            "case": "add 16",
            "contender": label,
            "p50_us": digits(ns / 1e3),
            "p99_us": digits(p99 / 1e3),
            "rounds": len(taken),
            "correct": True,
        }
    )
    outcome.notes.append(f"run_slots adds {own_us * 1e3 - ns:.0f} ns to what C needs")


def _allocations(outcome: Outcome, processes: Processes) -> None:
    calls = COUNTED_CALLS
    found = processes["fastgraph"]("apply", "allocations", calls)
    for name, counts in found.items():
        outcome.goals += [
            Goal(f"blocks that {calls:,} calls of {name} leave", 0, counts["blocks"]),
            Goal(f"bytes that {calls:,} calls of {name} take in between", 0, counts["peak"]),
        ]
        outcome.failed |= any(counts.values())


def _beside_busy(outcome: Outcome, effort: Effort) -> None:
    """A thread that runs Python beside; with two cores, so that both could run."""
    rounds = max(3, effort.rounds // 3)
    policies: dict[str, str | bool] = {"auto": "auto", "kept": False, "released": True}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in policies}
    with Processes(2, ("fastgraph",)) as processes:
        for _ in range(rounds):
            for name, policy in policies.items():
                one = processes["fastgraph"]("apply", "beside_busy", policy, BUSY_SECONDS)
                if not one["correct"]:
                    raise WrongResult("run_slots beside a busy thread adds wrongly")
                found[name].append(one)
    for name, all_rounds in found.items():
        (alone, *_), (p50, p99, mean, calls) = (
            np.median([one[how] for one in all_rounds], axis=0) / [1e3, 1e3, 1e3, 1]
            for how in ("alone", "beside")
        )
        label = f"run_slots beside a busy Python thread, GIL {name}"
        times = [microseconds(p50), microseconds(p99)]
        outcome.cells.append(
            [label, *times, "", f"alone {microseconds(alone)}, mean {microseconds(mean)}"]
        )
        outcome.rows.append(
            {
                "case": f"beside a busy thread, GIL {name}",
                "contender": "fastgraph run_slots",
                "alone_p50_us": digits(alone),
                "p50_us": digits(p50),
                "p99_us": digits(p99),
                "mean_us": digits(mean),
                "rounds": rounds,
                "samples": int(calls) * rounds,
                "thousand_turns_of_the_busy_thread": [one["turns"] for one in all_rounds],
                "correct": True,
            }
        )
        if name == "auto":
            goal = "run_slots beside a busy Python thread over alone, medians"
            outcome.goals.append(Goal(goal, 2, p50 / alone))
    outcome.notes.append("beside a busy thread every call is timed alone, the clock included")
