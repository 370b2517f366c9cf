"""``python -m bench.gpu.facts``: what the driver takes, refuses and costs.

The design of the cuda device rests on these facts, and the tests' fake driver keeps the rules
among them. Each probe is a native function; see the sources beside this file.
"""

from __future__ import annotations

import sys

from bench.gpu.probes import command

__all__ = ["FACTS"]

FACTS = {
    "gil_policies": "a replay beside a busy Python thread, with and without the GIL",
    "body_updates": "set-params on nodes inside the body of a conditional",
    "programmatic_bodies": "programmatic edges inside the body of a conditional",
    "programmatic_edges": "programmatic edges between kinds of nodes",
    "conditional_rules": "how often a graph may be instantiated, cloned, embedded",
    "dependency_rules": "duplicate, foreign and circular dependencies",
    "body_kinds": "kinds of nodes that a body takes",
    "attributes": "priority and other attributes, before and after instantiation",
    "update_rules": "changes of parameters that an executable takes",
    "launch_rules": "streams, threads and arguments of a launch",
    "update_cost": "a launch after updates, in graphs of 10, 100, 1000 kernels",
    "update_cost_kinds": "updates of memset and memcpy nodes",
    "executable_bytes": "device and host bytes of executables",
    "staging": "host memory to pinned memory by 1, 2, 4 threads",
    "batched_copies": "eight small copies, one by one, batched, by a kernel",
    "scalar_cost": "a scalar by value or in memory, in 1000 nodes",
    "host_nodes": "cost of host nodes, and what they may call",
    "small_calls": "queries, events, the current context; one executable on two streams",
    "poisoned_context": "what each call answers after an illegal address",
    "forked_child": "what each call answers in a forked child",
}

if __name__ == "__main__":
    sys.exit(command("facts", FACTS, __doc__))
