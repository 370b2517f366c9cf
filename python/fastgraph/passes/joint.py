"""Brings products of one operand with several weights into one product with all of them.

The results are parts of its result. Only where their readers take parts as they lie: attention, or
anything where the product has a single row. The weights are joined in the set program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.passes.rewrite import Rewriter, readers_of, set_first, set_nodes

__all__ = ["run"]


@dataclass(frozen=True)
class Part:
    """One of the products, and the bias that is added to it."""

    product: Node
    sum: Node | None
    bias: Value | None

    @property
    def result(self) -> Value:
        """What is read of it."""
        return (self.sum or self.product).outputs[0]


def run(graph: Graph, gains: Callable[[Value], bool] = lambda result: True) -> Graph:
    """Return `graph` with products that share an operand and may be joined in one.

    Parameters
    ----------
    graph : Graph
    gains : callable, optional
        Whether joining gains anything, of a product's result.
    """
    if not any(node.op == "fused_matmul" for node in graph.nodes):
        return graph
    is_set = set_nodes(graph.nodes)
    readers = readers_of(graph)
    visible = {value for _, value in graph.outputs}
    groups: dict[tuple[Value, bool], list[Part]] = {}
    for node in graph.nodes:
        if node.op != "fused_matmul" or node in is_set or not gains(node.outputs[0]):
            continue
        if may_join(node, is_set):
            part = part_of(node, readers, visible, is_set)
            if part is not None:
                key = node.inputs[0], node.attrs["transpose_b"]
                groups.setdefault(key, []).append(part)
    joined = [parts for parts in groups.values() if len(parts) > 1]
    if not joined:
        return graph
    first = {parts[0].product: parts for parts in joined}
    gone = {node for parts in joined for part in parts for node in (part.product, part.sum)}
    rewriter = Rewriter(graph)
    for node in set_first(graph, is_set):
        if node in first:
            emit(rewriter, first[node])
        elif node not in gone:
            rewriter.keep(node)
    return rewriter.finish()


def may_join(node: Node, is_set: set[Node]) -> bool:
    """Whether the product is one with a weight that is set."""
    weight = node.inputs[1]
    return (
        not node.attrs["packed"]
        and not node.attrs["transpose_a"]
        and len(node.inputs) == 2
        and weight.ndim == 2
        and weight.node in is_set
        and 0 not in node.outputs[0].shape
        and node.inputs[0].ndim > 1
    )


def part_of(
    node: Node, readers: Mapping[Value, list[Node]], visible: set[Value], is_set: set[Node]
) -> Part | None:
    """Return the product with its bias, where all that read the result take parts of a row."""
    (value,) = node.outputs
    part = Part(node, None, None)
    following = readers.get(value, ())
    if value not in visible and len(following) == 1 and following[0].op == "add":
        a, b = following[0].inputs
        other = b if a is value else a
        n = node.attrs["n"]
        row = other.shape[-1:] == (n,) and other.size == n
        if other.node in is_set and row and following[0].outputs[0].shape == value.shape:
            part = Part(node, following[0], other)
    if part.result in visible:
        return None
    alone = prod(value.shape[:-1]) == 1
    return part if alone or taken_in_place(part.result, readers, visible) else None


def taken_in_place(value: Value, readers: Mapping[Value, list[Node]], visible: set[Value]) -> bool:
    """Whether attention alone reads `value`, through what it can see through, as q, k or v."""
    following = readers.get(value, ())
    if value in visible or not following:
        return False
    for reader in following:
        if reader.op in ("reshape", "transpose"):
            if not taken_in_place(reader.outputs[0], readers, visible):
                return False
        elif reader.op == "fused_attention":
            mask = reader.attrs["mask"]
            if mask is not None and reader.inputs[mask] is value:
                return False
        else:
            return False
    return True


def emit(rewriter: Rewriter, parts: list[Part]) -> None:
    """Emit the joined product, and its parts."""
    like = parts[0].product
    transposed = like.attrs["transpose_b"]
    weights = [rewriter[part.product.inputs[1]] for part in parts]
    weight = rewriter.emit(like, "concat", weights, {"axis": 0 if transposed else 1})
    sizes = [part.product.attrs["n"] for part in parts]
    attrs = {**like.attrs, "n": sum(sizes)}
    whole = rewriter.emit(like, "fused_matmul", [rewriter[like.inputs[0]], weight], attrs)
    if any(part.bias is not None for part in parts):
        rows = []
        for part, n in zip(parts, sizes, strict=True):
            if part.bias is None:
                rows.append(rewriter.constant(like, np.zeros(n, whole.dtype)))
            else:
                row = rewriter[part.bias]
                if row.shape != (n,):
                    row = rewriter.emit(like, "reshape", [row], {"shape": (n,)})
                rows.append(row)
        bias = rewriter.emit(like, "concat", rows, {"axis": 0})
        whole = rewriter.emit(like, "add", [whole, bias])
    start = 0
    for part, n in zip(parts, sizes, strict=True):
        lead = whole.shape[:-1]
        bounds = {
            "starts": (*(0 for _ in lead), start),
            "sizes": (*lead, n),
            "steps": (1,) * whole.ndim,
        }
        start += n
        found = rewriter.emit(part.product, "slice", [whole], bounds)
        rewriter.replace_value(part.result, found)
