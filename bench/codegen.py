"""Guards the generated code: the matmul tile against the multiply-add peak measured beside it."""

from __future__ import annotations

import ctypes
from time import perf_counter_ns
from typing import Any

import numpy as np

import fastgraph as fg
from bench.contenders.own import layers_graph
from bench.native import compiled
from bench.outcome import Goal, Outcome
from bench.rounds import FULL, Effort, WrongResult, digits
from bench.workloads import Layers
from fastgraph._core import isa

__all__ = ["main"]

# Rows a multiple of 6 and outputs of 16, so that all work is full tiles; all fits the second cache.
TILES = Layers(192, (256, 192), False, 0)
REPEATS = 20

# An array of accumulators, instead of named ones, costs three times: far below this.
LEAST = {"x86-64-v2": 0.55, "x86-64-v3": 0.70, "x86-64-v4": 0.60, "neon": 0.55}
PEAK_TURNS = 200_000


def main(effort: Effort = FULL) -> Outcome:
    """Time tile and peak in turns, in one process and on one core."""
    outcome = Outcome(
        "codegen",
        "The matmul tile against the peak of one core",
        ["code", "GFLOP/s", "10 % … 90 %"],
    )
    chosen = isa.chosen()
    peak_of = compiled([f"-march={chosen}"] if chosen.startswith("x86") else []).fma_peak
    graph, params = layers_graph(TILES)
    model = fg.Session("cpu", threads=1).compile(graph)
    model.set_params(params)
    inputs = TILES.inputs(0)
    sink = np.ones(1, np.float32)
    operations = 2 * TILES.rows * TILES.sizes[0] * TILES.sizes[1]
    tile, peak = [], []
    model.run_slots(inputs)
    if not np.allclose(model.output_view(0), TILES.reference(inputs), atol=1e-4):
        raise WrongResult("the tile multiplies wrongly")
    for _ in range(effort.rounds):
        peak.append(peak_of(sink.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(PEAK_TURNS)))
        tile.append(max(_rate(model, inputs, operations) for _ in range(REPEATS)))
    for label, rates in (
        (f"multiply-adds on twelve registers, {chosen}", peak),
        (f"{TILES.rows} × {TILES.sizes[0]} × {TILES.sizes[1]} by run_slots", tile),
    ):
        low, middle, high = np.percentile(rates, [10, 50, 90])
        outcome.cells.append([label, f"{middle:.1f}", f"{low:.1f} … {high:.1f}"])
        outcome.rows.append(
            {
                "case": "tile",
                "contender": label,
                "gflops": [digits(rate) for rate in rates],
                "correct": True,
            }
        )
    # The better half: what the code can do, not what else the machine did.
    share = float(np.percentile(tile, 75) / np.percentile(peak, 75))
    outcome.goals.append(Goal("share of the peak", LEAST[chosen], share, least=True))
    outcome.failed = not outcome.goals[0].met
    return outcome


def _rate(model: fg.CompiledGraph, inputs: list[np.ndarray[Any, Any]], operations: int) -> float:
    start = perf_counter_ns()
    model.run_slots(inputs)
    return operations / (perf_counter_ns() - start)
