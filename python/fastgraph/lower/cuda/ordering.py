"""Running sums and the largest elements on cuda."""

from __future__ import annotations

from math import ceil, prod

from fastgraph.errors import CompileError
from fastgraph.ir.graph import Node, Value
from fastgraph.lower.call import Alias, Temp
from fastgraph.lower.cuda.call import Argument, CudaCall, KernelCode
from fastgraph.lower.cuda.dtypes import ctype
from fastgraph.lower.cuda.given import constant
from fastgraph.lower.cuda.launch import call, column_block, i64, pieces, pointers
from fastgraph.lower.cuda.reduction import row_sums
from fastgraph.lower.cuda.registry import WIDEST, Target, lowers
from fastgraph.lower.cuda.text import source
from fastgraph.lower.taps import indices_of

__all__ = ["lower_cumulative_sum", "lower_top_k"]

THREADS = 256
# A row of at most so many elements is summed by a warp; a longer one is cut where rows are few.
WARP_ELEMENTS, PART_ELEMENTS, MOST_PARTS = 1024, 8192, 256
# What a block sorts, and up to which k that brings lines to an end.
SORTED, MOST_SORTED_K = 2048, 1024
NOTHING: Argument = ("value", bytes(8))


def _flag(value: object) -> str:
    return str(bool(value)).lower()


@lowers("cumulative_sum")
def lower_cumulative_sum(node: Node, target: Target) -> list[CudaCall | Alias]:
    """Lower running sums: rows by warps, blocks, or parts in two launches; columns by threads."""
    (read,), (out,), attrs = node.inputs, node.outputs, node.attrs
    if out.size == 0:
        return []
    name, itemsize, axis = ctype(read.dtype), read.dtype.itemsize, attrs["axis"]
    outer, length, inner = prod(out.shape[:axis]), out.shape[axis], prod(out.shape[axis + 1 :])
    ways = f"{name}, {_flag(attrs['exclusive'])}, {_flag(attrs['reverse'])}"
    text, flops = source("elementwise.cuh", "scan"), out.size
    if inner != 1:
        x, y = column_block(inner, max(1, length // 8), THREADS)
        entry = f"scan_columns<{ways}, {x}, {y}, {constant(length)}, {constant(inner)}>"
        takes = (*pointers((out,), (read,)), i64(length), i64(inner))
        code, blocks = KernelCode(text, entry, node.op), outer * ceil(inner / x)
        # With parts each element is read twice, and by one thread.
        return [call(code, (out,), (read,), blocks, x * y, takes, flops=flops, inplace=((0, 0),))]
    width = pieces(WIDEST // itemsize, itemsize, WIDEST, length)
    piece = pieces(width, itemsize, target.alignment(read))
    parts = max(1, min(MOST_PARTS // int(outer), int(length) // PART_ELEMENTS))
    group = 32 if length <= WARP_ELEMENTS else THREADS
    sizes = f"{constant(outer)}, {constant(length)}"
    entry = f"scan_rows<{ways}, {THREADS}, {group}, {width}, {piece}, {sizes}, {parts}>"
    code, blocks = KernelCode(text, entry, node.op), ceil(outer * parts / (THREADS // group))
    calls: list[CudaCall | Alias] = []
    ins: tuple[Value | Temp, ...] = (read,)
    sums: Argument = NOTHING
    if parts > 1:
        partial, first = row_sums(read, outer, length, parts, target)
        calls.append(first)
        ins, sums = (read, partial), ("in", 1)
    given: list[Argument] = [("out", 0), ("in", 0), sums, i64(outer), i64(length)]
    calls.append(call(code, (out,), ins, blocks, THREADS, given, flops=flops, inplace=((0, 0),)))
    return calls


@lowers("top_k")
def lower_top_k(node: Node, target: Target) -> list[CudaCall | Alias]:
    """Lower the choice of the first k: pieces are sorted, and what they leave sorted again."""
    (read,), (values, indices), attrs = node.inputs, node.outputs, node.attrs
    if values.size == 0:
        return []
    axis, k = attrs["axis"], attrs["k"]
    outer, length, inner = prod(read.shape[:axis]), read.shape[axis], prod(read.shape[axis + 1 :])
    if length >= 2**32:
        raise CompileError(
            f"{node.name} ({node.site}): top_k over {length} elements is not lowered; at most "
            f"{2**32 - 1} are counted on cuda"
        )
    name, lines, largest = ctype(read.dtype), outer * inner, _flag(attrs["largest"])
    text, flops = source("elementwise.cuh", "top_k"), read.size
    tap = indices_of(node)
    if k > MOST_SORTED_K and length > SORTED:
        sizes = (lines, length, inner)
        numbers = ", ".join(map(constant, sizes))
        entry = f"top_k_counted<{name}, {largest}, {THREADS}, {numbers}, {k}>"
        blocks = lines * ceil(length / THREADS)
        takes = (*pointers((values, indices), (read, tap)), *map(i64, sizes))
        code = KernelCode(text, entry, node.op)
        flops = lines * length * length
        return [call(code, (values, indices), (read, tap), blocks, THREADS, takes, flops=flops)]
    seat = 16 if read.dtype.itemsize == 8 else 8
    calls: list[CudaCall | Alias] = []
    count, given = length, None
    while True:
        size = min(SORTED, max(64, 1 << (int(count) - 1).bit_length()))
        together = max(1, 128 // (size // 2))
        last = count <= size
        units = lines * ceil(count / size)
        left = Temp(units * k * seat, "candidates")
        entry = (
            f"top_k<{name}, {largest}, {_flag(given is None)}, {_flag(last)}, {size}, {together}, "
            f"{', '.join(map(constant, (lines, count, inner, length)))}, {min(k, size)}>"
        )
        ins: tuple[Value | Temp, ...] = (read,) if given is None else (read, given)
        ins = (*ins, tap) if last else ins
        outs: tuple[Value | Temp, ...] = (values, indices) if last else (left,)
        arguments: list[Argument] = [("out", 0), ("out", 1), NOTHING]
        if not last:
            arguments = [NOTHING, NOTHING, ("out", 0)]
        arguments += [("in", 0), NOTHING if given is None else ("in", 1)]
        arguments.append(("in", len(ins) - 1) if last else NOTHING)
        arguments += map(i64, (lines, count, inner, length))
        code, blocks = KernelCode(text, entry, node.op), ceil(units / together)
        calls.append(call(code, outs, ins, blocks, size // 2 * together, arguments, flops=flops))
        if last:
            return calls
        count, given = ceil(count / size) * k, left
