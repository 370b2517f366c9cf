"""What kernels of a mixture of experts note beside a run: which rows and which experts."""

from __future__ import annotations

from dataclasses import dataclass

from fastgraph.ir.graph import Node, Value
from fastgraph.lower.call import Temp

__all__ = [
    "HEAD_NBYTES",
    "WORD",
    "Tap",
    "counts_nbytes",
    "counts_of",
    "indices_nbytes",
    "indices_of",
]

WORD = 8
# All that there is of a tap to which nobody listens: its first word says so.
HEAD_NBYTES = 2 * WORD


@dataclass(frozen=True, eq=False, kw_only=True)
class Tap(Temp):
    """Memory of no run, in which a kernel makes notes while the first of its words is not 0.

    A tap with `matrices` has after two words a number for each of them, how often it was given
    rows, and then another for each, how many. One without is of a `top_k`: its second word says
    how often indices were written, and then these follow, in 32 bits. Nothing sets them back to 0.
    For edges it is read alone: no two calls have the same.

    Attributes
    ----------
    node : Node
    matrices : Value or None
        Those that its kernel chooses from.
    """

    node: Node
    matrices: Value | None = None

    @property
    def title(self) -> str:
        """str: what messages call it."""
        return f"{self.name} of {self.node.name}"

    @property
    def layer(self) -> int:
        """int: the layer of a mixture of experts."""
        found: int = self.node.attrs["layer"]
        return found

    @property
    def experts(self) -> int:
        """int: how many experts there are to choose from."""
        if self.matrices is not None:
            return self.matrices.shape[0]
        return self.node.inputs[0].shape[self.node.attrs["axis"]]


def counts_of(node: Node, matrices: Value) -> Tap:
    """Return the tap of a node that brings rows to their matrices."""
    return Tap(HEAD_NBYTES, "rows by expert", node=node, matrices=matrices)


def indices_of(node: Node) -> Tap:
    """Return the tap of a node that chooses elements."""
    return Tap(HEAD_NBYTES, "indices", node=node)


def counts_nbytes(experts: int) -> int:
    """Return the bytes of a tap with matrices to which somebody listens."""
    return HEAD_NBYTES + 2 * WORD * experts


def indices_nbytes(count: int) -> int:
    """Return the bytes of a tap of indices to which somebody listens: whole words."""
    return HEAD_NBYTES + -(-4 * count // WORD) * WORD
