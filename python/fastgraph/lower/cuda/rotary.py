"""Rotary embeddings on cuda."""

from __future__ import annotations

from math import ceil, prod

from fastgraph.ir.graph import Node
from fastgraph.lower.call import Alias
from fastgraph.lower.cuda.call import Argument, CudaCall, KernelCode
from fastgraph.lower.cuda.dtypes import ctype
from fastgraph.lower.cuda.given import constant, refuse
from fastgraph.lower.cuda.launch import call, i64, pieces, spread
from fastgraph.lower.cuda.registry import WIDEST, Target, lowers
from fastgraph.lower.cuda.text import source

__all__ = ["lower_rotary_embedding"]

NOTHING: Argument = ("value", bytes(8))


@lowers("rotary_embedding")
def lower_rotary_embedding(node: Node, target: Target) -> list[CudaCall | Alias]:
    """Lower rotations: a thread does some neighbouring pairs of a head."""
    (x, cos, sin, *rest), (out,), attrs = node.inputs, node.outputs, node.attrs
    if out.size == 0:
        return []
    name, itemsize = ctype(x.dtype), x.dtype.itemsize
    length, half = x.shape[3], attrs["length"] // 2
    refuse("heads have as many elements in each run", length, half)
    # No pairs: all elements are what is left of a head.
    width = pieces(WIDEST // itemsize, itemsize, WIDEST, length, half, length - 2 * half)
    piece = pieces(width, itemsize, target.alignment(x))
    angles = pieces(width, itemsize, min(target.alignment(cos), target.alignment(sin)))
    rows, angle_step, position_step, index = cos.shape[-2], 0, 0, "i64"
    given: tuple[Argument, ...] = (NOTHING,)
    if rest:
        positions = rest[0]
        index, given = ctype(positions.dtype), (("in", 3),)
        position_step = positions.shape[1] if positions.shape[0] != 1 else 0
    elif cos.shape[0] != 1:
        angle_step = rows
    units = prod(x.shape[:3]) * ((half + length - 2 * half) // width)
    blocks, threads = spread(units, target)
    flags = [bool(rest), attrs["interleaved"], attrs["rows_first"]]
    sizes = (*x.shape[:3], rows, angle_step, position_step)
    numbers = [threads, width, piece, angles, length, half, *sizes]
    entry = ", ".join([name, index, *(str(f).lower() for f in flags), *map(constant, numbers)])
    arguments = [("out", 0), ("in", 0), ("in", 1), ("in", 2), *given, ("fault",), ("node",)]
    arguments += map(i64, sizes)
    code = KernelCode(source("rotary"), f"rotary<{entry}>", "rotary_embedding")
    blocks = ceil(units / threads)
    flops, own = 3 * out.size, ((0, 0),)
    return [call(code, (out,), node.inputs, blocks, threads, arguments, flops=flops, inplace=own)]
