"""Launches as nodes of a record, and the order in which a GPU may do them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastgraph._core.record import Launch, Operand, Record
from fastgraph.errors import UnsupportedError
from fastgraph.ir.graph import Node
from fastgraph.lower.cuda import LOWERINGS, Target
from fastgraph.lower.cuda.call import KernelCode
from fastgraph.lower.cuda.order import launch_edges
from fastgraph.lower.cuda.planned import LibraryCall
from fastgraph.lower.cuda.registry import SIZED
from fastgraph.lower.cuda.seam import close_seams, move_calls
from fastgraph.lower.flow import Flow, walk
from fastgraph.lower.recorder import NodeSpec, Recorder
from fastgraph.lower.residency import NOTHING, Residency
from fastgraph.lower.storage import Item, Lowered, Place, Roots, nbytes_of
from fastgraph.lower.user_kernel import FunctionWork, UserCall, user_call

__all__ = ["CudaRecorder", "codes_of"]

WORD = 8


def no_functions(*args: Any) -> Any:
    """Refuse kernels of users: where there is no device, none can be loaded."""
    raise UnsupportedError("kernels of users need a device")


class CudaRecorder(Recorder):
    """A GPU.

    Parameters
    ----------
    target : Target
    function_of : callable
        Gives the loaded function of a code; asked once all calls are known.
    device : str
        What messages call it.
    function_work : callable, optional
        The device's `Backend.function_work`, for kernels of users.
    """

    outputs_outside = True
    sized = SIZED

    def __init__(
        self,
        target: Target,
        function_of: Callable[[KernelCode], Any],
        device: str = "cuda",
        function_work: FunctionWork = no_functions,
    ) -> None:
        self.target = target
        self.where = f"cuda ({target.arch})"
        self.function_of = function_of
        self.device = device
        self.function_work = function_work

    @property
    def lowerings(self) -> Mapping[str, Any]:
        """Mapping of str to callable: what lowers which operator."""
        return LOWERINGS

    def lower(self, node: Node, lowered: Lowered) -> list[Any]:
        """Return the calls of a node."""
        if node.op == "kernel":
            return [user_call(node, self.device, self.function_work)]
        target = replace(self.target, roots=lowered.roots, is_set=lowered.is_set)
        return list(LOWERINGS[node.op](node, target))

    def copies(self, pairs: Sequence[tuple[Place, Place]]) -> list[Any]:
        """Return kernels that move the bytes, as few as can be."""
        pieces = [(to, source, nbytes_of(to)) for to, source in pairs]
        return [call for _, call in move_calls("copy", pieces, None, (), self.target)]

    def finish(self, lowered: Lowered, residency: Residency = NOTHING) -> None:
        """Add the nodes that bring inputs in and outputs out, also into handles."""
        close_seams(lowered, self.target, residency)

    def identity(self, call: Any) -> Hashable:
        """Return the kernel, its grid and its arguments."""
        return call.code, call.grid, call.block, call.arguments, call.shared_bytes, call.cluster

    def dependencies(self, items: Sequence[Item], roots: Roots) -> list[tuple[int, ...]]:
        """Return the edges of a run."""
        return launch_edges(items, roots)

    def fault_memory(self, record: Record) -> int:
        """Add the word in which kernels leave the number of a node that met bad data."""
        return record.add_memory("staging", "fault", WORD)

    def node(self, call: Any, operands: Sequence[Operand], number: int, fault: int) -> NodeSpec:
        """Return the launch."""
        if isinstance(call, UserCall):
            return call.spec
        if isinstance(call, LibraryCall):
            return NodeSpec(None, call=call.planned.foreign)
        extra = [Operand(fault, 0, WORD, False, False)] if ("fault",) in call.arguments else []
        arguments: list[tuple[Any, ...]] = []
        for argument in call.arguments:
            kind = argument[0]
            rest: Any = argument[1:]
            if kind == "out":
                arguments.append(("pointer", rest[0]))
            elif kind == "in":
                arguments.append(("pointer", len(call.outs) + rest[0]))
            elif kind == "scalar":
                arguments.append(("scalar", len(call.outs) + rest[0], WORD))
            elif kind == "fault":
                arguments.append(("pointer", len(operands)))
            elif kind == "node":
                arguments.append(("value", (number + 1).to_bytes(WORD, "little")))
            else:
                arguments.append(argument)
        launch = Launch(
            self.function_of(call.code),
            call.grid,
            call.block,
            tuple(arguments),
            call.shared_bytes,
            cluster=(call.cluster, 1, 1) if call.cluster > 1 else None,
            # Before this nothing waits by itself, so edges must be plain.
            programmatic=call.programmatic and self.target.capability >= (9, 0),
        )
        return NodeSpec(None, call=launch, extra=extra)


def codes_of(lowered: Lowered) -> dict[KernelCode, int]:
    """Return the kernels of all calls, each once, with the most dynamic shared memory it gets."""
    found: dict[KernelCode, int] = {}
    for _, call in walk((*lowered.set_calls, *lowered.run_calls)):
        if isinstance(call, Flow | LibraryCall | UserCall):
            continue
        found[call.code] = max(found.get(call.code, 0), call.shared_bytes)
    return found
