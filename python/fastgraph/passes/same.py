"""Computes positions and masks once that a graph computes again and again: of each layer the same.

Only small values of integers and bools: of others a second reader may cost more than it spares,
where each would be computed amid the work of the one that reads it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.ir.ops.registry import ELEMENTWISE
from fastgraph.passes.rewrite import Rewriter

__all__ = ["run"]

MOST_ELEMENTS = 4096
MOVING = frozenset({"reshape", "transpose", "slice", "broadcast_to", "concat"})


def run(graph: Graph) -> Graph:
    """Return `graph` with equal nodes of equal inputs as one; itself where there are none."""
    found: dict[Hashable, Value] = {}
    first: dict[Value, Value] = {}
    for node in graph.nodes:
        key = key_of(node, first)
        if key is not None:
            value = node.outputs[0]
            first_one = found.setdefault(key, value)
            if first_one is not value:
                first[value] = first_one
    if not first:
        return graph
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        same = first.get(node.outputs[0]) if len(node.outputs) == 1 else None
        if same is None:
            rewriter.keep(node)
        else:
            rewriter.replace(node, [rewriter[same]])
    return rewriter.finish()


def key_of(node: Node, first: Mapping[Value, Value]) -> Hashable | None:
    """What two nodes have in common that give the same; None for one that stays by itself."""
    if len(node.outputs) != 1:
        return None
    (value,) = node.outputs
    if value.dtype.kind not in "iub" or value.size > MOST_ELEMENTS:
        return None
    if node.op == "constant":
        array = node.attrs["value"]
        return "constant", array.dtype.str, array.shape, array.tobytes()
    if node.op not in ELEMENTWISE and node.op not in MOVING:
        return None
    attrs = tuple(sorted((name, plain(attr)) for name, attr in node.attrs.items()))
    return node.op, attrs, value.shape, tuple(first.get(one, one) for one in node.inputs)


def plain(attr: Any) -> Hashable:
    """An attribute as something that is equal only where it means the same."""
    if isinstance(attr, np.dtype):
        return attr.str
    return type(attr).__name__, attr if isinstance(attr, Hashable) else repr(attr)
