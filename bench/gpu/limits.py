"""What the driver takes and refuses, and what follows for the code: tables of docs/cuda_facts.md.

Where several findings stand for one fact, they must agree, or the report says so.
"""

from __future__ import annotations

from bench.gpu.cells import FACTS, Table

__all__ = ["LIMITS"]

LIMITS = {
    "update_facts": Table(
        "update_rules",
        FACTS,
        [
            (
                "A memset node set; a memcpy node; a node switched on or off",
                "{update_cost_kinds|set a memset}; {update_cost_kinds|set a memcpy}; "
                "{update_cost_kinds|NodeSetEnabled}",
                "As cheap as kernels.",
            ),
            (
                "The launch call after either",
                "{update_cost_kinds|launch call after setting a [memset/memcpy]}; plain "
                "{update_cost_kinds|memset + memcpy: plain launch call}",
                "One update makes the next launch call no dearer.",
            ),
            (
                "All 1,000 nodes, one by one, over one `cuGraphExecUpdate` (one node differs)",
                "{update_cost|1000 nodes: set all nodes ÷ update_cost|1000 nodes: ExecUpdate, "
                "one node changed}",
                "A rebinding that moves most nodes may be cheaper by one update of the whole "
                "graph. What it costs to change the graph's own nodes was not measured.",
            ),
            (
                "A kernel: grid, block, shared memory within the limit, function",
                "{kernel: [grid/block/shared memory 16 KiB/function, same signature]}",
                "`update` hands these on.",
            ),
            (
                "A kernel: shared memory above 48 KiB; with the function's limit raised",
                "{kernel: shared memory 64 KiB, limit not raised}; "
                "{kernel: shared memory 64 KiB, limit raised}",
                "`update` raises the limit like `add_function`.",
            ),
            (
                "A kernel: another function with other parameters",
                "{kernel: function, other signature}",
                "The driver compares nothing: the check of arguments is ours.",
            ),
            (
                "A memset: value, destination, width, element size",
                "{memset: [value/destination/width/element size]}",
                "Taken one by one.",
            ),
            (
                "A memset: number of rows",
                "{memset: rows [1 to 4/4 to 8]}",
                "Rebuild, or fill dense memory in one row.",
            ),
            (
                "A memcpy: size, source, destination, pinned and pageable",
                "{memcpy: [size/source/destination/pinned source to pageable source/pageable "
                "source to pinned source]}",
                "Taken one by one.",
            ),
            (
                "A memcpy: direction",
                "{memcpy: [device to host to device/host to device to device to host]}",
                "Rebuild, counted.",
            ),
            (
                "Zero bytes: memset, memcpy, in an update and when added",
                "{[memset: width of 0/memcpy: size of 0]} in an update, "
                "{launch_rules|AddNode, [memset of width 0/memcpy of 0 bytes]} when added",
                "An empty copy or fill becomes an empty node, or a node that is switched off.",
            ),
            (
                "A child graph: the same shape; one node more",
                "{child graph: same shape}; {child graph: one node more}",
                "A foreign child is updated by its like; else rebuild.",
            ),
            (
                "Switched off: kernel, memset, memcpy",
                "{NodeSetEnabled off: [kernel/memset/memcpy]}",
                "`enabled=` for these …",
            ),
            (
                "Switched off: host, empty, child graph",
                "{NodeSetEnabled off: [host/empty/child graph]}",
                "… and UnsupportedError, by name, for these.",
            ),
            (
                "An update while a launch of the executable runs; its call",
                "{update while a launch runs}, {update while a launch runs: call}",
                "Neither touches the running launch (its sum was checked) nor waits: "
                "`set` and `update` do not wait.",
            ),
            (
                "Launch and wait of 1,000 nodes in an executable with updated nodes, over a fresh "
                "one",
                "{update_cost|1000 nodes: plain launch + wait ÷ launch_twin|plain, 1000: launch + "
                "wait p50}",
                "Not settled, see the end.",
            ),
            (
                "After a refusal the executable",
                "{memset: rows 1 to 4!note}",
                "It works as before. The shadow changes only after the driver has taken it.",
            ),
        ],
    ),
    "body_updates": Table(
        "body_updates",
        FACTS,
        [
            (
                "A kernel in a body, by both calls",
                "{[ExecKernelNodeSetParams/ExecNodeSetParams kernel]}: "
                "{ExecNodeSetParams kernel!note}",
                "Nodes in bodies are updated one by one like all others.",
            ),
            (
                "A memset in a body, by both calls",
                "{[ExecNodeSetParams memset/ExecMemsetNodeSetParams]}: "
                "{ExecMemsetNodeSetParams!note}",
                "The same.",
            ),
            (
                "A memcpy in a body, by both calls",
                "{[ExecNodeSetParams memcpy/ExecMemcpyNodeSetParams]}: "
                "{ExecMemcpyNodeSetParams!note}",
                "The same. (The copied word is the sum's, read as an integer.)",
            ),
            (
                "A kernel in a body switched off",
                "{NodeSetEnabled kernel off}: {NodeSetEnabled kernel off!note}",
                "The same.",
            ),
            (
                "`cuGraphExecUpdate` with the graph, after that",
                "{ExecUpdate, same graph}: {ExecUpdate, same graph!note}",
                "It reaches the body (memset and copy are as in the graph again), and leaves what "
                "is switched off switched off: the shadow keeps that bit apart.",
            ),
            (
                "`cuGraphExecUpdate` with another graph of the same shape",
                "{ExecUpdate from a twin graph}: {ExecUpdate from a twin graph!note}",
                "A graph with conditionals can be rebound without a rebuild. (The kernel was still "
                "switched off, so its new value was not seen.)",
            ),
        ],
    ),
    "programmatic": Table(
        "programmatic_edges",
        FACTS,
        [
            (
                "Kernel to kernel",
                "{kernel -> kernel: [add/instantiate/run]}",
                "The only pair that may have one.",
            ),
            (
                "Kernel to memcpy, memset, empty, host, child graph, event, conditional",
                "{kernel -> [memcpy/memset/empty/host/child graph/event record/conditional]: add}",
                "Plain edge, without a word: `programmatic=True` is a statement about the kernel.",
            ),
            (
                "Memset, memcpy, empty, child graph to kernel",
                "{[memset/memcpy/empty/child graph] -> kernel: add}",
                "The same.",
            ),
            (
                "Kernel to a kernel that never waits; from one that never triggers",
                "{[kernel -> kernel that never waits/kernel that never triggers -> kernel]: "
                "[add/instantiate/run]}",
                "The driver checks neither. A kernel that never waits is a race that only our "
                "hazard rules can see.",
            ),
            (
                "Programmatic and plain edges into one node, from different nodes",
                "{[one programmatic and one full edge in/two programmatic edges in]: "
                "[add/instantiate/run]}",
                "Edge by edge, no rule for the node.",
            ),
            (
                "Both kinds between the same two nodes",
                "{programmatic and full edge from one node: add}",
                "The record holds one edge a pair; plain wins.",
            ),
            (
                "In a body",
                "{programmatic_bodies|body, programmatic edges: [add/instantiate]}; "
                "{programmatic_bodies|body, programmatic over plain} per node",
                "The same rules inside as outside.",
            ),
        ],
    ),
    "conditionals": Table(
        "conditional_rules",
        FACTS,
        [
            (
                "With a conditional: a second live executable, `cuGraphClone`",
                "{with a conditional: [second live instantiation/GraphClone]}",
                "One driver graph an executable, always.",
            ),
            (
                "With a conditional: as a child, cloned or moved",
                "{with a conditional: child node, [cloned/moved]}",
                "Our graphs are inlined; a foreign handle with one is refused by name.",
            ),
            (
                "With a conditional: executable again once the first is gone; updated by itself",
                "{with a conditional: [instantiation after the first was destroyed/ExecUpdate with "
                "itself]}",
                "A rebuild still goes into a graph of its own: the old executable lives until the "
                "new one stands.",
            ),
            (
                "`cuGraphDestroy` while the executable lives, and a launch after it",
                "{[plain/with a conditional]: [GraphDestroy while its executable lives/launch "
                "after GraphDestroy]}",
                "No order of destruction to keep. (Updates after it were not tried.)",
            ),
            (
                "A child graph that was moved: moved again, instantiated",
                "{plain: [moved a second time/instantiate a moved graph]}",
                "A moved handle is spent: children are cloned.",
            ),
            (
                "An empty body",
                "{conditional with an empty body: [instantiate/run]}",
                "No special case.",
            ),
            (
                "Two nodes on one handle; a handle without a node",
                "{a second node on one handle: add} at add; "
                "{a handle without a node: instantiate} at instantiation",
                "A handle is made with its node. If adding the node fails, the whole graph is "
                "thrown away.",
            ),
            (
                "An edge between a body's node and an outer one",
                "{an edge from a body's node to an outer one}",
                "ScopeError, before the driver is asked.",
            ),
            (
                "Nested two, three, four deep, handles made on the body",
                "{body_kinds|conditionals nested [2/3/4] deep: [add/instantiate/run]}",
                "No limit of our own; deeper was not tried.",
            ),
        ],
    ),
    "dependencies": Table(
        "dependency_rules",
        FACTS,
        [
            (
                "The same node twice among the dependencies",
                "{[AddNode/AddKernelNode], the same dependency twice}, "
                "{AddNode, the same dependency twice: nodes added} added",
                "The builder removes doubles before it adds.",
            ),
            (
                "An edge that is there, also as the other kind",
                "{AddDependencies, [an edge that is there/that edge as programmatic]}",
                "The planner adds only edges that are not there.",
            ),
            (
                "A node on itself, a null one, one of another graph",
                "{[AddDependencies, a node on itself/AddNode, null dependency/AddNode, a node of "
                "another graph]}",
                "ScopeError or GraphError, before the driver is asked.",
            ),
            (
                "A cycle",
                "{AddDependencies, a cycle} when added, {a cycle: instantiate} at instantiation",
                "The edges that the planner adds are checked by us: the driver names no node.",
            ),
        ],
    ),
    "bodies": Table(
        "body_kinds",
        FACTS,
        [
            (
                "Kernel, empty, memset of every size, 2-d memset",
                "{[kernel/empty/memset 1 byte/memset 2 bytes/memset 4 bytes/memset 2-d], in a "
                "body: [add/instantiate/run]}",
                "Allowed.",
            ),
            (
                "Copies between device and pinned memory, any way",
                "{memcpy [device to device/pinned to device/device to pinned/pinned to pinned], in "
                "a body: [add/instantiate/run]}",
                "Allowed.",
            ),
            (
                "Copies from or to pageable memory",
                "{memcpy [pageable to device/device to pageable], in a body: add} at add, "
                "{memcpy [pageable to device/device to pageable], in a body: instantiate} at "
                "instantiation",
                "Refused by us at `add_copy`, on both devices; the error says to use "
                "`create_host_buffer`.",
            ),
            (
                "Host, event record and wait, allocation, batched memory operation",
                "{[host/event record/event wait/memory allocation/batched memory operation], in a "
                "body: add} at add, {[host/event record/event wait/memory allocation/batched "
                "memory operation], in a body: instantiate} at instantiation",
                "Refused by us when added: the driver's answer comes late and names no node.",
            ),
            (
                "A child graph; one that holds a host node",
                "{child graph, in a body: [add/instantiate/run]}; "
                "{child graph with a host node, in a body: instantiate} at instantiation",
                "A foreign child of a body is looked through for forbidden kinds.",
            ),
            (
                "A free of memory that no node of the graph allocated",
                "{memory free, [in a body/outside]: add} at add",
                "There is no such node in a record.",
            ),
            (
                "Cluster and cooperative kernels",
                "{[cluster/cooperative] kernel, in a body: [attribute/instantiate/run]}",
                "Allowed.",
            ),
        ],
    ),
    "attributes": Table(
        "attributes",
        FACTS,
        [
            (
                "Parameters of a node with a priority, executable with `USE_NODE_PRIORITY`",
                "{USE_NODE_PRIORITY, priority set: [ExecKernelNodeSetParams/ExecNodeSetParams "
                "kernel/NodeSetEnabled]}",
                "Priority and updates go together …",
            ),
            (
                "Such an executable, updated after the priority itself changed",
                "{USE_NODE_PRIORITY, [priority set/priority not set]: ExecUpdate after the "
                "priority changed}, {USE_NODE_PRIORITY, priority set: ExecUpdate after the "
                "priority changed!note}",
                "… and only another priority means a rebuild.",
            ),
            (
                "The same without the flag",
                "{no flag, [priority set/priority not set]: ExecUpdate after the priority changed}",
                "Taken is not the same as obeyed: use the flag where a node has a priority.",
            ),
            (
                "Cooperative, changed by an update; set before instantiation",
                "{cooperative: ExecUpdate after that}; "
                "{cooperative: set before instantiation: [instantiate/run]}",
                "Rebuild.",
            ),
            (
                "Cluster, access policy window, memory domain, changed by an update",
                "{[cluster of 2/access policy window/memory synchronisation domain]: ExecUpdate "
                "after that}",
                "Taken.",
            ),
        ],
    ),
    "lost": Table(
        "poisoned_context",
        FACTS,
        [
            (
                "The launch of the faulty graph; the query after it",
                "{launch of the faulty graph}; {poisoned: the StreamQuery that finds it}",
                "A fault is found by a later call: that one marks the context as poisoned.",
            ),
            (
                "Launch, allocation, copy, event, instantiation, free, destruction of streams, "
                "events, modules",
                "{poisoned: [GraphLaunch/MemAlloc/MemcpyDtoH/EventQuery/EventRecord/"
                "GraphInstantiate/MemGetInfo/MemFree/MemFreeHost/EventDestroy/StreamDestroy/"
                "ModuleUnload]}",
                "Fail fast from the mark on. Destructors stay quiet about this code.",
            ),
            (
                "Destruction of graphs and executables, `cuGraphCreate`, attributes of the device",
                "{poisoned: [GraphExecDestroy/GraphDestroy/GraphCreate/DeviceGetAttribute/"
                "CtxGetCurrent/DevicePrimaryCtxRelease]}",
                "That one call succeeds proves nothing: only the mark counts.",
            ),
            (
                "In a forked child: `cuInit`, context, allocation",
                "{forked_child|forked child: [Init/CtxGetCurrent/DeviceGetCount/MemAlloc]}",
                "An error with a name, as for any call …",
            ),
            (
                "In a forked child: `cuStreamQuery`",
                "{forked_child|forked child: StreamQuery}",
                "… but a wait would believe that all is done …",
            ),
            (
                "In a forked child: `cuGraphLaunch`; what ended the child",
                "no answer; {forked_child|forked child: ended by signal}",
                "… and a launch kills the process. The flag that is set at the fork is looked at "
                "before every driver call.",
            ),
            (
                "The parent's launch after the fork",
                "{forked_child|the parent's launch, after the fork}",
                "The parent notices nothing.",
            ),
        ],
    ),
}
