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
        "launch call, nothing set just before": "plain launch call p50",
        "the same with its wait": "plain launch + wait",
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

CHANGES = {
    "changes": Table(
        "update_rules",
        ["the design says", "seen", "change"],
        [
            (
                "body nodes of conditionals cannot be updated one by one",
                "{body_updates|[ExecKernelNodeSetParams/ExecNodeSetParams kernel/"
                "ExecNodeSetParams memset/ExecNodeSetParams memcpy/NodeSetEnabled kernel off]}, "
                "and each took effect",
                "They can. `update` and node scalars work in bodies; memory is no longer the only "
                "kind of scalar there, only the cheaper one for many readers.",
            ),
            (
                "node priority and its update exclude each other",
                "parameters {attributes|USE_NODE_PRIORITY, priority set: [ExecKernelNodeSetParams/"
                "ExecNodeSetParams kernel]}; another priority {attributes|USE_NODE_PRIORITY, "
                "priority set: ExecUpdate after the priority changed}",
                "A node with a priority is updated like any other. Only its priority is fixed.",
            ),
            (
                "a host callback costs about 26 µs",
                "{host_nodes|a host node adds} between kernels, {host_nodes|LaunchHostFunc + wait "
                "p50} in a stream",
                "Take the number from here, and put a callback at the end into the stream.",
            ),
            (
                "one batched copy-in where the driver has it",
                "eight pieces of 4 KiB: {batched_copies|8 x 4096 B: MemcpyBatchAsync, pageable, "
                "during the call: done}; one copy of all, staged already: "
                "{batched_copies|8 x 4096 B: one MemcpyHtoDAsync of all bytes: done}",
                "Twins of host inputs lie side by side; host arrays are staged and go in one copy. "
                "The batch is for inputs on the device, and never in stream order from pageable "
                "memory.",
            ),
            (
                "poll a mapped flag, else a query",
                "`cuStreamQuery` that finds it done {small_calls|StreamQuery, idle p50}, "
                "`cuEventQuery` {small_calls|EventQuery, done p50}",
                "“Else the query of an event that is recorded behind the launch.”",
            ),
            (
                "a wait polls with the GIL for at most 50 µs; native work under 200 µs keeps it",
                "1,000 nodes beside a busy thread: kept {gil_policies|1000 nodes: launch + wait, "
                "GIL kept, beside a busy thread p50}, let go {gil_policies|1000 nodes: launch + "
                "wait, GIL let go, beside a busy thread p50}",
                "Two limits for one question. One limit, the same for both, ruled by "
                "`release_gil`; what is expected to take longer lets go at once, without polling "
                "first.",
            ),
            (
                "a released 0.2 µs call beside a busy thread was measured at 155 µs",
                "{gil_policies|empty call, GIL let go, beside a busy thread p[50/99]} (p50 / p99)",
                "Nearly always nothing, now and then a whole switch interval: tell both, a mean "
                "hides it.",
            ),
            (
                "the model in 13.5 µs, with a completion flag 12.3",
                "{mlp_twin|… with programmatic edges: round trip, hot p50}, "
                "{mlp_twin|… with both: round trip, hot p50}",
                "The twin to reach is faster than it was.",
            ),
            (
                "programmatic wherever legal; nothing about width",
                "ten kernels in eight chains: launch call {launch_twin|eight chains, 10: launch "
                "call, drained p50}, in one {launch_twin|plain, 10: launch call, drained p50}",
                "Lowering may join few tiny branches into one chain.",
            ),
            (
                "body nodes: the kinds that CUDA forbids are refused",
                "at add {body_kinds|[host/event record/memcpy pageable to device], in a body: "
                "add}, at instantiation {body_kinds|[host/event record/memcpy pageable to "
                "device], in a body: instantiate}",
                "Copies of pageable memory are among them. The builder checks when a node is "
                "added, and looks through foreign children.",
            ),
            (
                "a refused update means one rebuild",
                "a graph with conditionals, from another one {body_updates|ExecUpdate from a twin "
                "graph}",
                "Before a rebuild, a rebinding may try one update of the whole graph, with "
                "conditionals too. It does not switch nodes on again.",
            ),
            (
                "calls in a forked child end in a clear error",
                "`cuStreamQuery` {forked_child|forked child: StreamQuery}; a launch ends in "
                "{forked_child|forked child: ended by signal}",
                "The flag is looked at before the launch and before each poll: here the driver "
                "gives no error.",
            ),
            (
                "host and device memory stays flat",
                "not returned after all of {executable_bytes|1 kernel: device, all in all!note}: "
                "{executable_bytes|1 kernel: device, not returned after destruction}",
                "The driver keeps what executables took and uses it again. Soak tests compare "
                "with a plateau, not with the start; `max_bytes` counts an estimate of ours.",
            ),
        ],
    ),
}

TABLES = {**NUMBERS, **COSTS, **LIMITS, **CHANGES}
