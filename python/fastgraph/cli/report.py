"""Timing calls side by side, and printing what came out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np

from fastgraph.runtime.compiled import CompiledGraph

__all__ = ["Latency", "columns", "latency_rows", "measure", "memory_line", "place", "slowest_rows"]


@dataclass(frozen=True)
class Latency:
    """Time of one call in microseconds, over many."""

    median_us: float
    p99_us: float
    calls: int


def measure(
    calls: Mapping[str, Callable[[Any], object]], items: Sequence[Any], rounds: int
) -> dict[str, Latency]:
    """Time every call on every item, `rounds` times, all calls in turn within a round.

    What the machine does meanwhile then meets all of them alike.
    """
    samples: dict[str, list[int]] = {name: [] for name in calls}
    for call in calls.values():
        for item in items[:10]:
            call(item)
    for _ in range(rounds):
        for name, call in calls.items():
            taken = samples[name]
            for item in items:
                start = perf_counter_ns()
                call(item)
                taken.append(perf_counter_ns() - start)
    return {
        name: Latency(
            float(np.median(taken)) / 1e3, float(np.percentile(taken, 99)) / 1e3, len(taken)
        )
        for name, taken in samples.items()
    }


def columns(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Rows as lines, each column as wide as its widest cell; those in `right` end flush."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  "
        + "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def latency_rows(measured: Mapping[str, Latency]) -> str:
    """A table of calls with median and 99th percentile."""
    head = ("", "median µs", "p99 µs")
    rows = [(name, f"{t.median_us:.2f}", f"{t.p99_us:.2f}") for name, t in measured.items()]
    return columns([head, *rows], right=(1, 2))


def place(model: CompiledGraph, threads: int) -> str:
    """Where a model's runs were done, and with how many threads the others'."""
    shared = f"{threads} thread{'s' if threads > 1 else ''}"
    return shared if model.device == "cpu" else f"fastgraph on {model.device}, others {shared}"


def memory_line(model: CompiledGraph) -> str:
    """The arena against the sum of the tensors that it holds in turn."""
    arena, tensors = model.arena_nbytes, model.tensor_nbytes
    share = f" ({arena / tensors:.2f} of them)" if tensors else ""
    return f"arena {arena:,} bytes for {tensors:,} bytes of tensors{share}"


def slowest_rows(
    model: CompiledGraph, inputs: Mapping[str, np.ndarray[Any, Any]], runs: int
) -> str:
    """The five nodes that take longest."""
    profile = model.profile(dict(inputs), runs)
    head = ("node", "operator", "shape", "µs", "GB/s")
    rows = [
        (
            node.name,
            node.operator,
            "x".join(map(str, node.shape)) or "scalar",
            f"{node.us:.2f}",
            f"{node.bytes_per_s / 1e9:.1f}",
        )
        for node in profile.slowest(5)
    ]
    return columns([head, *rows], right=(3, 4))
