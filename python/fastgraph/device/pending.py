"""What a builder gathers before there is a record: nodes, accesses, and the graph's own memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from fastgraph._core import buffer
from fastgraph._core.buffer import Block, Buffer
from fastgraph._core.pending import Access, Node, Pending, Work, where_of
from fastgraph._core.record import RecordNode
from fastgraph.device.backend import backend_of
from fastgraph.errors import GraphError, ScopeError

__all__ = [
    "Access", "Family", "Inlined", "Node", "Pending", "Piece", "PointerSlot", "Scalar", "Scratch",
    "Shared", "Where", "Work", "place_at", "where_of",
]  # fmt: skip

Where = tuple[int, int]


# As far apart as the driver puts its own allocations.
TWIN_ALIGNMENT = 256


class Scratch:
    """Memory of the graph's own, given an address after the build; made by `create_buffer`.

    Reading `ptr` inside the build gives it memory that serves nothing else. It holds values only
    while a replay runs, so what would read it on the host raises GraphError. ``scratch[a:b]`` is a
    range of the same bytes.
    """

    __slots__ = (
        "_base", "_open", "block", "device", "dtype", "nbytes", "offset", "own", "shape",
    )  # fmt: skip

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], device: str, own: bool = False
    ) -> None:
        self._base: Scratch | None = None
        self.offset = 0
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.nbytes = math.prod(shape) * dtype.itemsize
        self.own = own
        self.block: Block | None = None
        self._open = True

    @property
    def ptr(self) -> int:
        """int: the address, in the graph that is being built and its handles, not in clones."""
        if self._base is not None:
            return self._base.ptr + self.offset
        if not self._open:
            raise ScopeError("the address of scratch is told inside the build only")
        if self.block is None:
            backend = backend_of(self.device)
            self.block = backend.allocate_for(self.nbytes, "scratch", self.dtype, self.shape)
            self.own = True
        return self.block.ptr

    @property
    def base(self) -> Scratch:
        """Scratch: what this is a range of; itself where it is none."""
        return self if self._base is None else self._base

    def view(self, start: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Scratch:
        """Return the bytes from `start` on as scratch of another shape and dtype."""
        part = Scratch(shape, dtype, self.device)
        part._base = self.base
        part.offset = self.offset + start
        return part

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a buffer without axes has no length")
        return self.shape[0]

    def __getitem__(self, key: slice) -> Scratch:
        """Return the rows ``[start:stop]`` as scratch over the same bytes."""
        start, shape = buffer.rows(self.shape, self.nbytes, key)
        return self.view(start, shape, self.dtype)

    def numpy(self) -> Any:
        """Not possible: GraphError."""
        raise GraphError(
            f"{self!r} holds values only while the graph runs; copy it to a buffer by a node, "
            "or make it an output"
        )

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Any:
        return self.numpy()

    def __repr__(self) -> str:
        return f"<Scratch {self.dtype}{list(self.shape)}>"


class Scalar:
    """A named number that kernels take and that replays may change; made by `scalar`.

    Attributes
    ----------
    name : str
    dtype : numpy.dtype
    where : str
        ``"node"`` or ``"memory"``.
    """

    __slots__ = ("default", "device", "dtype", "name", "nbytes", "shape", "where")

    def __init__(self, name: str, default: np.ndarray[Any, Any], where: str, device: str) -> None:
        self.name = name
        self.dtype = default.dtype
        self.default = default
        self.where = where
        self.device = device
        self.shape: tuple[int, ...] = (1,)
        self.nbytes = default.nbytes

    def __repr__(self) -> str:
        return f"<Scalar {self.name!r} {self.dtype} in {self.where}>"


class PointerSlot:
    """A buffer argument that can be pointed elsewhere by its name; made by `pointer`."""

    __slots__ = ("device", "dtype", "name", "nbytes", "shape", "target")

    def __init__(self, name: str, target: Buffer) -> None:
        self.name = name
        self.target = target
        self.device = target.device
        self.dtype = target.dtype
        self.shape = target.shape
        self.nbytes = target.nbytes

    def __repr__(self) -> str:
        return f"<PointerSlot {self.name!r} {self.dtype}{list(self.shape)}>"


class Piece(NamedTuple):
    """Bytes of a child's memory, from `start` on, and the place in the parent that they are."""

    start: int
    nbytes: int
    place: Any


