"""Calls of host kernels as nodes of a record: one after another, each done by all threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastgraph._core.record import Operand
from fastgraph.ir.graph import Node
from fastgraph.lower.call import Call, Temp, estimate
from fastgraph.lower.cpu.layout import choose_parts
from fastgraph.lower.cpu.registry import LOWERINGS, Target
from fastgraph.lower.edges import chain
from fastgraph.lower.recorder import NodeSpec, Recorder
from fastgraph.lower.storage import Item, Lowered, Output, Place, Roots, nbytes_of

__all__ = ["HostRecorder"]

# A part of a copy is not less than this many bytes.
PAGE = 4096
# What a record and the pool's ticket hold; only work of minutes would be cut further.
MAX_PARTS = 0xFFFF


class HostRecorder(Recorder):
    """The cpu."""

    outputs_outside = False

    def __init__(self, target: Target) -> None:
        self.target = target
        self.where = target.isa

    @property
    def lowerings(self) -> Mapping[str, Any]:
        """Mapping of str to callable: what lowers which operator."""
        return LOWERINGS

    def lower(self, node: Node, lowered: Lowered) -> list[Any]:
        """Return the calls of a node."""
        return LOWERINGS[node.op](node, self.target)

    def copies(self, pairs: Sequence[tuple[Place, Place]]) -> list[Any]:
        """Return one call for each pair."""
        calls = []
        for to, source in pairs:
            size = nbytes_of(to)
            cost = estimate(0, 2 * size)
            parts = choose_parts(cost, self.target.threads, max(size // PAGE, 1))
            words = [size]
            calls.append(
                Call(
                    "copy_bytes", (to,), (source,), words, parts, cost,
                    nbytes=2 * size, label="copy",
                )
            )  # fmt: skip
        return calls

    def finish(self, lowered: Lowered) -> None:
        """Give every output bytes of its own in the arena, by a copy where it shares them."""
        roots = lowered.roots
        written = {roots.of(out)[0] for _, call in lowered.run_calls for out in call.outs}
        claimed: set[Place] = set()
        for name, value in lowered.graph.outputs:
            root, _ = roots.of(value)
            if root not in written or root in claimed or nbytes_of(root) != nbytes_of(value):
                root = Temp(nbytes_of(value), f"copy of {name}")
                lowered.run_calls += [(value.node, call) for call in self.copies([(root, value)])]
            claimed.add(root)
            lowered.outputs.append(Output(name, value, root))

    def dependencies(self, items: Sequence[Item], roots: Roots) -> list[tuple[int, ...]]:
        """Return a chain: overlap would be worth less than the bytes that order saves."""
        return chain(len(items))

    def node(self, call: Call, operands: Sequence[Operand], number: int, fault: int) -> NodeSpec:
        """Return the kernel's name and its words."""
        return NodeSpec(call.kernel, call.params, min(call.parts, MAX_PARTS))
