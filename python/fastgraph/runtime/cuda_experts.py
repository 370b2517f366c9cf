"""Where the experts of one model lie: the resident ones on a GPU, all of them in pinned memory.

Kernels find each expert by a table of addresses on the device. One that is not resident is read at
the address that its host copy has for the device: that costs the time of the bus, and gives the
same bits. Tables and experts are written by copies on a stream of their own between two runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastgraph._core import buffer, cuda_work
from fastgraph._core.buffer import Block
from fastgraph._core.record import RecordNode
from fastgraph.device.backend import named
from fastgraph.device.cuda.backend import CudaBackend
from fastgraph.errors import OutOfMemoryError, UnsupportedError
from fastgraph.lower.program import Program, TapPlace
from fastgraph.lower.taps import WORD, table_nbytes

if TYPE_CHECKING:
    from fastgraph.runtime.params import ParamSet

__all__ = ["Residence", "check_experts"]

_Array = np.ndarray[Any, np.dtype[Any]]


class Matrices(NamedTuple):
    """The experts of products that read the same ones: a memory of the record, and where in it."""

    memory: int
    offset: int
    experts: int
    nbytes: int


class Product(NamedTuple):
    """A product, by the number of its mask, and its table."""

    mask: int
    matrices: Matrices
    memory: int
    table: Block


@dataclass(frozen=True)
class Move:
    """What is to be copied, (to, from, where in that, bytes), and what is resident then."""

    slots: Mapping[Matrices, Mapping[int, Block]]
    copies: Sequence[tuple[Block, Block, int, int]]


def check_experts(program: Program, counts: Sequence[TapPlace]) -> None:
    """Raise UnsupportedError where something else reads experts that may not be on the device."""
    tables = {place.memory for place in program.taps if place.tap.kind == "table"}
    weights = {place.weight[0]: place for place in counts if place.weight is not None}

    def look(nodes: Sequence[RecordNode]) -> None:
        for node in nodes:
            for body in node.bodies:
                look(body)
            memories = {operand.memory for operand in node.operands}
            for memory in memories & weights.keys():
                if not memories & tables:
                    raise UnsupportedError(
                        f"the experts of {weights[memory].tap.node.name!r} "
                        f"({weights[memory].tap.node.site}) are read by node {node.name!r} "
                        f"({node.label}) too, so all of them have to stay on the device"
                    )

    look(program.record.nodes)


class Residence:
    """The experts of one model. Every method is called with its lock."""

    def __init__(
        self, gpu: CudaBackend, program: Program, counts: Sequence[TapPlace], title: str
    ) -> None:
        self.gpu = gpu
        self.title = title
        self.stream = gpu.create_stream()
        self.slots: Mapping[Matrices, Mapping[int, Block]] = {}
        number = {place.tap.node: i for i, place in enumerate(counts)}
        self.products = []
        for place in program.taps:
            if place.tap.kind == "table" and place.tap.node in number:
                experts, k, n = _shape(place)
                assert place.weight is not None
                nbytes = k * n * place.tap.node.inputs[1].dtype.itemsize
                matrices = Matrices(*place.weight, experts, nbytes)
                table = self._allocate(table_nbytes(experts))
                mask = number[place.tap.node]
                self.products.append(Product(mask, matrices, place.memory, table))
        # What the copies to tables read: freeing memory would wait for them.
        sizes = [product.table.nbytes for product in self.products]
        self.starts = [sum(sizes[:i]) for i in range(len(sizes))]
        try:
            self.tables = gpu.allocate_host(sum(sizes))
        except OutOfMemoryError as error:
            raise named(error, "the addresses of the experts of", title) from None
        # What the parameters are that have to be in pinned memory.
        memories = {product.matrices.memory for product in self.products}
        self.values = {v: m for v, m in program.blocks.items() if m in memories}

    @property
    def places(self) -> list[tuple[int, Block]]:
        """list of (int, Block): the memories of the tables."""
        return [(product.memory, product.table) for product in self.products]

    def prepare(
        self, params: ParamSet, masks: Sequence[_Array], changed: Set[int] = frozenset()
    ) -> Move:
        """Return what has to be copied so that runs go by these masks; nothing has changed.

        `changed` are memories that hold other matrices now.

        Raises
        ------
        OutOfMemoryError
            The device has no room for the experts, or the host none for the tables.
        """
        hosts = {memory: params.block(value) for value, memory in self.values.items()}
        wanted: dict[Matrices, _Array] = {}
        for product in self.products:
            mask = masks[product.mask]
            wanted[product.matrices] = mask | wanted.get(product.matrices, np.zeros_like(mask))
        slots: dict[Matrices, dict[int, Block]] = {}
        copies = []
        for matrices, mask in wanted.items():
            had = self.slots.get(matrices, {})
            spare = [block for expert, block in sorted(had.items()) if not mask[expert]]
            held = slots[matrices] = {}
            for expert in np.flatnonzero(mask).tolist():
                block = had.get(expert)
                if block is None or matrices.memory in changed:
                    if block is None:
                        block = spare.pop() if spare else self._allocate(matrices.nbytes)
                    host = hosts[matrices.memory]
                    if host is not None:
                        start = matrices.offset + expert * matrices.nbytes
                        copies.append((block, host, start, matrices.nbytes))
                held[expert] = block
        self.stream.synchronize()  # The copies of the last change have read what is written here.
        for product, start in zip(self.products, self.starts, strict=True):
            matrices = product.matrices
            found = hosts[matrices.memory]
            mask, held = masks[product.mask], slots[matrices]
            base = 0 if found is None else found.ptr + matrices.offset
            view = buffer.view(self.tables, start, (matrices.experts,), "uint64", self.gpu.device)
            words = np.asarray(view)
            for expert in range(matrices.experts):
                cold = base + expert * matrices.nbytes
                words[expert] = held[expert].ptr if mask[expert] else cold
            copies.append((product.table, self.tables, start, matrices.experts * WORD))
        return Move(slots, copies)

    def make(self, move: Move) -> None:
        """Enqueue the copies; no run is under way, and the next one comes behind them."""
        pairs = [
            (self._view(to, 0, nbytes), self._view(source, start, nbytes))
            for to, source, start, nbytes in move.copies
        ]
        cuda_work.copy(self.stream, pairs)
        # To free what is no longer resident waits for the copies; in the place of others it stays.
        self.slots = move.slots

    def _view(self, block: Block, start: int, nbytes: int) -> Any:
        return buffer.view(block, start, (nbytes,), "uint8", self.gpu.device)

    def _allocate(self, nbytes: int) -> Block:
        try:
            return self.gpu.allocate(nbytes)
        except OutOfMemoryError as error:
            raise named(error, "resident experts of", self.title) from None


def _shape(place: TapPlace) -> tuple[int, int, int]:
    matrices = place.tap.matrices
    assert matrices is not None
    experts, k, n = matrices.shape
    return experts, k, n
