"""Products whose rows choose their matrix, on cuda."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from fastgraph._core.sizes import least, most
from fastgraph.ir.graph import Node
from fastgraph.lower.call import Alias, Temp
from fastgraph.lower.cuda.call import Argument, CudaCall, KernelCode
from fastgraph.lower.cuda.dtypes import ctype, is_half
from fastgraph.lower.cuda.given import constant, refuse
from fastgraph.lower.cuda.launch import call, i64, pointers
from fastgraph.lower.cuda.registry import Target, lowers
from fastgraph.lower.cuda.text import source
from fastgraph.lower.taps import counts_of, table_of

__all__ = ["lower_grouped_matmul"]

# A warp of the first launch does an expert.
WARPS = 4
COLUMNS = 64
MMA_THREADS, PLAIN_THREADS = 128, 256


@lowers("grouped_matmul")
def lower_grouped_matmul(node: Node, target: Target) -> list[CudaCall | Alias]:
    """Lower to two launches: find the rows of each matrix, multiply tiles of them."""
    (x, w, ids), (out,) = node.inputs, node.outputs
    (rows, k), (experts, _, n) = x.shape, w.shape
    if rows == 0:
        return []
    refuse("matrices and how many there are stay the same", k, experts, n)
    text = source("tiles.cuh", "grouped")
    groups = Temp(4 * (experts + 1 + rows), "rows by expert")
    given: list[Argument] = [("out", 0), ("in", 0), ("in", 1), ("fault",), ("node",), i64(rows)]
    entry = f"group_rows<{ctype(ids.dtype)}, {32 * WARPS}, {constant(rows)}, {experts}>"
    blocks = ceil((experts + 1) / WARPS)
    code = KernelCode(text, entry, "group_rows")
    calls: list[CudaCall | Alias] = [
        call(code, (groups,), (ids, counts_of(node, w)), blocks, 32 * WARPS, given)
    ]
    if n == 0:
        return calls
    # Tiles as high as an expert has rows, on the average.
    high = 64 if rows >= 32 * experts else 16
    whole = k % 8 == n % 8 == 0 and min(target.alignment(x), target.alignment(w)) == 16
    mma = is_half(x.dtype) and whole and k > 0
    kernel, threads = ("grouped_mma", MMA_THREADS) if mma else ("grouped_plain", PLAIN_THREADS)
    entry = f"{kernel}<{ctype(x.dtype)}, {high}, {constant(rows)}, {k}, {n}, {experts}>"
    tiles = most(1, rows // high + least(experts, rows))
    code, flops = KernelCode(text, entry, "grouped_matmul"), 2 * rows * k * n
    operands = (x, w, groups, table_of(node, w))
    takes = (*pointers((out,), operands), i64(rows))
    multiply = call(code, (out,), operands, tiles, threads, takes, flops=flops)
    return [*calls, replace(multiply, grid=(tiles, ceil(n / COLUMNS), 1))]
