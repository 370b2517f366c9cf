"""The MLP 784-512-512-10 with exact GELU at batch 1: hot and cold, one and two threads."""

from __future__ import annotations

import os

from bench.outcome import Goal, Outcome, microseconds
from bench.rounds import FULL, Effort, Entry, Processes, Timing, compare
from bench.workloads import Layers

__all__ = ["entries_of", "main", "peers_of"]

MODEL = Layers(1, (784, 512, 512, 10), True, 2)


def entries_of(layers: Layers, threads: int) -> list[Entry]:
    """Every contender's ways to do `layers`; of two ways of one peer the better one counts."""
    common = {"threads": threads}
    entries = [
        Entry("fastgraph", "fastgraph run_slots", layers.spec(how="run_slots", **common)),
        Entry("fastgraph", "fastgraph bind step", layers.spec(how="bind", **common)),
        Entry(
            "ONNX Runtime",
            "ONNX Runtime bound",
            layers.spec(how="bound", gelu="op", **common),
        ),
        Entry("NumPy", "NumPy", layers.spec(**common)),
        Entry("OpenVINO", "OpenVINO", layers.spec(**common)),
        Entry("torch", "torch eager", layers.spec(how="eager", **common)),
        Entry("torch", "torch compiled", layers.spec(how="compiled", **common)),
        Entry("ExecuTorch", "ExecuTorch", layers.spec(**common)),
    ]
    if layers.gelu_layers:
        spec = layers.spec(how="bound", gelu="erf", **common)
        entries.insert(3, Entry("ONNX Runtime", "ONNX Runtime bound, GELU by Erf", spec))
    return entries


def peers_of(timings: dict[str, Timing]) -> dict[str, Timing]:
    """The timings that are not ours."""
    return {k: t for k, t in timings.items() if t.entry.peer != "fastgraph"}


def main(effort: Effort = FULL) -> Outcome:
    """Compare with every installed peer."""
    outcome = Outcome(
        "mlp",
        "MLP 784-512-512-10, exact GELU, batch 1",
        ["case", "call", "p50 µs", "p99 µs", "against the best peer", "10 % … 90 %"],
        left=2,
    )
    for threads in (1, 2):
        if threads > len(os.sched_getaffinity(0)):
            outcome.notes.append(f"{threads} threads: not that many cores")
            continue
        with Processes(threads) as processes:
            for cold in (False, True):
                case = f"{'cold' if cold else 'hot'}, {threads} thread{'s' * (threads > 1)}"
                timings = compare(
                    processes,
                    entries_of(MODEL, threads),
                    MODEL.inputs,
                    MODEL.reference,
                    effort,
                    cold=cold,
                )
                best = min(peers_of(timings).values(), key=lambda timing: timing.p50)
                for label, timing in timings.items():
                    middle, low, high = timing.ratio(best)
                    cells = [case, label, microseconds(timing.p50), microseconds(timing.p99)]
                    outcome.cells.append([*cells, f"{middle:.2f}", f"{low:.2f} … {high:.2f}"])
                    outcome.rows.append(timing.row(case))
                own = timings["fastgraph run_slots"].ratio(best)[0]
                outcome.goals.append(
                    Goal(f"{case}: run_slots over the best peer ({best.entry.label})", 0.65, own)
                )
    outcome.notes += processes.missing.values()
    outcome.notes.append(
        "cold: before each call every core reads a buffer three times the last cache's size"
    )
    return outcome
