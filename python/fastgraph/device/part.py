"""A device graph as it goes into another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastgraph._core import buffer
from fastgraph._core.buffer import Block, Buffer
from fastgraph._core.record import Launch, RecordNode
from fastgraph.device.child import Part, Port
from fastgraph.device.pending import PointerSlot, Scalar, Scratch, Where, where_of
from fastgraph.device.state import GraphState

__all__ = ["part_of"]


def part_of(state: GraphState) -> Part:
    """Return what a graph is now; called by work of `locked`.

    Its scalars keep the values that they have, and pointers are the buffers that they point to.
    """
    memories = state.record.memories
    blocks = state.placed(state.version.blocks)
    inputs = [Port(str(i), *place) for i, place in enumerate(state.twin_places)]
    twins = {id(blocks[port.memory][0]): port.memory for port in inputs}
    own: dict[int, bool] = {}
    bound: dict[int, tuple[Block, int]] = {}
    aliases: dict[int, Where] = {}
    values: dict[int, np.ndarray[Any, Any]] = {}
    defaults = state.defaults
    for number, memory in enumerate(memories):
        block, offset = blocks[number]
        if memory.kind == "scalars":
            values[number] = _values(state, number, memory.nbytes)
            kept = state.backend.allocate_for(
                memory.nbytes, "scalars of", state.settings.family.title
            )
            buffer.view(kept, 0, (memory.nbytes,), "u1", state.context.device).copy_from(
                values[number]
            )
            bound[number] = kept, 0
        elif number in state.private:
            own[number] = memory.kind == "arena"
        elif id(block) in twins:
            aliases[number] = twins[id(block)], offset
        else:
            bound[number] = block, offset

    def fixed(value: Any) -> Any:
        if isinstance(value, PointerSlot):
            return defaults[value.name]
        if isinstance(value, Scalar) and value.where == "node":
            return defaults[value.name][()]
        return value

    def locate(value: Any) -> Where | None:
        if isinstance(value, Scratch | Scalar):
            return where_of(value, state.located)
        if isinstance(value, Buffer) and id(value.block) in twins:
            return twins[id(value.block)], value.offset
        return None

    return Part(
        state.settings.family.title,
        state.context.device,
        _frozen(state.record.nodes, values),
        state.version.works,
        [memory.nbytes for memory in memories],
        own,
        bound,
        aliases,
        inputs,
        [Port(str(i), *place) for i, place in enumerate(state.outputs)],
        isa=state.isa,
        faults=state.faults,
        fixed=fixed,
        locate=locate,
    )


def _values(state: GraphState, memory: int, nbytes: int) -> np.ndarray[Any, Any]:
    """The bytes of the scalars' memory, by their defaults."""
    values, defaults = np.zeros(nbytes, "u1"), state.defaults
    for name, (held, (number, offset)) in state.names.items():
        if number == memory and isinstance(held, Scalar):
            values[offset : offset + held.nbytes] = np.frombuffer(defaults[name].tobytes(), "u1")
    return values


def _frozen(
    nodes: Sequence[RecordNode], values: dict[int, np.ndarray[Any, Any]]
) -> tuple[RecordNode, ...]:
    """Nodes whose launches have the values of scalars, not their names."""
    result = []
    for node in nodes:
        if node.bodies:
            node = node._replace(bodies=tuple(_frozen(body, values) for body in node.bodies))
        if isinstance(node.call, Launch):
            arguments = []
            for argument in node.call.arguments:
                if argument[0] == "scalar":
                    operand = node.operands[argument[1]]
                    held = values[operand.memory]
                    argument = (
                        "value",
                        held[operand.offset : operand.offset + argument[2]].tobytes(),
                    )
                arguments.append(argument)
            node = node._replace(call=node.call._replace(arguments=tuple(arguments)))
        result.append(node)
    return tuple(result)
