"""Picking and placing elements by indices on cuda."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

from fastgraph._core.sizes import most
from fastgraph.ir.graph import Node
from fastgraph.lower.call import Alias
from fastgraph.lower.cuda.call import CudaCall, KernelCode
from fastgraph.lower.cuda.dtypes import ctype
from fastgraph.lower.cuda.given import constant
from fastgraph.lower.cuda.launch import call, i64, pieces, pointers, spread
from fastgraph.lower.cuda.movement import BY_SIZE
from fastgraph.lower.cuda.registry import WIDEST, Target, lowers
from fastgraph.lower.cuda.text import source

__all__ = ["lower_scatter", "lower_take"]

THREADS = 256
# Elements of scatter's rows that a block holds in shared memory, 8 bytes each at most, and columns.
HELD, MOST_COLUMNS = 4096, 2048
JOINS = {
    "none": "Put",
    "add": "JoinAdd",
    "multiply": "JoinMultiply",
    "maximum": "JoinMaximum",
    "minimum": "JoinMinimum",
}


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
    blocks, threads = spread(ceil(vectors / unroll), target)
    sizes = (outer, read.shape[axis], count, inner)
    number = "u32" if out.size < 2**31 else "u64"
    entry = (
        f"take<{BY_SIZE[itemsize]}, {ctype(indices.dtype)}, {number}, {width}, {piece}, {unroll}, "
        f"{threads}, {', '.join(map(constant, sizes))}>"
    )
    arguments = [*pointers((out,), (read, indices)), ("fault",), ("node",), *map(i64, sizes)]
    code = KernelCode(source("take"), entry, "take")
    return [call(code, (out,), (read, indices), blocks, threads, arguments)]


@lowers("scatter", "scatter_pair")
def lower_scatter(node: Node, target: Target) -> list[CudaCall | Alias]:
    """Lower scatters: a block owns a range of rows, so that equal numbers act in order."""
    x, indices = node.inputs[:2]
    if x.size == 0 and indices.size == 0:
        return []
    (rows, width), count, reduction = x.shape, indices.size, node.attrs["reduction"]
    # What only moves has no type of its own.
    name = ctype(x.dtype) if reduction != "none" else BY_SIZE[x.dtype.itemsize]
    chunk = max(1, min(int(width), MOST_COLUMNS))
    across = most(1, ceil(width / chunk))
    # As many blocks as the device has room for, each with as few rows as that allows.
    wanted = max(1, 2 * target.multiprocessors // int(across))
    held = max(1, min(HELD // chunk, ceil(max(int(rows), 1) / wanted)))
    sizes = (rows, width, count)
    entry = (
        f"{node.op}<{name}, {JOINS[reduction]}, {THREADS}, {', '.join(map(constant, sizes))}, "
        f"{held}, {chunk}>"
    )
    blocks = most(1, ceil(rows / held)) * across
    arguments = [
        *pointers(node.outputs, node.inputs),
        ("fault",),
        ("node",),
        *map(i64, sizes),
    ]
    code = KernelCode(source("elementwise.cuh", "scatter"), entry, "scatter")
    pairs = ((0, 0), (1, 3))[: len(node.outputs)]
    found = call(code, node.outputs, node.inputs, blocks, THREADS, arguments, inplace=pairs)
    return [replace(found, grid=(blocks, len(pairs), 1))]
