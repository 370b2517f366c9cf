"""The tiles of matrix products and of attention, and which of them suits: tables, to be tuned.

The choice looks at the shape and the GPU alone, so a graph gives the same bits on every run.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from fastgraph.passes.setprogram import FEW_ROWS

__all__ = [
    "FEW_BLOCKS",
    "FEW_KEYS",
    "FEW_LONG",
    "FEW_ROWS",
    "FEW_WARPS",
    "FLASH",
    "LIBRARY",
    "MAX_ROWS",
    "MMA",
    "MOST_CLUSTER",
    "MOST_SPLITS",
    "PLAIN_SUMS",
    "PLAIN_TILES",
    "ROW",
    "ROWS",
    "SIMT",
    "TF32",
    "WARP_GROUPS",
    "WGMMA",
    "WHOLE",
    "WHOLE_KEYS",
    "Choice",
    "FlashTile",
    "GroupTile",
    "LibraryRate",
    "MmaTile",
    "RowTile",
    "RowsChoice",
    "RowsTile",
    "Shape",
    "SimtTile",
    "WgmmaTile",
    "choose",
    "choose_row",
    "choose_rows",
    "enough",
    "expected_ns",
    "library_ns",
    "plain_ns",
]  # fmt: skip

# Parts of K that are tried; more would cost more to add up than they bring.
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)
# Adding parts up: the second launch, and bytes per ns in and out of the second-level cache.
COMBINE_NS = 1200.0
# What a norm takes longer that adds them up itself.
JOIN_NS = 150.0
COMBINE_BYTES_PER_NS = 2500.0
# What a block costs before its first and after its last step.
BLOCK_NS = 1200.0
# Of matmul_wgmma.cu, fitted to some 400 measured times on an H200: what all of it costs before and
# after, more where the next kernel's blocks find no room besides, and a round of blocks; what a
# multiprocessor does, and gets from the second-level cache; how long operands are on their way, and
# a step at least; an element's end, with a function or a residual and without.
GROUPS_NS, GROUPS_CROWDED_NS, GROUPS_ROUND_NS = 640.0, 670.0, 610.0
GROUPS_FLOPS_PER_NS, GROUPS_BYTES_PER_NS = 5200.0, 88.0
GROUPS_TRIP_NS, GROUPS_STEP_NS = 1340.0, 154.0
HEAVY_END_NS, END_NS = 0.11, 0.055
# A multiprocessor's shared memory, of which each block takes so much more than it asks for.
GROUPS_SHARED_BYTES, RESERVED_BYTES = 228 << 10, 1024


class Shape(NamedTuple):
    """`matrices` products of [m, k] by [k, n]."""

    matrices: int
    m: int
    n: int
    k: int

    @property
    def numbers(self) -> Shape:
        """Shape: with ints alone, which are what the largest extent of a program makes of them."""
        return Shape(*map(int, self))

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.matrices * self.m * self.n * self.k


class MmaTile(NamedTuple):
    """A tile for tensor cores: block, step along K, warps, tiles under way, and its speed.

    `blocks` fit on a multiprocessor, which then does `flops_per_ns`; one step takes at least
    `step_ns`, however little else there is to do.
    """

    bm: int
    bn: int
    bk: int
    warps_m: int
    warps_n: int
    stages: int
    blocks: int
    flops_per_ns: float
    step_ns: float
    itemsize: int = 2

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps_m * self.warps_n

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: operands, in f32 with longer rows, then sums on their way out."""
        operands = (self.bm + self.bn) * self.bk * 2
        if self.itemsize == 4:
            operands = (self.bm + self.bn + 16) * (self.bk + 4) * 4
        return max(self.stages * operands, self.bm * (self.bn + 8) * 4)


class SimtTile(NamedTuple):
    """A tile of matmul_simt.cu: block, step along K, sums of a thread, tiles under way, speed."""

    bm: int
    bn: int
    bk: int
    tm: int
    tn: int
    stages: int
    blocks: int
    flops_per_ns: float
    step_ns: float

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.bm // self.tm * (self.bn // self.tn)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: operands, whose rows along K are four longer, then sums."""
        return max(self.stages * (self.bm + self.bn) * (self.bk + 4), self.bm * (self.bn + 4)) * 4


