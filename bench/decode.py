"""One step of the small decoder in `examples`, behind 128 characters: one and two threads."""

from __future__ import annotations

from bench.decode_case import Step
from bench.outcome import Outcome
from bench.rounds import FULL, Effort, Entry, Processes, compare
from bench.versus import add_case, head, thread_counts

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
        head("µs"),
        left=2,
    )
    for threads in thread_counts(outcome):
        with Processes(threads, ("fastgraph", "ONNX Runtime", "torch")) as processes:
            step = Step(PAST, experts=False)
            case = f"{threads} thread{'s' * (threads > 1)}"
            timings = compare(
                processes, entries_of(step, threads), step.inputs, step.reference, effort
            )
            add_case(
                outcome,
                case,
                timings,
                GOAL,
                "{:.1f}".format,
                label="fastgraph step",
                goal="a step over the best peer's",
            )
    outcome.notes += processes.missing.values()
    outcome.notes.append("seeded weights; the logits are checked in each round")
    return outcome
