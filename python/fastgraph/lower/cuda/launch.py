"""Launches as lowerings make them: what kernels are given, how wide they load, what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil, prod

from fastgraph.ir.graph import Value
from fastgraph.lower.call import Temp
from fastgraph.lower.cuda.call import Argument, CudaCall, KernelCode
from fastgraph.lower.cuda.given import words
from fastgraph.lower.cuda.registry import WIDEST, Target

__all__ = [
    "call",
    "column_block",
    "cost",
    "i32",
    "i64",
    "pieces",
    "place",
    "pointers",
    "spread",
    "traffic",
]

# A big device, rough: used for policies of waiting, never for a result.
FLOPS_PER_NS = 20_000.0
BYTES_PER_NS = 3_000.0
LAUNCH_NS = 500.0


def cost(flops: float, nbytes: float) -> float:
    """Nanoseconds that a launch with so much arithmetic and memory traffic takes, roughly."""
    return LAUNCH_NS + max(flops / FLOPS_PER_NS, nbytes / BYTES_PER_NS)


def call(
    code: KernelCode,
    outs: Sequence[Value | Temp],
    ins: Sequence[Value | Temp],
    blocks: int,
    threads: int,
    arguments: Sequence[Argument] | None = None,
    *,
    flops: int = 0,
    inplace: tuple[tuple[int, int], ...] = (),
) -> CudaCall:
    """Return the launch of a row of blocks; without `arguments` it is given all operands."""
    nbytes = traffic(dict.fromkeys((*outs, *ins)))
    return CudaCall(
        code,
        tuple(outs),
        tuple(ins),
        (blocks, 1, 1),
        (threads, 1, 1),
        tuple(pointers(outs, ins) if arguments is None else arguments),
        inplace=inplace,
        flops=flops,
        nbytes=nbytes,
        cost_ns=cost(flops, nbytes),
    )


def pointers(outs: Sequence[Value | Temp], ins: Sequence[Value | Temp]) -> tuple[Argument, ...]:
    """Return the addresses of all operands, outputs first, as arguments."""
    return (*(("out", i) for i in range(len(outs))), *(("in", i) for i in range(len(ins))))


def i32(number: int) -> Argument:
    """Return `number` as an argument of four bytes."""
    return words("<i", number)


def i64(number: int) -> Argument:
    """Return `number` as an argument of eight bytes."""
    return words("<q", number)


def traffic(values: Iterable[Value | Temp]) -> int:
    """Return the bytes of all `values` together."""
    total = 0
    for value in values:
        if isinstance(value, Temp):
            total += value.nbytes
        else:
            total += value.size * value.dtype.itemsize
    return total


def place(
    index: str, sizes: Sequence[int], steps: Sequence[int], given: Callable[[int], str] = str
) -> str:
    """Return, as C++, the offset of an element of axes of these sizes, walked with these steps.

    `given` says how the text has a size.

    Examples
    --------
    >>> place("b", (3, 4), (1, 30))
    'b / 4 * 1 + b % 4 * 30'
    >>> place("b", (), ())
    '0'
    """
    terms, inner = [], prod(sizes)
    for axis, (size, step) in enumerate(zip(sizes, steps, strict=True)):
        inner //= size
        term = f"{index} / {given(inner)}" if inner != 1 else index
        term = f"{term} % {given(size)}" if axis else term
        terms.append(f"{term} * {given(step)}")
    return " + ".join(terms) or "0"


def pieces(wanted: int, itemsize: int, alignment: int = WIDEST, *steps: int) -> int:
    """Return how many elements one load or store may take, a divisor of `wanted`.

    Parameters
    ----------
    wanted : int
        Elements that lie side by side, a power of two.
    itemsize : int
        Bytes of each.
    alignment : int
        What the address of the first of all is a multiple of.
    *steps : int
        Elements between those that a load may begin with.

    Examples
    --------
    >>> pieces(8, 4), pieces(8, 2), pieces(4, 4, 16, 6), pieces(4, 4, 4)
    (4, 8, 2, 1)
    """
    count = wanted
    while count > 1 and (
        count * itemsize > WIDEST
        or (count * itemsize) > alignment
        or any(step % count for step in steps)
    ):
        count //= 2
    return count


def spread(threads: int, target: Target, largest: int = 256) -> tuple[int, int]:
    """Return blocks and threads a block for `threads` threads that need nothing of each other.

    Few threads become small blocks, so that they reach many multiprocessors.
    """
    block = largest
    while block > 64 and threads < 2 * block * target.multiprocessors:
        block //= 2
    block = min(block, max(1, ceil(int(threads) / 32)) * 32)
    return ceil(threads / block), block


def column_block(across: int, along: int, threads: int) -> tuple[int, int]:
    """Return how a block is shared out: threads side by side, and so many of them in line.

    `across` vectors lie side by side and `along` of them in line, which threads do together.

    Examples
    --------
    >>> column_block(100, 1000, 256), column_block(3, 1000, 256), column_block(3, 2, 256)
    ((32, 8), (4, 64), (16, 2))
    """
    across, along = int(across), int(along)
    x = 32
    while x > 1 and x >= 2 * across:
        x //= 2
    y = threads // x
    while y > 1 and y > along:
        y //= 2
    # Whole warps: few columns of few elements leave lanes idle.
    return max(x, 32 // y), y