class WgmmaTile(NamedTuple):
    """A tile of matmul_wgmma.cu: block, warp groups that multiply, tiles under way.

    `blocks` fit on a multiprocessor, where w lies as [N, K].
    """

    bm: int
    bn: int
    groups: int
    stages: int
    blocks: int

    @property
    def bk(self) -> int:
        """The step along K: rows of 128 bytes."""
        return 64

    @property
    def threads(self) -> int:
        """Threads of a block, with those that bring operands."""
        return 128 * (self.groups + 1)

    @property
    def bound(self) -> int:
        """For how many blocks registers are left; more than 256 a thread there never are."""
        return max(self.blocks, 2) if self.groups == 1 else self.blocks

    def layout_bytes(self, w_transposed: bool) -> int:
        """Dynamic shared memory: operands, w's across K in panels of 64 columns, and barriers."""
        columns = self.bn if w_transposed else -(-self.bn // 64) * 64
        return self.stages * ((self.bm + columns) * 128 + 16)

    @property
    def shared_bytes(self) -> int:
        """The same where w lies as [N, K]."""
        return self.layout_bytes(w_transposed=True)

    def fits(self, w_transposed: bool, max_shared_bytes: int) -> bool:
        """Whether there is room for its blocks, of which each takes 1 KiB besides."""
        taken = self.layout_bytes(w_transposed) + RESERVED_BYTES
        return self.blocks * taken <= max_shared_bytes + RESERVED_BYTES

    def expected_ns(self, items: int, steps: int, multiprocessors: int, heavy: bool) -> float:
        """How long the multiprocessor with most of so many tiles takes, of so many steps each."""
        most = -(-items // multiprocessors)
        rounds = -(-most // self.blocks)
        last = most - (rounds - 1) * self.blocks
        steps_ns = steps * ((rounds - 1) * self.step_ns(self.blocks) + self.step_ns(last))
        ends = most * self.bm * self.bn * (HEAVY_END_NS if heavy else END_NS)
        room = GROUPS_SHARED_BYTES // (self.shared_bytes + RESERVED_BYTES)
        start = GROUPS_NS + (GROUPS_CROWDED_NS if 2 * items > multiprocessors * room else 0.0)
        return start + rounds * GROUPS_ROUND_NS + steps_ns + ends

    def step_ns(self, blocks: int) -> float:
        """How long a step takes of so many blocks of a multiprocessor."""
        return max(
            blocks * 2 * self.bm * self.bn * self.bk / GROUPS_FLOPS_PER_NS,
            blocks * 2 * (self.bm + self.bn) * self.bk / GROUPS_BYTES_PER_NS,
            GROUPS_TRIP_NS / (self.stages - 1),
            GROUPS_STEP_NS,
        )


MMA = (
    MmaTile(128, 256, 32, 2, 4, 4, 1, 2350.0, 900.0),
    MmaTile(256, 128, 32, 4, 2, 4, 1, 2350.0, 900.0),
    MmaTile(128, 128, 32, 2, 2, 4, 2, 2200.0, 740.0),
    MmaTile(128, 64, 64, 2, 2, 3, 3, 1800.0, 1200.0),
    MmaTile(64, 128, 64, 2, 2, 3, 3, 1800.0, 1200.0),
    MmaTile(64, 64, 64, 2, 2, 4, 3, 1500.0, 650.0),
    MmaTile(32, 64, 64, 2, 2, 4, 4, 860.0, 330.0),
    MmaTile(64, 32, 64, 2, 2, 4, 4, 860.0, 330.0),
    MmaTile(32, 32, 64, 2, 2, 5, 5, 600.0, 250.0),
    MmaTile(16, 64, 128, 1, 4, 4, 3, 480.0, 430.0),
)
WGMMA = (
    WgmmaTile(128, 128, 1, 3, 2),
    WgmmaTile(256, 128, 2, 4, 1),
    WgmmaTile(256, 192, 2, 4, 1),
    WgmmaTile(128, 144, 1, 3, 2),
    WgmmaTile(256, 144, 2, 4, 1),
    WgmmaTile(192, 192, 3, 4, 1),
    WgmmaTile(128, 128, 2, 6, 1),
    WgmmaTile(128, 96, 2, 7, 1),
    WgmmaTile(128, 96, 1, 4, 2),
    WgmmaTile(128, 64, 2, 8, 1),
    WgmmaTile(128, 48, 2, 8, 1),
    WgmmaTile(64, 128, 1, 8, 1),
    WgmmaTile(64, 96, 1, 9, 1),
    WgmmaTile(64, 64, 1, 12, 1),
    WgmmaTile(64, 48, 1, 12, 1),
    WgmmaTile(64, 32, 1, 12, 1),
    WgmmaTile(64, 16, 1, 12, 1),
    WgmmaTile(64, 64, 1, 6, 2),
    WgmmaTile(64, 48, 1, 6, 2),
    WgmmaTile(64, 32, 1, 6, 3),
)
TF32 = (
    MmaTile(128, 128, 32, 2, 2, 3, 2, 2000.0, 400.0, 4),
    MmaTile(64, 128, 32, 2, 2, 3, 2, 1800.0, 320.0, 4),
    MmaTile(64, 64, 32, 2, 2, 4, 3, 1400.0, 260.0, 4),
    MmaTile(32, 64, 32, 2, 2, 4, 4, 1000.0, 220.0, 4),
    MmaTile(32, 32, 32, 2, 2, 4, 6, 700.0, 200.0, 4),
)
SIMT = (
    SimtTile(128, 128, 16, 8, 8, 3, 2, 400.0, 800.0),
    SimtTile(128, 64, 16, 8, 8, 3, 3, 370.0, 700.0),
    SimtTile(64, 64, 16, 8, 4, 4, 4, 330.0, 380.0),
    SimtTile(32, 64, 16, 4, 4, 4, 6, 260.0, 240.0),
    SimtTile(32, 32, 16, 4, 4, 5, 8, 220.0, 230.0),
)


class RowsTile(NamedTuple):
    """A reader of matmul_rows.cu: columns of a block, K of a warp's step, rows of x, warps.

    `steps` of a warp are under way at a time: with fewer of them in all, fewer warps do. Where
    there are more blocks than multiprocessors each has at most `beside` warps, so that those of the
    next product have room meanwhile.
    """

    reader: str
    columns: int
    step: int
    rows: tuple[int, ...]
    max_warps: int
    steps: int
    beside: int = 8


ROWS = {
    ("half", True): RowsTile("HalfAlong", 16, 32, (8, 16), 16, 8, 4),
    ("half", False): RowsTile("HalfAcross", 64, 16, (8, 16), 8, 4, 4),
    ("half, narrow", False): RowsTile("HalfNarrow", 32, 16, (8, 16), 16, 8, 4),
    ("float", True): RowsTile("FloatAlong", 8, 128, (1, 4), 16, 2),
    ("float, many", True): RowsTile("FloatAlong", 4, 128, (8, 16), 8, 4),
    ("float", False): RowsTile("FloatAcross", 128, 4, (1, 4, 8, 16), 8, 4),
}
"""By operands, and whether w lies as [N, K]; the narrow one where it spares cutting K."""

MAX_ROWS = FEW_ROWS
# Blocks of 8 warps that a multiprocessor should have, and the most parts of K.
ROWS_BLOCKS = 2
ROWS_SPLITS = 32


class RowTile(NamedTuple):
    """How matmul_row.cu does a single row: see there for what the words mean."""

    columns: int
    slots: int
    warps: int
    along: int
    late: bool

    @property
    def block(self) -> int:
        """Rows of w that a block reads."""
        return self.columns * self.warps // self.along


ROW = RowTile(4, 2, 2, 2, False)
"""At most so many columns, and warps; columns by slots are loads under way.

So few that kernels of the next products have room beside, and weights under way when it is their
turn: blocks with twice the warps, or twice the loads, were measured at 0.75 to 0.9 of what this one
reads (H200, 16 products of 4096 by 4096 in a chain).
"""


class FlashTile(NamedTuple):
    """A tile of attention_mma: warps of a block, times 16 rows of a warp, keys of a step."""

    warps: int
    tiles: int
    keys: int

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return 16 * self.warps * self.tiles


FLASH = {
    32: (FlashTile(4, 1, 128), FlashTile(2, 1, 128)),
    64: (
        FlashTile(4, 2, 64),
        FlashTile(8, 1, 64),
        FlashTile(4, 1, 64),
        FlashTile(2, 1, 64),
        FlashTile(1, 1, 64),
    ),
    128: (
        FlashTile(4, 2, 32),
        FlashTile(8, 1, 64),
        FlashTile(4, 1, 64),
        FlashTile(2, 1, 64),
        FlashTile(1, 1, 64),
    ),
    256: (FlashTile(4, 1, 32), FlashTile(8, 1, 32), FlashTile(2, 1, 32), FlashTile(1, 1, 32)),
}
"""By the longest head that they are for; the first is taken of which every multiprocessor gets one.

Of two with as many rows the better one stands first; the other is there to be measured again.
"""
WHOLE_KEYS = 64, 128
WHOLE = {64: (FlashTile(4, 1, 128),)}
"""The same for more keys than one number, up to the other: they are one tile."""


class GroupTile(NamedTuple):
    """A tile of attention_wgmma: warp groups of a block, keys of a step, its speed.

    There is room for `slots` tiles of keys and as many of values. All multiprocessors together do
    `flops_per_ns`.
    """

    groups: int
    keys: int
    slots: int
    flops_per_ns: float

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return 64 * self.groups

    @property
    def threads(self) -> int:
        """Threads of a block, with those that bring operands."""
        return 128 * (self.groups + 1)

    def shared_bytes(self, length: int) -> int:
        """Dynamic shared memory: queries, tiles of keys and as many of values, barriers."""
        return 2 * length * (self.rows + 2 * self.slots * self.keys) + 128


WARP_GROUPS = {
    64: (GroupTile(3, 128, 2, 478e3), GroupTile(2, 128, 2, 420e3)),
    128: (GroupTile(2, 128, 3, 595e3),),
}
"""By the elements of a head."""

# attention_few: warps of a block, and keys of a step by the longest head.
FEW_ROWS = 16
FEW_WARPS = 4
FEW_KEYS = {64: 32, 128: 32, 256: 16}
# Blocks for each multiprocessor, up to which keys are cut.
FEW_BLOCKS = 2
# Blocks of a cluster that any device has room for; keys of each before there are more clusters.
MOST_CLUSTER = 8
FEW_LONG = 2048
# As in sources/attention.cuh.
MOST_SPLITS = 512

# attention_simt: rows and keys of a block, best first; sums that a thread can hold, in words.
PLAIN_TILES = ((64, 64), (64, 32), (32, 32), (16, 32), (16, 16))
PLAIN_SUMS = 64


class RowsChoice(NamedTuple):
    """Rows of the kernel, warps of a block, the length of each part of K, and how many parts."""

    rows: int
    warps: int
    k_part: int
    splits: int


def enough(blocks: int, multiprocessors: int) -> bool:
    """Whether so many blocks do without cutting K: adding parts up costs a launch."""
    return 4 * blocks >= 3 * multiprocessors


def choose_rows(tile: RowsTile, shape: Shape, multiprocessors: int) -> RowsChoice:
    """Cut K until every multiprocessor has enough bytes under way."""
    rows = next(rows for rows in tile.rows if rows >= shape.m)
    blocks = shape.matrices * -(-shape.n // tile.columns)
    steps = max(1, -(-shape.k // tile.step))
    splits = 1
    if not enough(blocks, multiprocessors):
        wanted = -(-ROWS_BLOCKS * multiprocessors // blocks)
        splits = max(1, min(wanted, ROWS_SPLITS, steps // (4 * tile.steps)))
    part = -(-steps // splits)
    splits = -(-steps // part)
    warps, most = 1, min(8, tile.max_warps)
    if blocks * splits > multiprocessors:
        most = min(most, tile.beside)
    # More warps while each still has what it can keep under way.
    while warps < most and part >= warps * 2 * tile.steps:
        warps *= 2
    if blocks * splits <= multiprocessors and warps == 8 < tile.max_warps:
        warps = 16 if part >= 16 * tile.steps and rows <= 8 else 8
    return RowsChoice(rows, warps, part * tile.step, splits)


def choose_row(itemsize: int, n: int, k: int, gated: bool, multiprocessors: int) -> RowTile:
    """Choose so few columns of a block that all multiprocessors have one.

    Where there is room for all blocks at once with twice the warps, and not much more, they have
    them, so that more loads are under way. With two such products in a layer a decoding step was
    measured at 631 microseconds instead of 662 (H200, `bench.gpu.decode`).
    """
    tile, rows = ROW, n * (1 + gated)
    steps = -(-k * itemsize // 512)
    room = multiprocessors * (16 // (2 * tile.warps))
    if room < 2 * -(-rows // tile.block) <= 2 * room and 2 * tile.along <= steps:
        tile = tile._replace(warps=2 * tile.warps, along=2 * tile.along)
    while tile.along > 1 and tile.along >= 2 * steps:
        tile = tile._replace(along=tile.along // 2, warps=tile.warps // 2)
    while tile.columns > 2 and not enough(-(-rows // tile.block), multiprocessors):
        tile = tile._replace(columns=tile.columns // 2, slots=tile.slots * 2)
    return tile


class Choice(NamedTuple):
    """A tile, the length of each part of K, and how many parts there are."""

    tile: MmaTile | SimtTile | WgmmaTile
    k_part: int
    splits: int


@functools.lru_cache(maxsize=4096)
def choose(
    tiles: tuple[MmaTile | WgmmaTile, ...] | tuple[SimtTile, ...],
    shape: Shape,
    multiprocessors: int,
    max_shared_bytes: int,
    heavy: bool = False,
    joins: bool = False,
) -> Choice:
    """Return the tile and the cut of K that are expected to be done first.

    `heavy`: each element ends with a residual, or a function of many instructions. `joins`: a
    kernel comes after it in any case, which can add parts up.
    """
    best, shortest = None, math.inf
    for tile in tiles:
        if tile.shared_bytes > max_shared_bytes:
            continue
        steps = max(1, -(-shape.k // tile.bk))
        for splits in SPLITS:
            part = -(-steps // splits)
            if splits > 1 and part * (splits - 1) >= steps:
                continue  # Fewer parts would do.
            choice = Choice(tile, part * tile.bk, splits)
            time = expected_ns(choice, shape, multiprocessors, heavy, joins)
            if time < shortest:
                best, shortest = choice, time
    assert best is not None, "the smallest tile fits everywhere"
    return best


def busiest_ns(tile: MmaTile | SimtTile, blocks: int, steps: int, multiprocessors: int) -> float:
    """How long the multiprocessor with most blocks takes, each of so many steps along K."""
    most = -(-blocks // multiprocessors)
    rounds = -(-most // tile.blocks)
    arithmetic = most * steps * 2 * tile.bm * tile.bn * tile.bk / tile.flops_per_ns
    return rounds * BLOCK_NS + max(arithmetic, rounds * steps * tile.step_ns)


def expected_ns(
    choice: Choice, shape: Shape, multiprocessors: int, heavy: bool = False, joins: bool = False
) -> float:
    """How long a product takes that is cut like that."""
    tile, k_part, splits = choice
    items = shape.matrices * -(-shape.m // tile.bm) * -(-shape.n // tile.bn) * splits
    steps = k_part // tile.bk
    if isinstance(tile, WgmmaTile):
        time = tile.expected_ns(items, steps, multiprocessors, heavy and splits == 1)
    else:
        time = busiest_ns(tile, items, steps, multiprocessors)
    if splits > 1:
        nbytes = 4 * shape.matrices * shape.m * shape.n * (2 * splits + 1)
        time += (JOIN_NS if joins else COMBINE_NS) + nbytes / COMBINE_BYTES_PER_NS
    return time


class LibraryRate(NamedTuple):
    """What cuBLASLt does: of a multiprocessor, of the device's memory, and `ns` besides.

    Its kernels take no programmatic edges, so nothing before and after them overlaps: that is among
    the `ns`.
    """

    itemsize: int
    flops_per_ns: float
    bytes_per_ns: float
    ns: float


LIBRARY = {
    "f16": LibraryRate(2, 5800.0, 4000.0, 5000.0),
    "bf16": LibraryRate(2, 5800.0, 4000.0, 5000.0),
    "tf32": LibraryRate(4, 2000.0, 4000.0, 4000.0),
    "f32": LibraryRate(4, 400.0, 4000.0, 7500.0),
    "f64": LibraryRate(8, 400.0, 4000.0, 4000.0),
}


# A kernel of ours that ends a product of the library, behind an edge that lets nothing overlap.
LIBRARY_END_NS = 6000.0


def library_ns(kind: str, shape: Shape, multiprocessors: int, end_nbytes: int) -> float:
    """How long cuBLASLt takes for a product, and a kernel of ours to end it if that is not 0."""
    matrices, m, n, k = shape
    rate = LIBRARY[kind]
    nbytes = rate.itemsize * matrices * (m * k + k * n + m * n)
    arithmetic = shape.flops / (multiprocessors * rate.flops_per_ns)
    time = rate.ns + max(arithmetic, nbytes / rate.bytes_per_ns)
    return time + (LIBRARY_END_NS + end_nbytes / COMBINE_BYTES_PER_NS if end_nbytes else 0.0)


# matmul_plain.cu, of a multiprocessor, and what a step of its 16 along K takes at least.
PLAIN_FLOPS_PER_NS = 90.0
PLAIN_STEP, PLAIN_STEP_NS = 16, 1500.0


def plain_ns(shape: Shape, multiprocessors: int) -> float:
    """How long matmul_plain takes."""
    arithmetic = shape.flops / (multiprocessors * PLAIN_FLOPS_PER_NS)
    return BLOCK_NS + max(arithmetic, -(-shape.k // PLAIN_STEP) * PLAIN_STEP_NS)
