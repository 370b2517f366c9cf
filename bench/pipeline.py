"""Many runs of one model: in a loop, handed in all at once, and beside work of the caller's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import numpy as np

import fastgraph as fg
from bench.outcome import Goal, Outcome, microseconds
from bench.rounds import FULL, Effort, WrongResult

__all__ = ["main"]

Array = np.ndarray[Any, Any]
Outputs = list[tuple[Array, ...]]

SETS = 256
# Width of the layers: a run of microseconds, one of a hundred, one of a millisecond.
WIDTHS = (16, 96, 224)


class Work:
    """A model of three layers, inputs for many runs, and NumPy's work before each."""

    def __init__(self, width: int, sets: int) -> None:
        graph = fg.Graph("layers")
        x, w = graph.input("x", (width, width)), graph.param("w", (width, width))
        graph.output(fg.ops.tanh(fg.ops.tanh(x @ w) @ w) @ w, "y")
        self.model = fg.Session("cpu", threads=1).compile(graph)
        random = np.random.default_rng(3)
        self.w = (random.standard_normal((width, width)) / np.sqrt(width)).astype("f4")
        self.model.set_param("w", self.w)
        self.sets = [
            {"x": random.standard_normal((width, width)).astype("f4")} for _ in range(sets)
        ]
        self.turns = 1

    def expected(self) -> list[Array]:
        """What the runs give, in float64."""
        w = self.w.astype("f8")
        return [np.tanh(np.tanh(one["x"] @ w) @ w) @ w for one in self.sets]

    def made(self) -> Iterator[dict[str, Array]]:
        """The sets, each after about as much work as a run."""
        for one in self.sets:
            x = one["x"]
            for _ in range(self.turns):
                np.sin(x)
            yield one

    def balance(self) -> None:
        """Let the work before a set take as long as a run."""
        run = shortest(lambda: [self.model.run(one) for one in self.sets])
        self.turns = 1
        once = shortest(lambda: [() for _ in self.made()])
        self.turns = max(1, round(run / once))


WAYS: dict[str, tuple[Callable[[Work], Outputs], str | None]] = {
    "run in a loop": (lambda work: [work.model.run(one) for one in work.sets], None),
    "run_pipelined": (lambda work: work.model.run_pipelined(work.sets), "run in a loop"),
    "run in a loop, sets being made": (
        lambda work: [work.model.run(one) for one in work.made()],
        None,
    ),
    "pipeline, sets being made": (
        lambda work: list(work.model.pipeline(work.made())),
        "run in a loop, sets being made",
    ),
}


def main(effort: Effort = FULL) -> Outcome:
    """Compare sets a second of the ways to do many runs, in rounds in turn."""
    outcome = Outcome(
        "pipeline",
        f"{SETS} runs of three layers, one thread for a run",
        ["runs", "width", "p50 µs a run", "against the loop", "10 % … 90 %"],
        left=1,
    )
    sets = SETS if not effort.quick else 32
    for width in WIDTHS:
        work = Work(width, sets)
        check(work)
        work.balance()
        taken: dict[str, list[float]] = {name: [] for name in WAYS}
        for _ in range(effort.rounds):
            for name, (way, _) in WAYS.items():
                start = perf_counter()
                way(work)
                taken[name].append((perf_counter() - start) / sets * 1e6)
        for name, (_, base) in WAYS.items():
            p50 = float(np.median(taken[name]))
            cells = [name, str(width), microseconds(p50), "", ""]
            row = {"what": name, "width": width, "p50_us": p50, "correct": True}
            if base is not None:
                gains = np.divide(taken[base], taken[name])
                low, gain, high = np.percentile(gains, (10, 50, 90))
                cells[3:] = [f"{gain:.2f}", f"{low:.2f} … {high:.2f}"]
                row["gain"] = float(gain)
                limit = 1.0 if name == "run_pipelined" else 1.2
                if name == "run_pipelined" or width > WIDTHS[0]:
                    goal = f"{name}, width {width}, over the loop"
                    outcome.goals.append(Goal(goal, limit, float(gain), least=True))
            outcome.cells.append(cells)
            outcome.rows.append(row)
        work.model.close()
    outcome.notes.append(
        "sets being made: NumPy works as long before each as a run takes; short runs are done in "
        "the call, so nothing of theirs is hidden"
    )
    return outcome


def check(work: Work) -> None:
    """Every way gives the same bits, and the right ones."""
    first = None
    for name, (way, _) in WAYS.items():
        found = way(work)
        bits = [y.tobytes() for (y,) in found]
        if first is None:
            first = bits
            for (y,), expected in zip(found, work.expected(), strict=True):
                if not np.allclose(y, expected, rtol=1e-4, atol=1e-5):
                    raise WrongResult(f"{name} computes something else")
        if bits != first:
            raise WrongResult(f"{name} gives other bits than run")


def shortest(call: Callable[[], object]) -> float:
    """Seconds of the shortest of some calls."""
    taken = []
    for _ in range(5):
        start = perf_counter()
        call()
        taken.append(perf_counter() - start)
    return min(taken)
