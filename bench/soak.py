"""Ten thousand compiles, a million runs, a million graphs: memory stays where it was."""

from __future__ import annotations

import argparse
import copy
import gc
import sys
from time import perf_counter

import numpy as np

import fastgraph as fg
from bench import graph_soak
from bench.contenders.own import layers_graph
from bench.machine import resident_bytes
from bench.outcome import Goal, Outcome, text
from bench.rounds import FULL, QUICK, Effort, WrongResult
from bench.workloads import Layers
from fastgraph._core import counters

__all__ = ["main", "soak"]

LAYERS = Layers(1, (32, 48, 10), True, 1)
COMPILES, RUNS = 10_000, 1_000_000
SHORT_COMPILES, SHORT_RUNS = 300, 30_000

# Graphs of a cache with room for a tenth of them, and threads that run one of them.
CREATES, THREADS, THREAD_RUNS = 1_000_000, 16, 10_000
SHORT_CREATES, SHORT_THREAD_RUNS = 2_000, 100

# Memory that the allocator keeps at hand, and that a first use takes for good.
SLACK_BYTES = 2 << 20


class Work:
    """A model that is compiled and run in every way, with results that are checked."""

    def __init__(self) -> None:
        self.graph, self.params = layers_graph(LAYERS)
        self.session = fg.Session("cpu", threads=2)
        self.x = LAYERS.inputs(0)[0]
        self.expected = LAYERS.reference([self.x])

    def compiled(self) -> fg.CompiledGraph:
        """A model with its parameters set."""
        model = self.session.compile(self.graph)
        model.set_params(self.params)
        return model

    def compile_once(self, number: int) -> None:
        """Compile, sometimes clone, run, sometimes close nothing and just drop it."""
        model = self.compiled()
        if number % 4 == 0:
            model = copy.deepcopy(model)
        if number % 16 == 0:
            self.check(model.run({"x": self.x})[0])

    def run_many(self, model: fg.CompiledGraph, runs: int) -> None:
        """Run in every way in turn, parameters set anew now and then."""
        y = np.empty((1, 10), np.float32)
        named, positional, out = {"x": self.x}, [self.x], [y]
        step = model.bind(named, {"y": y})
        for number in range(runs // 10):
            for _ in range(5):
                model.run_slots(positional)
            step()
            step()
            model.run(named)
            model.run(named, out=out)
            model.run_raw(named)
            if number % 1000 == 0:
                self.check(y)
                model.set_params(self.params)
                try:
                    model.run_slots([self.x[:, 1:]])
                except fg.InputError:
                    continue
                raise WrongResult("a wrong shape was taken")

    def check(self, found: np.ndarray) -> None:
        """Compare with the reference."""
        if not np.allclose(found, self.expected, atol=1e-4):
            raise WrongResult("the model computes something else than at first")


def soak(compiles: int, runs: int, creates: int, thread_runs: int) -> Outcome:
    """Do all so often; look at memory and counters before, on the way and at the end."""
    outcome = Outcome(
        "soak",
        f"{compiles:,} compiles, {runs:,} runs, {creates:,} creates of device graphs, "
        f"{THREADS} threads with {thread_runs:,} runs each",
        ["after", "resident bytes", "live objects", "bytes in blocks", "seconds"],
    )
    work, ctx = Work(), fg.DeviceContext("cpu")
    model = work.compiled()
    # A first round of everything takes what stays for good.
    for number in range(max(64, compiles // 20)):
        work.compile_once(number)
    work.run_many(model, max(1000, runs // 100))
    warm = max(1000, creates // 100)
    graph_soak.create_many(ctx, graph_soak.uniform(warm), warm)
    graph_soak.run_from_threads(ctx, THREADS, max(10, thread_runs // 100))
    started = perf_counter()
    states: list[tuple[int, int, int]] = []

    def look(label: str) -> None:
        gc.collect()
        live = counters.snapshot()
        n_bytes = live.pop("block_bytes")
        states.append((resident_bytes(), sum(live.values()), n_bytes))
        cells = [f"{value:,}" for value in states[-1]]
        outcome.cells.append([label, *cells, f"{perf_counter() - started:.1f}"])
        outcome.rows.append(
            {
                "case": label,
                "resident": states[-1][0],
                "live": states[-1][1],
                "block_bytes": n_bytes,
                "correct": True,
            }
        )

    look("a warm-up")
    for part in range(4):
        for number in range(compiles // 4):
            work.compile_once(number)
        look(f"{compiles // 4 * (part + 1):,} compiles")
    for part in range(4):
        work.run_many(model, runs // 4)
        look(f"{runs // 4 * (part + 1):,} runs")
    # Creates reach a plateau of their own, which is held against what comes behind it.
    before = states[-1]
    plateau, stats = graph_soak.create_many(ctx, graph_soak.uniform(creates), creates)
    look(f"{creates:,} creates over 1,000 keys, room for {graph_soak.ROOM}")
    created = states[-1]
    done = graph_soak.run_from_threads(ctx, THREADS, thread_runs)
    look(f"{THREADS} × {done // THREADS:,} runs of one cached graph")
    first, last = states[0], states[-1]
    outcome.goals += [
        Goal("resident bytes more than at first", SLACK_BYTES, max(0, before[0] - first[0])),
        Goal("live objects more than at first", 0, last[1] - first[1]),
        Goal("bytes in blocks more than at first", 0, last[2] - first[2]),
        Goal("resident bytes more during the creates", SLACK_BYTES, plateau.growth("resident")),
        Goal("live objects more during the creates", 0, plateau.growth("live")),
        Goal("resident bytes more during the threads", SLACK_BYTES, max(0, last[0] - created[0])),
        Goal("graphs alive in the cache", graph_soak.ROOM, stats.live_graphs),
        Goal("runs of the threads", THREADS * thread_runs, done, least=True),
    ]
    outcome.notes.append(
        f"the cache: {stats.hits:,} hits, {stats.builds:,} builds, {stats.evictions:,} evictions"
    )
    outcome.failed = not all(goal.met for goal in outcome.goals)
    return outcome


def main(effort: Effort = FULL) -> Outcome:
    """The long form, or the short one for a quick look."""
    if effort.quick:
        return soak(SHORT_COMPILES, SHORT_RUNS, SHORT_CREATES, SHORT_THREAD_RUNS)
    return soak(COMPILES, RUNS, CREATES, THREAD_RUNS)


def command() -> int:
    """Run from a shell; the exit status tells whether something grew."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a form of a few seconds")
    outcome = main(QUICK if parser.parse_args().short else FULL)
    print(text(outcome.record()))
    return int(outcome.failed)


if __name__ == "__main__":
    sys.exit(command())
