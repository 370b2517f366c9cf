"""What a lowering for cuda hands on beside launches: work that a library is to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from fastgraph.ir.graph import Value
from fastgraph.lower.call import Alias, Temp
from fastgraph.lower.cuda.call import Argument, CudaCall

if TYPE_CHECKING:
    from fastgraph._core.record import Foreign

__all__ = ["Calls", "LibraryCall", "MatrixLibrary", "Planned"]


class Planned(Protocol):
    """Work of a library, decided when the graph is compiled."""

    @property
    def workspace_nbytes(self) -> int:
        """Bytes of scratch that it needs."""

    @property
    def foreign(self) -> Foreign:
        """What a node of it calls, with the addresses of its operands in their order."""


class MatrixLibrary(Protocol):
    """A library of matrix products."""

    def plan(self, **wanted: Any) -> Planned | None:
        """Return how a product is done, or None; arguments as `_core.blas.Blas.product` has."""


@dataclass(frozen=True, eq=False)
class LibraryCall:
    """Work that a library puts on a stream: it is captured for each binding of the record.

    Attributes
    ----------
    planned : Planned
        Gets the addresses of `outs`, then of `ins`.
    outs, ins, inplace, flops, nbytes, label, cost_ns
        As `CudaCall` has them.
    """

    planned: Planned
    outs: tuple[Value | Temp, ...]
    ins: tuple[Value | Temp, ...]
    inplace: tuple[tuple[int, int], ...] = ()
    flops: int = 0
    nbytes: int = 0
    label: str = ""
    cost_ns: float = 0.0
    # Of what our own kernels take, such as the word for faults, it gets nothing.
    arguments: tuple[Argument, ...] = ()
    # What a library does with its outputs before they are done is its own affair.
    rereads: bool = True


Calls = Sequence[CudaCall | LibraryCall | Alias]
