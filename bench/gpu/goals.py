"""What was promised of the device, by the findings of its probes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.gpu.graph_sizes import CHAINS
from bench.outcome import Goal, verdict

__all__ = ["PROMISES", "Promise", "goals", "verdicts"]

MIB = 1 << 20


@dataclass(frozen=True)
class Promise:
    """A finding and its limit, with the table that it belongs to."""

    table: str
    what: str
    probe: str
    finding: str
    limit: float
    least: bool = False


def _replays() -> list[Promise]:
    found = []
    for n in CHAINS:
        kernels = "1 kernel" if n == 1 else f"{n:,} kernels"
        for state in ("drained", "busy"):
            name = f"{n}: replay() minus C loop, {state}"
            what = f"{kernels}, {state}: µs over the C loop"
            found.append(Promise("replays", what, "replay_call", name, 0.10))
        for name, what in (
            ("blocks left by 32 replays", "blocks that 32 replays leave"),
            ("bytes allocated during 32 replays", "bytes that 32 replays take in between"),
        ):
            promise = Promise("replays", f"{kernels}: {what}", "replay_call", f"{n}: {name}", 0)
            found.append(promise)
    return found


PROMISES = (
    *_replays(),
    *(
        Promise(
            "inputs", f"a hit, {kind} inputs: µs", "two_inputs", f"{kind}: create, a hit p50", 1.5
        )
        for kind in ("device", "host")
    ),
    Promise("large", "programmatic edges over plain", "edges", "programmatic: over plain", 0.7),
    Promise("large", "eight chains over one", "edges", "eight chains: over plain", 0.5),
    Promise("scalars", "set of a scalar in a node: µs", "scalars", "set(v=…), in a node p50", 2),
    Promise(
        "scalars",
        "a keyword of replay, in a node: µs more",
        "scalars",
        "replay(v=…) minus replay(), in a node",
        2,
    ),
    Promise(
        "scalars",
        "in memory over by value, read by every node",
        "scalars",
        "read by every node: in memory over by value",
        1.02,
    ),
    Promise(
        "building",
        "µs a node over what C++ takes",
        "building",
        "create minus C++: per node p50",
        5,
    ),
    Promise(
        "soak", "host bytes above the plateau", "soak", "host bytes above the plateau", 8 * MIB
    ),
    Promise(
        "soak", "device bytes above the plateau", "soak", "device bytes above the plateau", 32 * MIB
    ),
    Promise("soak", "live objects above the plateau", "soak", "live objects above the plateau", 0),
    Promise("soak", "graphs alive", "soak", "graphs alive", 100),
    Promise(
        "soak",
        "runs of the threads over those asked for",
        "soak",
        "runs of the threads over those asked for",
        1,
        least=True,
    ),
)


def goals(probes: Mapping[str, Mapping[str, Mapping[str, Any]]], table: str = "") -> list[Goal]:
    """The promises, of one table or all, that the findings tell about.

    Raises
    ------
    KeyError
        A probe ran, but does not have what was promised of it.
    """
    return [
        Goal(p.what, p.limit, probes[p.probe][p.finding]["value"], p.least)
        for p in PROMISES
        if p.probe in probes and table in ("", p.table)
    ]


def verdicts(records: Mapping[str, Any]) -> list[str]:
    """Each promise with what became of it, in words; of probes that ended early none."""
    probes = {
        probe: {finding["name"]: finding for finding in record["findings"]}
        for probe, record in records.items()
        if record["problem"] is None
    }
    return [verdict(goal.record()) for goal in goals(probes)]
