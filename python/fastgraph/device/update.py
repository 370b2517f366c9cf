"""Changing one node of a recorded graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastgraph._core import buffer
from fastgraph._core.buffer import Block
from fastgraph._core.pending import operands_of
from fastgraph._core.record import Record, accesses_of
from fastgraph.device.backend import LaunchOptions, PlaceMaker
from fastgraph.device.nodes import MAKERS, as_place
from fastgraph.device.pending import Node, PointerSlot, Scalar, Scratch, Work
from fastgraph.device.recording import UNUSED, locate_more
from fastgraph.device.state import GraphState
from fastgraph.errors import GraphError, InputError

__all__ = ["update"]

EMPTY = buffer.allocate(0)


def update(state: GraphState, node: int | str, changes: Mapping[str, Any]) -> None:
    """Make node `node` anew with some of its arguments changed; called by work of `locked`."""
    index = _find(state.record, node)
    work = state.version.works[index]
    if work.kind != "function" and work.kind not in MAKERS:
        raise GraphError(
            f"node {index} ({work.kind} {work.name!r}) has nothing that can be changed"
        )
    enabled = changes.get("enabled", state.record.nodes[index].enabled)
    if not isinstance(enabled, bool):
        raise InputError(f"enabled is {enabled!r}; True and False are possible")
    spec = dict(work.spec)
    for name, value in changes.items():
        if name != "enabled":
            if name not in spec or name == "f":
                known = [key for key in spec if key != "f"]
                raise GraphError(f"a {work.kind} node has no {name!r}; it has {known} and enabled")
            spec[name] = tuple(value) if name == "args" else value

    def place(value: Any, written: bool) -> Any:
        found = as_place(value, state.context.device, written)
        if isinstance(found, Scratch | Scalar | PointerSlot) and id(found) not in state.located:
            raise GraphError(f"{found!r} belongs to another graph")
        return found

    made = _make(state, work.kind, place, spec)
    for access in made.accesses:
        if isinstance(access.place, Scalar) and id(access.place) not in state.located:
            raise GraphError(f"{access.place!r} belongs to another graph")
    record = state.record.copy()
    blocks: list[tuple[Block, int]] = list(state.version.blocks)
    places = [access.place for access in made.accesses]
    located = state.located | locate_more(record, blocks, places)
    old = record.nodes[index]
    fresh = old._replace(
        kind=made.kind,
        kernel=made.kernel,
        operands=operands_of(made.accesses, located, state.settings.check is True),
        params=made.params,
        keep=made.keep,
        call=made.call,
        enabled=enabled,
    )
    record.replace_node(index, fresh)
    _drop_unused(state, record, blocks)
    if state.settings.check:
        record.check_hazards()
    works = list(state.version.works)
    works[index] = made
    state.replace(record, works, blocks)


def _make(state: GraphState, kind: str, place: PlaceMaker, spec: dict[str, Any]) -> Work:
    if kind != "function":
        return MAKERS[kind](place, **spec)
    f, args = spec.pop("f"), spec.pop("args")
    return state.backend.function_work(place, f, args, LaunchOptions(**spec))


def _find(record: Record, node: int | str) -> int:
    if isinstance(node, Node):
        node = node.id
    if isinstance(node, str):
        found = [i for i, held in enumerate(record.nodes) if held.name == node]
        if len(found) != 1:
            raise GraphError(f"{len(found) or 'no'} nodes are named {node!r}; use the id of one")
        return found[0]
    if isinstance(node, bool) or not isinstance(node, int | np.integer):
        raise GraphError(f"a node is updated by id or name, not by {node!r}")
    if not 0 <= node < len(record.nodes):
        raise GraphError(f"there is no node {node}; there are {len(record.nodes)}")
    return int(node)


def _drop_unused(state: GraphState, record: Record, blocks: list[Any]) -> None:
    """Let go of callers' memory that no node names any longer; numbers stay what they were."""
    used = {operand.memory for node in record.nodes for operand in accesses_of(node)}
    used |= {memory for memory, *_ in (*state.outputs, *state.twin_places)}
    used |= {memory for _, (memory, _) in state.names.values()}
    used |= state.private
    for number in range(len(blocks)):
        if number not in used:
            record.memories[number] = UNUSED
            blocks[number] = EMPTY, 0
