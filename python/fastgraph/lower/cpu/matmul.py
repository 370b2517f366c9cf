"""Matrix products on the cpu: which kernel, with which words, cut into which parts."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastgraph.errors import CompileError
from fastgraph.ir.graph import Node, Value
from fastgraph.lower.call import Alias, Call, Temp, estimate
from fastgraph.lower.cpu.registry import Target, lowers

__all__ = ["packed_size"]

# As in src/_core/kernels/matmul_params.h, which names the words of `params` in this order.
PANEL = 16
MAX_K_BLOCK = 512
MAX_BATCH_DIMS = 8

# Panels this long still stream from the second-level cache faster than partial sums are taken up.
PACKED_K_BLOCK = 1024
# Columns of a unit of work are a multiple of what one step of any kernel takes.
COLUMN_STEP = 64
# One row or a few: the weight is streamed once, so K is not cut.
STREAMED_ROWS = 3

# A transposed x larger than a first-level cache is transposed once, if enough columns reread it.
TRANSPOSE_ELEMENTS = 8192
TRANSPOSE_COLUMNS = 48

# One core on weights that stay in a cache.
FLOPS_PER_NS = 90.0
BYTES_PER_NS = 50.0

PART_NS = 5e6  # signals are looked for between parts
SINGLE_NS = 3e3  # less work than this is not worth waking another thread for
PARTS_PER_THREAD = 4  # so that a late thread costs little
UNIT_NS = 5e3  # more parts than threads only where one outweighs its claim many times


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

    Examples
    --------
    >>> packed_size(784, 10)
    12544
    """
    return k * -(-n // PANEL) * PANEL


@dataclass(frozen=True)
class Split:
    """How the outputs of a product are cut: `parts` runs of units of `m_step` by `n_step`."""

    m_step: int
    n_step: int
    parts: int


def split_product(batch: int, m: int, n: int, cost_ns: float, threads: int) -> Split:
    """Choose units and parts from the shape and the number of threads alone."""
    wanted = math.ceil(cost_ns / PART_NS)
    if threads > 1 and cost_ns >= SINGLE_NS:
        even = min(threads * PARTS_PER_THREAD, int(cost_ns / UNIT_NS))
        # A whole number of rounds: one part more than threads would double the time.
        even = max(even // threads * threads, threads)
        wanted = math.ceil(max(wanted, even) / threads) * threads
    if wanted <= 1:
        return Split(max(m, 1), max(n, 1), 1)
    if batch >= wanted:
        return Split(m, n, wanted)
    # Columns first: rows would read the weight again. Tall outputs are cut in both directions.
    each = math.ceil(wanted / batch)
    columns = math.ceil(n / COLUMN_STEP)
    across = min(each, columns)
    if m > n:
        across = min(across, max(1, round(math.sqrt(each * n / m))))
    down = min(m, math.ceil(each / across))
    n_step = math.ceil(columns / across) * COLUMN_STEP
    m_step = math.ceil(m / down)
    units = batch * math.ceil(m / m_step) * math.ceil(n / n_step)
    return Split(m_step, n_step, min(wanted, units))


def k_step(k: int, limit: int) -> int:
    """Equal blocks of K, none longer than `limit`."""
    return math.ceil(k / math.ceil(k / limit)) if k > limit else max(k, 1)


def require_float32(node: Node) -> None:
    """Refuse other dtypes by name."""
    for value in (*node.inputs, *node.outputs):
        if value.dtype != np.float32:
            raise CompileError(
                f"{node.op} {node.name!r} ({node.site}): the cpu kernels compute in float32, but "
                f"{value.name or 'an operand'!r} of shape {value.shape} is {value.dtype}; convert "
                f"it with astype('float32')"
            )


def contiguous_strides(shape: Sequence[int]) -> list[int]:
    """Strides in elements of a dense array; 0 along axes of one element, so that they broadcast."""
    strides = [0] * len(shape)
    step = 1
    for axis in reversed(range(len(shape))):
        strides[axis] = step if shape[axis] != 1 else 0
        step *= shape[axis]
    return strides


def batch_strides(operand: Sequence[int], rank: int, matrix: int) -> list[int]:
    """Strides of an operand's batch axes, padded in front to `rank` axes."""
    strides = [s * matrix for s in contiguous_strides(operand)]
    return [0] * (rank - len(operand)) + strides


def collapse(dims: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Join neighbouring batch dimensions (size, stride in x, stride in w) that step alike."""
    joined: list[tuple[int, int, int]] = []
    for size, x, w in dims:
        if size == 1:
            continue
        if joined and joined[-1][1:] == (x * size, w * size):
            joined[-1] = (joined[-1][0] * size, x, w)
        else:
            joined.append((size, x, w))
    return joined


def inplace_residual(node: Node, residual: int | None, safe: bool, at: int) -> tuple:
    """The output may take the residual's bytes unless another operand is the same value."""
    if residual is None or not safe:
        return ()
    value = node.inputs[residual]
    others = [v for i, v in enumerate(node.inputs) if i != residual]
    return () if any(v is value for v in others) else ((0, at),)


@lowers("pack_weight")
def lower_pack_weight(node: Node, target: Target) -> list[Call | Alias]:
    """A weight into panels of 16 columns; run once, in the set program."""
    require_float32(node)
    k, n = int(node.attrs["k"]), int(node.attrs["n"])
    if k == 0 or n == 0:
        return []
    strides = [1, k] if node.attrs["transposed"] else [n, 1]
    nbytes = 4 * (k * n + packed_size(k, n))
    cost = estimate(0, nbytes)
    panels = -(-n // PANEL)
    split = split_product(1, 1, panels * COLUMN_STEP, cost, target.threads)
    return [
        Call(
            "pack_weight",
            node.outputs,
            node.inputs,
            [k, n, *strides],
            parts=split.parts,
            cost_ns=cost,
            nbytes=nbytes,
        )
    ]


def transpose_x(x: Value, left: Temp, m: int, k: int, threads: int) -> Call:
    """Bring [..., K, M] into the order [..., M, K]."""
    matrices = math.prod(x.shape[:-2])
    nbytes = 2 * left.nbytes
    # Short strided runs: about half of the speed of a plain copy.
    cost = estimate(0, 2 * nbytes)
    strips = matrices * -(-m // PANEL)
    split = split_product(1, 1, strips * COLUMN_STEP, cost, threads)
    return Call(
        "transpose_x",
        (left,),
        (x,),
        [matrices, m, k],
        parts=split.parts,
        cost_ns=cost,
        nbytes=nbytes,
    )


@lowers("fused_matmul")
def lower_fused_matmul(node: Node, target: Target) -> list[Call | Alias]:
    """act(x @ w + bias [+ residual]) [+ residual], with a packed weight or run-time operands."""
    require_float32(node)
    attrs = node.attrs
    y = node.outputs[0]
    if 0 in y.shape:
        return []
    x, w = node.inputs[0], node.inputs[1]
    n, k = int(attrs["n"]), int(attrs["k"])
    dims: list[tuple[int, int, int]] = []
    calls: list[Call | Alias] = []
    left: Value | Temp = x
    if attrs["packed"]:
        m = math.prod(y.shape[:-1])
        x_row, x_k = k, 1
    else:
        m = y.shape[-2]
        x_row, x_k = (1, m) if attrs["transpose_a"] else (k, 1)
        rereads = n >= TRANSPOSE_COLUMNS and m * k >= TRANSPOSE_ELEMENTS
        if attrs["transpose_a"] and m > 1 and rereads:
            left = Temp(4 * math.prod(x.shape), "x transposed")
            calls.append(transpose_x(x, left, m, k, target.threads))
            x_row, x_k = k, 1
        batch = y.shape[:-2]
        x_steps = batch_strides(x.shape[:-2], len(batch), m * k)
        w_steps = batch_strides(w.shape[:-2], len(batch), k * n)
        dims = collapse(list(zip(batch, x_steps, w_steps, strict=True)))
        if len(dims) == 1 and dims[0][1:] == (m * k, 0) and x_row == k:
            # One w for all: the matrices of x are rows of one.
            m, dims = m * dims[0][0], []
        if m == 1:
            x_k = 1
        if len(dims) > MAX_BATCH_DIMS:
            raise CompileError(
                f"matmul {node.name!r} ({node.site}): operands of shapes {x.shape} and {w.shape} "
                f"broadcast along {len(dims)} separate batch dimensions; at most "
                f"{MAX_BATCH_DIMS} are supported; reshape or broadcast_to one of them first"
            )
    matrices = math.prod(size for size, _, _ in dims)

    bias, residual = attrs["bias"], attrs["residual"]
    ins: list[Value | Temp] = [left, w]
    ins += [node.inputs[i] for i in (bias, residual) if i is not None]
    activation = Activation[attrs["activation"] or "none"]
    place = Residual.none
    if residual is not None:
        # Without an activation before and after are one, and before may always be in place.
        first = attrs["residual_first"] or activation is Activation.none
        place = Residual.before if first else Residual.after

    streamed = m <= STREAMED_ROWS and attrs["packed"]
    k_block = max(k, 1) if streamed else k_step(k, PACKED_K_BLOCK if attrs["packed"] else MAX_K_BLOCK)
    whole_sums = place is Residual.before or k_block >= k

    flops = 2 * matrices * m * n * k
    nbytes = 4 * sum(math.prod(v.shape) for v in (y, *node.inputs))
    cost = max(flops / FLOPS_PER_NS, nbytes / BYTES_PER_NS)
    split = split_product(matrices, m, n, cost, target.threads)
    params = [
        m,
        n,
        k,
        x_row,
        x_k,
        int(activation),
        int(bias is not None),
        int(place),
        k_block,
        split.m_step,
        split.n_step,
    ]
    if not attrs["packed"]:
        params += [1, k] if attrs["transpose_b"] else [n, 1]
        params += [len(dims), *(word for dim in dims for word in dim)]
    calls.append(
        Call(
            "matmul_packed" if attrs["packed"] else "matmul",
            (y,),
            tuple(ins),
            params,
            parts=split.parts,
            cost_ns=cost,
            inplace=inplace_residual(node, residual, whole_sums, len(ins) - 1),
            flops=flops,
            nbytes=nbytes,
        )
    )
    return calls
