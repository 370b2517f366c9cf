"""Silero VAD, a step of 512 samples at batch 1: hot and cold, one and two threads."""

from __future__ import annotations

from bench.outcome import Outcome, microseconds
from bench.rounds import FULL, Effort, Entry, Processes, compare
from bench.speech import Step
from bench.versus import add_case, head, thread_counts
from examples import vad

__all__ = ["entries_of", "main"]

# What ours may take of ONNX Runtime's time.
GOAL = 0.6
TOLERANCE = 1e-4


def entries_of(step: Step, threads: int) -> list[Entry]:
    """Every contender's ways to do a step; of two ways of one peer the better one counts."""
    return [
        Entry("fastgraph", "fastgraph run_slots", step.spec(how="run_slots", threads=threads)),
        Entry("fastgraph", "fastgraph run", step.spec(how="run", threads=threads)),
        Entry("ONNX Runtime", "ONNX Runtime bound", step.spec(how="bound", threads=threads)),
        Entry("ONNX Runtime", "ONNX Runtime run", step.spec(how="run", threads=threads)),
    ]


def main(effort: Effort = FULL) -> Outcome:
    """Compare with ONNX Runtime, for which the model is made."""
    outcome = Outcome(
        "silero",
        "Silero VAD, 512 samples a step, batch 1, f32",
        head("µs"),
        left=2,
    )
    try:
        vad.model_file()
    except FileNotFoundError as error:
        outcome.notes.append(str(error))
        return outcome
    step = Step()
    for threads in thread_counts(outcome):
        with Processes(threads, ("fastgraph", "ONNX Runtime")) as processes:
            for cold in (False, True):
                case = f"{'cold' if cold else 'hot'}, {threads} thread{'s' * (threads > 1)}"
                entries = entries_of(step, threads)
                timings = compare(
                    processes, entries, step.inputs, step.reference, effort,
                    tolerance=TOLERANCE, cold=cold,
                )  # fmt: skip
                add_case(outcome, case, timings, GOAL, microseconds)
    outcome.notes += processes.missing.values()
    outcome.notes.append("a voice that is made up; probability and state are checked in each round")
    return outcome
