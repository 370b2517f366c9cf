"""Reductions on cuda: axes are merged and sorted into rows or columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

from fastgraph.ir.graph import Node, Value
from fastgraph.lower.call import Alias, Temp
from fastgraph.lower.cpu.layout import row_major
from fastgraph.lower.cuda.call import CudaCall, KernelCode
from fastgraph.lower.cuda.dtypes import COMPUTED, ctype
from fastgraph.lower.cuda.given import Given
from fastgraph.lower.cuda.launch import call, column_block, pieces, place, pointers
from fastgraph.lower.cuda.registry import WIDEST, Target, lowers
from fastgraph.lower.cuda.text import source

__all__ = ["lower_reduction", "merge", "row_sums"]

THREADS = 256
# Vectors that a thread is worth, and that a warp does without the help of others.
LEAST_VECTORS, WARP_VECTORS = 4, 256
# Blocks that a reduction is split into where it has fewer results: a number of its own, so that
# the bits of a result do not depend on the device.
BLOCKS = 256
# So few elements of a column are added by one launch sooner than by two.
SHORT_COLUMN = 256
# Candidates for a place have a value and an index; columns keep several in registers.
CANDIDATE_BYTES = 16

# Size and stride of each.
Axes = list[tuple[int, int]]


def merge(shape: Sequence[int], axes: Sequence[int]) -> list[tuple[int, bool]]:
    """Return the axes' sizes, neighbours of one kind merged, and whether each is reduced.

    Examples
    --------
    >>> merge((2, 3, 1, 5), (2, 3))
    [(6, False), (5, True)]
    """
    merged: list[tuple[int, bool]] = []
    for axis, size in enumerate(shape):
        reduced = axis in axes
        if size == 1:
            continue
        if merged and merged[-1][1] == reduced:
            merged[-1] = (merged[-1][0] * size, reduced)
        else:
            merged.append((size, reduced))
    return merged


@dataclass(frozen=True)
class _Pass:
    """One launch of a reduction.

    Attributes
    ----------
    op : str
        The operation with its types, in C++.
    name : str
        The operator's.
    first, last : bool
        Whether it reads elements and not what was kept, whether it writes results.
    kept : str
        The type of what is kept between launches.
    kept_bytes : int
    count : int
        Elements of a result.
    """

    op: str
    name: str
    first: bool
    last: bool
    kept: str
    kept_bytes: int
    count: int


@lowers("sum", "mean", "prod", "max", "min", "argmax", "argmin")
def lower_reduction(node: Node, target: Target) -> list[CudaCall | Alias]:
    """Lower a reduction to a launch, or to two where few results are of many elements."""
    (read,), (out,) = node.inputs, node.outputs
    if out.size == 0:
        return []
    axes = node.attrs["axis"]
    merged = merge(read.shape, axes)
    places = node.op in ("argmax", "argmin")
    if not places and read.dtype == out.dtype and not any(reduced for _, reduced in merged):
        return [Alias(out, read)]
    count = prod(read.shape[axis] for axis in axes)
    name = ctype(read.dtype)
    computed = COMPUTED.get(name, name)
    kept = f"Candidate<{computed}>" if places else computed
    kept_bytes = (
        CANDIDATE_BYTES if places else {"bool": 1, "f32": 4}.get(computed, read.dtype.itemsize)
    )
    op = f"{node.op.capitalize()}<{name}, {ctype(out.dtype)}>"
    whole = _Pass(op, node.op, True, True, kept, kept_bytes, count)
    if read.size == 0:
        return [_rows(whole, out, read, out.size, [], [], 0, 1, target)]

    # What is not reduced at all is reduced over an axis of one.
    if not any(reduced for _, reduced in merged):
        merged.append((1, True))
    sizes = [size for size, _ in merged]
    strides = row_major(sizes)
    length, inner = merged[-1]
    outer = list(zip(sizes, strides, merged, strict=True))[:-1]
    kept_axes = [(size, stride) for size, stride, (_, reduced) in outer if not reduced]
    over_axes = [(size, stride) for size, stride, (_, reduced) in outer if reduced]
    build = _rows if inner else _columns
    split = _split(inner, length, kept_axes, over_axes)
    if split == 1:
        return [build(whole, out, read, out.size, kept_axes, over_axes, length, 1, target)]
    partial = Temp(out.size * split * kept_bytes, "partial")
    first, second = replace(whole, last=False), replace(whole, first=False)
    calls = [build(first, partial, read, out.size, kept_axes, over_axes, length, split, target)]
    if inner:
        rows = [(out.size, split)]
        calls.append(_rows(second, out, partial, out.size, rows, [], split, 1, target))
    else:
        runs = [(split, out.size)]
        calls.append(_columns(second, out, partial, out.size, [], runs, out.size, 1, target))
    return [*calls]


def row_sums(
    read: Value, rows: int, length: int, parts: int, target: Target
) -> tuple[Temp, CudaCall]:
    """Return scratch with the sums of `parts` equal parts of each row, and what puts them there.

    Parts are cut at vectors as wide as the row's length allows.
    """
    name = ctype(read.dtype)
    kept = COMPUTED.get(name, name)
    nbytes = 4 if kept == "f32" else read.dtype.itemsize
    do = _Pass(f"Sum<{name}, {name}>", "sum", True, False, kept, nbytes, length)
    partial = Temp(rows * parts * nbytes, "sums of parts")
    kept_axes = [(rows, length)]
    call = _rows(do, partial, read, rows, kept_axes, [], length, parts, target, whole=True)
    return partial, call


def _split(inner: bool, length: int, kept: Axes, over: Axes) -> int:
    """How many blocks share the elements of a result, from its shape alone."""
    rows, runs = (int(prod(size for size, _ in axes)) for axes in (kept, over))
    length = int(length)
    if inner:
        return max(1, min(BLOCKS // rows, runs * length // (THREADS * 16)))
    blocks = rows * ceil(length / 128)
    return 1 if runs < SHORT_COLUMN else max(1, min(BLOCKS // blocks, runs // 64))


def _where(kept: Axes, over: Axes, given: Given) -> str:
    """What says where a run begins."""
    terms = [
        place(name, [size for size, _ in pairs], [stride for _, stride in pairs], given)
        for name, pairs in (("row", kept), ("run", over))
    ]
    return " + ".join(term for term in terms if term != "0") or "0"


def _rows(
    do: _Pass, out: Value | Temp, read: Value | Temp, results: int, kept: Axes,
    over: Axes, length: int, split: int, target: Target, whole: bool = False,
) -> CudaCall:  # fmt: skip
    """Reduce the innermost axis, and others with it; `whole`: in vectors that fill a row."""
    runs = prod(size for size, _ in over)
    in_name, itemsize, alignment = _input(do, read, target)
    # One row may end with what fills no vector; more begin at one.
    steps = [stride for _, stride in (*kept, *over)]
    fits = itemsize in (1, 2, 4, 8)
    width = WIDEST // itemsize if fits else 1
    if results != 1 or runs != 1 or whole:
        width = pieces(width, itemsize, WIDEST, length, *steps)
    while width > 1 and width > length:
        width //= 2
    piece = pieces(width, itemsize, alignment)
    vectors = ceil(int(runs * (length // width)) / split)
    group = THREADS
    if split == 1 and vectors <= WARP_VECTORS:
        group = 32
        while group > 1 and group * LEAST_VECTORS > 2 * vectors:
            group //= 2
    shape = f"{THREADS}, {group}, {width}, {piece}, {split}"
    sizes, axes = (results, runs, length, do.count), (kept, over)
    blocks = ceil(results * split / (THREADS // group))
    return _launch(do, "rows", out, read, in_name, shape, sizes, axes, blocks, THREADS)


def _columns(
    do: _Pass, out: Value | Temp, read: Value | Temp, results: int, kept: Axes,
    over: Axes, length: int, split: int, target: Target,
) -> CudaCall:  # fmt: skip
    """Reduce axes of which none is the innermost."""
    runs, batches = prod(size for size, _ in over), prod(size for size, _ in kept)
    in_name, itemsize, alignment = _input(do, read, target)
    width = min(4, WIDEST // itemsize) if itemsize in (1, 2, 4, 8) else 1
    if itemsize == 2 and runs >= 64:
        width = 8
    steps = [stride for _, stride in (*kept, *over)]
    width = pieces(width, itemsize, WIDEST, length, *steps)
    while width > 1 and batches * length // width < 32 * target.multiprocessors:
        width //= 2
    piece = pieces(width, itemsize, alignment)
    x, y = column_block(length // width, runs, THREADS)
    shape = f"{x}, {y}, {width}, {piece}, {split}"
    sizes, axes = (batches, runs, length, do.count), (kept, over)
    blocks = batches * split * ceil(length // width / x)
    return _launch(do, "columns", out, read, in_name, shape, sizes, axes, blocks, x * y)


def _input(do: _Pass, read: Value | Temp, target: Target) -> tuple[str, int, int]:
    """Type, bytes and alignment of what is read."""
    if isinstance(read, Temp):
        return do.kept, do.kept_bytes, WIDEST
    return ctype(read.dtype), read.dtype.itemsize, target.alignment(read)


def _launch(
    do: _Pass, walk: str, out: Value | Temp, read: Value | Temp, in_name: str, shape: str,
    sizes: Sequence[int], axes: tuple[Axes, Axes], blocks: int, threads: int,
) -> CudaCall:  # fmt: skip
    out_name = do.kept if isinstance(out, Temp) else ctype(out.dtype)
    flags = f"{str(do.first).lower()}, {str(do.last).lower()}"
    given = Given("i64")
    at, numbers = _where(*axes, given), ", ".join(map(given, sizes))
    parameters = ", ".join([f"{out_name} *out", f"const {in_name} *in", *given.parameters])
    text = (
        f"__global__ __launch_bounds__({threads}) void reduce_{do.name}({parameters}) {{\n"
        f"  const auto at = [&](i64 row, i64 run) -> i64 {{ return {at}; }};\n"
        f"  reduce_{walk}<{do.op}, {flags}, {in_name}, {out_name}, {shape}>("
        f"out, in, {numbers}, at);\n"
        "}\n"
    )
    flops = 0 if isinstance(read, Temp) else read.size
    text = source("elementwise.cuh", "reduce") + text
    code = KernelCode(text, f"reduce_{do.name}", do.name)
    arguments = (*pointers((out,), (read,)), *given.arguments)
    return call(code, (out,), (read,), blocks, threads, arguments, flops=flops)
