"""Matrix products on the cpu: which kernel, with which words, cut into which parts."""

from __future__ import annotations

import enum
import functools
import math
from dataclasses import dataclass

from fastgraph.errors import CompileError
from fastgraph.ir.graph import Node, Value
from fastgraph.ir.types import FLOAT32
from fastgraph.lower.call import Alias, Call, Temp
from fastgraph.lower.cpu.halves import in_float32
from fastgraph.lower.cpu.layout import broadcast_strides, choose_parts, collapse, memory_ns
from fastgraph.lower.cpu.plain_matmul import plain_product
from fastgraph.lower.cpu.registry import Target, lowers

__all__ = ["packed_size"]

# As in src/_core/kernels/matmul_params.h, which names the words of `params` in this order.
PANEL = 16
MAX_K_BLOCK = 512
MAX_BATCH_DIMS = 8

# Panels this long still stream from the second-level cache faster than partial sums are taken up.
PACKED_K_BLOCK = 1024
# Up to so many rows the weight is streamed once, so K is not cut.
STREAMED_ROWS = 3
# Columns of a unit of work are a multiple of what one step of any kernel takes.
COLUMN_STEP = 64
# Rows of a unit, where rows are cut: whole tiles.
ROW_STEP = 6

# A transposed x larger than a first-level cache is transposed once, if enough columns reread it.
TRANSPOSE_ELEMENTS = 8192
TRANSPOSE_COLUMNS = 48

# One core, operands in a cache; measured, and used for parts and the cost alone.
FLOPS_PER_NS = 97.0
BYTES_PER_NS = 80.0

PART_NS = 5e6  # signals are looked for between parts
SINGLE_NS = 3e3  # less work than this is not worth waking another thread for
CLAIM_NS = 150.0  # what taking a part costs a thread
UNIT_NS = 5e3  # more parts than threads only where each is at least so long
ROUNDS = 4  # parts for each thread
LATE = 0.15  # of a unit is what uneven threads cost at the end
STRIPES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 4096, 16384)


class Activation(enum.IntEnum):
    """What is applied to the sums; the numbers of enum Activation."""

    none = 0
    relu = 1
    gelu = 2
    gelu_tanh = 3
    silu = 4
    sigmoid = 5
    tanh = 6


class Residual(enum.IntEnum):
    """Where the residual is added; the numbers of enum Residual."""

    none = 0
    before = 1
    after = 2


