"""Recorded graphs of native kernels that do nothing: replaying, finding and building them."""

from __future__ import annotations

import numpy as np

from bench.outcome import Goal, Outcome, microseconds
from bench.rounds import FULL, Effort, Entry, Processes, Timing, check_result, sample_count

__all__ = ["main"]

# What is replayed: how it is told, and how many nodes.
REPLAYS = {
    "native": ("native kernels in a chain", (1, 10, 100, 1000)),
    "roots": ("native kernels without edges", (1, 100)),
    "empty": ("empty nodes in a chain", (1, 100)),
}
# What is built, each node waiting for the one before it.
BUILDS = {
    "kernels": "calls of 3 buffers and a number built",
    "memsets": "memsets built",
    "copies": "copies built",
}
BASE_US, NODE_US = 0.1, 0.005
BUILD_US = 5.0
HIT_US = 1.5
REPLAY_BLOCK, HIT_BLOCK = 200, 20
BUILT = 1000


def main(effort: Effort = FULL) -> Outcome:
    """Time replays of 1 to 1,000 nodes beside a loop in C, hits of a cache, and building."""
    outcome = Outcome(
        "device_graph",
        "DeviceGraph on the cpu, nodes that do nothing",
        [
            "what",
            "nodes",
            "p50 µs",
            "p99 µs",
            "ns a node",
            "C loop µs",
            "over the C loop",
        ],
    )
    with Processes(1, ("replay",)) as processes:
        timings, loops = _measure(processes, effort)
    first = {}
    for timing in timings:
        kind, nodes = timing.entry.spec["kind"], timing.entry.spec["nodes"]
        each, native = None, loops.get(timing.entry.label)
        if kind in REPLAYS:
            first.setdefault(kind, timing.p50)
            each = (timing.p50 - first[kind]) * 1e3 / (nodes - 1) if nodes > 1 else None
            limit = BASE_US + NODE_US * nodes
            outcome.goals.append(Goal(f"{timing.entry.label}: µs a replay", limit, timing.p50))
        elif kind in BUILDS:
            each = timing.p50 * 1e3 / nodes
            outcome.goals.append(Goal(f"{timing.entry.label}: µs a node", BUILD_US, each / 1e3))
        elif kind == "hit":
            outcome.goals.append(Goal(f"{timing.entry.label}: µs", HIT_US, timing.p50))
        ratio = None if native is None else timing.ratio(native)
        outcome.cells.append(
            [
                timing.entry.label.removeprefix(f"{nodes} "),
                str(nodes),
                microseconds(timing.p50),
                microseconds(timing.p99),
                "" if each is None else f"{each:,.2f}",
                "" if native is None else microseconds(native.p50),
                "" if ratio is None else f"{ratio[0]:.2f} ({ratio[1]:.2f}-{ratio[2]:.2f})",
            ]
        )
        row = {**timing.row(kind), "nodes": nodes}
        if native is not None:
            row |= {"c_loop_us": native.p50, "c_loop_round_us": native.round_p50, "ratio": ratio}
        outcome.rows.append(row)
    outcome.notes += [
        f"a sample is the mean of {REPLAY_BLOCK} replays, or of {HIT_BLOCK} of the calls below",
        "the C loop calls the same function through a pointer, in the same process and round",
    ]
    return outcome


def _entries() -> list[tuple[Entry, int, list[int]]]:
    """Every entry with how many calls are a sample and what its result must be."""
    entries = []
    for kind, (described, sizes) in REPLAYS.items():
        for nodes in sizes:
            entry = Entry("replay", f"{nodes} {described}", {"kind": kind, "nodes": nodes})
            entries.append((entry, REPLAY_BLOCK, [nodes, nodes]))
    for kind, label in (
        ("hit", "create with 2 inputs, found in the cache"),
        ("hit and replay", "the same, replay(2 arrays) and wait"),
        ("inputs", "replay(2 arrays)"),
        ("run", "run(2 arrays) with 2 outputs"),
    ):
        entry = Entry("replay", label, {"kind": kind, "nodes": 2})
        entries.append((entry, HIT_BLOCK, [1, 2, 1]))
    for kind, label in (("set", "set(v=…)"), ("value", "replay(v=…)")):
        entry = Entry("replay", label, {"kind": kind, "nodes": 1})
        entries.append((entry, HIT_BLOCK, [7, 1]))
    for kind, described in BUILDS.items():
        entry = Entry("replay", f"{BUILT} {described}", {"kind": kind, "nodes": BUILT})
        entries.append((entry, 1, [BUILT, BUILT]))
    return entries


def _measure(processes: Processes, effort: Effort) -> tuple[list[Timing], dict[str, Timing]]:
    """Time all entries in turn within each round, each native one beside its loop in C."""
    process = processes["replay"]
    timings, loops, samples = {}, {}, {}
    entries = _entries()
    for entry, block, _ in entries:
        note = process("build", entry.label, dict(entry.spec), block)
        timings[entry.label] = Timing(entry, note)
        samples[entry.label] = sample_count(process("estimate", entry.label), block, effort)
        if entry.spec["kind"] in ("native", "roots"):
            loops[entry.label] = Timing(entry, "C")
    for number in range(effort.rounds):
        start = number % len(entries)
        for entry, _, expected in entries[start:] + entries[:start]:
            label = entry.label
            timings[label].samples.append(process("round", label, samples[label], False))
            if label in loops:
                loops[label].samples.append(process("apply", "native_ns", entry.spec["nodes"]))
            check_result(label, process("result", label), np.array(expected), 0)
    return list(timings.values()), loops
