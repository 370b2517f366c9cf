"""A compiled model as it goes into a user's own device graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fastgraph._core.buffer import Block
from fastgraph._core.record import RecordNode, flat_nodes
from fastgraph.device.child import Part, Port
from fastgraph.device.pending import Work
from fastgraph.errors import InputError

if TYPE_CHECKING:
    from fastgraph.runtime.compiled import CompiledGraph

__all__ = ["ARENA", "part_of"]

ARENA = 0


def part_of(
    model: CompiledGraph,
    title: str,
    nodes: Sequence[RecordNode],
    own: Mapping[int, bool],
    aliases: Mapping[int, tuple[int, int]],
    fault_memory: int = -1,
) -> Part:
    """Return the nodes of a model over memory of the parent's, with the parameters set now.

    Parameters
    ----------
    model : CompiledGraph
        Its lock is held.
    title : str
    nodes : sequence of RecordNode
    own, aliases
        As `Part` has them.
    fault_memory : int
        Where kernels leave which node met bad data; -1 where the executable sees to that.

    Raises
    ------
    InputError
        A parameter has no value.
    """
    code = model._compilation.code
    program = code.program
    memories = program.record.memories
    params = model._params
    if params.unset:
        raise InputError(f"parameters {params.unset} of {title} have no value yet")
    blocks: dict[int, tuple[Block, int]] = {}
    for value, memory in program.blocks.items():
        # A block is replaced, never written, when a parameter is set.
        block = params.block(value)
        assert block is not None
        blocks[memory] = block, 0
    # What a model counts is of its own runs.
    blocks.update({place.memory: (code.nothing, 0) for place in program.taps})
    graph = program.graph
    return Part(
        title,
        model.device,
        nodes,
        _works(nodes),
        [memory.nbytes for memory in memories],
        own,
        blocks,
        aliases,
        [
            Port(value.name, memory, 0, value.shape, value.dtype)
            for value, memory in zip(graph.inputs, program.inputs, strict=True)
        ],
        [
            Port(name, memory, 0, value.shape, value.dtype)
            for (name, value), memory in zip(graph.outputs, program.outputs, strict=True)
        ],
        [
            Port(name, program.scalar_memory, offset, (), dtype, default)
            for name, dtype, offset, default in program.scalars
        ],
        named=True,
        faults={fault_memory: tuple(_called(title, node) for node in flat_nodes(nodes))}
        if fault_memory >= 0
        else {},
    )


def _called(title: str, node: RecordNode) -> str:
    return f"{title}: node {node.name!r} ({node.label or node.kind})"


def _works(nodes: Sequence[RecordNode]) -> tuple[Work, ...]:
    """What updates look at: nothing of a model's nodes can be changed."""
    return tuple(
        Work(node.name, node.kind, None, (), bodies=tuple(_works(body) for body in node.bodies))
        for node in nodes
    )
