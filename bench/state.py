"""What state costs: handles in the place of inputs, feeds that copy and feeds that need not."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import numpy as np

import fastgraph as fg
from bench.outcome import Goal, Outcome, microseconds
from bench.rounds import FULL, Effort, WrongResult

__all__ = ["main"]

SMALL, LARGE, ROWS = 16, 1 << 18, 64
SECONDS = 0.01  # of one way in one round

Call = Callable[[], object]


def accumulator(n: int) -> fg.CompiledGraph:
    """A sum: the state and what is added to it."""
    g = fg.Graph("accumulator")
    g.output(g.input("acc", (n,)) + g.input("delta", (n,)), "next")
    return fg.Session("cpu", threads=1).compile(g)


def appender(fed: bool) -> Call:
    """A row of a cache a run, with the feed or without it."""
    g = fg.Graph("appender")
    g.input("cache", (ROWS, SMALL))
    g.output(g.input("new", (1, SMALL)) * 2.0, "row")
    g.scalar("pos", "int64")
    model = fg.Session("cpu", threads=1).compile(g)
    model.bind_handle("cache", np.zeros((ROWS, SMALL), "f4"))
    if fed:
        model.set_gpu_handle_feed("cache", "row", at="pos")
    new = [None, np.ones((1, SMALL), "f4")]
    return lambda: model.run_slots(new, pos=7)


def sums(n: int) -> dict[str, Call]:
    """The same sum with more and more state."""
    one = np.ones(n, "f4")
    found: dict[str, Call] = {}
    for name in ("given", "handles", "fed in place", "fed by copy"):
        model = accumulator(n)
        arrays: list[Any] = [one, one]
        if name != "given":
            # One buffer for both: then the sum is not computed where it lies.
            held = model.context.to_device(np.zeros(n, "f4"))
            model.bind_handle("acc", held)
            model.bind_handle("delta", held if name == "fed by copy" else one)
            arrays = [None, None]
        if name.startswith("fed"):
            model.set_gpu_handle_feed("acc", "next")
        found[name] = lambda model=model, arrays=arrays: model.run_slots(arrays)
    return found


def check() -> None:
    """A thousand steps give what a thousand sums give."""
    model = accumulator(SMALL)
    model.bind_handle("acc", np.zeros(SMALL, "f4"))
    model.bind_handle("delta", np.ones(SMALL, "f4"))
    model.set_gpu_handle_feed("acc", "next")
    for _ in range(1000):
        model.run_slots([])
    if set(model.read_handle("acc").tolist()) != {1000.0}:
        raise WrongResult("a fed state is not the sum of its steps")


def nanoseconds(call: Call, count: int) -> float:
    """Of one call, of `count`."""
    start = perf_counter_ns()
    for _ in range(count):
        call()
    return (perf_counter_ns() - start) / count


def main(effort: Effort = FULL) -> Outcome:
    """Time run_slots of the same sum with more and more state, in turn."""
    check()
    outcome = Outcome(
        "state",
        "State between runs, cpu, 1 thread, f32: run_slots",
        ["case", "state", "p50 µs", "µs more", "10 % … 90 %"],
        left=2,
    )
    source, target = np.zeros(LARGE, "f4"), np.zeros(LARGE, "f4")
    cases = {
        f"sum of {SMALL}": sums(SMALL),
        f"sum of {LARGE}": {**sums(LARGE), "NumPy's copy": lambda: np.copyto(target, source)},
        f"a row of {SMALL}": {"no feed": appender(False), "fed at a scalar": appender(True)},
    }
    more: dict[tuple[str, str], float] = {}
    for case, calls in cases.items():
        first = next(iter(calls))
        count = max(1, int(SECONDS * 1e9 * effort.scale / nanoseconds(calls[first], 20)))
        taken: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(effort.rounds):
            for name, call in calls.items():
                taken[name].append(nanoseconds(call, count) / 1e3)
        for name, us in taken.items():
            low, middle, high = np.percentile(np.array(us) - taken[first], [10, 50, 90])
            p50 = float(np.median(us))
            more[case, name] = p50 if name == "NumPy's copy" else float(middle)
            cells = [case, name, microseconds(p50), f"{middle:+.3f}", f"{low:+.3f} … {high:+.3f}"]
            outcome.cells.append(cells)
            outcome.rows.append(
                {"case": case, "state": name, "p50_us": p50, "more_us": middle, "correct": True}
            )
    small, large, row = cases
    outcome.goals += [
        Goal("handles more than arrays that are given, in µs", 0, more[small, "handles"]),
        Goal("a feed in place more than handles, in µs", 0.2,
             more[small, "fed in place"] - more[small, "handles"]),
        Goal("a feed by copy more than handles, in µs", 0.2,
             more[small, "fed by copy"] - more[small, "handles"]),
        Goal("a feed of a row more than none, in µs", 0.2, more[row, "fed at a scalar"]),
        Goal(f"a feed of {LARGE} by copy over NumPy's copy", 1.2,
             (more[large, "fed by copy"] - more[large, "handles"]) / more[large, "NumPy's copy"]),
    ]  # fmt: skip
    outcome.notes.append("µs more: the difference to the first way of a case in the same round")
    return outcome
