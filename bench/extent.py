"""A run of 1 of 128 rows beside the full one and beside the graph compiled for 1; setting it."""

from __future__ import annotations

from itertools import cycle, islice, pairwise
from statistics import median
from time import perf_counter_ns
from typing import Any

import numpy as np

import fastgraph as fg
from bench.outcome import Goal, Outcome, microseconds
from bench.rounds import FULL, Effort

__all__ = ["main"]

UPPER = 128
WIDTHS = (768, 3072, 768)
SHARE = 0.1
SETS = 200


def layers(rows: int) -> fg.Graph:
    """Two matrix products with what stands between them."""
    g = fg.Graph("layers")
    x = g.input("x", (rows, WIDTHS[0]))
    for i, (k, n) in enumerate(pairwise(WIDTHS)):
        x = fg.ops.gelu(x @ g.param(f"w{i}", (k, n)) + g.param(f"b{i}", (n,)))
    g.output(x, "y")
    return g


def stack(rows: int) -> fg.Graph:
    """Twelve layers of 64 columns: many nodes, of which sizes have to be set."""
    g = fg.Graph("stack")
    x = g.input("x", (rows, 64))
    for i in range(12):
        h = fg.ops.gelu(fg.ops.layer_norm(x) @ g.param(f"u{i}", (64, 128)))
        x = x + h @ g.param(f"d{i}", (128, 64))
    g.output(x, "y")
    return g


def ready(graph: fg.Graph, threads: int) -> Any:
    """A model with parameters that are not degenerate."""
    model = fg.Session("cpu", threads=threads).compile(graph)
    rng = np.random.default_rng(0)
    for info in model.params:
        scale = 1 / np.sqrt(info.shape[0])
        model.set_param(info.name, (rng.standard_normal(info.shape) * scale).astype("f4"))
    return model


def timed(work: Any, budget: float) -> float:
    """The median time of a call in microseconds, over about `budget` seconds."""
    samples: list[int] = []
    end = perf_counter_ns() + int(budget * 1e9)
    while not samples or perf_counter_ns() < end:
        start = perf_counter_ns()
        work()
        samples.append(perf_counter_ns() - start)
    return median(samples) / 1e3


def one_of_many(effort: Effort, threads: int, outcome: Outcome) -> None:
    """Time runs with and without the extent, in turn."""
    model, exact = ready(layers(UPPER), threads), ready(layers(1), threads)
    x = np.random.default_rng(1).standard_normal((UPPER, WIDTHS[0])).astype("f4")
    one = np.ascontiguousarray(x[:1])
    model.set_active_extent((1, UPPER))
    correct = np.allclose(model.run({"x": x})[0], exact.run({"x": one})[0], atol=1e-4)
    times: dict[str, list[float]] = {"full": [], "1 row": [], "compiled for 1": []}
    for _ in range(effort.rounds):
        model.set_active_extent(None)
        times["full"].append(timed(lambda: model.run_slots([x]), effort.budget))
        model.set_active_extent((1, UPPER))
        times["1 row"].append(timed(lambda: model.run_slots([x]), effort.budget))
        times["compiled for 1"].append(timed(lambda: exact.run_slots([one]), effort.budget))
    full, few, small = (median(taken) for taken in times.values())
    what = f"{UPPER}×{'×'.join(map(str, WIDTHS))}"
    outcome.cells.append(
        [what, str(threads), *(microseconds(t) for t in (full, few, small)), f"{few / full:.3f}"]
    )
    outcome.rows.append({"what": what, "threads": threads, **times, "correct": bool(correct)})
    outcome.failed = outcome.failed or not correct
    outcome.goals.append(Goal(f"{what}, {threads} threads: 1 row / full", SHARE, few / full))


def setting(effort: Effort, outcome: Outcome) -> None:
    """Time `set_active_extent` with another extent in each call."""
    model = ready(stack(UPPER), 1)
    extents = list(islice(cycle([(n, UPPER) for n in range(1, UPPER + 1)]), SETS))

    def work() -> None:
        for extent in extents:
            model.set_active_extent(extent)

    taken = [timed(work, effort.budget) / SETS for _ in range(effort.rounds)]
    nodes = len(model.graph.nodes)
    outcome.rows.append({"what": "set_active_extent", "nodes": nodes, "taken": taken,
                         "correct": True})  # fmt: skip
    outcome.notes.append(
        f"set_active_extent, another extent in each call, {nodes} nodes: "
        f"{microseconds(median(taken))} µs"
    )


def main(effort: Effort = FULL) -> Outcome:
    """Measure on one thread and on two."""
    outcome = Outcome(
        "extent",
        "Active extents (µs)",
        ["rows × layers", "threads", "full", "1 row", "compiled for 1", "1 row / full"],
    )
    for threads in (1, 2):
        one_of_many(effort, threads, outcome)
    setting(effort, outcome)
    return outcome
