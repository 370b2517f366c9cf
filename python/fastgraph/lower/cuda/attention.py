"""Attention on cuda: which kernel, which tile, whether keys are cut into parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod

import numpy as np

from fastgraph._core.sizes import divisor_of, least
from fastgraph.errors import CompileError
from fastgraph.ir.graph import Node
from fastgraph.ir.ops.attention_step import CACHES, COS, INDICES, KEY, POSITIONS, SIN, VALUE
from fastgraph.ir.ops.fused_attention import AttentionSizes, Place
from fastgraph.lower.call import Alias, Temp
from fastgraph.lower.cuda.call import Argument, CudaCall, KernelCode
from fastgraph.lower.cuda.dtypes import ctype
from fastgraph.lower.cuda.given import constant, refuse, words
from fastgraph.lower.cuda.launch import cost, i32, i64, traffic
from fastgraph.lower.cuda.registry import WIDEST, Target, lowers
from fastgraph.lower.cuda.text import source
from fastgraph.lower.cuda.tiles import (
    FEW_BLOCKS,
    FEW_KEYS,
    FEW_LONG,
    FEW_ROWS,
    FEW_WARPS,
    FLASH,
    MOST_CLUSTER,
    MOST_SPLITS,
    PLAIN_SUMS,
    PLAIN_TILES,
    WARP_GROUPS,
    WHOLE,
    WHOLE_KEYS,
    FlashTile,
    GroupTile,
)
from fastgraph.lower.strides import broadcast_strides

__all__ = ["lower_fused_attention"]

# What the tensor cores multiply at once, and the longest heads that they have a kernel for.
STEP = 16
LONGEST = max(FLASH)
# No bound of the keys that a query sees; small enough that positions can be added.
NO_BOUND = 1 << 30
# As in sources/attention.cuh.
NO_MASK, BOOL_MASK, ADDED_MASK, PLAIN_SCORES = 0, 1, 2, 3
# By less, minus infinity would not stay what it is.
LEAST_SCALE = 1e-30
PLAIN_THREADS = 256
COMBINE_THREADS = 128
# What blocks of a cluster send each other.
PIECE = 16
STEP_INPUTS = (COS, SIN, POSITIONS, INDICES, KEY, VALUE)
NOTHING: Argument = ("value", bytes(8))

WORDS = "<10i2d20q"
"""The struct Attention of sources/attention.cuh."""


def up(number: int, step: int) -> int:
    """Return `number` rounded up to a multiple of `step`, and at least that."""
    return max(1, -(-number // step)) * step


@dataclass(frozen=True)
class Kernel:
    """A kernel of attention, and how its work is cut.

    Attributes
    ----------
    source, entry : str
        The entry up to the last template arguments, which are the same for all.
    rows, threads, shared_bytes : int
        Of a block.
    splits, split_keys : int
        Parts of the keys, by clusters, and how many keys a block has.
    arch : str
        What a variant is compiled for.
    most_blocks : int
        So many at most: these do what is left.
    cluster : int
        Blocks that have parts of the same keys and see each other's shared memory.
    """

    source: str
    entry: str
    rows: int
    threads: int
    shared_bytes: int
    splits: int
    split_keys: int
    arch: str = ""
    most_blocks: int = NO_BOUND
    cluster: int = 1


@lowers("fused_attention", "attention_step")
def lower_fused_attention(node: Node, target: Target) -> list[CudaCall | Alias]:
    """One launch, and a second one where the keys are cut."""
    attrs, out = node.attrs, node.outputs[0]
    if prod(out.shape) == 0:
        return []
    sizes: AttentionSizes = attrs["sizes"]
    kernel = choose_kernel(node, target)
    operands = [node.inputs[attrs[name].input] for name in "qkv"]
    plain = attrs["softcap"] is None and attrs["scale"] > LEAST_SCALE
    kind = PLAIN_SCORES if plain else NO_MASK
    if attrs["mask"] is not None:
        operands.append(node.inputs[attrs["mask"]])
        kind = BOOL_MASK if operands[-1].dtype == np.bool_ else ADDED_MASK
    name = ctype(out.dtype)
    item = 8 if name == "f64" else 4
    rows = sizes.heads // sizes.key_heads * sizes.queries
    all_rows = sizes.batch * sizes.heads * sizes.queries
    parts = kernel.splits * kernel.cluster
    blocks = -(-rows // kernel.rows) * sizes.key_heads * sizes.batch * parts
    partial = None
    if kernel.splits > 1:
        nbytes = kernel.splits * all_rows * (sizes.value_length + 2) * item
        partial = Temp(nbytes, "parts of the keys")
    arguments = describe(node, kernel)
    more: tuple[Argument, ...] = ()
    if node.op == "attention_step":
        more = new_position(node, len(operands))
        operands += [node.inputs[i] for i in STEP_INPUTS]
    pairs = sizes.batch * sizes.heads * seen(sizes, attrs["lower"], attrs["upper"])
    flops = 2 * pairs * (sizes.length + sizes.value_length)
    nbytes = traffic((out, *operands))
    call = CudaCall(
        KernelCode(
            kernel.source,
            f"{kernel.entry}, {kind}, {'false' if attrs['softcap'] is None else 'true'}>",
            "attention",
            kernel.arch,
        ),
        (partial or out, *node.outputs[1:]),
        tuple(operands),
        (least(blocks, kernel.most_blocks), 1, 1),
        (kernel.threads, 1, 1),
        (
            NOTHING if partial else ("out", 0),
            *(("in", i) for i in range(3)),
            NOTHING if attrs["mask"] is None else ("in", 3),
            ("out", 0) if partial else NOTHING,
            i32(sizes.batch),
            arguments,
            *more,
        ),
        shared_bytes=kernel.shared_bytes,
        cluster=kernel.cluster,
        inplace=tuple((i, at) for i, at in enumerate(CACHES, 1) if more),
        flops=flops,
        nbytes=nbytes,
        label="attention",
        cost_ns=cost(flops, nbytes),
    )
    if partial is None:
        return [call]
    together = CudaCall(
        KernelCode(
            source("elementwise.cuh", "attention.cuh"), f"attention_combine<{name}>", "attention"
        ),
        (out,),
        (partial,),
        (all_rows, 1, 1),
        (COMBINE_THREADS, 1, 1),
        (("out", 0), ("in", 0), i32(sizes.batch), arguments),
        nbytes=traffic((out, partial)),
        label="attention, parts of the keys",
        cost_ns=cost(0, traffic((out, partial))),
    )
    return [call, together]


def new_position(node: Node, first: int) -> tuple[Argument, ...]:
    """What the kernel of a step of decoding is given more, in inputs from `first` on."""
    cos = node.inputs[COS]
    return (
        *(("out", i) for i in range(1, 3)),
        *(("in", first + i) for i in range(len(STEP_INPUTS))),
        i32(cos.shape[0]),
        i64(node.attrs["new_key"]),
        ("fault",),
        ("node",),
    )


def choose_kernel(node: Node, target: Target) -> Kernel:
    """Choose from shapes and the GPU alone."""
    sizes: AttentionSizes = node.attrs["sizes"]
    name = ctype(node.outputs[0].dtype)
    longest = max(sizes.length, sizes.value_length)
    rows = sizes.heads // sizes.key_heads * sizes.queries
    if name in ("f16", "bf16") and longest <= LONGEST:
        blocks = sizes.batch * sizes.key_heads * -(-rows // FEW_ROWS)
        if rows <= FEW_ROWS or 2 * blocks <= target.multiprocessors:
            return few(node, rows, target)
        return by_groups(node, rows, target) or flash(node, rows, target)
    return plain(node, rows, target)


def lengths(sizes: AttentionSizes) -> tuple[int, int]:
    """The elements of a head of k and of v as kernels take them.

    Raises
    ------
    UnsupportedError
        They follow an extent.
    """
    refuse("heads have as many elements in each run", sizes.length, sizes.value_length)
    return up(sizes.length, STEP), up(sizes.value_length, STEP)


def flash(node: Node, rows: int, target: Target) -> Kernel:
    """Many rows of half floats."""
    sizes: AttentionSizes = node.attrs["sizes"]
    d, v = lengths(sizes)
    limit = next(limit for limit in FLASH if limit >= max(d, v))
    few, many = WHOLE_KEYS
    if sizes.keys <= few:
        limit = max(limit, 64)  # Tiles for shorter heads would be half empty.
    tiles = WHOLE.get(limit, FLASH[limit]) if few < sizes.keys <= many else FLASH[limit]
    heads = sizes.batch * sizes.key_heads

    def shared(tile: FlashTile) -> int:
        return tile.rows * (2 * d + 16) + slots(tile) * tile.keys * (2 * d + 2 * v + 32)

    def slots(tile: FlashTile) -> int:
        return 1 if sizes.keys <= tile.keys else 2

    fitting = [tile for tile in tiles if shared(tile) <= target.max_shared_bytes]
    full = [t for t in fitting if heads * -(-rows // t.rows) >= target.multiprocessors]
    tile = (full or fitting[-1:])[0]
    name, copied = ctype(node.outputs[0].dtype), copied_bytes(node, target)
    template = [name, d, v, *tile, slots(tile), copied]
    return Kernel(
        source("elementwise.cuh", "attention.cuh", "flash.cuh", "attention_mma"),
        f"attention_mma<{', '.join(map(str, template))}",
        tile.rows,
        32 * tile.warps,
        shared(tile),
        1,
        NO_BOUND,
    )


def by_groups(node: Node, rows: int, target: Target) -> Kernel | None:
    """Many rows of half floats by warp groups, where a GPU has them and the kernel serves."""
    sizes: AttentionSizes = node.attrs["sizes"]
    length, heads = sizes.length, sizes.batch * sizes.key_heads
    if target.capability != (9, 0) or length != sizes.value_length or length not in WARP_GROUPS:
        return None
    if copied_bytes(node, target) < WIDEST:
        return None

    def blocks(tile: GroupTile) -> int:
        return heads * -(-rows // tile.rows)

    def time(tile: GroupTile) -> float:
        return -(-blocks(tile) // target.multiprocessors) * tile.rows / tile.flops_per_ns

    fitting = [
        tile
        for tile in WARP_GROUPS[length]
        if blocks(tile) >= target.multiprocessors
        and tile.shared_bytes(length) <= target.max_shared_bytes
    ]
    if not fitting:
        return None
    tile = min(fitting, key=time)
    template = [ctype(node.outputs[0].dtype), length, *tile[:3]]
    headers = ("elementwise.cuh", "attention.cuh", "flash.cuh", "tiles.cuh", "wgmma.cuh")
    # Where all have as much to do, blocks go on with the next tile of rows; else the first to be
    # done gets it.
    even = node.attrs["lower"] is None and node.attrs["upper"] is None
    return Kernel(
        source(*headers, "attention_wgmma"),
        f"attention_wgmma<{', '.join(map(str, template))}",
        tile.rows,
        tile.threads,
        tile.shared_bytes(length),
        1,
        NO_BOUND,
        "sm_90a",
        target.multiprocessors if even else NO_BOUND,
    )


def few(node: Node, rows: int, target: Target) -> Kernel:
    """Few rows of half floats, whose keys are read by several warps: a step of decoding."""
    sizes: AttentionSizes = node.attrs["sizes"]
    d, v = lengths(sizes)
    keys = FEW_KEYS[next(limit for limit in FEW_KEYS if limit >= max(d, v))]
    heads = (sizes.queries, sizes.heads // sizes.key_heads, sizes.key_heads)
    half = "GIVEN" not in map(constant, heads[:2]) and rows <= FEW_ROWS // 2
    held = FEW_ROWS // (1 + half)
    tiles = max(up(4 * held * (v + 2), STEP), 2 * keys * (2 * d + 2 * v + 32))

    def shared(warps: int, cluster: int) -> int:
        share = up(-(-(rows if half else FEW_ROWS) * v // cluster), 32)
        return warps * tiles + (cluster > 1) * PIECE * (cluster * share + 1)

    warps = FEW_WARPS
    while warps > 1 and shared(warps, MOST_CLUSTER) > target.max_shared_bytes:
        warps //= 2
    blocks = sizes.batch * sizes.key_heads * -(-rows // FEW_ROWS)
    cluster, least = 1, warps * keys
    if target.capability >= (9, 0):
        parts = min(-(-int(sizes.keys) // least), wanted(blocks, target), MOST_CLUSTER)
        cluster = 1 << (parts - 1).bit_length()
        # Another launch takes as long as to read quite some keys.
        least = cluster * FEW_LONG
    splits, split_keys = cut(sizes, cluster * blocks, least, cluster * keys, target)
    if cluster > 1:
        # Of one part, too, the blocks have theirs.
        split_keys = up(-(-int(sizes.keys) // (splits * cluster)), keys)
    numbers = [*map(constant, heads), warps, keys, cluster, splits, copied_bytes(node, target)]
    words = [ctype(node.outputs[0].dtype), d, v, *numbers]
    entry = "attention_few"
    if node.op == "attention_step":
        entry = "attention_step"
        words.insert(0, ctype(node.inputs[POSITIONS].dtype))
    return Kernel(
        source("elementwise.cuh", "attention.cuh", "flash.cuh", "cluster.cuh", "attention_few"),
        f"{entry}<{', '.join(map(str, words))}",
        FEW_ROWS,
        32 * warps,
        shared(warps, cluster),
        splits,
        split_keys,
        cluster=cluster,
    )


def plain(node: Node, rows: int, target: Target) -> Kernel:
    """Every other dtype and length."""
    sizes: AttentionSizes = node.attrs["sizes"]
    d, v = lengths(sizes)
    dtype = ctype(node.outputs[0].dtype)
    item = 8 if dtype == "f64" else 4
    pad = 16 // item

    def shared(tile: tuple[int, int]) -> int:
        r, keys = tile
        return item * ((r + keys) * (d + pad) + keys * v + r * (keys + pad))

    def suits(tile: tuple[int, int]) -> bool:
        r, keys = tile
        if keys > 32 and (item == 8 or max(d, v) > 64):
            return False
        if r > 16 and (rows <= r // 2 or r * v // 256 * (item // 4) > PLAIN_SUMS):
            return False
        return shared(tile) <= target.max_shared_bytes

    suiting = [tile for tile in PLAIN_TILES if suits(tile)]
    if not suiting:
        raise CompileError(
            f"{node.name} ({node.site}): attention over heads of {sizes.length} and "
            f"{sizes.value_length} elements needs {shared(PLAIN_TILES[-1]):,} bytes of shared "
            f"memory, {target.arch} has {target.max_shared_bytes:,}; use matmul and softmax"
        )
    heads = sizes.batch * sizes.key_heads
    # The largest that gives every multiprocessor one, else the one with most blocks.
    tile = max(suiting, key=lambda tile: min(heads * -(-rows // tile[0]), target.multiprocessors))
    r, keys = tile
    splits, split_keys = 1, NO_BOUND
    if rows <= r:
        splits, split_keys = cut(sizes, heads, 4 * keys, 2 * keys, target)
    least = node.outputs[0].dtype.itemsize
    copied = copied_bytes(node, target)
    template = [dtype, d, v, r, keys, copied if copied == WIDEST else least]
    return Kernel(
        source("elementwise.cuh", "attention.cuh", "attention_simt"),
        f"attention_simt<{', '.join(map(str, template))}",
        r,
        PLAIN_THREADS,
        shared(tile),
        splits,
        split_keys,
    )


def wanted(blocks: int, target: Target) -> int:
    """Into how many parts keys are to be cut that `blocks` blocks would read."""
    return max(1, -(-FEW_BLOCKS * target.multiprocessors // int(blocks)))


def cut(
    sizes: AttentionSizes, blocks: int, least: int, step: int, target: Target
) -> tuple[int, int]:
    """Parts of the keys, none shorter than `least`, and how long each is: so many `step`."""
    keys = int(sizes.keys)
    splits = max(1, min(wanted(blocks, target), keys // least, MOST_SPLITS))
    if splits == 1:
        return 1, NO_BOUND
    part = up(-(-keys // splits), step)
    return -(-keys // part), part


def copied_bytes(node: Node, target: Target) -> int:
    """How many bytes of q, k and v can be copied at once: up to 16."""
    sizes: AttentionSizes = node.attrs["sizes"]
    item = node.outputs[0].dtype.itemsize
    found = WIDEST
    for name in "qkv":
        place: Place = node.attrs[name]
        length = sizes.value_length if name == "v" else sizes.length
        steps = (place.offset, place.batch, place.head, place.position, length)
        at = gcd(*map(divisor_of, steps)) * item
        found = min(found, at & -at or WIDEST, target.alignment(node.inputs[place.input]))
    if node.op == "attention_step" and min(map(target.alignment, node.inputs[COS : SIN + 1])) < 4:
        return item
    return found


def describe(node: Node, kernel: Kernel) -> Argument:
    """The struct Attention."""
    attrs, out = node.attrs, node.outputs[0]
    sizes: AttentionSizes = attrs["sizes"]
    # Beyond the last key and before the first one there is nothing to bound.
    lower = -NO_BOUND if attrs["lower"] is None else max(-NO_BOUND, min(attrs["lower"], NO_BOUND))
    upper = NO_BOUND if attrs["upper"] is None else max(-NO_BOUND, min(attrs["upper"], NO_BOUND))
    row = sizes.value_length
    steps = (row, sizes.heads * row) if attrs["rows_first"] else (sizes.queries * row, row)
    mask: Sequence[int] = (0, 0, 0, 0)
    if attrs["mask"] is not None:
        scores = (sizes.batch, sizes.heads, sizes.queries, sizes.keys)
        mask = broadcast_strides(node.inputs[attrs["mask"]].shape, scores)
    return words(
        WORDS,
        *sizes[1:],
        *(lower, upper, kernel.splits, kernel.split_keys),
        *(attrs["scale"], attrs["softcap"] or 0.0),
        *(number for name in "qkv" for number in attrs[name][1:]),
        *(0, prod(out.shape[1:]), *steps),
        *mask,
    )


def seen(sizes: AttentionSizes, lower: int | None, upper: int | None) -> int:
    """How many keys all queries see together, without the mask."""
    i = np.arange(sizes.queries, dtype=np.int64)
    begin = i * 0 if lower is None else np.clip(i + lower, 0, sizes.keys)
    end = i * 0 + sizes.keys if upper is None else np.clip(i + upper + 1, 0, sizes.keys)
    return int(np.maximum(end - begin, 0).sum())
