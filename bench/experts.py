"""What it costs to know which experts a model uses: masks that count, routers that are captured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Any

import numpy as np

import fastgraph as fg
from bench.outcome import Outcome, microseconds
from bench.rounds import FULL, Effort, WrongResult

__all__ = ["main"]

# Tokens, width, hidden width, experts, experts a token: a decode step, and a small batch.
CASES = {"1 token": (1, 64, 128, 8, 2), "16 tokens": (16, 64, 128, 64, 4)}
SECONDS = 0.01  # of one way in one round

Array = np.ndarray[Any, Any]


def layer(sizes: tuple[int, ...]) -> fg.Graph:
    """Router, gate, up and down products, combination."""
    tokens, width, hidden, experts, k = sizes
    g = fg.Graph("experts")
    x = g.input("x", (tokens, width))
    share, ids = fg.ops.top_k(fg.ops.softmax(x @ g.param("router", (width, experts))), k)
    ids = ids.reshape(tokens * k)
    rows = fg.ops.broadcast_to(x.reshape(tokens, 1, width), (tokens, k, width))
    rows = rows.reshape(tokens * k, width)
    gate = fg.ops.grouped_matmul(rows, g.param("gate", (experts, width, hidden)), ids, layer=0)
    up = fg.ops.grouped_matmul(rows, g.param("up", (experts, width, hidden)), ids, layer=0)
    down = g.param("down", (experts, hidden, width))
    y = fg.ops.grouped_matmul(fg.ops.silu(gate) * up, down, ids, layer=0)
    y = y.reshape(tokens, k, width) * share.reshape(tokens, k, 1)
    g.output(fg.ops.sum(y, axis=1), "y")
    return g


def nanoseconds(call: Callable[[], object], count: int) -> float:
    """Of one call, of `count`."""
    start = perf_counter_ns()
    for _ in range(count):
        call()
    return (perf_counter_ns() - start) / count


def ways(sizes: tuple[int, ...]) -> tuple[dict[str, fg.CompiledGraph], Array]:
    """The same model, asked for nothing, for counts, for choices, for both; and its input."""
    tokens, width, _, experts, _ = sizes
    plain = fg.Session("cpu", threads=1).compile(layer(sizes))
    random = np.random.default_rng(0)
    for info in plain.params:
        spread = random.normal(size=info.shape) / np.sqrt(info.shape[-2])
        plain.set_param(info.name, spread.astype("f4"))
    mask = np.arange(experts) < experts // 4
    found = {"plain": plain}
    for name in ("a mask", "capture", "both"):
        model = found[name] = plain.clone()
        if name != "capture":
            model.set_moe_resident_experts(mask)
        if name != "a mask":
            model.enable_moe_topk_capture(experts)
    return found, random.normal(size=(tokens, width)).astype("f4")


def main(effort: Effort = FULL) -> Outcome:
    """Time runs of models that are asked more and more, in turn."""
    outcome = Outcome(
        "experts",
        "A layer of a mixture of experts, cpu, 1 thread, f32: run_slots with what it is asked",
        ["case", "asked", "p50 µs", "µs more", "10 % … 90 %"],
        left=2,
    )
    for case, sizes in CASES.items():
        models, x = ways(sizes)
        calls = {name: partial(model.run_slots, [x]) for name, model in models.items()}
        count = max(1, int(SECONDS * 1e9 * effort.scale / nanoseconds(calls["plain"], 20)))
        taken: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(effort.rounds):
            for name, call in calls.items():
                taken[name].append(nanoseconds(call, count) / 1e3)
        check(models, x, sizes)
        base = np.array(taken["plain"])
        for name, us in taken.items():
            more = np.array(us) - base
            low, middle, high = np.percentile(more, [10, 50, 90])
            p50 = float(np.median(us))
            cells = [case, name, microseconds(p50), f"{middle:+.3f}", f"{low:+.3f} … {high:+.3f}"]
            outcome.cells.append(cells)
            outcome.rows.append(
                {"case": case, "asked": name, "p50_us": p50, "more_us": middle, "correct": True}
            )
        outcome.rows.append(taking(models["both"], x, case))
        outcome.cells.append([case, "take both", microseconds(outcome.rows[-1]["p50_us"]), "", ""])
    outcome.notes.append("µs more: the difference to plain in the same round")
    return outcome


def taking(model: fg.CompiledGraph, x: Array, case: str) -> dict[str, Any]:
    """What it takes to look at what was counted and chosen, after a run."""
    us = []
    for _ in range(200):
        model.run_slots([x])
        start = perf_counter_ns()
        model.take_moe_residency_stats()
        model.take_moe_topk_capture()
        us.append((perf_counter_ns() - start) / 1e3)
    return {"case": case, "asked": "take both", "p50_us": float(np.median(us)), "correct": True}


def check(models: dict[str, fg.CompiledGraph], x: Array, sizes: tuple[int, ...]) -> None:
    """All have the same bits, and what they know of a run is right."""
    tokens, _, _, _, k = sizes
    outputs = {model.run({"x": x})[0].tobytes() for model in models.values()}
    if len(outputs) != 1:
        raise WrongResult("what a model is asked changes what it gives")
    model = models["both"]
    model.take_moe_residency_stats()
    model.run({"x": x})
    stats, chosen = model.take_moe_residency_stats(), model.take_moe_topk_capture()
    if stats is None or stats.gpu_tokens + stats.cpu_tokens != 3 * tokens * k:
        raise WrongResult(f"{stats} is not what a run uses")
    if chosen is None or chosen[0].shape != (tokens, k):
        raise WrongResult(f"{chosen} is not what a router chooses")
