"""Attention on the cpu: tiles of rows and keys, and the scratch that a part needs."""

from __future__ import annotations

import struct
from math import ceil, prod

import numpy as np

from fastgraph.ir.graph import Node, Value
from fastgraph.ir.ops.registry import AttentionSizes
from fastgraph.lower.call import Alias, Call, Temp
from fastgraph.lower.cpu.halves import in_float32
from fastgraph.lower.cpu.kinds import kernel_kind
from fastgraph.lower.cpu.layout import broadcast_strides, choose_parts, memory_ns
from fastgraph.lower.cpu.registry import Target, lowers

__all__ = ["lower_fused_attention"]

# As in the kernels: columns of a panel; rows of a tile are a multiple of what every kernel takes.
PANEL = 16
ROW_STEP = 12
MAX_TILE_ROWS = 12

# A tile of keys stays in a first-level cache; rows of q and their sums in a second-level one.
KEY_TILE_FLOATS = 4096
LEAST_KEYS = 64
MOST_KEYS = 256
ROW_TILE_FLOATS = 16384
LEAST_ROWS = 24
# Up to so many rows, panels of keys cost more than they save.
DIRECT_ROWS = 2

FLOPS_PER_NS = 70.0
SCORE_NS = 0.35
# In double a row at a time, without tiles.
PLAIN_COST = 8.0
NO_BOUND = 2**40
NO_MASK, BOOL_MASK, FLOAT_MASK = 0, 1, 2


def up(number: int, step: int) -> int:
    """Return `number` rounded up to a multiple of `step`."""
    return -(-number // step) * step


def bits(number: float) -> int:
    """Return the bits of a float32."""
    (word,) = struct.unpack("<I", struct.pack("<f", number))
    return int(word)


def double_bits(number: float) -> int:
    """Return the bits of a float64, as a signed word."""
    (word,) = struct.unpack("<q", struct.pack("<d", number))
    return int(word)


def key_tile(sizes: AttentionSizes) -> int:
    """Return the keys of a tile, from the shape alone: results depend on it."""
    fitting = KEY_TILE_FLOATS // max(sizes.length, sizes.value_length, 1) // PANEL * PANEL
    return min(max(fitting, LEAST_KEYS), MOST_KEYS, up(max(sizes.keys, 1), PANEL))


def row_tile(sizes: AttentionSizes, rows: int, threads: int) -> int:
    """Return the rows of a unit: many, so that packed keys serve long, yet enough units."""
    most = max(ROW_TILE_FLOATS // max(sizes.length + sizes.value_length, 1), LEAST_ROWS)
    if threads > 1:
        stripes = ceil(4 * threads / max(sizes.batch * sizes.key_heads, 1))
        most = min(most, max(ceil(rows / stripes), LEAST_ROWS))
    even = ceil(rows / ceil(rows / most))
    return min(up(even, ROW_STEP), rows)


def seen(sizes: AttentionSizes, lower: int | None, upper: int | None) -> int:
    """Return how many keys all queries see together, without the mask."""
    low = -NO_BOUND if lower is None else lower
    high = NO_BOUND if upper is None else upper
    pairs = (
        (max(0, i + low), min(sizes.keys, i + high + 1)) for i in range(min(sizes.queries, 4096))
    )
    found = sum(max(0, end - begin) for begin, end in pairs)
    return found * sizes.queries // max(min(sizes.queries, 4096), 1)


def mask_words(node: Node, sizes: AttentionSizes) -> list[int]:
    """Return the mask's kind and its strides over batch, head, query and key."""
    if node.attrs["mask"] is None:
        return [NO_MASK, 0, 0, 0, 0]
    mask = node.inputs[node.attrs["mask"]]
    kind = BOOL_MASK if mask.dtype == np.bool_ else FLOAT_MASK
    scores = (sizes.batch, sizes.heads, sizes.queries, sizes.keys)
    return [kind, *broadcast_strides(mask.shape, scores)]


def operand_words(node: Node, sizes: AttentionSizes) -> list[int]:
    """Return what every kernel is told first: sizes, where operands lie, and the mask."""
    attrs, out = node.attrs, node.outputs[0]
    words = list(sizes)
    for name in "qkv":
        place = attrs[name]
        words += [place.offset, place.batch, place.head, place.position]
    row = out.shape[3]
    strides = [row, sizes.heads * row] if attrs["rows_first"] else [sizes.queries * row, row]
    return [*words, 0, prod(out.shape[1:]), *strides, *mask_words(node, sizes)]


def bound_words(node: Node) -> list[int]:
    """Return the bounds of the band of keys, far out where there are none."""
    lower, upper = node.attrs["lower"], node.attrs["upper"]
    return [-NO_BOUND if lower is None else lower, NO_BOUND if upper is None else upper]


@lowers("fused_attention")
@in_float32
def lower_fused_attention(node: Node, target: Target) -> list[Call | Alias]:
    """Lower attention: one call, whose parts are runs of tiles of rows."""
    attrs, out = node.attrs, node.outputs[0]
    sizes: AttentionSizes = attrs["sizes"]
    operands: list[Value] = [node.inputs[attrs[name].input] for name in "qkv"]
    if attrs["mask"] is not None:
        operands.append(node.inputs[attrs["mask"]])
    kind = kernel_kind(node, out, ("f32", "f64"))
    if prod(out.shape) == 0:
        return []
    pairs = sizes.batch * sizes.heads * seen(sizes, attrs["lower"], attrs["upper"])
    flops = 2 * pairs * (sizes.length + sizes.value_length)
    read = sizes.batch * sizes.key_heads * sizes.keys * (sizes.length + sizes.value_length)
    nbytes = out.dtype.itemsize * (read + 2 * prod(out.shape))
    cost_ns = 50.0 + flops / FLOPS_PER_NS + pairs * SCORE_NS + memory_ns(nbytes)
    words = operand_words(node, sizes)
    if kind == "f64":
        units = sizes.batch * sizes.heads * sizes.queries
        cost_ns *= PLAIN_COST
        words += [double_bits(attrs["scale"]), double_bits(attrs["softcap"] or 0.0)]
        words += [*bound_words(node), 0, 0, 0, 0, max(sizes.keys, 1)]
    else:
        rows = sizes.heads // sizes.key_heads * sizes.queries
        keys = key_tile(sizes)
        direct = rows <= DIRECT_ROWS
        tile = row_tile(sizes, rows, target.threads)
        width = up(sizes.value_length, PANEL)
        scratch = tile * (sizes.length + width + 2) + MAX_TILE_ROWS * keys
        scratch += 0 if direct else keys * sizes.length
        scratch += 0 if width == sizes.value_length else keys * PANEL
        units = sizes.batch * sizes.key_heads * ceil(rows / tile)
        words += [bits(attrs["scale"]), bits(attrs["softcap"] or 0.0), *bound_words(node)]
        words += [tile, keys, width, int(direct), up(scratch, PANEL)]
    parts = choose_parts(cost_ns, target.threads, units)
    temp = Temp(out.dtype.itemsize * words[-1] * parts, "attention tiles")
    return [
        Call(f"attention_{kind}", (out, temp), tuple(operands), words, parts, cost_ns,
             flops=flops, nbytes=nbytes, label="attention")
    ]  # fmt: skip
