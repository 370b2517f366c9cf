"""One step of the small decoder in `examples`, behind 128 characters: one and two threads."""

from __future__ import annotations

import os

from bench.decode_case import Step
from bench.outcome import Goal, Outcome
from bench.rounds import FULL, Effort, Entry, Processes, compare

__all__ = ["entries_of", "main"]

PAST = 128
# What ours may take of the best peer's time.
GOAL = 0.7


def entries_of(step: Step, threads: int) -> list[Entry]:
    """Every contender's ways to take the step; of two ways of one peer the better one counts."""

    def entry(peer: str, label: str, **more: object) -> Entry:
        return Entry(peer, label, step.spec(threads=threads, **more))

    return [
        entry("fastgraph", "fastgraph step"),
        entry("ONNX Runtime", "ONNX Runtime bound", how="bound", fused=False),
        entry("ONNX Runtime", "ONNX Runtime bound, its own operators", how="bound", fused=True),
        entry("torch", "torch eager", how="eager"),
        entry("torch", "torch compiled", how="compiled"),
    ]


def main(effort: Effort = FULL) -> Outcome:
    """Compare with every installed peer."""
    outcome = Outcome(
        "decode",
        f"A character by the decoder of examples/, {PAST} behind it, f32",
        ["case", "call", "p50 µs", "p99 µs", "against the best peer", "10 % … 90 %"],
        left=2,
    )
    for threads in (1, 2):
        if threads > len(os.sched_getaffinity(0)):
            outcome.notes.append(f"{threads} threads: not that many cores")
            continue
        with Processes(threads, ("fastgraph", "ONNX Runtime", "torch")) as processes:
            step = Step(PAST, experts=False)
            case = f"{threads} thread{'s' * (threads > 1)}"
            timings = compare(
                processes, entries_of(step, threads), step.inputs, step.reference, effort
            )
            peers = [one for one in timings.values() if one.entry.peer != "fastgraph"]
            best = min(peers, key=lambda timing: timing.p50)
            for label, timing in timings.items():
                middle, low, high = timing.ratio(best)
                cells = [case, label, f"{timing.p50:.1f}", f"{timing.p99:.1f}"]
                outcome.cells.append([*cells, f"{middle:.2f}", f"{low:.2f} … {high:.2f}"])
                outcome.rows.append(timing.row(case))
            own = timings["fastgraph step"].ratio(best)[0]
            outcome.goals.append(Goal(f"{case}: a step over the best peer's", GOAL, own))
        outcome.notes += processes.missing.values()
    outcome.notes.append("seeded weights; the logits are checked in each round")
    return outcome
