"""Movement on the cpu: aliases where the bytes lie right already, else one strided kernel."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

import numpy as np

from fastgraph.errors import CompileError
from fastgraph.ir.graph import Node, Value
from fastgraph.lower.call import Alias, Call, Temp
from fastgraph.lower.cpu.layout import (
    broadcast_strides,
    choose_parts,
    collapse,
    memory_ns,
    row_major,
)
from fastgraph.lower.cpu.registry import Target, lowers

__all__ = [
    "copy_call",
    "lower_broadcast_to",
    "lower_concat",
    "lower_reshape",
    "lower_slice",
    "lower_take",
    "lower_transpose",
    "spread_call",
]

_ITEM_SIZES = (1, 2, 4, 8)
# Elements of q that one unit of the transpose kernel does.
_TILE = 32
_PAGE = 4096


def _item_size(node: Node, value: Value) -> int:
    size = np.dtype(value.dtype).itemsize
    if size not in _ITEM_SIZES:
        raise CompileError(
            f"{node.name} ({node.site}): {node.op} moves items of 1, 2, 4 or 8 bytes, "
            f"{np.dtype(value.dtype).name} has {size}"
        )
    return size


def copy_call(out: Value, source: Value, target: Target) -> Call:
    """Copy all bytes of `source` to `out`, which has as many."""
    nbytes = prod(source.shape) * np.dtype(source.dtype).itemsize
    cost_ns = 10.0 + memory_ns(2 * nbytes)
    parts = choose_parts(cost_ns, target.threads, ceil(nbytes / _PAGE))
    return Call(
        "copy_dense", (out,), (source,), [nbytes], parts, cost_ns,
        inplace=((0, 0),), nbytes=2 * nbytes,
    )  # fmt: skip


def _strided(node: Node, strides: Sequence[int], offset: int, target: Target) -> list[Call | Alias]:
    """Read the input with `strides` and from element `offset` on, write the output densely."""
    source, out = node.inputs[0], node.outputs[0]
    size = _item_size(node, source)
    elements = prod(out.shape)
    if elements == 0:
        return []
    sizes, (to, from_) = collapse(out.shape, [row_major(out.shape), strides])
    if len(sizes) == 1 and from_ == [1]:
        return [Alias(out, source, offset * size)]
    nbytes = 2 * elements * size
    dense = [axis for axis in range(len(sizes) - 1) if from_[axis] == 1]
    if dense and offset == 0 and from_[-1] > 1:
        # The input is dense along another axis than the output: exchange the two, tile by tile.
        axis = dense[-1]
        outer = [i for i in range(len(sizes) - 1) if i != axis]
        words = [size, len(outer), sizes[axis], sizes[-1], to[axis], from_[-1]]
        words += [part[i] for part in (sizes, from_, to) for i in outer]
        units = prod(sizes[i] for i in outer) * ceil(sizes[axis] / _TILE)
        cost_ns = 10.0 + 5.0 * units + elements * 0.3
        name = "transpose"
    else:
        inner, step = sizes.pop(), from_.pop()
        to.pop()
        # Few long rows are halved, so that threads find as many pieces as they want.
        while prod(sizes) < 4 * target.threads and inner % 2 == 0 and inner * size >= 2 * _PAGE:
            inner //= 2
            sizes.append(2)
            from_.append(inner * step)
            to.append(inner)
        units = prod(sizes)
        words = [size, len(sizes), inner, step, offset, *sizes, *from_, *to]
        cost_ns = 10.0 + 4.0 * units + memory_ns(nbytes) * (1 if step in (0, 1) else 4)
        name = "copy_strided"
    parts = choose_parts(cost_ns, target.threads, units)
    return [Call(name, (out,), (source,), words, parts, cost_ns, nbytes=nbytes)]


def spread_call(out: Temp, source: Value, target: Target) -> Call:
    """Copy `source` to its place in an array of the largest extents; the rest of that stays."""
    size = source.dtype.itemsize
    whole = row_major([int(n) for n in source.shape])
    sizes, (to, from_) = collapse(source.shape, [whole, row_major(source.shape)])
    inner, step = sizes.pop(), from_.pop()
    to.pop()
    units, nbytes = int(prod(sizes)), 2 * int(source.nbytes)
    words = [size, len(sizes), inner, step, 0, *sizes, *from_, *to]
    cost_ns = 10.0 + 4.0 * units + memory_ns(nbytes)
    parts = choose_parts(cost_ns, target.threads, units)
    return Call("copy_strided", (out,), (source,), words, parts, cost_ns, nbytes=nbytes)


@lowers("reshape")
def lower_reshape(node: Node, target: Target) -> list[Call | Alias]:
    """Lower reshape: the same bytes."""
    return [Alias(node.outputs[0], node.inputs[0])]


@lowers("transpose")
def lower_transpose(node: Node, target: Target) -> list[Call | Alias]:
    """Lower transpose; an alias where only axes of size 1 move."""
    strides = row_major(node.inputs[0].shape)
    return _strided(node, [strides[axis] for axis in node.attrs["axes"]], 0, target)


@lowers("slice")
def lower_slice(node: Node, target: Target) -> list[Call | Alias]:
    """Lower slice; an alias where the elements lie side by side."""
    strides = row_major(node.inputs[0].shape)
    starts, steps = node.attrs["starts"], node.attrs["steps"]
    offset = sum(start * stride for start, stride in zip(starts, strides, strict=True))
    walk = [step * stride for step, stride in zip(steps, strides, strict=True)]
    return _strided(node, walk, offset, target)


@lowers("broadcast_to")
def lower_broadcast_to(node: Node, target: Target) -> list[Call | Alias]:
    """Lower broadcast_to; an alias where nothing is repeated."""
    out = node.outputs[0]
    return _strided(node, broadcast_strides(node.inputs[0].shape, out.shape), 0, target)


@lowers("concat")
def lower_concat(node: Node, target: Target) -> list[Call | Alias]:
    """Lower concat: one call for all inputs, an alias where only one has elements."""
    out, axis = node.outputs[0], node.attrs["axis"]
    size = _item_size(node, out)
    sources = tuple(value for value in node.inputs if prod(value.shape))
    if not sources:
        return []
    if len(sources) == 1:
        return [Alias(out, sources[0])]
    rows, inner = prod(out.shape[:axis]), prod(out.shape[axis + 1 :]) * size
    widths = [value.shape[axis] * inner for value in sources]
    nbytes = 2 * rows * sum(widths)
    cost_ns = 10.0 + 4.0 * rows * len(widths) + memory_ns(nbytes)
    parts = choose_parts(cost_ns, target.threads, ceil(rows * sum(widths) / _PAGE))
    words = [len(sources), rows, sum(widths), *widths]
    return [Call("concat", (out,), sources, words, parts, cost_ns, nbytes=nbytes)]


@lowers("take")
def lower_take(node: Node, target: Target) -> list[Call | Alias]:
    """Lower take along one axis; an index out of range is a fault of the run."""
    (source, indices), (out,), axis = node.inputs, node.outputs, node.attrs["axis"]
    size = _item_size(node, source)
    if prod(out.shape) == 0:
        return []
    outer, count = prod(source.shape[:axis]), prod(indices.shape)
    width = prod(source.shape[axis + 1 :]) * size
    # The size of an index, less than 0 where it has no sign.
    kind = indices.dtype.itemsize * (-1 if indices.dtype.kind == "u" else 1)
    words = [outer, source.shape[axis], count, width, kind]
    nbytes = 2 * outer * count * width + indices.nbytes
    cost_ns = 10.0 + 3.0 * outer * count + memory_ns(nbytes)
    parts = choose_parts(cost_ns, target.threads, outer * count)
    return [Call("take", (out,), (source, indices), words, parts, cost_ns, nbytes=nbytes)]
