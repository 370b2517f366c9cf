"""Reductions on the cpu: axes are merged and sorted into runs or columns."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

import numpy as np

from fastgraph.ir.graph import Node, Value
from fastgraph.lower.call import Alias, Call, Temp
from fastgraph.lower.cpu.halves import in_float32
from fastgraph.lower.cpu.instructions import suffix_of
from fastgraph.lower.cpu.layout import choose_parts, memory_ns, row_major
from fastgraph.lower.cpu.registry import Target, lowers

__all__ = ["lower_argmax", "lower_reduction"]

# Columns that one unit of the kernel holds, at most.
_CHUNK = 512
# A full reduction of many elements is cut into blocks of this length, whatever the threads.
_BLOCK = 16384
_NO_COUNT = -1
_NO_TOTAL = 2**62


def _kernel(node: Node) -> str:
    """The kernel's name; sums and products wrap, so that their sign does not matter."""
    kind = suffix_of(node.inputs[0].dtype)
    if node.op in ("sum", "prod", "mean"):
        return f"{'prod' if node.op == 'prod' else 'sum'}_{kind.replace('u', 'i')}"
    return f"{node.op}_{kind}"


def _merge(shape: Sequence[int], axes: Sequence[int]) -> list[tuple[int, bool]]:
    """Sizes of the axes, neighbours of one kind merged, and whether each is reduced.

    >>> _merge((2, 3, 1, 5), (2, 3))
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


def _chunk(columns: int, rows: int, threads: int) -> int:
    """Columns a unit: wide for the cache, narrower where threads would find nothing to do."""
    columns, rows = int(columns), int(rows)
    if threads == 1:
        return min(_CHUNK, columns)
    wanted = ceil(columns * rows / (threads * 4) / 64) * 64
    return min(_CHUNK, columns, max(64, wanted))


@lowers("sum", "mean", "prod", "max", "min")
@in_float32
def lower_reduction(node: Node, target: Target) -> list[Call | Alias]:
    """Lower a reduction: one call, or blocks and their combination where all is reduced."""
    (source,), (out,) = node.inputs, node.outputs
    name = _kernel(node)
    if prod(out.shape) == 0:
        return []
    axes = node.attrs["axis"]
    count = prod(source.shape[axis] for axis in axes) if node.op == "mean" else _NO_COUNT
    merged = _merge(source.shape, axes)
    if prod(source.shape) == 0:
        # Nothing to combine: every result is the operation's neutral element.
        words = [1, 0, 0, count, _NO_TOTAL, 1, 0, prod(out.shape), 0]
        return [Call(name, (out,), (source,), words, cost_ns=20.0)]
    if not any(reduced for _, reduced in merged):
        return [Alias(out, source)]
    if len(merged) == 1 and merged[0][0] >= 4 * _BLOCK:
        return _in_blocks(name, source, out, count, target)

    sizes = [size for size, _ in merged]
    strides = row_major(sizes)
    length, inner_reduced = merged[-1]
    outer = list(zip(sizes, strides, merged, strict=True))[:-1]
    kept = [(size, stride) for size, stride, (_, reduced) in outer if not reduced]
    over = [(size, stride) for size, stride, (_, reduced) in outer if reduced]
    rows = prod(size for size, _ in kept)
    chunk = 0 if inner_reduced else _chunk(length, rows, target.threads)
    units = rows if inner_reduced else rows * ceil(length / chunk)
    words = [int(inner_reduced), length, chunk, count, _NO_TOTAL, len(kept), len(over)]
    for pairs in (kept, over):
        words += [size for size, _ in pairs] + [stride for _, stride in pairs]
    nbytes, runs = _traffic(source, out), int(prod(sizes)) // int(length)
    cost_ns = 10.0 + 6.0 * runs + memory_ns(nbytes)
    parts = choose_parts(cost_ns, target.threads, units)
    return [Call(name, (out,), (source,), words, parts, cost_ns, flops=int(prod(sizes)),
                 nbytes=nbytes)]  # fmt: skip


def _traffic(source: Value, out: Value) -> int:
    width = np.dtype(source.dtype).itemsize
    return int(prod(source.shape)) * width + int(prod(out.shape)) * np.dtype(out.dtype).itemsize


def _in_blocks(
    name: str, source: Value, out: Value, count: int, target: Target
) -> list[Call | Alias]:
    """Reduce everything: blocks that depend on the shape alone, then their results."""
    elements, width = prod(source.shape), np.dtype(source.dtype).itemsize
    blocks = ceil(elements / _BLOCK)
    partial = Temp(blocks * width, "partial")
    first = [1, _BLOCK, 0, _NO_COUNT, elements, 1, 0, blocks, _BLOCK]
    second = [1, blocks, 0, count, _NO_TOTAL, 0, 0]
    nbytes = elements * width
    cost_ns = memory_ns(nbytes)
    parts = choose_parts(cost_ns, target.threads, blocks)
    return [
        Call(name, (partial,), (source,), first, parts, cost_ns, flops=elements, nbytes=nbytes),
        Call(name, (out,), (partial,), second, cost_ns=10.0 + blocks / 10, flops=blocks),
    ]


@lowers("argmax", "argmin")
@in_float32
def lower_argmax(node: Node, target: Target) -> list[Call | Alias]:
    """Lower argmax or argmin over one axis."""
    (source,), (out,) = node.inputs, node.outputs
    if prod(out.shape) == 0:
        return []
    (axis,) = node.attrs["axis"]
    outer, size = prod(source.shape[:axis]), source.shape[axis]
    inner = prod(source.shape[axis + 1 :])
    chunk = _chunk(inner, outer, target.threads)
    nbytes, elements = _traffic(source, out), prod(source.shape)
    cost_ns = 10.0 + elements * 0.4
    parts = choose_parts(cost_ns, target.threads, outer * ceil(inner / chunk))
    words = [outer, size, inner, chunk]
    return [
        Call(_kernel(node), (out,), (source,), words, parts, cost_ns,
             flops=elements, nbytes=nbytes)
    ]  # fmt: skip
