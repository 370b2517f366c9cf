"""``python -m bench.gpu.experts``: a product whose experts are read on the device or over the bus.

A skewed router, whose choices are Zipf's, asks for a few experts a run. Timed are none resident, a
quarter, which a pool has chosen by earlier choices, and all. The bits are the same.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fastgraph as fg
from bench.gpu.native import environment, gpu_problem
from bench.gpu.operators import Clock
from bench.outcome import Goal, verdict

__all__ = ["FULL", "Sizes", "main", "measure"]

GOAL = 2.0  # a quarter resident over none
SKEW = 1.2
BATCHES = 32  # of choices, in turn
LEARNED = 200  # earlier ones, by which the pool chooses

Line = dict[str, Any]


class Sizes(NamedTuple):
    """Rows a run, the experts, and their matrices."""

    rows: int = 16
    experts: int = 64
    k: int = 1024
    n: int = 4096


FULL = Sizes()


def measure(clock: Clock, sizes: Sizes = FULL) -> list[Line]:
    """Microseconds, hit rate and bytes over the bus, by what is resident."""
    rows, experts, k, n = sizes
    random = np.random.default_rng(0)
    chance = 1.0 / np.arange(1, experts + 1) ** SKEW
    order = random.permutation(experts)  # the favourites lie anywhere
    ids = order[random.choice(experts, (LEARNED + BATCHES, rows), p=chance / chance.sum())]
    pool = fg.ExpertPool(experts, budget=experts // 4)
    pool.record(ids[:LEARNED])
    pool.refresh()
    used = ids[LEARNED:].astype("i4")
    graph = fg.Graph("experts")
    x, chosen = graph.input("x", (rows, k), "float16"), graph.input("ids", (rows,), "int32")
    weight = graph.param("w", (experts, k, n), "float16")
    graph.output(fg.ops.grouped_matmul(x, weight, chosen), "y")
    model = clock.session.compile(graph)
    matrices = random.integers(-1, 2, (experts, k, n), np.int8).astype("f2")
    model.set_param("w", matrices)
    data = random.integers(-1, 2, (rows, k)).astype("f2")
    y = clock.ctx.create_buffer((rows, n), "float16")
    at = clock.ctx.to_device(data)
    steps = [
        model.bind({"x": at, "ids": clock.ctx.to_device(batch)}, {"y": y}, stream=clock.ctx.stream)
        for batch in used
    ]

    def turn() -> None:
        for step in steps:
            step()

    masks = {
        "none": np.zeros(experts, bool),
        "a quarter": pool.mask,
        "all": np.ones(experts, bool),
    }
    lines, bits = [], set()
    for name, mask in masks.items():
        model.set_moe_resident_experts(mask)
        us = clock.us(turn) / BATCHES
        clock.ctx.synchronize()
        bits.add(y.numpy().tobytes())
        cold = [(~mask[np.unique(batch)]).sum() for batch in used]
        lines.append(
            {
                "resident": name,
                "us": us,
                "hit_rate": float(mask[used].mean()),
                "bus_bytes": float(np.mean(cold) * k * n * 2),
            }
        )
    wanted = np.stack([
        row @ matrices[expert].astype("f4")
        for row, expert in zip(data.astype("f4"), used[-1], strict=True)
    ])  # fmt: skip
    if len(bits) != 1 or np.abs(y.numpy().astype("f4") - wanted).max() > 1e-2 * k**0.5:
        raise RuntimeError("experts that lie elsewhere give something else")
    return lines


def goal(lines: list[Line]) -> Goal:
    """What was promised."""
    us = {line["resident"]: line["us"] for line in lines}
    return Goal("a quarter resident over none", GOAL, us["none"] / us["a quarter"], least=True)


def main() -> int:
    """Run from a shell."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.experts", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("experts.json"), help="the JSON file")
    chosen = parser.parse_args()
    if problem := gpu_problem():
        print(f"there is no GPU to measure: {problem}", file=sys.stderr)
        return 1
    lines = measure(Clock())
    for line in lines:
        print(
            f"{line['resident']:<10} {line['us']:10.2f} us, hit rate {line['hit_rate']:.2f}, "
            f"{line['bus_bytes'] / 1e6:.1f} MB over the bus a run"
        )
    found = goal(lines).record()
    print(verdict(found))
    record = {"machine": environment(), "sizes": FULL._asdict(), "lines": lines, "goal": found}
    chosen.out.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
