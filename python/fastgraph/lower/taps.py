"""What kernels of a mixture of experts are told beside a run, and what they note there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
    "table_nbytes",
    "table_of",
]

WORD = 8
# All that there is of a tap to which nobody listens: its first word says so.
HEAD_NBYTES = 2 * WORD


@dataclass(frozen=True, eq=False, kw_only=True)
class Tap(Temp):
    """Memory beside a run, of a model's own: nothing, until somebody asks for more.

    What is noted is noted while the first word is not 0, or where there is memory at all; nothing
    sets it back to 0. For edges a tap is read alone: no two calls have the same.

    Attributes
    ----------
    kind : {"counts", "indices", "table"}
        ``counts``: after two words a number for each expert, how often it was given rows, and then
        another for each, how many. ``indices``: the second word says how often indices were
        written, and then these follow, in 32 bits. ``table``: the addresses of the experts, which
        else lie one behind the other.
    node : Node
    matrices : Value or None
        The experts; None where a `top_k` chooses them.
    """

    kind: Literal["counts", "indices", "table"]
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
    return Tap(HEAD_NBYTES, "rows by expert", kind="counts", node=node, matrices=matrices)


def indices_of(node: Node) -> Tap:
    """Return the tap of a node that chooses elements."""
    return Tap(HEAD_NBYTES, "indices", kind="indices", node=node)


def table_of(node: Node, matrices: Value) -> Tap:
    """Return the tap of a node that multiplies rows with their matrices."""
    return Tap(HEAD_NBYTES, "addresses of experts", kind="table", node=node, matrices=matrices)


def table_nbytes(experts: int) -> int:
    """Return the bytes of a table."""
    return max(WORD * experts, HEAD_NBYTES)


def counts_nbytes(experts: int) -> int:
    """Return the bytes of a tap of counts to which somebody listens."""
    return HEAD_NBYTES + 2 * WORD * experts


def indices_nbytes(count: int) -> int:
    """Return the bytes of a tap of indices to which somebody listens: whole words."""
    return HEAD_NBYTES + -(-4 * count // WORD) * WORD
