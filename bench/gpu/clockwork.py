"""Timing of calls that take a microsecond: ways of doing the same, in turn, in one process."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from time import perf_counter_ns
from typing import Any

import numpy as np

from bench.gpu.native import say

__all__ = ["Series", "Way", "in_turn", "loop", "nothing"]

LOOP = """
def timed(samples, before, after, {names}):
    taken = []
    for _ in repeat(None, samples):
        before()
        start = clock()
        {lines}
        taken.append(clock() - start)
        after()
    return taken
"""


def nothing() -> None:
    """What is done before or after a call where nothing has to be."""


def loop(
    line: str,
    names: Mapping[str, Any],
    *,
    before: Callable[[], object] = nothing,
    after: Callable[[], object] = nothing,
    together: int = 1,
) -> Callable[[int], list[float]]:
    """A function that runs `line` so many times and returns the microseconds of each.

    `line` is what a user would write, over `names`. `together` of it are timed as one; each gets
    its share. `before` and `after` are not timed.
    """
    scope: dict[str, Any] = {"clock": perf_counter_ns, "repeat": repeat}
    lines = "\n        ".join([line] * together)
    exec(LOOP.format(names=", ".join(names), lines=lines), scope)
    timed = scope["timed"]

    def run(samples: int) -> list[float]:
        taken = timed(samples, before, after, **names)
        return [nanoseconds / 1e3 / together for nanoseconds in taken]

    return run


@dataclass
class Way:
    """One way to do a piece of work.

    Attributes
    ----------
    run : callable
        Takes a number of samples, returns the microseconds of each.
    check : callable
        Raises where the latest run computed something else than it should.
    clock : float
        Microseconds of each sample that are the clock's own.
    """

    run: Callable[[int], list[float]]
    check: Callable[[], object] = nothing
    clock: float = 0.0


@dataclass
class Series:
    """Times of one way in microseconds, round by round, without those of the clock itself."""

    rounds: list[list[float]] = field(default_factory=list)

    def at(self, percent: float) -> float:
        """A percentile over all samples."""
        return float(np.percentile(np.concatenate(self.rounds), percent))

    @property
    def medians(self) -> np.ndarray[Any, Any]:
        """The median of every round."""
        return np.array([np.median(taken) for taken in self.rounds])

    def report(self, name: str, note: str = "") -> None:
        """Print the median and the 99th percentile."""
        say(f"{name} p50", self.at(50), "us", note=note)
        say(f"{name} p99", self.at(99), "us", note=note)

    def over(self, other: Series, name: str) -> None:
        """Print these times over `other`'s, round by round."""
        _spread(name, self.medians / other.medians, "ratio")

    def minus(self, other: Series, name: str) -> None:
        """Print these times less `other`'s, round by round."""
        _spread(name, self.medians - other.medians, "us")


def _spread(name: str, values: np.ndarray[Any, Any], unit: str) -> None:
    low, middle, high = np.percentile(values, [10, 50, 90])
    say(name, middle, unit, note=f"{len(values)} rounds, {low:.3g} to {high:.3g}")


def in_turn(
    ways: Mapping[str, Way],
    rounds: int,
    samples: int,
    prepare: Callable[[int], object] = lambda number: None,
) -> dict[str, Series]:
    """Run the ways in turn within each round; everybody is first as often as anybody else.

    `prepare` is called before each way of a round with the round's number. A warm-up comes first.
    """
    series = {name: Series() for name in ways}
    order = list(ways.items())
    for way in ways.values():
        prepare(0)
        way.run(3)
        way.check()
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            start = number % len(order)
            for name, way in order[start:] + order[:start]:
                prepare(number)
                series[name].rounds.append([taken - way.clock for taken in way.run(samples)])
                way.check()
    finally:
        gc.enable()
    return series
