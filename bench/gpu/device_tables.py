"""The tables of docs/device_graphs.md, from the findings of the device's probes."""

from __future__ import annotations

import re
from typing import Any

from bench.gpu.cells import Probes, Table, cell
from bench.gpu.goals import goals
from bench.gpu.graph_sizes import CHAINS
from bench.outcome import markdown

__all__ = ["DEVICE_TABLES", "NOT_YET", "written"]

NOT_YET = "Not measured yet."
PROBE = re.compile(r"\{(\w+)\|")

KERNELS = (3, 100)
PEERS = {"cupy": "CuPy", "cuda_core": "cuda.core", "torch": "torch"}


def _gain_rows() -> list[tuple[str, ...]]:
    return [
        (
            f"{n}",
            f"{{{n} kernels: loop of launches p[50/99]}}",
            f"{{{n} kernels: replayed p[50/99]}}",
            f"{{{n} kernels: cached, replayed p[50/99]}}",
            f"{{{n} kernels: loop of launches over replayed}}",
            f"{{{n} kernels: loop of launches over cached, replayed}}",
        )
        for n in KERNELS
    ]


def _replay_rows() -> list[tuple[str, ...]]:
    return [
        (
            f"{n:,}",
            state,
            f"{{{n}: replay(), {state} p[50/99]}}",
            f"{{{n}: C loop, {state} p[50/99]}}",
            f"{{{n}: replay() minus C loop, {state}}}",
        )
        for n in CHAINS
        for state in ("drained", "busy")
    ]


def _beside_rows() -> list[tuple[str, ...]]:
    return [
        (
            name,
            f"{n:,}",
            state,
            f"{{replay_{module}|{n}: fastgraph, {state} p[50/99]}}",
            f"{{replay_{module}|{n}: {name}, {state} p[50/99]}}",
            f"{{replay_{module}|{n}: fastgraph over {name}, {state}}}",
        )
        for module, name in PEERS.items()
        for n in CHAINS
        for state in ("drained", "busy")
    ]


def _input_rows() -> list[tuple[str, ...]]:
    rows = []
    for kind in ("device", "host"):
        for way in (
            "create + replay(x, y) + wait",
            "replay(x, y) + wait",
            "replay(x, y)",
            "create, a hit",
            "by hand in C",
        ):
            over = f"{{{kind}: {way} over C}} (C)" if way.startswith("create +") else ""
            rows.append((kind, way, f"{{{kind}: {way} p[50/99]}}", over))
        for module in ("cupy", "torch"):
            name = PEERS[module]
            rows.append(
                (
                    kind,
                    f"by hand in {name}",
                    f"{{inputs_{module}|{kind}: {name} p[50/99]}}",
                    f"{{inputs_{module}|{kind}: create + replay(x, y) + wait over {name}}}",
                )
            )
        for way, twin in (("replay(8 inputs)", "C"), ("replay(8 inputs) + wait", "C + wait")):
            rows.append(
                (
                    kind,
                    f"{way}, in C {{eight_inputs|{kind}: {twin} p50}}",
                    f"{{eight_inputs|{kind}: {way} p[50/99]}}",
                    f"{{eight_inputs|{kind}: {way} over C}} (C)",
                )
            )
    return rows


