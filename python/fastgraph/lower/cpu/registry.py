"""Which function lowers which operator on the cpu."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastgraph.ir.graph import Node
from fastgraph.lower.call import Alias, Call

__all__ = ["LOWERINGS", "Lowering", "Target", "lowers"]


@dataclass(frozen=True)
class Target:
    """What a lowering may depend on: the number of threads and the instruction set's name."""

    threads: int
    isa: str


Lowering = Callable[[Node, Target], list[Call | Alias]]
LOWERINGS: dict[str, Lowering] = {}


def lowers(*ops: str) -> Callable[[Lowering], Lowering]:
    """Register the decorated function as the lowering of `ops`."""

    def register(function: Lowering) -> Lowering:
        for op in ops:
            if op in LOWERINGS:
                raise ValueError(f"{op} is lowered twice")
            LOWERINGS[op] = function
        return function

    return register
