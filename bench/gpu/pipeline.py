"""``python -m bench.gpu.pipeline``: many runs in flight, beside the slowest of their parts.

A set of inputs is copied to pinned memory and its outputs from there by the host, both go over the
bus, and the device computes. Each of these is timed alone; `run_pipelined` should be as fast as the
slowest of them, a loop of `run` is as slow as all together. The device's own clock tells how much
of several runs goes on at once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

import fastgraph as fg
from bench.gpu.native import environment, gpu_problem
from bench.gpu.operator_cases import numbers, relative
from bench.gpu.operators import Clock
from bench.outcome import Goal, verdict
from fastgraph._core.pool import copy

__all__ = ["CASES", "Case", "goals", "main", "measure"]

SETS, ROUNDS = 256, 5
OF_SLOWEST, OVER_LOOP = 0.95, 1.5
TOLERANCE = 2e-2  # relative to the largest element

Line = dict[str, Any]


class Case(NamedTuple):
    """A chain of products in float16: rows of x, their width, and how many products.

    With products the result is the mean over the rows: large outputs would be new memory for each
    set, and what pages of that cost the host would be all that is seen.
    """

    name: str
    rows: int
    width: int
    layers: int
    over_loop: float | None = None  # what is promised

    def build(self) -> fg.Graph:
        """The graph."""
        g = fg.Graph("chain")
        y = g.input("x", (self.rows, self.width), "float16")
        if not self.layers:
            y = y * 2.0 + 1.0
        for i in range(self.layers):
            y = fg.ops.tanh(y @ g.param(f"w{i}", (self.width, self.width), "float16"))
        g.output(fg.ops.mean(y, axis=0) if self.layers else y, "y")
        return g

    def weights(self) -> dict[str, Any]:
        """So small that no error grows."""
        shape, size = (self.width, self.width), self.width**-0.5
        return {f"w{i}": numbers(shape, "float16", size, i) for i in range(self.layers)}

    def wanted(self, x: Any, weights: dict[str, Any]) -> Any:
        """The result in float32."""
        y = x.astype("f4")
        if not self.layers:
            return y * 2 + 1
        for w in weights.values():
            y = np.tanh(y @ w.astype("f4"))
        return y.mean(axis=0)


CASES = (
    Case("copies alone", 512, 1024, 0),
    Case("copies in and products", 512, 1024, 16, OVER_LOOP),
    Case("products", 128, 1024, 48),
)


def shortest(call: Callable[[], object]) -> float:
    """Microseconds a set of the fastest of some rounds."""
    taken = []
    for _ in range(ROUNDS):
        start = perf_counter()
        call()
        taken.append(perf_counter() - start)
    return min(taken) / SETS * 1e6


def measure(clock: Clock, case: Case) -> Line:
    """One case: what is alone, both ways to run, and what overlaps."""
    ctx = clock.ctx
    model, weights = clock.session.compile(case.build()), case.weights()
    model.set_params(weights)
    x = numbers((case.rows, case.width), "float16", 1.0)
    sets = [{"x": np.roll(x, i, axis=0)} for i in range(SETS)]
    check(case, model, sets, weights)

    pinned = ctx.create_host_buffer(x.shape, "float16")
    view, device = np.asarray(pinned), ctx.to_device(x)
    shape = model.outputs[0].shape
    y, back = ctx.create_buffer(shape, "float16"), ctx.create_host_buffer(shape, "float16")
    seen = np.asarray(back)

    def stage() -> list[Any]:
        found = []
        for one in sets:
            copied(one["x"], view, clock.session.threads)
            found.append(copied(seen, np.empty_like(seen), clock.session.threads))
        return found

    step = model.bind({"x": device}, {"y": y}, stream=ctx.stream)
    alone = {
        "host staging": shortest(stage),
        "copy in": clock.us(lambda: ctx.copy(device, pinned)),
        "copy out": clock.us(lambda: ctx.copy(back, y)),
        "compute": clock.us(step),
    }
    ctx.synchronize()
    ways: dict[str, list[float]] = {"loop": [], "pipelined": []}
    for _ in range(ROUNDS):
        for way, call in (
            ("loop", lambda: [model.run(one) for one in sets]),
            ("pipelined", lambda: model.run_pipelined(sets)),
        ):
            start = perf_counter()
            call()
            ways[way].append((perf_counter() - start) / SETS * 1e6)
    line: Line = {"case": case.name, **{f"{name} us": us for name, us in alone.items()}}
    line |= {f"{way} us": statistics.median(us) for way, us in ways.items()}
    line["slowest"] = max(alone, key=lambda name: alone[name])
    line["of_slowest"] = max(alone.values()) / line["pipelined us"]
    line["over_loop"] = line["loop us"] / line["pipelined us"]
    line |= on_device(ctx, model, sets)
    model.close()
    return line


def copied(source: Any, to: Any, threads: int) -> Any:
    """`to` with the bytes of `source`, as models copy them to and from pinned memory."""
    copy(source.view("u1").ravel(), to.view("u1").ravel(), threads)
    return to


def check(case: Case, model: fg.CompiledGraph, sets: list[Any], weights: dict[str, Any]) -> None:
    """Both ways give the same bits, and the right ones."""
    found = model.run_pipelined(sets)
    for i, (one, (y,)) in enumerate(zip(sets, found, strict=True)):
        if y.tobytes() != model.run(one)[0].tobytes():
            raise RuntimeError(f"{case.name}: set {i} gives other bits in a pipeline")
    for i in (0, len(sets) - 1):
        if (error := relative(found[i][0], case.wanted(sets[i]["x"], weights))) > TOLERANCE:
            raise RuntimeError(f"{case.name}: set {i} is wrong by {error}")


def on_device(ctx: fg.DeviceContext, model: fg.CompiledGraph, sets: list[Any]) -> Line:
    """Microseconds by the device's clock: parts of a run, and between the ends of runs in flight.

    Where those follow each other faster than the parts of one do, parts of several go on at once.
    """
    parts = {"in": 0.0, "computing": 0.0, "out": 0.0}
    for node in model.profile(sets[0]).nodes:
        parts[{"inputs": "in", "outputs": "out"}.get(node.name, "computing")] += node.us
    own = model.clone()  # Its lanes begin with the first.
    lanes, ends = own._open_lanes(), []
    for i, one in enumerate(sets):
        end = ctx.create_event()
        own.commit_no_wait(one)
        end.record(lanes.stream(i % lanes.depth))
        ends.append(end)
    own.sync_pending()
    first = len(ends) // 4
    between = 1e3 * ends[-1].elapsed_ms(ends[first]) / (len(ends) - 1 - first)
    own.close()
    found = {f"{name} on the device us": us for name, us in parts.items()}
    return {**found, "between ends us": between, "at_once": sum(parts.values()) / between}


def goals(lines: list[Line]) -> list[Goal]:
    """What was promised."""
    found = []
    for case, line in zip(CASES, lines, strict=True):
        what = f"{case.name}: sets a second over those of {line['slowest']}, the slowest"
        found.append(Goal(what, OF_SLOWEST, line["of_slowest"], least=True))
        if case.over_loop is not None:
            what = f"{case.name}: sets a second over those of a loop"
            found.append(Goal(what, case.over_loop, line["over_loop"], least=True))
    return found


def main() -> int:
    """Run from a shell."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.pipeline", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("pipeline.json"), help="the JSON file")
    chosen = parser.parse_args()
    if problem := gpu_problem():
        print(f"there is no GPU to measure: {problem}", file=sys.stderr)
        return 1
    clock = Clock()
    lines = []
    for case in CASES:
        lines.append(measure(clock, case))
        numbers_of = (f"{k} {v:.2f}" if isinstance(v, float) else v for k, v in lines[-1].items())
        print(", ".join(numbers_of), flush=True)
    found = [goal.record() for goal in goals(lines)]
    print("\n".join(verdict(goal) for goal in found))
    record = {
        "machine": environment(),
        "cases": [case._asdict() for case in CASES],
        "lines": lines,
        "goals": found,
    }
    chosen.out.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
