"""What a lowering hands on: kernel calls over values, before any of them has an address."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastgraph.ir.graph import Value

__all__ = ["Alias", "Call", "Temp", "estimate"]

# One core, rough: used to choose parts and the GIL policy, never a result.
FLOPS_PER_NS = 60.0
BYTES_PER_NS = 15.0


@dataclass(frozen=True, eq=False)
class Temp:
    """Scratch of ``nbytes`` bytes that lives from its first to its last call within one node."""

    nbytes: int
    name: str = "scratch"


@dataclass(eq=False, slots=True)  # To make a frozen one takes several times as long.
class Call:
    """One call of a host kernel: ``kernel`` reads `ins`, writes `outs`, and is told `params`.

    `early`: where it reads parameters and constants alone it belongs to the set program, whatever
    the rest of its node does.
    """

    kernel: str
    outs: tuple[Value | Temp, ...]
    ins: tuple[Value | Temp, ...]
    params: list[int]
    parts: int = 1
    cost_ns: float = 0.0
    inplace: tuple[tuple[int, int], ...] = ()
    flops: int = 0
    nbytes: int = 0
    label: str = field(default="")
    early: bool = False


@dataclass(frozen=True, eq=False)
class Alias:
    """`out` is `source`'s bytes from `byte_offset` on: no work is done."""

    out: Value
    source: Value
    byte_offset: int = 0


def estimate(flops: float, nbytes: float) -> float:
    """Nanoseconds that one core needs for so much arithmetic and memory traffic, roughly."""
    return max(flops / FLOPS_PER_NS, nbytes / BYTES_PER_NS)
