"""From ONNX bytes to the first result: fastgraph against an ONNX Runtime session."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import numpy as np
import onnx

from bench.onnx_models import chain_model, layers_model
from bench.outcome import Goal, Outcome
from bench.rounds import FULL, Effort, Processes, WrongResult, digits
from bench.workloads import Layers

__all__ = ["main"]

Array = np.ndarray[Any, Any]

PEERS = ("fastgraph", "ONNX Runtime")
MLP = Layers(1, (784, 512, 512, 10), True, 2)

# A case whose rounds take longer than this is given fewer of them, and says so.
CASE_SECONDS = 40.0
FEWEST_ROUNDS = 3


def digits_model() -> tuple[bytes, Array]:
    """The digit classifier of the package for one image, and an image."""
    model = onnx.load_from_string((files("fastgraph") / "data" / "digits.onnx").read_bytes())
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 1
    model.graph.output[0].name, renamed = "y", model.graph.output[0].name
    model.graph.input[0].name, fed = "x", model.graph.input[0].name
    for node in model.graph.node:
        node.input[:] = ["x" if name == fed else name for name in node.input]
        node.output[:] = ["y" if name == renamed else name for name in node.output]
    image = np.random.default_rng(3).integers(0, 17, (1, 64)).astype("f4")
    return model.SerializeToString(), image


def chain(n_nodes: int) -> tuple[bytes, Array]:
    """A chain of nodes that do not fuse, and its input."""
    return chain_model(n_nodes), np.random.default_rng(4).standard_normal((1, 16)).astype("f4")


CASES: dict[str, Callable[[], tuple[bytes, Array]]] = {
    "MLP 784-512-512-10": lambda: (layers_model(MLP), MLP.inputs(0)[0]),
    "digits": digits_model,
    "chain of 1,000 nodes": lambda: chain(1_000),
    "chain of 10,000 nodes": lambda: chain(10_000),
}


def main(effort: Effort = FULL) -> Outcome:
    """Time every case in turns."""
    outcome = Outcome(
        "compile",
        "From ONNX bytes to the first result, one thread, ms",
        ["model", "fastgraph p50", "p99", "ONNX Runtime p50", "p99", "ratio", "rounds"],
    )
    with Processes(1, PEERS) as processes:
        for case, make in CASES.items():
            model, x = make()
            seconds: dict[str, list[float]] = {peer: [] for peer in PEERS if peer in processes}
            rounds = effort.rounds
            number = 0
            while number < rounds:
                results = {}
                for peer in seconds:
                    taken, results[peer] = processes[peer]("seconds", "compile_model", model, x, 1)
                    # The first one also loads what the library loads late.
                    if number or rounds == 1:
                        seconds[peer].append(taken)
                    elif taken * len(seconds) * rounds > CASE_SECONDS * effort.scale:
                        fitting = CASE_SECONDS * effort.scale / (taken * len(seconds))
                        rounds = max(FEWEST_ROUNDS, min(rounds, int(fitting)))
                _check(case, results)
                number += 1
            _report(outcome, case, seconds)
    outcome.notes += processes.missing.values()
    outcome.notes.append("both read the bytes, compile, and run once; the results agree")
    return outcome


def _check(case: str, results: dict[str, Array]) -> None:
    first, *others = results.values()
    for other in others:
        if not np.allclose(first, other, rtol=1e-4, atol=1e-5):
            raise WrongResult(f"{case}: the results differ by {np.abs(first - other).max():.3g}")


def _report(outcome: Outcome, case: str, seconds: dict[str, list[float]]) -> None:
    cells = [case]
    for peer in PEERS:
        if peer not in seconds:
            cells += ["–", "–"]
            continue
        p50, p99 = (float(np.percentile(seconds[peer], p)) * 1e3 for p in (50, 99))
        cells += [f"{p50:.2f}", f"{p99:.2f}"]
        outcome.rows.append(
            {
                "case": case,
                "contender": peer,
                "p50_us": digits(p50 * 1e3),
                "p99_us": digits(p99 * 1e3),
                "rounds": len(seconds[peer]),
                "round_p50_us": [digits(s * 1e6) for s in seconds[peer]],
                "correct": True,
            }
        )
    ratio = None
    if len(seconds) == len(PEERS):
        ours, theirs = (np.array(seconds[peer]) for peer in PEERS)
        ratio = float(np.median(ours / theirs))
        outcome.goals.append(Goal(f"{case}: compile over ONNX Runtime's session", 1, ratio))
    cells += ["–" if ratio is None else f"{ratio:.2f}", str(len(seconds[PEERS[0]]))]
    outcome.cells.append(cells)
