"""Replaces what depends on constants alone by its result, and what is known of branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastgraph.errors import InputError
from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.ir.ops.control import BODIES, run_body
from fastgraph.ir.ops.registry import OPS
from fastgraph.passes.rewrite import IN_RUN, Rewriter, is_sized

__all__ = ["MAX_FOLDED_BYTES", "run"]

MAX_FOLDED_BYTES = 1 << 20
"""Larger results are left to the set program, which computes them once, on the device."""
MAX_TURNS = 1000
"""Loops of more turns are left to the run."""


def run(graph: Graph) -> Graph:
    """Return `graph` with nodes upon constants computed, up to a size, by the reference."""
    if not any(
        node.op in BODIES or is_foldable(node, [value.node for value in node.inputs])
        for node in graph.nodes
    ):
        return graph
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        put(rewriter, node)
    return rewriter.finish()


def put(rewriter: Rewriter, node: Node) -> None:
    """Keep `node`, or what stands for it."""
    if node.is_leaf:
        rewriter.keep(node)
        return
    inputs = [rewriter[value] for value in node.inputs]
    if node.op == "cond" and inputs[0].node.op == "constant":
        known = bool(inputs[0].node.attrs["value"])
        unfold(rewriter, node, node.attrs["then" if known else "else"], inputs[1:])
    elif node.op == "while_loop":
        found = turned(node, inputs)
        if found is None:
            rewriter.keep(node)
        else:
            rewriter.replace(
                node,
                [
                    each if isinstance(each, Value) else rewriter.constant(node, each)
                    for each in found
                ],
            )
    elif not folded(rewriter, node):
        rewriter.keep(node)


def unfold(rewriter: Rewriter, node: Node, body: Graph, inputs: Sequence[Value]) -> None:
    """Put the nodes of a body in the place of the node that holds it."""
    rewriter.put_values(body.inputs, inputs)
    for inner in body.nodes:
        if inner.op != "input":
            put(rewriter, inner)
    rewriter.replace(node, [rewriter[value] for _, value in body.outputs])


def turned(node: Node, inputs: Sequence[Value]) -> Sequence[Any] | None:
    """Return what a loop ends with, where that is known: what it begins with, or constants."""
    test, body = node.attrs["cond"], node.attrs["body"]
    count = len(body.outputs)
    known: list[Any] = [v.node.attrs["value"] if v.node.op == "constant" else None for v in inputs]
    read = {value for inner in test.nodes for value in inner.inputs}
    read.update(value for _, value in test.outputs)
    needed = [i for i, value in enumerate(test.inputs) if value in read]
    if any(known[i] is None for i in needed):
        return None
    try:
        if not run_body(test, [np.empty(0) if each is None else each for each in known])[0]:
            return inputs[:count]
        if any(each is None for each in known) or not is_small(node):
            return None
        carried, rest = known[:count], known[count:]
        for _ in range(MAX_TURNS):
            carried = run_body(body, [*carried, *rest])
            if not run_body(test, [*carried, *rest])[0]:
                return [np.array(each, order="C") for each in carried]
    except InputError:
        pass  # A data fault belongs to the run, which reports it.
    return None


def folded(rewriter: Rewriter, node: Node) -> bool:
    """Replace `node` by constants where that can be, and say whether it was."""
    inputs = [rewriter[value] for value in node.inputs]
    if not is_foldable(node, [value.node for value in inputs]):
        return False
    try:
        arrays = OPS[node.op].reference([v.node.attrs["value"] for v in inputs], node.attrs)
    except InputError:
        return False  # A data fault belongs to the run, which reports it.
    rewriter.replace(node, [rewriter.constant(node, np.asarray(array)) for array in arrays])
    return True


def is_foldable(node: Node, producers: list[Node]) -> bool:
    """Whether `node` takes constants alone from `producers`, and gives few enough bytes."""
    if (
        node.is_leaf
        or node.op in IN_RUN
        or is_sized(node)
        or any(producer.op != "constant" for producer in producers)
    ):
        return False
    return is_small(node)


def is_small(node: Node) -> bool:
    """Whether the results may be constants."""
    return sum(value.nbytes for value in node.outputs) <= MAX_FOLDED_BYTES
