"""Elementwise regions on cuda: a kernel written for each, which reads and writes memory once."""

from __future__ import annotations

from math import prod

from fastgraph.ir.graph import Node
from fastgraph.lower.call import Alias
from fastgraph.lower.cpu.layout import broadcast_strides, collapse, row_major
from fastgraph.lower.cuda.call import CudaCall
from fastgraph.lower.cuda.dtypes import ctype
from fastgraph.lower.cuda.instructions import body
from fastgraph.lower.cuda.loop import Loop, Operand
from fastgraph.lower.cuda.registry import Target, lowers

__all__ = ["lower_region"]


@lowers("region")
def lower_region(node: Node, target: Target) -> list[CudaCall | Alias]:
    """Lower a region to one launch."""
    shape = node.outputs[0].shape
    if prod(shape) == 0:
        return []
    statements, results = body(node)
    all_strides = [broadcast_strides(value.shape, shape) for value in node.inputs]
    sizes, (own, *strides) = collapse(shape, [row_major(shape), *all_strides])
    operands = tuple(
        Operand(value, ctype(value.dtype), tuple(steps))
        for value, steps in zip(node.inputs, strides, strict=True)
    )
    loop = Loop(
        "region",
        tuple(sizes),
        tuple(own),
        node.outputs,
        tuple(ctype(out.dtype) for out in node.outputs),
        operands,
        statements,
        results,
    )
    return [loop.lower(target, "elementwise.cuh")]
