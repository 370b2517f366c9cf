"""Products whose rows are normed at once, for a GPU, as one node.

Where rows are few a product is cut along K, so that all of a GPU works on it. What adds the parts
up holds whole rows, and norms them: a launch less, and one in which little is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from fastgraph._core.sizes import activated
from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.ir.types import FLOAT32, is_half
from fastgraph.passes.rewrite import Rewriter, readers_of, set_nodes

__all__ = ["run"]

# Elements of a row that a block holds, and rows of a product that fill a GPU without being cut.
LONGEST, MOST_ROWS = 8192, 1024


def run(graph: Graph) -> Graph:
    """Return `graph` with products of few rows and the norms of their rows as one node each."""
    readers, is_set = readers_of(graph), set_nodes(graph.nodes)
    visible = {value for _, value in graph.outputs}
    norms = {node: norm_of(node, readers, is_set) for node in graph.nodes}
    found = {product: norm for product, norm in norms.items() if norm is not None}
    if not found:
        return graph
    inner = set(found.values())
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if node in inner:
            continue
        if node not in found:
            rewriter.keep(node)
            continue
        norm, (product,) = found[node], node.outputs
        attrs = {**node.attrs, "norm": norm.op, "eps": norm.attrs["eps"]}
        attrs["sum"] = product in visible or len(readers[product]) > 1
        number = len(node.inputs)
        for name, there in (("scale", norm.attrs["weight"]), ("shift", norm.attrs["bias"])):
            attrs[name] = number if there else None
            number += bool(there)
        inputs = (*node.inputs, *norm.inputs[1:])
        outputs = rewriter.emit(
            norm, "normed_matmul", [rewriter[value] for value in inputs], attrs
        ).node.outputs
        rewriter.replace(norm, outputs[:1])
        if attrs["sum"]:
            rewriter.replace(node, outputs[1:])
    return rewriter.finish()


def norm_of(node: Node, readers: Mapping[Value, list[Node]], is_set: set[Node]) -> Node | None:
    """Return the norm of the rows of a product of few rows, where it is one for it."""
    if node.op != "fused_matmul" or node in is_set or node.attrs["packed"]:
        return None
    (product,) = node.outputs
    rows, length = activated(prod(product.shape[:-1]), ()), product.shape[-1]
    if not (1 < rows < MOST_ROWS and 1 < length <= LONGEST):
        return None
    if product.dtype != FLOAT32 and not is_half(product.dtype):
        return None
    for norm in readers.get(product, ()):
        if norm.op not in ("layer_norm", "rms_norm") or norm.inputs[0] is not product:
            continue
        # It is done where the product is, so what it takes besides must be there by then.
        rest = norm.inputs[1:]
        if norm.attrs.get("residual") or any(value.node not in is_set for value in rest):
            continue
        if norm.attrs["axis"] == (product.ndim - 1,):
            return norm
    return None
