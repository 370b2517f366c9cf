"""Changing one node of a recorded graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastgraph._core import buffer
from fastgraph._core.buffer import Block
from fastgraph._core.pending import operands_of
from fastgraph._core.record import Record, RecordNode, accesses_of
from fastgraph.device.backend import LaunchOptions, PlaceMaker
from fastgraph.device.hazards import check_hazards
from fastgraph.device.nodes import MAKERS, as_place, check_in_body
from fastgraph.device.pending import Node, PointerSlot, Scalar, Scratch, Work
from fastgraph.device.recording import UNUSED, locate_more
from fastgraph.device.state import GraphState
from fastgraph.errors import GraphError, InputError

__all__ = ["update"]

EMPTY = buffer.allocate(0)
CHOICES = frozenset(("if", "while", "switch"))

Path = tuple[int, ...]


def update(
    state: GraphState, node: int | str | Sequence[int] | Node, changes: Mapping[str, Any]
) -> None:
    """Make a node anew with some of its arguments changed; called by work of `locked`.

    Parameters
    ----------
    state : GraphState
    node : int, str, sequence of int, or Node
        See `DeviceGraph.update`.
    changes : mapping
    """
    record, version = state.record.copy(), state.version
    if isinstance(node, Node):
        _check_family(state, node)
    path = _find(record.nodes, node)
    above, old, work = _follow(record.nodes, version.works, path)
    in_body = any(outer.kind in CHOICES for outer in above)
    if not work.spec:
        raise GraphError(
            f"node {_text(path)} ({work.kind} {old.name!r}) has nothing that can be changed"
        )
    enabled = changes.get("enabled", old.enabled)
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
        own = found.base if isinstance(found, Scratch) else found
        if isinstance(own, Scratch | Scalar | PointerSlot) and id(own) not in state.located:
            raise GraphError(f"{found!r} belongs to another graph")
        return found

    made = _make(state, work.kind, place, spec)
    for access in made.accesses:
        if isinstance(access.place, Scalar) and id(access.place) not in state.located:
            raise GraphError(f"{access.place!r} belongs to another graph")
    if in_body:
        check_in_body(made)
    blocks: list[tuple[Block, int]] = state.placed(version.blocks)
    places = [access.place for access in made.accesses]
    pointers = {at for held, (at, _) in state.names.values() if isinstance(held, PointerSlot)}
    located = state.located | locate_more(record, blocks, places, pointers)
    fresh = old._replace(
        kind=made.kind,
        kernel=made.kernel,
        operands=operands_of(made.accesses, located, state.settings.check is True),
        params=made.params,
        keep=made.keep,
        call=made.call,
        enabled=enabled,
    )
    record.replace_node(path[0], _replaced(record.nodes[path[0]], path[1:], fresh))
    _drop_unused(state, record, blocks)
    if state.settings.check:
        check_hazards(record, blocks)
    works = list(version.works)
    works[path[0]] = _replaced(works[path[0]], path[1:], made)
    state.replace(record, works, blocks)


def _check_family(state: GraphState, node: Node) -> None:
    theirs, ours = node._builder._shared.family, state.settings.family
    if theirs is not ours:
        raise GraphError(
            f"{node!r} is a node of another graph, {theirs.title}, not of this one, {ours.title}; "
            "an id or a name means a node of any graph"
        )


def _make(state: GraphState, kind: str, place: PlaceMaker, spec: dict[str, Any]) -> Work:
    if kind == "copy":
        spec["dst"], spec["src"] = state.backend.copy_sides(spec["dst"], spec["src"])
    if kind != "function":
        return MAKERS[kind](place, **spec)
    f, args = spec.pop("f"), spec.pop("args")
    return state.backend.function_work(place, f, args, LaunchOptions(**spec))


def _find(nodes: Sequence[RecordNode], node: Any) -> Path:
    """Return the path of a node: its id, or id, body, id, body … id."""
    if isinstance(node, Node):
        node = node.path
    if isinstance(node, str):
        found = list(_named(nodes, node))
        if len(found) != 1:
            raise GraphError(
                f"{len(found) or 'no'} nodes are named {node!r}; use the id of one"
                + (f": {', '.join(map(_text, found[:8]))}" if found else "")
            )
        return found[0]
    path = tuple(node) if isinstance(node, tuple | list) else (node,)
    for number in path:
        if isinstance(number, bool) or not isinstance(number, int | np.integer):
            raise GraphError(f"a node is updated by id, path or name, not by {node!r}")
    if not len(path) % 2:
        raise GraphError(f"{node!r} is no path of a node: id, body, id, body … id")
    return tuple(map(int, path))


def _named(nodes: Sequence[RecordNode], name: str) -> list[Path]:
    found: list[Path] = []
    for number, node in enumerate(nodes):
        if node.name == name:
            found.append((number,))
        for which, body in enumerate(node.bodies):
            found += [(number, which, *rest) for rest in _named(body, name)]
    return found


def _follow(
    nodes: Sequence[RecordNode], works: Sequence[Work], path: Path
) -> tuple[list[RecordNode], RecordNode, Work]:
    """Return the nodes around the node of a path, the node, and what it was made of."""
    above: list[RecordNode] = []
    for step in range(0, len(path), 2):
        if step:
            which = path[step - 1]
            if not 0 <= which < len(above[-1].bodies):
                raise GraphError(
                    f"node {_text(path[: step - 1])} ({above[-1].kind} {above[-1].name!r}) has "
                    f"{len(above[-1].bodies) or 'no'} bodies, so there is no {_text(path)}"
                )
            nodes, works = above[-1].bodies[which], works[path[step - 2]].bodies[which]
        if not 0 <= path[step] < len(nodes):
            where = f" in body {_text(path[:step])}" if step else ""
            raise GraphError(f"there is no node {path[step]}{where}; there are {len(nodes)}")
        above.append(nodes[path[step]])
    return above[:-1], above[-1], works[path[-1]]


def _replaced(held: Any, path: Path, fresh: Any) -> Any:
    """Return a node or work with what `path` leads to from it being `fresh`."""
    if not path:
        if isinstance(held, Work):
            return fresh._replace(bodies=held.bodies)
        return fresh
    which, number, *rest = path
    body = list(held.bodies[which])
    body[number] = _replaced(body[number], tuple(rest), fresh)
    bodies = list(held.bodies)
    bodies[which] = tuple(body)
    return held._replace(bodies=tuple(bodies))


def _text(path: Path) -> str:
    return str(path[0]) if len(path) == 1 else str(path)


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
