"""A compiled model as it goes into a user's own device graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastgraph._core.buffer import Block
from fastgraph._core.record import RecordNode
from fastgraph.device.child import Part, Port
from fastgraph.device.pending import Work
from fastgraph.errors import InputError

if TYPE_CHECKING:
    from fastgraph.runtime.compiled import CompiledGraph

__all__ = ["part_of"]

ARENA = 0


def part_of(model: CompiledGraph) -> Part:
    """Return the nodes of a model over an arena of the parent's, with the parameters set now.

    Raises
    ------
    InputError
        A parameter has no value.
    GraphError
        The model is closed.
    """
    compilation = model._compilation
    program, host = compilation.program, compilation.host
    memories = program.record.memories
    title = f"the compiled model {compilation.name!r}"

    def bound() -> tuple[list[str], dict[int, tuple[Block, int]]]:
        # A block is replaced, never written, when a parameter is set.
        found = {n: model.executable.bound(n) for n in program.blocks.values()}
        return model._params.unset, {n: (b, 0) for n, b in found.items() if b is not None}

    unset, blocks = model._locked(bound)
    if unset:
        raise InputError(f"parameters {unset} of {title} have no value yet")
    graph = compilation.graph
    return Part(
        title,
        model.device,
        program.record.nodes,
        _works(program.record.nodes),
        [memory.nbytes for memory in memories],
        {ARENA: True},
        blocks,
        {
            memory: (ARENA, offset)
            for memory, offset in zip(program.outputs, program.output_offsets, strict=True)
        },
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
        isa=host.isa,
    )


def _works(nodes: Sequence[RecordNode]) -> tuple[Work, ...]:
    """What updates look at: nothing of a model's nodes can be changed."""
    return tuple(
        Work(node.name, node.kind, None, (), bodies=tuple(_works(body) for body in node.bodies))
        for node in nodes
    )
