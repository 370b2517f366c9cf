"""What a lowering for cuda hands on: launches over values, before any of them has an address."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fastgraph.ir.graph import Value
from fastgraph.lower.call import Temp

__all__ = ["Argument", "CudaCall", "KernelCode"]

Argument = tuple[str] | tuple[str, Any]


@dataclass(frozen=True)
class KernelCode:
    """A kernel to compile. Equal ones are compiled once.

    Attributes
    ----------
    source : str
        The whole text in CUDA C++, headers of the package included.
    entry : str
        The kernel as C++ names it: ``"softmax_rows<__half, 4>"``.
    name : str
        What progress and summaries call it, the family for example.
    arch : str
        What a variant is compiled for, ``"sm_90a"``; "" for what all other kernels are.
    """

    source: str = field(repr=False)
    entry: str
    name: str
    arch: str = ""


@dataclass(frozen=True, eq=False)
class CudaCall:
    """One launch: the kernel of `code` reads `ins`, writes `outs`, and is given `arguments`.

    Attributes
    ----------
    code : KernelCode
    outs, ins : tuple of Value or Temp
        What is written and what is read. Every value is dense, in C order.
    grid, block : tuple of int
        Of three numbers each. A grid may follow extents; where it is empty nothing is done.
    arguments : tuple of tuple
        In the order of the kernel's parameters: ``("out", i)`` and ``("in", i)`` are the addresses
        of operands, ``("value", data)`` bytes of exactly the parameter's size, ``("sized", Words)``
        the same where they follow extents, ``("fault",)`` the
        address of the run's error word, ``("node",)`` the uint64 that it takes from this node.
        ``("scalar", i)`` is the value of an operand that is a scalar of the graph, for the seams.
    shared_bytes : int
        Dynamic shared memory; above 48 KiB is allowed when the kernel is loaded.
    cluster : int
        Neighbouring blocks that run at once and see each other's shared memory.
    inplace : tuple of (int, int)
        (out, in) pairs that may share their bytes: each thread reads an element of the one before
        it writes the same element of the other, and nobody else reads that.
    rereads : bool
        The kernel reads its `outs` back, or updates them atomically: they never lie in memory of
        the host. Else each element of an output of the graph is stored once, and may lie there.
    flops, nbytes, label, cost_ns
        For profiles and summaries.
    programmatic : bool
        Every path of the kernel waits for the kernels before it, by ``fg_wait()``, before it
        touches memory that another node of a run writes or reads.
    """

    code: KernelCode
    outs: tuple[Value | Temp, ...]
    ins: tuple[Value | Temp, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    shared_bytes: int = 0
    cluster: int = 1
    inplace: tuple[tuple[int, int], ...] = ()
    rereads: bool = False
    flops: int = 0
    nbytes: int = 0
    label: str = ""
    cost_ns: float = 0.0
    programmatic: bool = True
