"""Softmax and the norms on the cpu."""

from __future__ import annotations

import struct
from math import ceil, prod

from fastgraph.errors import CompileError
from fastgraph.ir.graph import Node
from fastgraph.ir.types import FLOAT64
from fastgraph.lower.call import Alias, Call
from fastgraph.lower.cpu.halves import in_float32
from fastgraph.lower.cpu.layout import choose_parts, memory_ns
from fastgraph.lower.cpu.registry import Target, lowers

__all__ = ["lower_norm", "lower_softmax"]

# Columns that one unit of the softmax kernel holds, at most.
_CHUNK = 256
_WITH_RESIDUAL, _WITH_WEIGHT, _WITH_BIAS, _WITH_SUM = 1, 2, 4, 8


def _kernel(node: Node) -> tuple[str, int]:
    """The kernel's name, and how much more an element takes than in float32."""
    return (f"{node.op}_f64", 8) if node.inputs[0].dtype == FLOAT64 else (node.op, 1)


@lowers("softmax")
@in_float32
def lower_softmax(node: Node, target: Target) -> list[Call | Alias]:
    """Lower softmax: rows where the axis is the last that matters, else columns."""
    (source,), (out,) = node.inputs, node.outputs
    name, slower = _kernel(node)
    elements = prod(source.shape)
    if elements == 0:
        return []
    axis = node.attrs["axis"]
    outer, size = prod(source.shape[:axis]), source.shape[axis]
    inner = prod(source.shape[axis + 1 :])
    chunk = min(inner, _CHUNK)
    units = outer * ceil(inner / chunk)
    cost_ns = 15.0 * units + elements * 0.6 * slower
    parts = choose_parts(cost_ns, target.threads, units)
    words = [outer, size, inner, chunk]
    return [
        Call(name, (out,), (source,), words, parts, cost_ns, inplace=((0, 0),),
             flops=elements * 12, nbytes=2 * source.nbytes)
    ]  # fmt: skip


@lowers("layer_norm", "rms_norm")
@in_float32
def lower_norm(node: Node, target: Target) -> list[Call | Alias]:
    """Lower a norm over trailing axes, with the residual that is added before it."""
    source, attrs = node.inputs[0], node.attrs
    name, slower = _kernel(node)
    rank, axes = len(source.shape), tuple(attrs["axis"])
    if axes != tuple(range(rank - len(axes), rank)):
        raise CompileError(
            f"{node.name} ({node.site}): {node.op} over axes {axes} of {rank} is not lowered; "
            "the normalised axes must be the last ones"
        )
    elements = prod(source.shape)
    if elements == 0:
        return []
    length = prod(source.shape[axis] for axis in axes)
    residual = bool(attrs.get("residual", False))
    flags = (
        _WITH_RESIDUAL * residual
        + _WITH_WEIGHT * bool(attrs["weight"])
        + _WITH_BIAS * bool(attrs.get("bias", False))
        + _WITH_SUM * (len(node.outputs) == 2)
    )
    # The sum, or y where nobody else wants the sum, is written before y: both may be x or residual.
    inplace = tuple((i, j) for i in range(len(node.outputs)) for j in range(2 if residual else 1))
    (eps,) = struct.unpack("<q", struct.pack("<d", attrs["eps"]))
    rows = elements // length
    nbytes = source.nbytes * (2 + residual + (len(node.outputs) - 1))
    cost_ns = 20.0 * rows + elements * 0.25 * slower + memory_ns(nbytes)
    parts = choose_parts(cost_ns, target.threads, rows)
    words = [rows, length, eps, flags]
    return [
        Call(name, tuple(node.outputs), tuple(node.inputs), words, parts, cost_ns,
             inplace=inplace, flops=elements * 8, nbytes=nbytes)
    ]  # fmt: skip
