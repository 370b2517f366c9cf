"""The MLP 784-512-512-10 with exact GELU at batch 1: hot and cold, one and two threads."""

from __future__ import annotations

from bench.outcome import Outcome, microseconds
from bench.rounds import FULL, Effort, Entry, Processes, compare
from bench.versus import add_case, head, thread_counts
from bench.workloads import Layers

__all__ = ["entries_of", "main"]

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


def main(effort: Effort = FULL) -> Outcome:
    """Compare with every installed peer."""
    outcome = Outcome(
        "mlp",
        "MLP 784-512-512-10, exact GELU, batch 1",
        head("µs"),
        left=2,
    )
    for threads in thread_counts(outcome):
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
                add_case(outcome, case, timings, 0.65, microseconds)
    outcome.notes += processes.missing.values()
    outcome.notes.append(
        "cold: before each call every core reads a buffer three times the last cache's size"
    )
    return outcome
