"""Matrix products with and without bias and GELU, called through Python like the peers."""

from __future__ import annotations

from bench.mlp import entries_of
from bench.outcome import Goal, Outcome, microseconds
from bench.rounds import FULL, Effort, Processes, compare
from bench.versus import peers_of, thread_counts
from bench.workloads import Layers

__all__ = ["SHAPES", "main"]

# Rows, inputs, outputs.
SHAPES = [
    (1, 384, 384),
    (1, 784, 512),
    (16, 384, 384),
    (128, 384, 1536),
    (512, 512, 512),
    (1, 512, 10),
    (1, 512, 100),
    (1, 512, 1000),
    (16, 512, 10),
    (16, 512, 100),
    (16, 512, 1000),
    (1, 3072, 768),
    (16, 3072, 768),
    (128, 3072, 768),
]

PEERS = ("fastgraph", "ONNX Runtime", "NumPy", "OpenVINO")

# The peers that no shape may lose to.
MEASURED_AGAINST = ("ONNX Runtime", "NumPy")

HEAD = ["rows × K × N", "epilogue", "", "threads", "fastgraph", "p99", "ONNX Runtime", "NumPy"]
HEAD += ["OpenVINO", "ratio", "verdict"]

# A tie: the spread of two runs of the same thing on a quiet machine.
TIE = 1.02


def main(effort: Effort = FULL) -> Outcome:
    """Compare every shape with every installed peer."""
    outcome = Outcome(
        "matmul",
        "x @ w in float32, hot (and cold where one row makes it a walk through the weights); µs",
        HEAD,
        left=3,
    )
    worst, slower = 0.0, []
    for threads in thread_counts(outcome):
        with Processes(threads, PEERS) as processes:
            for rows, k, n in SHAPES:
                for fused, cold in ((False, False), (True, False), (True, True)):
                    if cold and rows > 1:
                        continue
                    layers = Layers(rows, (k, n), fused, int(fused))
                    case = f"{rows} × {k} × {n}"
                    epilogue = "bias, GELU" if fused else "none"
                    entries = [
                        e for e in entries_of(layers, threads) if not e.label.endswith("step")
                    ]
                    timings = compare(
                        processes, entries, layers.inputs, layers.reference, effort, cold=cold
                    )
                    own = timings["fastgraph run_slots"]
                    best = {}
                    for timing in peers_of(timings).values():
                        peer = timing.entry.peer
                        if peer not in best or timing.p50 < best[peer].p50:
                            best[peer] = timing
                    rivals = [best[peer] for peer in MEASURED_AGAINST if peer in best]
                    ratio = max(own.ratio(rival)[0] for rival in rivals)
                    verdict = "faster" if ratio < 1 / TIE else "even" if ratio <= TIE else "SLOWER"
                    where = [case, epilogue, "cold" if cold else "hot", str(threads)]
                    if verdict == "SLOWER":
                        slower.append(", ".join(where))
                    worst = max(worst, ratio)
                    outcome.cells.append(
                        [*where, microseconds(own.p50), microseconds(own.p99)]
                        + [
                            microseconds(best[peer].p50) if peer in best else "–"
                            for peer in (*MEASURED_AGAINST, "OpenVINO")
                        ]
                        + [f"{ratio:.2f}", verdict]
                    )
                    name = f"{case}, {epilogue}, {where[2]}, threads {threads}"
                    outcome.rows += [timing.row(name) for timing in timings.values()]
    outcome.goals.append(Goal("largest time over the better of ONNX Runtime and NumPy", TIE, worst))
    outcome.notes += processes.missing.values()
    outcome.notes.append("ratio: against the better of ONNX Runtime and NumPy, round by round")
    outcome.notes += [f"slower: {case} threads" for case in slower]
    return outcome
