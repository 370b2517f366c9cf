"""Calls of host kernels as nodes of a record: one after another, each done by all threads."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastgraph._core.record import Operand, PythonCall
from fastgraph.device.backend import LaunchOptions, PlaceMaker
from fastgraph.device.native import function_work
from fastgraph.device.pending import Work
from fastgraph.ir.graph import Node
from fastgraph.ir.ops.user_kernel import with_body
from fastgraph.lower.call import Call, Temp, estimate
from fastgraph.lower.cpu.layout import choose_parts
from fastgraph.lower.cpu.movement import spread_call
from fastgraph.lower.cpu.registry import LOWERINGS, SIZED, Target
from fastgraph.lower.edges import chain
from fastgraph.lower.recorder import NodeSpec, Recorder
from fastgraph.lower.storage import Item, Lowered, Output, Place, Roots, nbytes_of
from fastgraph.lower.strides import is_prefix
from fastgraph.lower.user_kernel import UserCall, user_call

__all__ = ["HostRecorder"]

# A part of a copy is not less than this many bytes.
PAGE = 4096
# What a record and the pool's ticket hold; only work of minutes would be cut further.
MAX_PARTS = 0xFFFF


class HostRecorder(Recorder):
    """The cpu."""

    outputs_outside = False
    sized = SIZED

    def __init__(self, target: Target) -> None:
        self.target = target
        self.where = target.isa

    @property
    def lowerings(self) -> Mapping[str, Any]:
        """Mapping of str to callable: what lowers which operator."""
        return LOWERINGS

    def lower(self, node: Node, lowered: Lowered) -> list[Any]:
        """Return the calls of a node."""
        if node.op == "kernel":
            return _user_calls(node, lowered, self.copies)
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
            if not is_prefix(value.shape):
                root = Temp(nbytes_of(value), f"rows of {name}")
                lowered.run_calls.append((value.node, spread_call(root, value, self.target)))
            elif root not in written or root in claimed or nbytes_of(root) != nbytes_of(value):
                root = Temp(nbytes_of(value), f"copy of {name}")
                lowered.run_calls += [(value.node, call) for call in self.copies([(root, value)])]
            claimed.add(root)
            lowered.outputs.append(Output(name, value, root))

    def identity(self, call: Call) -> Hashable:
        """Return kernel and words."""
        return call.kernel, tuple(call.params)

    def dependencies(self, items: Sequence[Item], roots: Roots) -> list[tuple[int, ...]]:
        """Return a chain: overlap would be worth less than the bytes that order saves."""
        return chain(len(items))

    def node(self, call: Any, operands: Sequence[Operand], number: int, fault: int) -> NodeSpec:
        """Return the kernel's name and its words."""
        if isinstance(call, UserCall):
            return call.spec
        return NodeSpec(call.kernel, call.params, min(call.parts, MAX_PARTS))


def _user_calls(
    node: Node, lowered: Lowered, copies: Callable[[Sequence[tuple[Place, Place]]], list[Any]]
) -> list[Any]:
    """Return the call of a user's kernel; a Python callable gets copies of the caller's arrays.

    It may keep what it is given, and the caller's arrays are there for the run alone.
    """
    call = user_call(node, "cpu", _function_work)
    if call.work.call is None:
        return [call]
    given = set(lowered.inputs)
    pairs: list[tuple[Place, Place]] = [
        (Temp(nbytes_of(value), f"copy of {value.label}"), value)
        for value in dict.fromkeys(node.inputs)
        if lowered.roots.of(value)[0] in given
    ]
    moved = {value: place for place, value in pairs}
    ins = tuple(moved.get(value, value) for value in node.inputs)
    return [*copies(pairs), replace(call, ins=ins)]


def _function_work(
    place: PlaceMaker, f: Any, args: tuple[Any, ...], options: LaunchOptions
) -> Work:
    """What a node of a kernel is, inputs read-only for Python."""
    work = function_work(place, with_body(f), args, options)
    if not isinstance(work.call, PythonCall):
        return work
    reads = [2 + i for i, access in enumerate(work.accesses) if not access.writes]
    call = work.call._replace(function=_Guarded(work.call.function, reads))
    return work._replace(call=call)


class _Guarded:
    """A Python callable that cannot write to some of its arguments."""

    def __init__(self, function: Callable[..., object], reads: Sequence[int]) -> None:
        self.function = function
        self.reads = reads

    def __call__(self, *args: Any) -> None:
        for i in self.reads:
            args[i].flags.writeable = False
        self.function(*args)
