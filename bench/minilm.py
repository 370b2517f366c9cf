"""MiniLM-L6 at batch 1: 16 and 128 tokens, one and two threads."""

from __future__ import annotations

from bench.encoder import Sentence
from bench.outcome import Outcome
from bench.rounds import FULL, Effort, Entry, Processes, compare
from bench.versus import add_case, head, thread_counts

__all__ = ["entries_of", "main"]

# By number of tokens: what ours may take of the best peer's time.
GOALS = {16: 0.85, 128: 0.92}
TOLERANCE = 1e-5


def entries_of(sentence: Sentence, threads: int) -> list[Entry]:
    """Every contender's ways to encode; of two ways of one peer the better one counts."""
    common = {"threads": threads}

    def entry(peer: str, label: str, **more: object) -> Entry:
        return Entry(peer, label, sentence.spec(**common, **more))

    return [
        entry("fastgraph", "fastgraph run_slots", how="run_slots"),
        entry("ONNX Runtime", "ONNX Runtime bound", how="bound", fused=False),
        entry("ONNX Runtime", "ONNX Runtime bound, its own operators", how="bound", fused=True),
        entry("OpenVINO", "OpenVINO"),
        entry("torch", "torch eager", how="eager"),
        entry("torch", "torch compiled", how="compiled"),
        entry("ExecuTorch", "ExecuTorch"),
    ]


def milliseconds(time: float) -> str:
    """Microseconds as milliseconds with two digits."""
    return f"{time / 1e3:.2f}"


def main(effort: Effort = FULL) -> Outcome:
    """Compare with every installed peer."""
    outcome = Outcome(
        "minilm",
        "MiniLM-L6, batch 1, f32, token numbers in, one embedding out",
        head("ms"),
        left=2,
    )
    for threads in thread_counts(outcome):
        with Processes(threads) as processes:
            for tokens, goal in GOALS.items():
                case = f"{tokens} tokens, {threads} thread{'s' * (threads > 1)}"
                sentence = Sentence(tokens)
                timings = compare(
                    processes,
                    entries_of(sentence, threads),
                    sentence.inputs,
                    sentence.reference,
                    effort,
                    tolerance=TOLERANCE,
                )
                add_case(outcome, case, timings, goal, milliseconds)
    outcome.notes += processes.missing.values()
    outcome.notes.append("seeded weights of the model's sizes; the result is checked in each round")
    return outcome
