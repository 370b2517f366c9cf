"""What recording lowered calls asks of a device, behind one face."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fastgraph._core.record import Operand
from fastgraph.ir.graph import Node
from fastgraph.lower.storage import Item, Lowered, Place, Roots

if TYPE_CHECKING:
    from fastgraph._core.record import Record

__all__ = ["NodeSpec", "Recorder"]


class NodeSpec(NamedTuple):
    """What a call becomes beside name, operands and dependencies; fields as `Record.add_node`'s."""

    kernel: str | None
    params: Sequence[int] = ()
    parts: int = 1
    call: Any = None
    extra: Sequence[Operand] = ()
    keep: object = None


class Recorder(ABC):
    """How the calls of one device become nodes of a record."""

    where: str  # as in "not on …"
    # Whether values of outputs lie outside of the arena, in memory that the host reads.
    outputs_outside: bool

    # Operators whose calls follow extents.
    sized: frozenset[str] = frozenset()

    @property
    @abstractmethod
    def lowerings(self) -> Mapping[str, Any]:
        """Mapping of str to callable: what lowers which operator."""

    @abstractmethod
    def lower(self, node: Node, lowered: Lowered) -> list[Any]:
        """Return the calls of a node; `lowered` tells where earlier values lie."""

    @abstractmethod
    def copies(self, pairs: Sequence[tuple[Place, Place]]) -> list[Any]:
        """Return the calls that copy bytes, by pairs (to, from), in whatever order."""

    @abstractmethod
    def finish(self, lowered: Lowered) -> None:
        """Say where inputs and outputs lie; add the calls that bring them there."""

    @abstractmethod
    def dependencies(self, items: Sequence[Item], roots: Roots) -> list[tuple[int, ...]]:
        """Return for each call of a run those that it waits for."""

    @abstractmethod
    def identity(self, call: Any) -> Hashable:
        """Return what says what a call does, its operands aside."""

    def fault_memory(self, record: Record) -> int:
        """Add the memory of the word in which kernels leave faults; -1 where they need none."""
        return -1

    @abstractmethod
    def node(self, call: Any, operands: Sequence[Operand], number: int, fault: int) -> NodeSpec:
        """Return what a call becomes as node `number`; `fault` is what `fault_memory` returned."""
