"""What benchmarks of whole models have in common: rows of ours beside those of the peers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from bench.outcome import Goal, Outcome
from bench.rounds import Timing

__all__ = ["add_case", "head", "peers_of", "thread_counts"]

OWN = "fastgraph"


def head(unit: str) -> list[str]:
    """The columns that `add_case` fills."""
    return ["case", "call", f"p50 {unit}", f"p99 {unit}", "against the best peer", "10 % … 90 %"]


def thread_counts(outcome: Outcome) -> Iterator[int]:
    """One and two threads, as far as there are cores; a note tells of what is left out."""
    for threads in (1, 2):
        if threads > len(os.sched_getaffinity(0)):
            outcome.notes.append(f"{threads} threads: not that many cores")
        else:
            yield threads


def peers_of(timings: dict[str, Timing]) -> dict[str, Timing]:
    """The timings that are not ours."""
    return {k: t for k, t in timings.items() if t.entry.peer != OWN}


def add_case(
    outcome: Outcome,
    case: str,
    timings: dict[str, Timing],
    limit: float,
    written: Callable[[float], str],
    *,
    label: str = f"{OWN} run_slots",
    goal: str = "run_slots over the best peer ({peer})",
) -> None:
    """Add a row for each timing, and the goal for ours called `label` over the best peer.

    `written` writes microseconds; `goal` says what has the limit, ``{peer}`` in it who is best.
    """
    best = min(peers_of(timings).values(), key=lambda timing: timing.p50)
    for name, timing in timings.items():
        middle, low, high = timing.ratio(best)
        cells = [case, name, written(timing.p50), written(timing.p99)]
        outcome.cells.append([*cells, f"{middle:.2f}", f"{low:.2f} … {high:.2f}"])
        outcome.rows.append(timing.row(case))
    what = f"{case}: {goal.format(peer=best.entry.label)}"
    outcome.goals.append(Goal(what, limit, timings[label].ratio(best)[0]))
