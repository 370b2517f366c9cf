"""``python -m bench.gpu.extent``: few of many rows, beside the full run and the compile for them.

Two products that read more weights than the caches hold, with what stands between them, compiled
for 128 rows: what a run of few rows takes, and what it takes to say how many there are.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import fastgraph as fg
from bench.gpu.native import environment, gpu_problem
from bench.gpu.operators import Clock
from bench.outcome import Goal, verdict

__all__ = ["FULL", "Sizes", "goals", "main", "measure", "setting"]

GOAL = 1.2  # one row over the graph compiled for one
DTYPES = ("float16", "float32")

Line = dict[str, Any]


class Sizes(NamedTuple):
    """Rows, columns of the layers, which rows are timed, and how often extents are set."""

    upper: int = 128
    widths: tuple[int, ...] = (4096, 11008, 4096)
    few: tuple[int, ...] = (1, 4, 16, 40)
    sets: int = 256


FULL = Sizes()


def layers(rows: int, widths: tuple[int, ...], dtype: str) -> fg.Graph:
    """Products with what stands between them."""
    g = fg.Graph("layers")
    x = g.input("x", (rows, widths[0]), dtype)
    for i, (k, n) in enumerate(pairwise(widths)):
        x = fg.ops.gelu(x @ g.param(f"w{i}", (k, n), dtype) + g.param(f"b{i}", (n,), dtype))
    g.output(x, "y")
    return g


def stack(rows: int, width: int = 64, depth: int = 1) -> fg.Graph:
    """Many small layers: nodes that follow the extent."""
    g = fg.Graph("stack")
    x = g.input("x", (rows, width))
    for i in range(depth):
        h = fg.ops.gelu(fg.ops.layer_norm(x) @ g.param(f"u{i}", (width, 2 * width)))
        x = x + h @ g.param(f"d{i}", (2 * width, width))
    g.output(x, "y")
    return g


def ready(session: fg.Session, graph: fg.Graph) -> Any:
    """A model with parameters that are not degenerate."""
    model = session.compile(graph)
    rng = np.random.default_rng(0)
    for info in model.params:
        values = rng.standard_normal(info.shape, np.float32) / np.sqrt(info.shape[0])
        model.set_param(info.name, values.astype(info.dtype))
    return model


def measure(clock: Clock, sizes: Sizes = FULL, dtype: str = "float16") -> list[Line]:
    """Microseconds of a run by rows: with the extent, and of the graph compiled for them."""
    model = ready(clock.session, layers(sizes.upper, sizes.widths, dtype))
    data = np.random.default_rng(1).standard_normal((sizes.upper, sizes.widths[0]), np.float32)
    data = data.astype(dtype)
    x, out = clock.ctx.to_device(data), (sizes.upper, sizes.widths[-1])
    y = clock.ctx.to_device(np.full(out, 77, dtype))
    step = model.bind({"x": x}, {"y": y}, stream=clock.ctx.stream)
    lines: list[Line] = [{"dtype": dtype, "rows": sizes.upper, "extent_us": clock.us(step)}]
    clock.ctx.synchronize()
    full = y.numpy()
    for rows in sizes.few:
        exact = ready(clock.session, layers(rows, sizes.widths, dtype))
        few = clock.ctx.to_device(np.ascontiguousarray(data[:rows]))
        z = clock.ctx.create_buffer((rows, sizes.widths[-1]), dtype)
        alone = exact.bind({"x": few}, {"y": z}, stream=clock.ctx.stream)
        y.copy_from(np.full(out, 77, dtype))
        model.set_active_extent((rows, sizes.upper))
        us, exact_us = clock.us(step), clock.us(alone)
        clock.ctx.synchronize()
        found, wanted = y.numpy(), z.numpy()
        if (found[rows:] != 77).any():
            raise RuntimeError(f"{dtype}: rows beyond {rows} were written")
        for other in (wanted, full[:rows]):
            off = np.abs(found[:rows].astype("f4") - other.astype("f4")).max()
            if off > (2e-2 if dtype == "float16" else 2e-3):
                raise RuntimeError(f"{dtype}: {rows} rows differ by {off}")
        lines.append({"dtype": dtype, "rows": rows, "extent_us": us, "compiled_us": exact_us})
    return lines


def setting(clock: Clock, sizes: Sizes = FULL, depth: int = 12) -> Line:
    """Microseconds of the host for an extent that is set: a new one, one seen before, and a run."""
    model = ready(clock.session, stack(sizes.upper, depth=depth))
    x = np.ones((sizes.upper, 64), "f4")
    first, again = [], []
    low, high = sizes.upper // 2, sizes.upper
    model.set_active_extent((high, sizes.upper))  # compiles
    model.run({"x": x})
    for taken in (first, again):
        for i in range(sizes.sets):
            rows = low + 1 + i % (high - low - 1)
            start = time.perf_counter_ns()
            model.set_active_extent((rows, sizes.upper))
            taken.append(time.perf_counter_ns() - start)
            if i % 16 == 0:
                model.run({"x": x})
    return {
        "nodes": len(model.graph.nodes),
        "new_us": median(first[: high - low - 1]) / 1e3,
        "again_us": median(again) / 1e3,
    }


def goals(lines: list[Line]) -> list[Goal]:
    """What was promised."""
    return [
        Goal(f"{line['dtype']}: 1 row over the compile for it", GOAL,
             line["extent_us"] / line["compiled_us"])
        for line in lines
        if line["rows"] == 1
    ]  # fmt: skip


def main() -> int:
    """Run from a shell."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.extent", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("extent.json"), help="the JSON file")
    chosen = parser.parse_args()
    if problem := gpu_problem():
        print(f"there is no GPU to measure: {problem}", file=sys.stderr)
        return 1
    clock = Clock()
    lines = [line for dtype in DTYPES for line in measure(clock, dtype=dtype)]
    for line in lines:
        print(f"{line['dtype']:<8} {line['rows']:4d} rows {line['extent_us']:9.2f} us", end="")
        exact = line.get("compiled_us")
        over = "" if exact is None else f", compiled for them {exact:9.2f} us"
        print(over + ("" if exact is None else f", {line['extent_us'] / exact:.3f} of that"))
    taken = setting(clock)
    print(
        f"set_active_extent, {taken['nodes']} nodes: {taken['new_us']:.1f} us for a new extent, "
        f"{taken['again_us']:.1f} us for one seen before"
    )
    found = [goal.record() for goal in goals(lines)]
    for one in found:
        print(verdict(one))
    record = {
        "machine": environment(), "sizes": FULL._asdict(), "lines": lines, "setting": taken,
        "goals": found,
    }  # fmt: skip
    chosen.out.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
