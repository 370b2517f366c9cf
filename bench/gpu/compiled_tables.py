"""Tables of what compiled graphs take on a GPU, each from the JSON of one benchmark."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.outcome import microseconds

__all__ = ["COMPILED_TABLES", "latest"]

Record = Mapping[str, Any]
Table = dict[str, Any]


def latest(folder: Path) -> dict[str, Record]:
    """The newest record of each kind: of files that are called ``DATE-MACHINE-KIND.json``."""
    found = {}
    for path in sorted(folder.glob("*.json"), key=lambda path: path.name):
        kind = path.stem.rpartition("-")[2]
        found[kind] = {**json.loads(path.read_text("utf-8")), "file": path.name}
    return found


def table(record: Record, head: Sequence[str], cells: Sequence[Sequence[str]]) -> Table:
    """A table with the goals of a record below it, and where its numbers are kept."""
    goals = record.get("goals", [record["goal"]] if "goal" in record else [])
    machine = record["machine"]
    notes = [
        f"{machine['date']}, {machine['device']}, `bench/results/gpu/compiled/{record['file']}`"
    ]
    if "note" in record:
        notes.append(record["note"])
    return {
        "head": list(head),
        "left": 1,
        "cells": [list(row) for row in cells],
        "goals": goals,
        "notes": notes,
    }


def of(line: Record, name: str, form: Callable[[Any], str]) -> str:
    """One number of a line as text; nothing where the line has none."""
    return form(line[name]) if name in line else ""


def share(value: float) -> str:
    """A part of one."""
    return f"{100 * value:.1f} %"


def ratio(value: float) -> str:
    """How often one is in the other."""
    return f"{value:.2f}"


def models(record: Record) -> Table:
    """Whole models; of PyTorch's ways the best counts."""
    lines = {line["case"]: line for line in record["lines"]}
    cells = []
    for case, line in lines.items():
        if "torch" in case:
            continue
        start = "perceptron, torch" if case == "perceptron, run_slots" else f"{case}: torch"
        peers = [one["us"] for other, one in lines.items() if other.startswith(start)]
        best = min(peers, default=None)
        cells.append(
            [
                case,
                microseconds(line["us"]),
                of(line, "first_run_s", ratio),
                "" if best is None else microseconds(best),
                "" if best is None else ratio(line["us"] / best),
            ]
        )
    return table(record, ("model", "µs", "first run, s", "PyTorch, µs", "ours over it"), cells)


def operators(record: Record) -> Table:
    """Single operators."""
    cells = []
    for line in record["lines"]:
        if "case" not in line:
            continue
        if "us" not in line:
            cells.append([line["case"], "failed", "", "", "", ""])
            continue
        of_what = "copy" if "share_of_copy" in line else "read"
        peer = line.get("torch_us")
        cells.append(
            [
                line["case"],
                microseconds(line["us"]),
                f"{line['tflops']:.1f}",
                of(line, f"share_of_{of_what}", share) + f" of a {of_what}",
                "" if peer is None else microseconds(peer),
                "" if peer is None else ratio(line["us"] / peer),
            ]
        )
    head = ("operator", "µs", "TFLOP/s", "of the bandwidth", "PyTorch, µs", "ours over it")
    return table(record, head, cells)


def decode(record: Record) -> Table:
    """A step of the Llama-shaped stack."""
    cells = [
        [
            line["case"],
            microseconds(line["us"]),
            share(line["share_of_read"]),
            of(line, "nodes", str),
            f"{line['error']:.1e}",
        ]
        for line in record["lines"]
    ]
    return table(record, ("step", "µs", "of what can be read", "nodes", "error"), cells)


def pipeline(record: Record) -> Table:
    """Runs in flight beside their parts; microseconds a set."""
    parts = ("host staging", "copy in", "copy out", "compute", "loop", "pipelined")
    cells = [
        [
            line["case"],
            *(microseconds(line[f"{part} us"]) for part in parts),
            ratio(line["of_slowest"]),
            ratio(line["over_loop"]),
            ratio(line["at_once"]),
        ]
        for line in record["lines"]
    ]
    head = ("µs a set", *parts, "of the slowest", "over the loop", "at once")
    return table(record, head, cells)


def experts(record: Record) -> Table:
    """Products of experts, by how many are on the device."""
    cells = [
        [
            line["resident"],
            microseconds(line["us"]),
            share(line["hit_rate"]),
            f"{line['bus_bytes'] / 1e6:.1f}",
        ]
        for line in record["lines"]
    ]
    return table(record, ("resident", "µs", "hits", "MB over the bus"), cells)


def extent(record: Record) -> Table:
    """Few of many rows, beside the graph compiled for them."""
    cells = [
        [
            line["dtype"],
            str(line["rows"]),
            microseconds(line["extent_us"]),
            of(line, "compiled_us", microseconds),
            ratio(line["extent_us"] / line["compiled_us"]) if "compiled_us" in line else "",
        ]
        for line in record["lines"]
    ]
    found = table(record, ("dtype", "rows", "µs", "compiled for them, µs", "over it"), cells)
    taken = record["setting"]
    found["notes"].append(
        f"to set an extent of a graph of {taken['nodes']} nodes: "
        f"{microseconds(taken['new_us'])} µs a new one, {microseconds(taken['again_us'])} µs one "
        "that was set before"
    )
    return found


COMPILED_TABLES: dict[str, Callable[[Record], Table]] = {
    "models": models,
    "operators": operators,
    "decode": decode,
    "pipeline": pipeline,
    "experts": experts,
    "extent": extent,
}