class Inlined(NamedTuple):
    """The nodes of a child graph, and where each memory that they name lies in this one.

    ``copies`` fill the child's inputs before its nodes. ``isa`` is the instruction set that its
    memory is laid out for, if it is for one. In ``faults`` are words in which kernels leave which
    node met bad data, each with what messages call the nodes.
    """

    nodes: tuple[RecordNode, ...]
    works: tuple[Work, ...]
    pieces: dict[int, tuple[Piece, ...]]
    copies: list[Pending]
    outputs: tuple[Any, ...] = ()
    isa: str | None = None
    faults: tuple[tuple[Scratch, tuple[str, ...]], ...] = ()

    def find(self, memory: int, start: int, nbytes: int) -> tuple[Any, int]:
        """Return the place of bytes of the child's, and the first of them in it."""
        for piece in self.pieces[memory]:
            if piece.start <= start and start + nbytes <= piece.start + piece.nbytes:
                return piece.place, start - piece.start
        raise GraphError(
            f"the child touches {nbytes} bytes from {start} on of a memory in which no one input "
            "has them all"
        )

    def all_works(self) -> tuple[Work, ...]:
        """Return what the nodes of the child's body were made of."""
        return (*(copy.work for copy in self.copies), *self.works)

    def places(self) -> Iterator[Any]:
        """Every place that the child touches."""
        for pieces in self.pieces.values():
            for piece in pieces:
                yield piece.place
        for copy in self.copies:
            for access in copy.work.accesses:
                yield access.place


def aligned(nbytes: int) -> int:
    """The bytes that a twin takes with the gap behind it."""
    return -(-nbytes // TWIN_ALIGNMENT) * TWIN_ALIGNMENT


class Family:
    """What the nodes of one graph have in common with the graph itself and its clones.

    ``title`` is what messages call it.
    """

    __slots__ = ("title",)

    def __init__(self, title: str) -> None:
        self.title = title


class Shared:
    """What a graph's builder and the builders of its bodies have in common."""

    __slots__ = (
        "children",
        "device",
        "family",
        "free",
        "inputs",
        "names",
        "outputs",
        "room",
        "scratch",
        "twins",
    )
    LISTS = ("children", "inputs", "names", "outputs", "scratch", "twins")

    def __init__(self, device: str, family: Family | None = None) -> None:
        self.device = device
        self.family = Family("a graph") if family is None else family
        self.free: tuple[Block, int] | None = None  # where the next twin may lie
        self.scratch: dict[int, Scratch] = {}
        self.names: dict[str, Scalar | PointerSlot] = {}
        self.outputs: list[Buffer | Scratch] = []
        self.twins: list[Buffer] = []  # of copied inputs
        self.room = 0  # bytes of the twins that are known to come
        self.inputs: list[Any] = []  # in-place inputs
        self.children: list[Inlined] = []

    def expect_twins(self, sizes: Iterable[int]) -> None:
        """Let the next twins, of so many bytes each, lie side by side where that has a use."""
        if backend_of(self.device).joins_twins:
            self.room = sum(map(aligned, sizes))

    def make_twin(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Buffer:
        """Return a new twin, beside the last one where that has room: one copy fills both."""
        backend = backend_of(self.device)
        nbytes = math.prod(shape) * dtype.itemsize
        block, start = self.free or (None, 0)
        if block is None or start + nbytes > block.nbytes:
            size = max(nbytes, self.room)
            block, start = backend.allocate_for(size, "the twin of an input", dtype, shape), 0
        self.free = block, start + aligned(nbytes)
        self.room = max(self.room - aligned(nbytes), 0)
        twin = buffer.view(block, start, shape, dtype, self.device)
        self.twins.append(twin)
        return twin

    def mark(self) -> tuple[int, ...]:
        """Return how much there is of everything, for `roll_back`."""
        return tuple(len(getattr(self, name)) for name in self.LISTS)

    def roll_back(self, mark: tuple[int, ...]) -> None:
        """Forget what came after `mark`."""
        for name, count in zip(self.LISTS, mark, strict=True):
            held = getattr(self, name)
            if isinstance(held, dict):
                for key in list(held)[count:]:
                    del held[key]
            else:
                del held[count:]

    def clear(self) -> None:
        """Hold nothing any longer."""
        for scratch in self.scratch.values():
            scratch._open = False
            scratch.block = None
        self.free = None
        self.roll_back((0,) * len(self.LISTS))


def place_at(place: Any, start: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Return bytes of a place, from `start` on, as a place of another shape and dtype."""
    if start == 0 and place.shape == shape and place.dtype == dtype:
        return place
    if isinstance(place, Scratch):
        return place.view(start, shape, dtype)
    if isinstance(place, Buffer):
        return buffer.view(place.block, place.offset + start, shape, dtype, place.device)
    return place  # a scalar in memory has no parts
