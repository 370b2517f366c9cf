"""Puts what scales or shifts the channels of a convolution's result into its weights and bias.

Normalisation by known statistics is that, as models have it after their convolutions. The new
weights are worked out in the set program.
"""

from __future__ import annotations

from typing import Any

from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.ir.types import is_half
from fastgraph.passes.rewrite import Rewriter, use_counts

__all__ = ["run"]


def run(graph: Graph) -> Graph:
    """Return `graph` without products and sums that convolutions can take in."""
    if not any(node.op == "conv" for node in graph.nodes):
        return graph
    rewriter = Rewriter(graph)
    uses = use_counts(graph)
    for node in graph.nodes:
        found = None
        if node.op in ("multiply", "add"):
            for value, other in (node.inputs, node.inputs[::-1]):
                if found is None and uses[value] == 1:
                    found = absorbed(rewriter, node, rewriter[value], rewriter[other])
        if found is None:
            rewriter.keep(node)
        else:
            rewriter.replace_value(node.outputs[0], found)
    return rewriter.finish()


def absorbed(rewriter: Rewriter, node: Node, value: Value, other: Value) -> Value | None:
    """Return the convolution `value` with `other` in its parameters, if it is one of channels."""
    conv = value.node
    # Half types would be rounded once more.
    if conv.op != "conv" or is_half(value.dtype) or not rewriter.is_set(other):
        return None
    single = other.size == 1
    if node.outputs[0].shape != value.shape or not (single or of_channels(other, value)):
        return None
    if not rewriter.is_set(conv.inputs[1]):
        return None
    channels = value.shape[1]
    row = rewriter.emit(conv, "reshape", [other], {"shape": () if single else (channels,)})
    if single:
        row = rewriter.emit(conv, "broadcast_to", [row], {"shape": (channels,)})
    x, w = conv.inputs[:2]
    place = conv.attrs["bias"]
    bias = None if place is None else conv.inputs[place]
    if node.op == "multiply":
        factor = (channels, *(1 for _ in w.shape[1:]))
        column = rewriter.emit(conv, "reshape", [row], {"shape": factor})
        w = rewriter.emit(conv, "multiply", [w, column])
        bias = None if bias is None else rewriter.emit(conv, "multiply", [bias, row])
    else:
        bias = row if bias is None else rewriter.emit(conv, "add", [bias, row])
    inputs, attrs = [x, w], dict[str, Any](conv.attrs)
    if bias is not None:
        attrs["bias"] = len(inputs)
        inputs.append(bias)
    return rewriter.emit(conv, "conv", inputs, attrs)


def of_channels(value: Value, full: Value) -> bool:
    """Whether a value has one number for each channel of the full one."""
    aligned = (*(1 for _ in full.shape[value.ndim :]), *value.shape)
    return aligned == (1, full.shape[1], *(1 for _ in full.shape[2:]))
