"""The tables of docs/cuda_facts.md: those of numbers, and those that say what follows."""

from __future__ import annotations

from bench.gpu.cells import Table
from bench.gpu.costs import COSTS
from bench.gpu.limits import LIMITS

__all__ = ["TABLES"]

THREADS = ("1 thread", "2 threads", "4 threads")
BYTES_OF = (
    "1 kernel",
    "1,000 kernels",
    "10,000 kernels",
    "1,000 kernels in 8 chains",
    "1,000 device copies",
)


def _launch_rows() -> list[tuple[str, ...]]:
    rows = []
    for n in (1, 10, 100, 1000):
        for shape in ("plain", "programmatic", "eight chains"):
            if shape == "eight chains" and n < 8:
                continue
            name = f"{shape}, {n}: "
            rows.append(
                (
                    f"{n:,}",
                    shape,
                    f"{{{name}launch call, drained p[50/99]}}",
                    f"{{{name}launch call, busy p[50/99]}}",
                    f"{{{name}launch + wait p[50/99]}}",
                    f"{{{name}per node}}",
                )
            )
    return rows


def _gil_rows() -> list[tuple[str, ...]]:
    kept, free = "GIL kept", "GIL let go"
    polled = "launch + poll 50 us with the GIL, then wait without"
    calls = [("empty call", f"empty call, {policy}", policy) for policy in (kept, free)]
    for n in (10, 1000):
        for what in ("launch call", "launch + wait"):
            calls += [
                (f"{n:,} nodes: {what}", f"{n} nodes: {what}, {policy}", policy)
                for policy in (kept, free)
            ]
        calls.append((f"{n:,} nodes: launch + wait", f"{n} nodes: {polled}", "polled, then let go"))
    return [
        (
            what,
            policy,
            f"{{{name}, alone p[50/99]}}",
            f"{{{name}, beside a busy thread p[50/99]}}",
            f"{{{name}, beside a busy thread p50!note}}",
        )
        for what, name, policy in calls
    ]


def _update_rows() -> list[tuple[str, ...]]:
    names = {
        "launch call, nothing set before": "plain launch call p50",
        "one node set (the first)": "set first node",
        "one node set (in the middle)": "set middle node",
        "the same by `cuGraphExecKernelNodeSetParams`": "set middle node, KernelNodeSetParams",
        "launch call after one was set": "launch call after setting the middle p50",
        "all nodes set, one by one": "set all nodes",
        "launch call after all were set": "launch call after setting all",
        "the launch call after that": "second launch call after setting all",
        "`cuGraphExecUpdate`, one node differs": "ExecUpdate, one node changed",
        "launch call after `cuGraphExecUpdate`": "launch call after ExecUpdate",
        "`cuGraphInstantiate`": "instantiate",
        "`cuGraphUpload` and its wait": "upload + wait",
    }
    return [
        (what, *(f"{{{n} nodes: {name}}}" for n in (10, 100, 1000))) for what, name in names.items()
    ]


def _copy_rows() -> list[tuple[str, ...]]:
    ways = (
        "8 MemcpyHtoDAsync",
        "MemcpyBatchAsync",
        "one kernel over pinned memory",
        "one MemcpyHtoDAsync of all bytes",
        "8 MemcpyHtoDAsync, pageable",
        "MemcpyBatchAsync, pageable, in stream order",
        "MemcpyBatchAsync, pageable, during the call",
    )
    return [
        (way, *(f"{{8 x {size} B: {way}: [call/done]}}" for size in (64, 4096, 65536)))
        for way in ways
    ]


def _staging_rows() -> list[tuple[str, ...]]:
    return [
        (
            f"{size:,} KiB",
            *(f"{{{size} KiB, {threads}, [hot/cold]}}" for threads in THREADS),
        )
        for size in (4, 64, 1024, 16384, 65536)
    ]


NUMBERS = {
    "launches": Table(
        "launch_twin",
        ["kernels", "edges", "call, drained", "call, busy", "launch + wait", "per node"],
        _launch_rows(),
        left=2,
    ),
    "mlp": Table(
        "mlp_twin",
        ["way", "round trip, hot", "cold", "copy and launch call"],
        [
            (
                way.replace("…", "that,"),
                f"{{{way}: round trip, hot p[50/99]}}",
                f"{{{way}: round trip, cold p[50/99]}}",
                f"{{{way}: copy and launch call}}",
            )
            for way in (
                "memcpy nodes, stream wait",
                "copy-in kernel, mapped output",
                "… with programmatic edges",
                "… with a completion flag",
                "… with both",
                "eager kernels, mapped output",
            )
        ],
        left=1,
    ),
    "gil": Table(
        "gil_policies",
        ["call", "policy", "alone", "beside a busy thread", "meanwhile"],
        _gil_rows(),
    ),
    "updates": Table("update_cost", ["call", "10 nodes", "100", "1,000"], _update_rows(), left=1),
    "copies": Table(
        "batched_copies",
        ["eight copies: call / done", "64 B", "4 KiB", "64 KiB"],
        _copy_rows(),
        left=1,
    ),
    "staging": Table(
        "staging",
        ["bytes: hot / cold", *THREADS],
        _staging_rows(),
        left=1,
    ),
    "bytes": Table(
        "executable_bytes",
        [
            "graph of",
            "host: graph",
            "host: executable",
            "device, an executable",
            "not returned when all are destroyed",
        ],
        [
            (
                shape,
                f"{{{shape}: host, graph}}",
                f"{{{shape}: host, instantiate}}",
                f"{{{shape}: device, all in all}}",
                f"{{{shape}: device, not returned after destruction}}",
            )
            for shape in BYTES_OF
        ],
        left=1,
    ),
}

TABLES = {**NUMBERS, **COSTS, **LIMITS}
