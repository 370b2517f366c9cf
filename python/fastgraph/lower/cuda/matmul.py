"""Matrix products on cuda: which kernel, which tile, how K is cut."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass

from fastgraph._core.sizes import ActiveSize, divisor_of, least
from fastgraph.errors import CompileError
from fastgraph.ir.graph import Node, Value
from fastgraph.lower.call import Alias, Temp
from fastgraph.lower.cuda.call import Argument, CudaCall, KernelCode
from fastgraph.lower.cuda.dtypes import ctype
from fastgraph.lower.cuda.given import words
from fastgraph.lower.cuda.launch import cost, i32, i64, traffic
from fastgraph.lower.cuda.library import by_library
from fastgraph.lower.cuda.planned import Calls, LibraryCall
from fastgraph.lower.cuda.registry import WIDEST, Target, lowers
from fastgraph.lower.cuda.text import source
from fastgraph.lower.cuda.tiles import (
    MAX_ROWS,
    MMA,
    ROWS,
    SIMT,
    TF32,
    WGMMA,
    Choice,
    MmaTile,
    Shape,
    WgmmaTile,
    choose,
    choose_rows,
    enough,
    expected_ns,
    plain_ns,
)
from fastgraph.lower.strides import broadcast_strides, collapse

__all__ = ["NOTHING", "Product", "describe", "lower_fused_matmul", "product_calls", "text"]

# As in sources/matmul.cuh.
MAX_BATCH_DIMS = 8
COMBINE_THREADS = 256
# Block and step of matmul_plain.cu.
PLAIN = 64
PLAIN_STEP = 16


# What stands between the family's header and a kernel's own text.
HEADERS = {
    "matmul_mma": ("tiles.cuh",),
    "matmul_simt": ("float_tiles.cuh",),
    "matmul_tf32": ("float_tiles.cuh",),
    "matmul_wgmma": ("tiles.cuh", "wgmma.cuh"),
}


class Activation(enum.IntEnum):
    """What is applied to the sums; the numbers are those of sources/matmul.cuh."""

    none = 0
    relu = 1
    gelu = 2
    gelu_tanh = 3
    silu = 4
    sigmoid = 5
    tanh = 6


class Residual(enum.IntEnum):
    """Where the residual is added; the numbers are those of sources/matmul.cuh."""

    none = 0
    before = 1
    after = 2


@dataclass(frozen=True)
class Product:
    """A product and its end, as all kernels of the family are told of it.

    Attributes
    ----------
    shape : Shape
    x_transposed, w_transposed : bool
        Whether x lies as [K, M], w as [N, K].
    batch : tuple of (int, int, int)
        Size, and steps of x and w in elements, of each axis before the last two.
    end : str
        The last template arguments: whether there is a bias, activation, residual.
    operands : tuple of Value
        Of the kernel: x, w, and those of the end.
    bias, residual : Argument
    wide : bool
        Whether four elements of a row can be moved at once at the end.
    result : Value or Temp
        What is written.
    close : callable, optional
        Returns what ends the product where its sums come in parts, as `combine` does.
    """

    node: Node
    dtype: str
    shape: Shape
    x_transposed: bool
    w_transposed: bool
    batch: tuple[tuple[int, int, int], ...]
    end: str
    operands: tuple[Value, ...]
    bias: Argument
    residual: Argument
    wide: bool
    inplace: tuple[tuple[int, int], ...]
    result: Value | Temp
    close: Callable[[Product, Temp, int], CudaCall] | None = None

    @property
    def heavy(self) -> bool:
        """Whether each element ends with a residual, or a function of many instructions."""
        attrs = self.node.attrs
        return attrs["residual"] is not None or attrs["activation"] not in (None, "relu")

    @property
    def nbytes(self) -> int:
        """Bytes of all operands, once."""
        return traffic((self.result, *self.operands))

    @property
    def batch_words(self) -> Argument:
        """The struct Batch."""
        none = ((0, 0, 0),) * (MAX_BATCH_DIMS - len(self.batch))
        sizes, xs, ws = zip(*self.batch, *none, strict=True)
        return words(BATCH, len(self.batch), *sizes, *xs, *ws)


BATCH = f"<{1 + MAX_BATCH_DIMS}i4x{2 * MAX_BATCH_DIMS}q"
"""The struct Batch: rank, sizes, steps of x and of w."""
NOTHING: Argument = ("value", bytes(8))
"""The address of an operand that is not there."""


def text(*families: str) -> str:
    """The source of kernels of the family."""
    return source("elementwise.cuh", "matmul.cuh", *families)


def flag(value: bool) -> str:
    """A bool as a template argument."""
    return "true" if value else "false"


def describe(node: Node, target: Target) -> Product:
    """Read attributes and shapes."""
    attrs, y = node.attrs, node.outputs[0]
    x, w = node.inputs[:2]
    m, n, k = y.shape[-2], attrs["n"], attrs["k"]
    sizes, (x_steps, w_steps) = collapse(
        y.shape[:-2],
        [
            [step * m * k for step in broadcast_strides(x.shape[:-2], y.shape[:-2])],
            [step * k * n for step in broadcast_strides(w.shape[:-2], y.shape[:-2])],
        ],
    )
    if len(sizes) > MAX_BATCH_DIMS:
        raise CompileError(
            f"matmul {node.name!r} ({node.site}): operands of shapes {x.shape} and {w.shape} "
            f"broadcast along {len(sizes)} separate batch dimensions, at most {MAX_BATCH_DIMS} are "
            "supported; broadcast_to one of them first"
        )
    x_transposed = bool(attrs["transpose_a"])
    if len(sizes) == 1 and x_steps[0] == m * k and w_steps[0] == 0 and not x_transposed:
        # One w for all: the matrices of x are rows of one.
        m, sizes, x_steps = m * sizes[0], [1], [0]
    matrices = math.prod(sizes)

    extras = [node.inputs[attrs[name]] for name in ("bias", "residual") if attrs[name] is not None]
    activation = Activation[attrs["activation"] or "none"]
    place, alone = residual_of(node)
    has_bias = attrs["bias"] is not None
    residual_at = 2 + has_bias
    step = 4 * y.dtype.itemsize
    operands = [x, w]
    batch = list(zip(sizes, x_steps, w_steps, strict=True)) if matrices != 1 else []
    # A single row of x, and a single column of w, lie along K either way.
    x_transposed = x_transposed and m != 1 and k != 1
    w_transposed = (bool(attrs["transpose_b"]) or n == 1) and k != 1
    if n == 1 != m and not has_bias and not x_transposed:
        # A matrix by a column is a row by that matrix, which lies as [N, K].
        operands, (m, n), w_transposed = [w, x], (n, m), True
        batch = [(size, w_step, x_step) for size, x_step, w_step in batch]
    return Product(
        node=node,
        dtype=ctype(y.dtype),
        shape=Shape(matrices, m, n, k),
        x_transposed=x_transposed,
        w_transposed=w_transposed,
        batch=tuple(batch),
        end=f"{flag(has_bias)}, {activation:d}, {place:d}",
        operands=(*operands, *extras),
        bias=("in", 2) if has_bias else NOTHING,
        residual=("in", residual_at) if place else NOTHING,
        wide=n % 4 == 0 and step <= WIDEST and all(target.alignment(v) % step == 0 for v in extras),
        inplace=((0, residual_at),) if alone else (),
        result=y,
    )


def residual_of(node: Node) -> tuple[Residual, bool]:
    """Return where a residual is added, and whether the result may lie where that does."""
    attrs = node.attrs
    if attrs["residual"] is None:
        return Residual.none, False
    residual = node.inputs[attrs["residual"]]
    # The kernel would write over what it still reads as another operand.
    alone = sum(value is residual for value in node.inputs) == 1
    return Residual.before if attrs["residual_first"] else Residual.after, alone


def aligned_bytes(value: Value, extent: int, target: Target) -> int:
    """How many bytes of `value`, whose rows are `extent` long, can be copied at once: up to 16."""
    row = extent * value.dtype.itemsize
    row = divisor_of(row) if isinstance(row, ActiveSize) else int(row)
    return min(target.alignment(value), row & -row or 16)


@lowers("fused_matmul")
def lower_fused_matmul(node: Node, target: Target) -> Calls:
    """act(x @ w + bias [+ residual]) [+ residual]."""
    if 0 in node.outputs[0].shape:
        return []
    return product_calls(describe(node, target), target)


def product_calls(product: Product, target: Target) -> Calls:
    """Return what computes a product and ends it."""
    if product.dtype not in ("f16", "bf16", "f32"):
        own_ns = plain_ns(product.shape.numbers, target.multiprocessors)
        return in_library(product, own_ns, target) or [plain(product)]
    shape = product.shape
    x_bytes = aligned_bytes(
        product.operands[0], shape.m if product.x_transposed else shape.k, target
    )
    w_bytes = aligned_bytes(
        product.operands[1], shape.k if product.w_transposed else shape.n, target
    )
    few = shape.m <= MAX_ROWS and shape.k and not product.x_transposed
    if few and (x_bytes, w_bytes) == (16, 16):
        return in_rows(product, target)
    kernel, choice = cut(product, x_bytes, w_bytes, target)
    own_ns = expected_ns(
        choice, shape.numbers, target.multiprocessors, product.heavy, product.close is not None
    )
    calls = in_library(product, own_ns, target)
    return calls or in_tiles(product, kernel, choice, x_bytes, w_bytes, target)


def in_library(product: Product, own_ns: float, target: Target) -> list[CudaCall | LibraryCall]:
    """Return the call of a library and what ends it; nothing where a kernel takes `own_ns`."""
    call = by_library(product, own_ns, target)
    if call is None:
        return []
    sums = call.outs[0]
    if sums is product.result:
        return [call]
    assert isinstance(sums, Temp), "sums as they are accumulated are no value"
    return [call, closed(product, sums, 1)]


def in_rows(product: Product, target: Target) -> list[CudaCall | Alias]:
    """Few rows of x: w is streamed."""
    shape, along = product.shape, product.w_transposed
    kind = "half"
    if product.dtype != "f32" and not along:
        wide, narrow = (
            shape.matrices * -(-shape.n // ROWS[name, along].columns)
            for name in ("half", "half, narrow")
        )
        fills = enough(narrow, target.multiprocessors)
        if fills and not enough(wide, target.multiprocessors):
            kind = "half, narrow"
    elif product.dtype == "f32":
        kind = "float, many" if along and shape.m > ROWS["float", True].rows[-1] else "float"
    tile = ROWS[kind, along]
    rows, warps, k_part, splits = choose_rows(tile, shape.numbers, target.multiprocessors)
    return launched(
        product,
        "matmul_rows",
        f"{product.dtype}, {tile.reader}, {rows}, {warps}",
        (shape.matrices * -(-shape.n // tile.columns), splits, 1),
        32 * warps,
        4 * warps * rows * tile.columns,
        k_part,
        target,
        splits,
    )


def cut(product: Product, x_bytes: int, w_bytes: int, target: Target) -> tuple[str, Choice]:
    """Return the kernel, its tile, and how K is cut where there are few tiles."""
    # Chosen for as many as there can be.
    shape, limits = product.shape.numbers, (target.multiprocessors, target.max_shared_bytes)
    if product.dtype == "f32":
        if target.tf32:
            return "matmul_tf32", choose(TF32, shape, *limits)
        return "matmul_simt", choose(SIMT, shape, *limits)
    tiles: tuple[MmaTile | WgmmaTile, ...] = MMA
    groups = target.capability == (9, 0) and (x_bytes, w_bytes) == (16, 16) and shape.k
    # They count the parts of K by themselves, which must stay as many as are added up.
    if groups and not isinstance(product.shape.k, ActiveSize):
        fitting = (t for t in WGMMA if t.fits(product.w_transposed, target.max_shared_bytes))
        tiles = (*fitting, *MMA)
    choice = choose(tiles, shape, *limits, product.heavy, product.close is not None)
    return "matmul_wgmma" if isinstance(choice.tile, WgmmaTile) else "matmul_mma", choice


def in_tiles(
    product: Product, kernel: str, choice: Choice, x_bytes: int, w_bytes: int, target: Target
) -> list[CudaCall | Alias]:
    """Tiles whose operands are copied ahead."""
    shape, (tile, k_part, splits) = product.shape, choice
    layout = f"{flag(product.x_transposed)}, {flag(product.w_transposed)}"
    if isinstance(tile, WgmmaTile):
        return by_warp_groups(product, tile, k_part, splits, layout, target)
    template: tuple[object, ...] = tile[: 7 if kernel == "matmul_simt" else 6]
    if product.dtype == "f32":
        # Between one element and four nothing is gained.
        x_bytes, w_bytes = (16 if found == 16 else 4 for found in (x_bytes, w_bytes))
    else:
        template = (product.dtype, *template)
    return launched(
        product,
        kernel,
        f"{', '.join(map(str, template))}, {layout}, {x_bytes}, {w_bytes}",
        (shape.matrices * -(-shape.m // tile.bm) * -(-shape.n // tile.bn), splits, 1),
        tile.threads,
        tile.shared_bytes,
        k_part,
        target,
        splits,
    )


def by_warp_groups(
    product: Product, tile: WgmmaTile, k_part: int, splits: int, layout: str, target: Target
) -> list[CudaCall | Alias]:
    """Tiles for the warp groups of sm_90a: as many blocks as there is room for do all of them."""
    shape = product.shape
    places = shape.matrices * -(-shape.m // tile.bm) * -(-shape.n // tile.bn)
    steps = -(-int(k_part) // tile.bk)
    if int(places * splits) <= target.multiprocessors * tile.blocks and steps < tile.stages:
        # A block does one tile alone: what is beyond its steps is left to blocks of other kernels.
        tile = tile._replace(stages=max(steps, 2))
    # Eight elements of a row are moved at once, of parts of K two.
    wide = shape.n % 8 == 0 and all(target.alignment(value) == 16 for value in product.operands[2:])
    if splits > 1:
        wide = shape.n % 2 == 0
    shaped = (*tile[:4], tile.bound, flag(wide))
    return launched(
        product,
        "matmul_wgmma",
        f"{product.dtype}, {', '.join(map(str, shaped))}, {layout}",
        (least(places * splits, target.multiprocessors * tile.blocks), 1, 1),
        tile.threads,
        tile.layout_bytes(product.w_transposed),
        k_part,
        target,
        splits,
        arch="sm_90a",
    )


def launched(
    product: Product,
    kernel: str,
    template: str,
    grid: tuple[int, int, int],
    threads: int,
    shared_bytes: int,
    k_part: int,
    target: Target,
    splits: int,
    arch: str = "",
) -> list[CudaCall | Alias]:
    """Return the launch, and a second one where K is cut into `splits` parts of `k_part`."""
    shape = product.shape
    count = shape.matrices * shape.m * shape.n
    partial = Temp(4 * splits * count, "parts of K") if splits > 1 else None
    # In parts nothing of the end is done, so that one kernel serves all ends.
    end = "false, 0, 0" if partial else product.end
    call = CudaCall(
        KernelCode(
            text(*HEADERS.get(kernel, ()), kernel),
            f"{kernel}<{template}, {flag(partial is not None)}, {end}>",
            "matmul",
            arch,
        ),
        (partial or product.result,),
        product.operands[:2] if partial else product.operands,
        grid,
        (threads, 1, 1),
        (
            NOTHING if partial else ("out", 0),
            ("in", 0),
            ("in", 1),
            NOTHING if partial else product.bias,
            NOTHING if partial else product.residual,
            ("out", 0) if partial else NOTHING,
            *(i32(size) for size in (shape.m, shape.n, shape.k, k_part)),
            i64(shape.matrices),
            i32(target.is_constant(product.operands[1], product.node)),
            i32(shape.n % 4 == 0 if partial else product.wide),
            product.batch_words,
        ),
        shared_bytes=shared_bytes,
        inplace=() if partial else product.inplace,
        flops=shape.flops,
        nbytes=product.nbytes,
        label="fused_matmul",
        cost_ns=cost(shape.flops, product.nbytes),
    )
    return [call, closed(product, partial, splits)] if partial else [call]


def closed(product: Product, partial: Temp, splits: int) -> CudaCall:
    """Return what adds the parts of K up and ends the product."""
    return (product.close or combine)(product, partial, splits)


def combine(product: Product, partial: Temp, splits: int) -> CudaCall:
    """Add the parts of K up, and do the end of the product."""
    count = product.shape.matrices * product.shape.m * product.shape.n
    extras = product.operands[2:]
    moved: dict[Argument, Argument] = {("in", 2): ("in", 1), ("in", 3): ("in", 2)}
    each = COMBINE_THREADS * (4 if product.wide else 1)
    nbytes = traffic((partial, product.result, *extras))
    return CudaCall(
        KernelCode(
            text(),
            f"matmul_combine<{product.dtype}, {product.end}, {flag(product.wide)}>",
            "matmul",
        ),
        (product.result,),
        (partial, *extras),
        (-(-count // each), 1, 1),
        (COMBINE_THREADS, 1, 1),
        (
            ("out", 0),
            ("in", 0),
            moved.get(product.bias, product.bias),
            moved.get(product.residual, product.residual),
            i64(count),
            i32(product.shape.n),
            i32(splits),
        ),
        inplace=tuple((out, source - 1) for out, source in product.inplace),
        nbytes=nbytes,
        label="fused_matmul, parts of K" if splits > 1 else "fused_matmul, end",
        cost_ns=cost(0, nbytes),
    )


def plain(product: Product) -> CudaCall:
    """Tiles of a dtype that has no kernel of its own."""
    shape = product.shape
    places = shape.matrices * -(-shape.m // PLAIN) * -(-shape.n // PLAIN)
    layout = f"{flag(product.x_transposed)}, {flag(product.w_transposed)}"
    return CudaCall(
        KernelCode(
            text("matmul_plain"),
            f"matmul_plain<{product.dtype}, {PLAIN}, {PLAIN_STEP}, {layout}, {product.end}>",
            "matmul",
        ),
        (product.result,),
        product.operands,
        (places, 1, 1),
        (PLAIN * PLAIN // 16, 1, 1),
        (
            ("out", 0),
            ("in", 0),
            ("in", 1),
            product.bias,
            product.residual,
            *(i32(size) for size in (shape.m, shape.n, shape.k)),
            product.batch_words,
        ),
        inplace=product.inplace,
        flops=shape.flops,
        nbytes=product.nbytes,
        label="fused_matmul",
        cost_ns=cost(shape.flops, product.nbytes),
    )
