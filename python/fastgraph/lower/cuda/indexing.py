"""Picking and placing elements by indices on cuda."""

from __future__ import annotations

from math import ceil, prod

from fastgraph.ir.graph import Node
from fastgraph.lower.call import Alias
from fastgraph.lower.cuda.call import CudaCall, KernelCode
from fastgraph.lower.cuda.dtypes import ctype
from fastgraph.lower.cuda.launch import call, pieces, pointers
from fastgraph.lower.cuda.movement import BY_SIZE
from fastgraph.lower.cuda.registry import WIDEST, Target, lowers
from fastgraph.lower.cuda.text import source

__all__ = ["lower_take"]

THREADS = 256


@lowers("take")
def lower_take(node: Node, target: Target) -> list[CudaCall | Alias]:
    """Lower take along one axis; an index out of range is a fault of the run."""
    (read, indices), (out,), axis = node.inputs, node.outputs, node.attrs["axis"]
    if out.size == 0:
        return []
    itemsize = out.dtype.itemsize
    outer, count = prod(read.shape[:axis]), indices.size
    inner = prod(read.shape[axis + 1 :])
    width = pieces(WIDEST // itemsize, itemsize, WIDEST, inner)
    piece = pieces(width, itemsize, target.alignment(read))
    vectors = out.size // width
    unroll = 4 if vectors >= 8 * THREADS * target.multiprocessors else 1
    entry = (
        f"take<{BY_SIZE[itemsize]}, {ctype(indices.dtype)}, {width}, {piece}, {unroll}, {THREADS}, "
        f"{outer}, {read.shape[axis]}, {count}, {inner}>"
    )
    arguments = [*pointers((out,), (read, indices)), ("fault",), ("node",)]
    blocks = ceil(vectors / (THREADS * unroll))
    code = KernelCode(source("take"), entry, "take")
    return [call(code, (out,), (read, indices), blocks, THREADS, arguments)]
