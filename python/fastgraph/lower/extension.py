"""A program for extents beside the one of a model: the same memories, and what it takes of it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastgraph.ir.graph import Value
from fastgraph.lower.storage import Item, Lowered, Place, Roots, nbytes_of

__all__ = ["Known", "known_of"]


class Keys:
    """What tells which places hold the same bytes, in whichever graph: how they are computed."""

    def __init__(self, identity: Any) -> None:
        self._identity = identity
        self._numbers: dict[Hashable, int] = {}

    def leaf(self, value: Value) -> int:
        """Return the key of a parameter or constant."""
        node = value.node
        if node.op == "constant":
            array = np.ascontiguousarray(node.attrs["value"])
            return self._number(("constant", value.shape, value.dtype.name, array.tobytes()))
        return self._number((node.op, value.name))

    def of(self, items: Sequence[Item], roots: Roots) -> dict[Place, int]:
        """Return the keys of all that the calls of a set program read and write."""
        found: dict[Place, int] = {}
        for _, call in items:
            ins = []
            for operand in call.ins:
                root, offset = roots.of(operand)
                if root not in found:
                    assert isinstance(root, Value)
                    found[root] = self.leaf(root)
                ins.append((found[root], offset, nbytes_of(operand)))
            done = self._number((self._identity(call), tuple(ins)))
            for i, operand in enumerate(call.outs):
                root, offset = roots.of(operand)
                found[root] = self._number((found.get(root), done, i, offset))
        return found

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


@dataclass
class Known:
    """What the program of a model has already, for one that extends it.

    Attributes
    ----------
    memories : dict of Value to int
        Of values of the new graph: their memory numbers in the record of the model.
    params : dict of Value to Value
        Parameters of the new graph and those of the model's.
    """

    memories: dict[Place, int] = field(default_factory=dict)
    params: dict[Value, Value] = field(default_factory=dict)


def known_of(lowered: Lowered, program: Any, identity: Any) -> Known:
    """Return what `program` has of what `lowered` needs; the rest becomes part of its run.

    `lowered` is left without a set program.
    """
    keys = Keys(identity)
    own = keys.of(program.setup.calls, program.setup.roots)
    for value in program.blocks:
        if value not in own:
            own[value] = keys.leaf(value)
    by_key = {own[value]: memory for value, memory in program.blocks.items()}
    new = keys.of(lowered.set_calls, lowered.roots)
    by_name = {value.name: value for value in program.graph.params}
    known = Known()
    known.params = {value: by_name[value.name] for value in lowered.graph.params}
    needed = {lowered.roots.of(operand)[0] for _, call in lowered.run_calls for operand in call.ins}
    needed |= {lowered.roots.of(value)[0] for _, value in lowered.graph.outputs}
    missing: list[Item] = []
    for item in reversed(lowered.set_calls):
        _, call = item
        outs = [lowered.roots.of(operand)[0] for operand in call.outs]
        if any(out in needed and new[out] not in by_key for out in outs):
            missing.append(item)
            needed.update(lowered.roots.of(operand)[0] for operand in call.ins)
    computed = {lowered.roots.of(out)[0] for _, call in missing for out in call.outs}
    for place in needed - computed:
        if isinstance(place, Value):
            is_leaf = place.node.op in ("param", "constant")
            key = new.get(place, keys.leaf(place) if is_leaf else -1)
            if key in by_key:
                known.memories[place] = by_key[key]
    lowered.run_calls[:0] = reversed(missing)
    lowered.set_calls.clear()
    return known
