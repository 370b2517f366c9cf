"""Softmax and the norms on cuda: one pass over memory where a row fits the registers of a block."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

from fastgraph.errors import CompileError
from fastgraph.ir.graph import Node, Value
from fastgraph.lower.call import Alias, Temp
from fastgraph.lower.cuda.call import Argument, CudaCall, KernelCode
from fastgraph.lower.cuda.dtypes import ctype
from fastgraph.lower.cuda.given import constant
from fastgraph.lower.cuda.launch import call, column_block, i64, pieces, pointers, spread
from fastgraph.lower.cuda.registry import WIDEST, Target, lowers
from fastgraph.lower.cuda.text import source

__all__ = ["RowPlan", "lower_norm", "lower_softmax", "row_parts"]

# Elements that a lane of a warp, and a thread of a block, holds in registers.
WARP_ELEMENTS, BLOCK_ELEMENTS, MOST_ELEMENTS = 32, 16, 32
BLOCKS = (128, 256, 512)
# Rows in parts: threads of a block, elements of a part, and blocks that one launch is cut into.
PART_THREADS, PART_ELEMENTS, MOST_PARTS = 256, 8192, 256
COLUMN_THREADS = 256
# Few rows: weights are fetched while earlier kernels run, which costs registers.
FEW_ROWS = 8
NOTHING: Argument = ("value", bytes(8))


@dataclass(frozen=True)
class RowPlan:
    """How rows are held in registers.

    Attributes
    ----------
    threads, group : int
        Threads of a block, and those of them that do a row together.
    width, each : int
        Elements of a vector, vectors of a thread.
    """

    threads: int
    group: int
    width: int
    each: int

    @classmethod
    def of(cls, rows: int, length: int, itemsize: int, target: Target) -> RowPlan | None:
        """Return the plan for dense rows, or None where they are too long.

        Examples
        --------
        >>> from fastgraph.lower.cuda import Target
        >>> target = Target("sm_90", (9, 0), 132, 232448, 50 << 20)
        >>> RowPlan.of(4096, 384, 4, target)
        RowPlan(threads=128, group=32, width=4, each=3)
        >>> RowPlan.of(8192, 4096, 2, target)
        RowPlan(threads=256, group=256, width=8, each=2)
        """
        width = pieces(WIDEST // itemsize, itemsize, WIDEST, length)
        vectors = int(length // width)
        if length <= 32 * WARP_ELEMENTS:
            group = min(32, 1 << (vectors - 1).bit_length())
            _, threads = spread(rows * group, target, 128)
            return cls(threads, group, width, ceil(vectors / group))
        for group in BLOCKS:
            if ceil(vectors / group) * width <= BLOCK_ELEMENTS:
                return cls(group, group, width, ceil(vectors / group))
        group = BLOCKS[-1]
        each = ceil(vectors / group)
        return cls(group, group, width, each) if each * width <= MOST_ELEMENTS else None

    def arguments(self, itemsize: int, aligned: int, rows: int, length: int) -> str:
        """Return what kernels take of it, for rows at a multiple of `aligned` bytes."""
        piece = pieces(self.width, itemsize, aligned)
        numbers = (self.threads, self.group, self.width, piece, self.each)
        return ", ".join(map(constant, (*numbers, rows, length)))

    def blocks(self, rows: int) -> int:
        """Return the number of blocks for so many rows."""
        return ceil(rows / (self.threads // self.group))


def row_parts(rows: int, length: int) -> int:
    """Return how many blocks a row is cut into, from the shape alone."""
    return max(1, min(MOST_PARTS // int(rows), ceil(int(length) / PART_ELEMENTS)))


@lowers("softmax")
def lower_softmax(node: Node, target: Target) -> list[CudaCall | Alias]:
    """Lower softmax: rows where the axis is the last that matters, else columns."""
    (read,), (out,) = node.inputs, node.outputs
    if out.size == 0:
        return []
    name, itemsize, axis = ctype(read.dtype), read.dtype.itemsize, node.attrs["axis"]
    rows, length = prod(read.shape[:axis]), read.shape[axis]
    columns = prod(read.shape[axis + 1 :])
    aligned = target.alignment(read)

    def launch(
        entry: str, out: Value | Temp, ins: Sequence[Value | Temp], blocks: int, threads: int,
        *sizes: int,
    ) -> CudaCall:  # fmt: skip
        code = KernelCode(source("rows.cuh", "softmax"), entry, node.op)
        own = ((0, 0),) if isinstance(out, Value) else ()
        given = (*pointers((out,), ins), *map(i64, sizes))
        return call(code, (out,), ins, blocks, threads, given, flops=12 * read.size, inplace=own)

    if columns != 1:
        width = pieces(max(1, min(4, WIDEST // itemsize)), itemsize, WIDEST, columns)
        x, y = column_block(columns // width, length, COLUMN_THREADS)
        sizes = (
            f"{x}, {y}, {width}, {pieces(width, itemsize, aligned)}, {constant(length)}, "
            f"{constant(columns)}"
        )
        blocks = rows * ceil(columns // width / x)
        entry = f"softmax_columns<{name}, {sizes}>"
        return [launch(entry, out, (read,), blocks, x * y, length, columns)]
    plan = RowPlan.of(rows, length, itemsize, target)
    if plan is not None:
        sizes = plan.arguments(itemsize, aligned, rows, length)
        entry = f"softmax_rows<{name}, {sizes}>"
        return [launch(entry, out, (read,), plan.blocks(rows), plan.threads, rows, length)]
    width = pieces(WIDEST // itemsize, itemsize, WIDEST, length)
    parts = row_parts(rows, length)
    piece = pieces(width, itemsize, aligned)
    sizes = f"{PART_THREADS}, {width}, {piece}, {constant(length)}, {parts}"
    shares, blocks = Temp(rows * parts * 2 * max(4, itemsize), "shares"), rows * parts
    last = f"softmax_parts<{name}, {sizes}>"
    return [
        launch(f"softmax_shares<{name}, {sizes}>", shares, (read,), blocks, PART_THREADS, length),
        launch(last, out, (read, shares), blocks, PART_THREADS, length),
    ]


def is_early(plan: RowPlan, rows: int, values: Sequence[Value], node: Node, target: Target) -> bool:
    """Whether what is the same for all rows is worth being fetched before the wait, and may be."""
    return (
        plan.each * plan.width <= BLOCK_ELEMENTS
        and rows <= FEW_ROWS * target.multiprocessors
        and all(target.is_constant(value, node) for value in values)
    )


def norm_type(name: str, op: str, *flags: bool) -> str:
    """Return the first template arguments of norms: of sources/norm.cu, all but the first flag."""
    words = ", ".join(str(flag).lower() for flag in (op == "rms_norm", *flags))
    return f"{name}, Norm<{words}>"


def number_of(name: str, number: float) -> Argument:
    """Return a number as an argument of what a type is computed in."""
    return ("value", struct.pack("<d" if name == "f64" else "<f", number))


@lowers("layer_norm", "rms_norm")
def lower_norm(node: Node, target: Target) -> list[CudaCall | Alias]:
    """Lower a norm over trailing axes, with the residual that is added before it."""
    read, attrs = node.inputs[0], node.attrs
    rank, axes = len(read.shape), tuple(attrs["axis"])
    if axes != tuple(range(rank - len(axes), rank)):
        raise CompileError(
            f"{node.name} ({node.site}): {node.op} over axes {axes} of {rank} is not lowered; "
            "the normalised axes must be the last ones"
        )
    if read.size == 0:
        return []
    length = prod(read.shape[axis] for axis in axes)
    rows = read.size // length
    name, itemsize = ctype(read.dtype), read.dtype.itemsize
    # Where each operand stands among the inputs, None where there is none.
    places: list[int | None] = [0]
    for present in (attrs.get("residual"), attrs["weight"], attrs.get("bias")):
        places.append(sum(place is not None for place in places) if present else None)
    residual, weight, bias = places[1:]
    aligned = min(target.alignment(value) for value in node.inputs)
    plan = RowPlan.of(rows, length, itemsize, target)
    scales = [node.inputs[i] for i in (weight, bias) if i is not None]
    early = plan is not None and is_early(plan, rows, scales, node, target)
    norm = norm_type(
        name, node.op, residual is not None, weight is not None, bias is not None,
        len(node.outputs) == 2, early,
    )  # fmt: skip
    eps = number_of(name, attrs["eps"])
    given: list[Argument] = [NOTHING if i is None else ("in", i) for i in places]
    outs: list[Argument] = [("out", 0), ("out", 1) if len(node.outputs) == 2 else NOTHING]
    # All is written by who has read the same elements of x and of the residual.
    inplace = tuple(
        (i, j) for i in range(len(node.outputs)) for j in range(1 if residual is None else 2)
    )

    def launch(
        entry: str, outs: Sequence[Value | Temp], ins: Sequence[Value | Temp], blocks: int,
        threads: int, arguments: Sequence[Argument],
    ) -> CudaCall:  # fmt: skip
        code = KernelCode(source("rows.cuh", "norm"), entry, node.op)
        own = inplace if outs is node.outputs else ()
        return call(code, outs, ins, blocks, threads, arguments, flops=8 * read.size, inplace=own)

    if plan is not None:
        entry = f"norm_rows<{norm}, {plan.arguments(itemsize, aligned, rows, length)}>"
        blocks = plan.blocks(rows)
        arguments = [*outs, *given, eps, i64(rows), i64(length)]
        return [launch(entry, node.outputs, node.inputs, blocks, plan.threads, arguments)]
    width = pieces(WIDEST // itemsize, itemsize, WIDEST, length)
    parts = row_parts(rows, length)
    piece = pieces(width, itemsize, aligned)
    sizes = f"{PART_THREADS}, {width}, {piece}, {constant(length)}, {parts}"
    moments = Temp(rows * parts * 3 * max(4, itemsize), "moments")
    first = node.inputs[: 1 if residual is None else 2]
    ins: tuple[Value | Temp, ...] = (*node.inputs, moments)
    first_entry, last_entry = (f"norm_{one}<{norm}, {sizes}>" for one in ("moments", "parts"))
    blocks, threads, before = rows * parts, PART_THREADS, [("out", 0), *given[:2], i64(length)]
    after = [*outs, *given, ("in", len(node.inputs)), eps, i64(length)]
    return [
        launch(first_entry, (moments,), first, blocks, threads, before),
        launch(last_entry, node.outputs, ins, blocks, threads, after),
    ]
