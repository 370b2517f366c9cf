"""Whether two recordings of a graph are the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fastgraph._core.buffer import Buffer
from fastgraph._core.record import RecordNode
from fastgraph.device.state import GraphState
from fastgraph.errors import GraphError

__all__ = ["check_same"]


def check_same(kept: GraphState, again: GraphState, once_more: GraphState) -> None:
    """Raise GraphError unless all were recorded alike, their own memory aside.

    What has another address in each of the two new ones was made by the build itself.
    """
    wanted, seen, third = _described(kept), _described(again), _described(once_more)
    for old, new, other in zip(wanted, seen, third, strict=False):
        if old[:2] != new[:2] or (old.at != new.at and new.at == other.at):
            raise GraphError(
                f"the build function now records {new.name!r} where the cached graph has "
                f"{old.name!r}, or gives it other arguments: it depends on something that the key "
                "does not see (what a mutable object holds); put that in key= or a HostValue"
            )
    if len(seen) != len(wanted):
        raise GraphError(
            f"the build function now records {len(seen)} nodes and memories, the cached graph has "
            f"{len(wanted)}: it depends on something that the key does not see"
        )


class _Described(NamedTuple):
    name: str
    what: object
    at: object = None


def _described(state: GraphState) -> list[_Described]:
    """Every node, memory and named value with what tells it from others."""

    def nodes(some: Sequence[RecordNode]) -> Iterator[_Described]:
        for node in some:
            given = () if node.call is None else repr(getattr(node.call, "arguments", ()))
            what = (node.kind, node.kernel, node.operands, node.params, node.dependencies, given)
            yield _Described(node.name, what)
            for body in node.bodies:
                yield from nodes(body)

    found = list(nodes(state.record.nodes))
    for number, memory in enumerate(state.record.memories):
        block, offset = state.version.blocks[number]
        at = None if number in state.private else block.ptr + offset
        found.append(_Described(memory.name, (memory.kind, memory.nbytes), at))
    for name, value in state.defaults.items():
        if isinstance(value, Buffer):
            found.append(_Described(name, (value.shape, value.dtype), value.ptr))
        else:
            found.append(_Described(name, value.tobytes()))
    return found
