"""Which function lowers which operator on the cpu."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from fastgraph.ir.graph import Node
from fastgraph.lower.call import Alias, Call

__all__ = ["LOWERINGS", "SIZED", "Lowering", "Target", "lowers"]


@dataclass(frozen=True)
class Target:
    """What a lowering may depend on: the number of threads and the instruction set's name.

    `made` is for lowerings, to find what they did for a node that differs in operands alone.
    """

    threads: int
    isa: str
    made: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)


Lowering = Callable[[Node, Target], list[Call | Alias]]
LOWERINGS: dict[str, Lowering] = {}
# Whose calls follow extents: what depends on a size is a word that the kernel reads in each run.
SIZED = frozenset((
    "reshape", "transpose", "slice", "broadcast_to", "concat", "take", "region", "fused_matmul",
    "fused_attention", "softmax", "layer_norm", "rms_norm", "sum", "mean", "prod", "max", "min",
    "argmax", "argmin", "conv", "fold", "patches", "pool", "recurrence", "rotary_embedding",
    "scatter", "cumulative_sum", "top_k", "grouped_matmul",
))  # fmt: skip


def lowers(*ops: str) -> Callable[[Lowering], Lowering]:
    """Register the decorated function as the lowering of `ops`."""

    def register(function: Lowering) -> Lowering:
        for op in ops:
            if op in LOWERINGS:
                raise ValueError(f"{op} is lowered twice")
            LOWERINGS[op] = function
        return function

    return register