def packed_size(k: int, n: int) -> int:
    """Elements of a packed weight: whole panels of 16 columns, on every instruction set.

    >>> packed_size(784, 10)
    12544
    """
    return k * -(-n // PANEL) * PANEL


@dataclass(frozen=True)
class Product:
    """The extents of `matrices` products of [m, k] by [k, n]."""

    matrices: int
    m: int
    n: int
    k: int

    @property
    def whole(self) -> Product:
        """The same with the largest extents."""
        return Product(int(self.matrices), int(self.m), int(self.n), int(self.k))

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.matrices * self.m * self.n * self.k

    @property
    def cost_ns(self) -> float:
        """What one core takes: arithmetic, and every operand once from a far cache."""
        each = self.m * self.k + self.k * self.n + self.m * self.n
        return self.flops / FLOPS_PER_NS + 4 * self.matrices * each / BYTES_PER_NS

    def steps(self, down: int, across: int) -> tuple[int, int]:
        """Rows and columns of a unit when y is cut into about `down` by `across` of them."""
        m_step = -(-self.m // down)
        if down > 1:
            m_step = -(-m_step // ROW_STEP) * ROW_STEP
        columns = -(-self.n // COLUMN_STEP)
        return m_step, -(-columns // min(across, columns)) * COLUMN_STEP

    def units(self, m_step: int, n_step: int) -> int:
        """How many units such steps give."""
        return self.matrices * -(-self.m // m_step) * -(-self.n // n_step)


@dataclass(frozen=True)
class Split:
    """How a product is cut: units of `m_step` by `n_step`, dealt to `parts` in runs."""

    m_step: int
    n_step: int
    parts: int


@functools.lru_cache(maxsize=1024)
def split_product(product: Product, threads: int) -> Split:
    """Choose units and parts from the shape and the number of threads alone."""
    cost = product.cost_ns
    needed = math.ceil(cost / PART_NS)
    if threads == 1 or cost < SINGLE_NS:
        goals = [needed]
    else:
        # More parts than threads where they are long enough, so that a late thread costs little.
        rounds = max(1, min(ROUNDS, int(cost / threads / UNIT_NS)))
        goals = [max(needed, threads * i) for i in range(1, rounds + 1)]
    best, shortest = Split(product.m, product.n, 1), math.inf
    if goals[-1] <= 1:
        return best

    # Every goal, reached with rows cut into so many stripes and columns as often as that asks for.
    for goal in goals:
        for down in STRIPES:
            across = -(-goal // (product.matrices * down))
            for finer in (across, across + 1):
                m_step, n_step = product.steps(down, finer)
                units = product.units(m_step, n_step)
                one = Product(1, m_step, min(n_step, product.n), product.k).cost_ns
                time = -(-units // threads) * (one + CLAIM_NS) + LATE * one
                if one > 1.2 * PART_NS:
                    time *= 2
                if time <= shortest:
                    parts = units if units <= 2 * goal else goal
                    best, shortest = Split(m_step, n_step, parts), time
            if down * ROW_STEP >= product.m:
                break
    return best


def equal_blocks(extent: int, most: int) -> int:
    """Length of the fewest equal blocks of `extent`, none longer than `most`."""
    return -(-extent // max(1, -(-extent // most)))


@lowers("pack_weight")
@in_float32
def lower_pack_weight(node: Node, target: Target) -> list[Call | Alias]:
    """Bring a weight into panels of 16 columns; run once, in the set program."""
    k, n = int(node.attrs["k"]), int(node.attrs["n"])
    if k == 0 or n == 0:
        return []
    strides = [1, k] if node.attrs["transposed"] else [n, 1]
    words = [k, n, *strides]
    units = -(-n // PANEL)
    nbytes = 4 * (k * n + packed_size(k, n))
    return [copy("pack_weight", node.inputs[0], node.outputs[0], words, nbytes, units, target)]


def transpose_x(x: Value, left: Temp, m: int, k: int, target: Target) -> Call:
    """Bring [..., K, M] into the order [..., M, K]."""
    matrices = math.prod(x.shape[:-2])
    units = matrices * -(-m // PANEL)
    return copy("transpose_x", x, left, [matrices, m, k], 2 * left.nbytes, units, target)


def copy(
    kernel: str,
    source: Value,
    to: Value | Temp,
    words: list[int],
    nbytes: int,
    units: int,
    target: Target,
) -> Call:
    """Call a kernel that only rearranges, in `units` independent pieces."""
    # Short strided runs: about half of the speed of a plain copy.
    cost = memory_ns(2 * nbytes)
    parts = choose_parts(cost, target.threads, units)
    return Call(kernel, (to,), (source,), words, parts=parts, cost_ns=cost, nbytes=int(nbytes))


@dataclass(frozen=True)
class Operands:
    """What a kernel is told of x and w: the product, x's strides, and w's with the batch's."""

    product: Product
    x_row: int
    x_k: int
    tail: tuple[int, ...] = ()


def packed_operands(node: Node) -> Operands:
    """Any leading shape of x is rows."""
    n, k = node.attrs["n"], node.attrs["k"]
    return Operands(Product(1, math.prod(node.outputs[0].shape[:-1]), n, k), k, 1)


def batched_operands(node: Node, x_transposed: bool) -> Operands:
    """Strides of two operands that broadcast along the axes before their last two."""
    x, w, y = node.inputs[0].shape, node.inputs[1].shape, node.outputs[0].shape
    n, k, m = node.attrs["n"], node.attrs["k"], y[-2]
    steps = (
        [s * m * k for s in broadcast_strides(x[:-2], y[:-2])],
        [s * k * n for s in broadcast_strides(w[:-2], y[:-2])],
    )
    sizes, (x_steps, w_steps) = collapse(y[:-2], steps)
    if len(sizes) > MAX_BATCH_DIMS:
        raise CompileError(
            f"matmul {node.name!r} ({node.site}): operands of shapes {x} and {w} broadcast along "
            f"{len(sizes)} separate batch dimensions, at most {MAX_BATCH_DIMS} are supported; "
            f"broadcast_to one of them first"
        )
    if len(sizes) == 1 and x_steps[0] == m * k and w_steps[0] == 0 and not x_transposed:
        # One w for all: the matrices of x are rows of one.
        m, sizes, x_steps = m * sizes[0], [1], [0]
    # A single row is contiguous either way.
    x_row, x_k = (1, m) if x_transposed and m > 1 else (k, 1)
    w_k, w_column = (1, k) if node.attrs["transpose_b"] else (n, 1)
    batch = [word for dim in zip(sizes, x_steps, w_steps, strict=True) for word in dim]
    product = Product(math.prod(sizes), m, n, k)
    return Operands(product, x_row, x_k, (w_k, w_column, len(sizes), *batch))


@lowers("fused_matmul")
@in_float32
def lower_fused_matmul(node: Node, target: Target) -> list[Call | Alias]:
    """act(x @ w + bias [+ residual]) [+ residual], with a packed weight or run-time operands."""
    attrs, y, x = node.attrs, node.outputs[0], node.inputs[0]
    if 0 in y.shape:
        return []
    if y.dtype != FLOAT32:
        plain = batched_operands(node, bool(attrs["transpose_a"]))
        words = [plain.product.m, plain.product.n, plain.product.k, plain.x_row, plain.x_k]
        return plain_product(node, plain.product.matrices, [*words, *plain.tail], target)
    calls: list[Call | Alias] = []
    left: Value | Temp = x
    if attrs["packed"]:
        operands = packed_operands(node)
        streamed = operands.product.m <= STREAMED_ROWS
        most = operands.product.k if streamed else PACKED_K_BLOCK
    else:
        m, n, k = y.shape[-2], attrs["n"], attrs["k"]
        transposed = bool(attrs["transpose_a"])
        if transposed and m > 1 and n >= TRANSPOSE_COLUMNS and m * k >= TRANSPOSE_ELEMENTS:
            left = Temp(4 * math.prod(x.shape), "x transposed")
            calls.append(transpose_x(x, left, m, k, target))
            transposed = False
        operands = batched_operands(node, transposed)
        most = MAX_K_BLOCK
    product = operands.product
    # How the work is cut is the same for all extents.
    whole = product.whole
    k_block = max(1, equal_blocks(whole.k, max(1, int(most))))

    extras = [node.inputs[attrs[name]] for name in ("bias", "residual") if attrs[name] is not None]
    activation = Activation[attrs["activation"] or "none"]
    place = Residual.none
    if attrs["residual"] is not None:
        # Without an activation before and after are one, and before may always be in place.
        first = attrs["residual_first"] or activation is Activation.none
        place = Residual.before if first else Residual.after
    # Between blocks of K, y holds partial sums: a residual that comes last is then still needed.
    one_block = place is Residual.before or k_block >= whole.k

    split = split_product(whole, target.threads)
    words = [product.m, product.n, product.k, operands.x_row, operands.x_k, int(activation)]
    words += [int(attrs["bias"] is not None), int(place), k_block, split.m_step, split.n_step]
    calls.append(
        Call(
            "matmul_packed" if attrs["packed"] else "matmul",
            (y,),
            (left, node.inputs[1], *extras),
            [*words, *operands.tail],
            parts=split.parts,
            cost_ns=whole.cost_ns,
            inplace=((0, 1 + len(extras)),) if one_block and residual_is_alone(node) else (),
            flops=whole.flops,
            nbytes=4 * sum(int(math.prod(v.shape)) for v in (y, *node.inputs)),
        )
    )
    return calls


def residual_is_alone(node: Node) -> bool:
    """Whether there is a residual that no other operand is: only then y may take its bytes."""
    if node.attrs["residual"] is None:
        return False
    residual = node.inputs[node.attrs["residual"]]
    return sum(value is residual for value in node.inputs) == 1
