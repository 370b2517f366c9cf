"""Replaying a recorded graph of native kernels that do nothing: what a replay and a node cost."""

from __future__ import annotations

import numpy as np

from bench.outcome import Goal, Outcome, microseconds
from bench.rounds import FULL, Effort, Entry, Processes, compare

__all__ = ["main"]

KINDS = {"native": "native kernels in a chain", "roots": "native kernels without edges"}
KINDS["empty"] = "empty nodes in a chain"
SIZES = (1, 100)
BASE_US, NODE_US = 0.1, 0.005
BLOCK = 200


def main(effort: Effort = FULL) -> Outcome:
    """Time replays of one and of a hundred nodes."""
    outcome = Outcome(
        "device_graph",
        "DeviceGraph.replay on the cpu, nodes that do nothing",
        ["nodes", "how many", "p50 µs", "p99 µs", "ns a node", "C loop µs"],
    )
    with Processes(1, ("replay",)) as processes:
        for kind, described in KINDS.items():
            medians = {}
            for nodes in SIZES:
                entry = Entry("replay", f"{nodes} {described}", {"kind": kind, "nodes": nodes})
                timing = compare(
                    processes,
                    [entry],
                    lambda seed: [],
                    lambda inputs, nodes=nodes: np.array([nodes, nodes]),
                    effort,
                    block=BLOCK,
                )[entry.label]
                twin = processes["replay"]("apply", "native_ns", nodes) / 1e3
                medians[nodes] = timing.p50
                each = (timing.p50 - medians[1]) * 1e3 / (nodes - 1) if nodes > 1 else None
                outcome.cells.append(
                    [
                        described,
                        str(nodes),
                        microseconds(timing.p50),
                        microseconds(timing.p99),
                        "" if each is None else f"{each:.2f}",
                        "" if kind == "empty" else microseconds(twin),
                    ]
                )
                outcome.rows.append({**timing.row(kind), "nodes": nodes, "native_us": twin})
                limit = BASE_US + NODE_US * nodes
                outcome.goals.append(Goal(f"{entry.label}: µs a replay", limit, timing.p50))
    outcome.notes.append(f"a sample is the mean of {BLOCK} replays")
    return outcome