DEVICE_TABLES = {
    "gain": Table(
        "eager",
        [
            "kernels",
            "loop of launches",
            "`replay()`",
            "cached `create` and `replay()`",
            "gain",
            "gain, cached",
        ],
        _gain_rows(),
        left=1,
    ),
    "replays": Table(
        "replay_call",
        ["kernels", "stream", "`replay()`", "C loop", "difference"],
        _replay_rows(),
        left=2,
    ),
    "beside": Table(
        "replay_call",
        ["package", "kernels", "stream", "fastgraph", "the package", "ratio"],
        _beside_rows(),
        left=3,
    ),
    "inputs": Table("two_inputs", ["live inputs", "call", "time", "ratio"], _input_rows(), left=2),
    "large": Table(
        "edges",
        ["1,000 kernels", "a node", "in C++", "over C++", "over plain edges"],
        [
            (
                shape,
                f"{{{shape}: per node}}",
                f"{{{shape}, C++: per node}}",
                f"{{{shape}: over C++}}",
                "" if shape == "plain" else f"{{{shape}: over plain}}",
            )
            for shape in ("plain", "programmatic", "eight chains")
        ],
        left=1,
    ),
    "scalars": Table(
        "scalars",
        ["a scalar among 1,000 nodes", "in a node", "in memory"],
        [
            (
                "`set(v=…)`",
                "{set(v=…), in a node p[50/99]}",
                "{set(v=…), in memory p[50/99]}",
            ),
            ("the driver's call alone", "{C: one node set p[50/99]}", ""),
            (
                "`replay(v=…)` more than `replay()`",
                "{replay(v=…) minus replay(), in a node}",
                "{replay(v=…) minus replay(), in memory}",
            ),
            (
                "read by every node, a node's time",
                "{read by every node, by value: per node}",
                "{read by every node, in memory: per node}",
            ),
        ],
        left=1,
    ),
    "updated": Table(
        "fresh_and_updated",
        ["executables of 1,000 kernels", "a node", "over a fresh one"],
        [
            ("C++, fresh", "{C++, fresh: per node}", ""),
            (
                "C++, another fresh one",
                "{C++, fresh again: per node}",
                "{C++: fresh again over fresh}",
            ),
            *(
                (
                    f"C++, {label} set",
                    f"{{C++, {label}: per node}}",
                    f"{{C++: {label} over fresh}}",
                )
                for label in ("one node", "all nodes", "all nodes, 10 times")
            ),
            ("the package's, fresh", "{package, fresh: per node}", ""),
            (
                "the package's, a scalar of all nodes set",
                "{package, all nodes: per node}",
                "{package: all nodes over fresh}",
            ),
        ],
        left=1,
    ),
    "building": Table(
        "building",
        ["1,000 nodes from nothing", "whole", "a node over C++"],
        [
            (
                way,
                f"{{{way}: whole p[50/99]}}",
                f"{{{way} minus C++: per node p50}}",
            )
            for way in ("create", "create, check=False")
        ]
        + [
            (
                "C++: adding {C++, adding: per node} a node, instantiating "
                "{C++, instantiating: per node}",
                "{C++: whole p[50/99]}",
                "",
            )
        ],
        left=1,
    ),
    "soak": Table(
        "soak",
        ["what", "seen"],
        [
            ("creates over 1,000 Zipf keys", "{creates} ({creates!note})"),
            ("graphs built", "{builds} ({builds!note})"),
            ("host bytes above the plateau", "{host bytes above the plateau}"),
            ("device bytes above the plateau", "{device bytes above the plateau}"),
            ("runs from 16 threads", "{runs of the threads} ({runs of the threads!note})"),
            ("each", "{runs of the threads: each}"),
        ],
        left=1,
    ),
}


def written(name: str, probes: Probes) -> str:
    """A table by name, as far as it was measured.

    Raises
    ------
    KeyError
        There is no such table, or a probe that ran did not find what the table tells.
    """
    table = DEVICE_TABLES[name]
    if table.probe not in probes:
        return NOT_YET
    cells = [[_cell(text, probes, table.probe) for text in row] for row in table.rows]
    record: dict[str, Any] = {
        "head": table.head,
        "left": table.left or len(table.head),
        "cells": cells,
        "goals": [goal.record() for goal in goals(probes, name)],
        "notes": [],
    }
    return markdown(record)


def _cell(text: str, probes: Probes, default: str) -> str:
    if any(probe not in probes for probe in PROBE.findall(text)):
        return "not measured"
    return cell(text, probes, default)
