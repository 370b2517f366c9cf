"""Products of a single row, for a GPU: with the norm before them, and with the gate beside them.

A step of decoding is a chain of such products, and each node between two of them is time in which
no weights are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.ir.ops.registry import ACTIVATIONS
from fastgraph.ir.types import FLOAT32, is_half
from fastgraph.passes.rewrite import Rewriter, is_sized, readers_of, set_nodes

__all__ = ["gated", "normed"]

NAMES = {(op, attrs.get("approximate")): name for name, (op, attrs) in ACTIVATIONS.items()}
# Bytes that are read at once.
PIECE = 16
# A weight of float32 that is large is read faster by the kernel of few rows: 64 MB were measured at
# 17 us, and at 20 by that of single rows; the perceptron's, of 1 and 1.6 MB, at 12.8 and 11.6.
MOST_FLOAT_BYTES = 8 << 20
NOTHING: dict[str, Any] = {
    "w": 1, "gate": None, "gate_activation": None, "scale": None, "eps": None, "bias": None,
    "residual": None, "residual_first": False, "activation": None,
}  # fmt: skip


def gated(graph: Graph) -> Graph:
    """Return `graph` with ``act(x @ gate) * (x @ w)`` as one node, where x is a single row."""
    readers, is_set = readers_of(graph), set_nodes(graph.nodes)
    visible = {value for _, value in graph.outputs}
    found: dict[Node, tuple[Node, Node, str]] = {}
    inner: set[Node] = set()
    for node in graph.nodes:
        match = gate_of(node, readers, visible, is_set) if node.op == "multiply" else None
        if match is not None:
            found[node] = match
            product, gate, _ = match
            inner.update((product, gate, *(value.node for value in node.inputs)))
    if not found:
        return graph
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if node in inner:
            continue
        if node not in found:
            rewriter.keep(node)
            continue
        product, gate, activation = found[node]
        weights = [turned(rewriter, one) for one in (product, gate)]
        attrs = {
            **NOTHING, "k": product.attrs["k"], "n": product.attrs["n"], "gate": 2,
            "gate_activation": activation,
        }  # fmt: skip
        inputs = [rewriter[product.inputs[0]], *weights]
        rewriter.replace(node, [rewriter.emit(product, "row_product", inputs, attrs)])
    return rewriter.finish()


def gate_of(
    node: Node, readers: Mapping[Value, list[Node]], visible: set[Value], is_set: set[Node]
) -> tuple[Node, Node, str] | None:
    """Return product, gate and activation of a multiplication that is a gated product."""

    def inside(value: Value) -> bool:
        return value not in visible and len(readers[value]) == 1

    for one, other in (node.inputs, node.inputs[::-1]):
        name = NAMES.get((one.node.op, one.node.attrs.get("approximate")))
        if name is None or not inside(one) or not inside(other):
            continue
        (before,) = one.node.inputs
        gate, product = before.node, other.node
        if (
            inside(before)
            and is_single(gate, is_set)
            and is_single(product, is_set)
            and len(gate.inputs) == len(product.inputs) == 2
            and gate is not product
            and gate.inputs[0] is product.inputs[0]
            and gate.attrs["n"] == product.attrs["n"]
            and node.outputs[0].shape == other.shape
        ):
            return product, gate, name
    return None


def is_single(node: Node, is_set: set[Node]) -> bool:
    """Whether this is a product of one row by a weight of the set program."""
    if node.op != "fused_matmul" or node in is_set or is_sized(node):
        return False
    x, weight = node.inputs[:2]
    attrs = node.attrs
    return (
        not (attrs["packed"] or attrs["transpose_a"])
        and weight.ndim == 2
        and weight.node in is_set
        and (weight.dtype == FLOAT32 or is_half(weight.dtype))
        and prod(x.shape[:-1]) == 1
        and attrs["k"] > 0
        and attrs["n"] > 0
        and attrs["k"] * weight.dtype.itemsize % PIECE == 0
    )


def turned(rewriter: Rewriter, product: Node) -> Value:
    """Return the weight of a product as [N, K]."""
    weight = rewriter[product.inputs[1]]
    if product.attrs["transpose_b"]:
        return weight
    return rewriter.emit(weight.node, "transpose", [weight], {"axes": (1, 0)})


def normed(graph: Graph) -> Graph:
    """Return `graph` with root mean square norms of a single row as part of products of it."""
    readers, is_set = readers_of(graph), set_nodes(graph.nodes)
    visible = {value for _, value in graph.outputs}
    norms = {
        node
        for node in graph.nodes
        if node.op == "rms_norm" and is_inner(node, readers, visible, is_set)
    }
    plain = {node for node in graph.nodes if is_plain(node, is_set)}
    if not norms and not plain:
        return graph
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if node in norms:
            continue
        norm = node.inputs[0].node if node.inputs else None
        after = norm in norms and node.op in ("fused_matmul", "row_product")
        if not after and node not in plain:
            rewriter.keep(node)
            continue
        attrs = {**NOTHING, **{name: node.attrs[name] for name in NOTHING if name in node.attrs}}
        attrs |= {"k": node.attrs["k"], "n": node.attrs["n"]}
        x = norm.inputs[0] if after and norm is not None else node.inputs[0]
        inputs = [rewriter[value] for value in (x, *node.inputs[1:])]
        if after and norm is not None:
            attrs["eps"] = norm.attrs["eps"]
            if norm.attrs["weight"]:
                attrs["scale"] = len(inputs)
                inputs.append(rewriter[norm.inputs[1]])
        rewriter.replace(node, [rewriter.emit(node, "row_product", inputs, attrs)])
    return rewriter.finish()


def is_plain(node: Node, is_set: set[Node]) -> bool:
    """Whether a product is one for the kernel of single rows: with its weight as [N, K]."""
    if not (is_single(node, is_set) and node.attrs["transpose_b"]):
        return False
    weight = node.inputs[1]
    return is_half(weight.dtype) or weight.size * weight.dtype.itemsize <= MOST_FLOAT_BYTES


def is_inner(
    norm: Node, readers: Mapping[Value, list[Node]], visible: set[Value], is_set: set[Node]
) -> bool:
    """Whether products of a single row are all that read a norm, scaled by what is set or not."""
    attrs, (x, *rest) = norm.attrs, norm.inputs
    if norm in is_set or is_sized(norm) or attrs.get("residual") or len(norm.outputs) > 1:
        return False
    (y,) = norm.outputs
    if y in visible or tuple(attrs["axis"]) != (x.ndim - 1,) or prod(x.shape[:-1]) != 1:
        return False
    if any(value.node not in is_set or value.shape != x.shape[-1:] for value in rest):
        return False
    return bool(readers.get(y)) and all(
        node.inputs[0] is y
        and all(value is not y for value in node.inputs[1:])
        and (
            (node.op == "row_product" and node.attrs["eps"] is None)
            or (is_single(node, is_set) and node.attrs["transpose_b"])
        )
        for node in readers[y]
    )
