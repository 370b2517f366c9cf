"""Which function lowers which operator on cuda, and what it may depend on."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field

from fastgraph._core.sizes import divisor_of
from fastgraph.ir.graph import Node, Value
from fastgraph.lower.cuda.planned import Calls, MatrixLibrary
from fastgraph.lower.storage import Roots

__all__ = ["LOWERINGS", "SIZED", "Target", "lowers"]

# No load or store of a kernel is wider.
WIDEST = 16


@dataclass(frozen=True)
class Target:
    """A GPU, as far as a lowering may look at it.

    Attributes
    ----------
    arch : str
        What code is compiled for: ``"sm_90"``.
    capability : tuple of int
        The same as two numbers: ``(9, 0)``.
    multiprocessors : int
    max_shared_bytes : int
        Shared memory that a block can have, beyond 48 KiB on request.
    l2_bytes : int
    tf32 : bool
        Whether products of float32 may be computed with ten bits of their fractions.
    library : MatrixLibrary, optional
        What large products may be left to.
    roots : Roots
        Where the values of the graph lie that have been lowered so far.
    is_set : set of Node
        The nodes of the set program.
    """

    arch: str
    capability: tuple[int, int]
    multiprocessors: int
    max_shared_bytes: int
    l2_bytes: int
    tf32: bool = False
    library: MatrixLibrary | None = field(default=None, repr=False, compare=False)
    roots: Roots = field(default_factory=Roots, repr=False, compare=False)
    is_set: Set[Node] = field(default=frozenset(), repr=False, compare=False)

    def alignment(self, value: Value) -> int:
        """Return the power of two, up to 16, that divides the address of an input of a node.

        A value of its own lies at a multiple of 16; a view lies somewhere inside one.
        """
        _, offset = self.roots.of(value)
        offset = divisor_of(offset)
        return min(offset & -offset, WIDEST) if offset else WIDEST

    def is_constant(self, value: Value, reader: Node) -> bool:
        """Whether nobody writes `value` while the program runs that `reader` is in.

        Such a value may be read before ``fg_wait()``.
        """
        root, _ = self.roots.of(value)
        if not isinstance(root, Value):
            return False
        if root.node.op in ("param", "constant"):
            return True
        return root.node in self.is_set and reader not in self.is_set


Lowering = Callable[[Node, Target], Calls]
LOWERINGS: dict[str, Lowering] = {}
# Whose launches follow extents.
SIZED = frozenset((
    "reshape", "transpose", "slice", "broadcast_to", "concat", "take", "region", "fused_matmul",
    "attention_step",
    "fused_attention", "softmax", "layer_norm", "rms_norm", "sum", "mean", "prod", "max", "min",
    "argmax", "argmin", "conv", "fold", "patches", "pool", "recurrence", "rotary_embedding",
    "scatter", "scatter_pair", "cumulative_sum", "top_k", "grouped_matmul", "normed_matmul",
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
