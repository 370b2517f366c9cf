"""What calls cost, and what follows for the code: tables of docs/cuda_facts.md."""

from __future__ import annotations

from bench.gpu.cells import FACTS, Table

__all__ = ["COSTS"]

COSTS = {
    "launch_facts": Table(
        "launch_twin",
        FACTS,
        [
            (
                "A programmatic edge instead of a plain one, per node of 1,000",
                "{programmatic, 1000: per node ÷ plain, 1000: per node}",
                "Programmatic wherever the hazards allow it.",
            ),
            (
                "Eight chains instead of one, per node of 1,000",
                "{eight chains, 1000: per node ÷ plain, 1000: per node}",
                "Independent branches stay branches in graphs of this size …",
            ),
            (
                "The same with ten kernels: launch call, back to back",
                "{eight chains, 10: launch call, drained p50} against "
                "{plain, 10: launch call, drained p50}, "
                "{eight chains, 10: back to back, each ÷ plain, 10: back to back, each}",
                "… but width costs the launch call, and in a small graph more than it gains: the "
                "lowering may put a few tiny branches one after another.",
            ),
            (
                "Single launches of 100 kernels and their wait, beside the graph's",
                "{eager launches, 100: all + wait ÷ plain, 100: launch + wait p50}",
                "The reason for all of this.",
            ),
            (
                "A launch call of 1,000 kernels into a drained stream, over one into a busy one",
                "{plain, 1000: launch call, drained p50 ÷ plain, 1000: launch call, busy p50}",
                "`replay()` is measured against the C loop in both states, apart.",
            ),
            (
                "One executable on two streams, two kernels of 2 ms",
                "{small_calls|one executable on two streams, 2 ms each}; two executables "
                "{small_calls|two executables on two streams, 2 ms each}",
                "One executable runs one launch at a time: lanes and clones have their own.",
            ),
            (
                "Launch on stream 0, the legacy and the per-thread stream",
                "{launch_rules|launch on [stream 0/the legacy stream/the per-thread stream]}",
                "A borrowed stream needs no special case at the launch.",
            ),
            (
                "Launch from a thread that has no current context",
                "{launch_rules|launch on a thread without a context}",
                "The hot path asks for no context.",
            ),
            (
                "From such a thread: `cuMemAlloc`, `cuEventCreate`, `cuGraphInstantiate`",
                "{launch_rules|[MemAlloc/EventCreate/GraphInstantiate] on a thread without a "
                "context}",
                "Every other verb compares the current context with its own, sets and restores it.",
            ),
            (
                "`cuCtxGetCurrent`, `cuCtxSetCurrent`; the clock itself",
                "{small_calls|[CtxGetCurrent/CtxSetCurrent, the same] p50}; "
                "{small_calls|clock p50}",
                "Comparing costs next to nothing.",
            ),
            (
                "Launch into a capturing stream",
                "{launch_rules|launch on a capturing stream}; then `cuStreamEndCapture` "
                "{launch_rules|StreamEndCapture after that}",
                "The launch destroys the capture: where the stream is not ours, ask whether it "
                "captures, and raise before. (The cost of asking was not measured.)",
            ),
            (
                "A graph without nodes",
                "{launch_rules|an empty graph: [instantiate/run]}",
                "No special case.",
            ),
            (
                "An allocation beyond all memory; a launch after it",
                "{launch_rules|MemAlloc of 1 TiB}; {launch_rules|launch on the stream, after that}",
                "Out of memory is an ordinary error; the context stays good.",
            ),
        ],
    ),
    "small_calls": Table(
        "small_calls",
        FACTS,
        [
            (
                "`cuStreamQuery` on a stream that is done; on a busy one",
                "{StreamQuery, idle p50}; {StreamQuery, busy p50}",
                "The query that ends a wait is the dear one …",
            ),
            (
                "`cuEventQuery`, done; pending",
                "{EventQuery, done p50}; {EventQuery, pending p50}",
                "… so where there is no mapped flag, record an event and query that.",
            ),
            (
                "`cuEventRecord`",
                "{EventRecord, idle p50}",
                "What that adds to the launch, on an idle stream.",
            ),
            (
                "`cuStreamSynchronize` on a stream that is done",
                "{StreamSynchronize, idle p50}",
                "Cheaper than the stream's query; usable only once it is known to be done.",
            ),
            (
                "`cuEventRecord` and `cuStreamWaitEvent`",
                "{EventRecord + StreamWaitEvent}",
                "Price of a replay on another stream than the last one's: only then.",
            ),
        ],
    ),
    "gil_facts": Table(
        "gil_policies",
        FACTS,
        [
            (
                "Launch call of 1,000 nodes beside a busy thread, kept; let go",
                "{1000 nodes: launch call, GIL kept, beside a busy thread p50}; "
                "{1000 nodes: launch call, GIL let go, beside a busy thread p50}",
                "An enqueue keeps the GIL. If the other thread takes it meanwhile, it comes back "
                "after the interpreter's switch interval, however short the call was.",
            ),
            (
                "Launch and wait for 10 nodes beside it: kept; polled first; let go",
                "{10 nodes: launch + wait, GIL kept, beside a busy thread p50}; "
                "{10 nodes: launch + poll 50 us with the GIL, then wait without, beside a busy "
                "thread p50}; {10 nodes: launch + wait, GIL let go, beside a busy thread p50}",
                "Poll with the GIL first: for what ends within the limit it is as good as keeping.",
            ),
            (
                "Launch and wait for 1,000 nodes beside it: kept; polled first; let go",
                "{1000 nodes: launch + wait, GIL kept, beside a busy thread p50}; "
                "{1000 nodes: launch + poll 50 us with the GIL, then wait without, beside a busy "
                "thread p50}; {1000 nodes: launch + wait, GIL let go, beside a busy thread p50}",
                "Past the limit polling gains nothing. One who wants the latency needs "
                "`release_gil=False` to reach this wait too.",
            ),
            (
                "The same, kept, at the 99th percentile",
                "{1000 nodes: launch + wait, GIL kept, beside a busy thread p99}",
                "Keeping is no guarantee: after a long call the interpreter hands the GIL to who "
                "has asked for it.",
            ),
            (
                "Launch and wait for 10 nodes alone: kept; polled first; let go",
                "{10 nodes: launch + wait, GIL kept, alone p50}; "
                "{10 nodes: launch + poll 50 us with the GIL, then wait without, alone p50}; "
                "{10 nodes: launch + wait, GIL let go, alone p50}",
                "Without another thread the policy does not matter to a wait …",
            ),
            (
                "Launch call of 10 nodes alone: kept; let go",
                "{10 nodes: launch call, GIL kept, alone p50}; "
                "{10 nodes: launch call, GIL let go, alone p50}",
                "… but it does to an enqueue.",
            ),
        ],
    ),
    "copy_facts": Table(
        "batched_copies",
        FACTS,
        [
            (
                "A batch of eight over one copy of all bytes, 64 B, call; 4 KiB; 64 KiB",
                "{8 x 64 B: MemcpyBatchAsync: call ÷ 8 x 64 B: one MemcpyHtoDAsync of all bytes: "
                "call}; {8 x 4096 B: MemcpyBatchAsync: call ÷ 8 x 4096 B: one MemcpyHtoDAsync of "
                "all bytes: call}; {8 x 65536 B: MemcpyBatchAsync: call ÷ 8 x 65536 B: one "
                "MemcpyHtoDAsync of all bytes: call}",
                "Host inputs are staged side by side and go in one copy; the twins lie side by "
                "side for that.",
            ),
            (
                "A kernel over pinned memory over that one copy, 64 B, done",
                "{8 x 64 B: one kernel over pinned memory: done ÷ 8 x 64 B: one MemcpyHtoDAsync of "
                "all bytes: done}",
                "As the first node of the graph it needs no call of its own: see the model.",
            ),
            (
                "A batch over single calls, pinned, 64 B, done",
                "{8 x 64 B: MemcpyBatchAsync: done ÷ 8 x 64 B: 8 MemcpyHtoDAsync: done}",
                "Batches are for what cannot be staged: inputs that are on the device (not "
                "measured).",
            ),
            (
                "Pageable, in stream order, behind 3 ms of work: the call",
                "{pageable batch behind 3 ms, in stream order: call}",
                "Never `SRC_ACCESS_ORDER_STREAM` with pageable memory: the call waits for the "
                "stream.",
            ),
            (
                "Pageable, during the call, behind 3 ms of work: the call",
                "{pageable batch behind 3 ms, during the call: call}",
                "`SRC_ACCESS_ORDER_DURING_API_CALL` has read them and returns.",
            ),
            (
                "On stream 0 and the legacy stream; on the per-thread stream",
                "{MemcpyBatchAsync on [stream 0/the legacy stream]}; "
                "{MemcpyBatchAsync on the per-thread stream}",
                "Single copies there.",
            ),
            (
                "No copies, or one of no bytes",
                "{MemcpyBatchAsync of 0 [copies/bytes]}",
                "Empty inputs are left out when the batch is made.",
            ),
        ],
    ),
    "staging_facts": Table(
        "staging",
        FACTS,
        [
            (
                "The bus, 64 MiB from pinned memory",
                "{pinned to device, 64 MiB}",
                "What staging has to keep up with.",
            ),
            (
                "4 KiB by one thread; by two",
                "{4 KiB, 1 thread, hot!note}; {4 KiB, 2 threads, hot!note}",
                "Small inputs are staged by the caller alone.",
            ),
            (
                "64 KiB, cold, by one, two, four threads",
                "{64 KiB, 1 thread, cold!note}; {64 KiB, 2 threads, cold!note}; "
                "{64 KiB, 4 threads, cold!note}",
                "From here the pool pays, if its workers spin.",
            ),
        ],
    ),
    "scalars": Table(
        "scalar_cost",
        FACTS,
        [
            (
                "A scalar that all of 1,000 kernels read from memory, over one by value",
                "{in memory over by value}",
                '`where="memory"` costs the kernels nothing.',
            ),
        ],
    ),
    "host_nodes": Table(
        "host_nodes",
        FACTS,
        [
            (
                "A host node between two kernels adds",
                "{a host node adds}",
                "No host nodes of our own on a path that counts.",
            ),
            (
                "Launch call with one; without",
                "{kernel, host, kernel: launch call}; {kernel, kernel: launch call}",
                "The call pays too.",
            ),
            (
                "`cuLaunchHostFunc` and its wait; a graph of one host node",
                "{LaunchHostFunc + wait p50}; {host alone: launch + wait p50}",
                "A callback at the end belongs in the stream, behind the graph.",
            ),
            (
                "Calls of the driver in it",
                "{in a host node: [CtxGetCurrent/DeviceGetAttribute/MemGetInfo/EventCreate/"
                "MemAlloc]}",
                "The driver enforces most of the rule. A Python callback that calls us gets a "
                "GraphError from us.",
            ),
            (
                "A memset in it; the stream afterwards",
                "{in a host node: MemsetD32Async}; "
                "{the stream after a host node that called the driver}",
                "… but not all of it.",
            ),
        ],
    ),
}
