"""What differs between devices, behind one face: memory, launches, executables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastgraph._core import buffer
from fastgraph._core.buffer import Block, Buffer
from fastgraph._core.record import Foreign
from fastgraph.errors import OutOfMemoryError, UnsupportedError

if TYPE_CHECKING:
    from fastgraph.device.pending import Work
    from fastgraph.device.recording import Recorded
    from fastgraph.device.state import GraphState, Settings

__all__ = [
    "Backend",
    "LaunchOptions",
    "LaunchSpec",
    "SharedScratch",
    "backend_of",
    "named",
    "note_backend",
]

_Array = np.ndarray[Any, np.dtype[Any]]
_Sizes = int | Sequence[int]
PlaceMaker = Callable[[Any, bool], Any]


class LaunchOptions(NamedTuple):
    """How a function is launched, as `DeviceGraphBuilder.add_function` takes it."""

    grid_dim: _Sizes = 1
    block_dim: _Sizes = 1
    cluster_dim: _Sizes | None = None
    shared_mem_bytes: int = 0
    cooperative: bool = False
    priority: int | None = None
    programmatic: bool = False
    constant_memory: Any = None


class LaunchSpec(Mapping[str, Any]):
    """What a launch was made of, by name: ``f``, ``args``, and those of its options that count."""

    __slots__ = ("_args", "_f", "_names", "_options")

    def __init__(
        self,
        f: Any,
        args: tuple[Any, ...],
        options: LaunchOptions,
        names: tuple[str, ...] = LaunchOptions._fields,
    ) -> None:
        self._f = f
        self._args = args
        self._options = options
        self._names = names

    def __getitem__(self, name: str) -> Any:
        if name == "f":
            return self._f
        if name == "args":
            return self._args
        if name not in self._names:
            raise KeyError(name)
        return getattr(self._options, name)

    def __iter__(self) -> Iterator[str]:
        return iter(("f", "args", *self._names))

    def __len__(self) -> int:
        return 2 + len(self._names)


class SharedScratch(NamedTuple):
    """What the graphs of one pool share: the lock, the order of their runs, and the bytes."""

    lock: Any
    last_use: Any
    block: Block | None


class Backend(ABC):
    """One device. There is one object for each, whatever number of contexts there is."""

    api: str
    ordinal: int
    device: str  # as buffers carry it
    capabilities: frozenset[str]
    # Whether input twins lie side by side in one block, so that one copy fills them.
    joins_twins = False

    def require(self, capability: str, what: str) -> None:
        """Raise UnsupportedError unless the device has `capability`."""
        if capability not in self.capabilities:
            raise UnsupportedError(f"{what}: device {self.device!r} has no capability {capability}")

    @property
    @abstractmethod
    def attributes(self) -> dict[str, int]:
        """dict: the device in numbers."""

    @property
    @abstractmethod
    def memory_info(self) -> tuple[int, int]:
        """tuple of int: (available, total) bytes."""

    @abstractmethod
    def allocate(self, nbytes: int) -> Block:
        """Return zero-filled memory of the device."""

    def allocate_for(self, nbytes: int, *what: object) -> Block:
        """Return what `allocate` does; where it fails, the error says in words what it was for."""
        try:
            return self.allocate(nbytes)
        except OutOfMemoryError as error:
            raise named(error, *what) from None

    @abstractmethod
    def allocate_host(self, nbytes: int) -> Block:
        """Return zero-filled memory of the host that the device reaches."""

    @abstractmethod
    def borrow(self, ptr: int, nbytes: int, owner: object) -> Block:
        """Return a block over bytes of the device that `owner` holds."""

    @abstractmethod
    def create_stream(self, priority: int = 0) -> Any:
        """Return a new stream."""

    @abstractmethod
    def context_stream(self, stream: Any) -> Any:
        """Return the stream of a new context: `stream`, or one of its own; None without streams."""

    @abstractmethod
    def create_event(self, stream: Any) -> Any:
        """Return a new event that takes the time, by default on a context's stream."""

    def copy_sides(self, dst: Any, src: Any) -> tuple[Any, Any]:
        """Return the sides of a copy, a buffer of a peer as one that this device takes."""
        return dst, src

    @abstractmethod
    def copy(self, dst: Any, src: Any, stream: Any) -> None:
        """Copy between checked buffers and dense arrays of equal size."""

    @abstractmethod
    def memset(self, dst: Buffer, element: _Array, stream: Any) -> None:
        """Set every element of a buffer to a 0-d array of its dtype."""

    @abstractmethod
    def function_work(
        self, place: PlaceMaker, f: Any, args: tuple[Any, ...], options: LaunchOptions
    ) -> Work:
        """Check the call of a function and return what a node of it does."""

    @abstractmethod
    def launch(self, work: Work, stream: Any) -> None:
        """Do now, or enqueue, what `function_work` returned for places that are memory."""

    def raise_faults(self) -> None:
        """Raise what host functions raised out of sight; with the capability ``streams``."""
        raise NotImplementedError

    def capture(self, builder: Any, dependencies: tuple[Any, ...], keep: tuple[object, ...]) -> Any:
        """Return the capture of foreign work as a node; with the capability ``capture``."""
        raise NotImplementedError

    def foreign_graph(self, graph: Any, owner: object, in_body: bool) -> Foreign:
        """Return another library's driver graph for a node; with the capability ``capture``."""
        raise UnsupportedError(
            f"add_child_graph takes a DeviceGraph on {self.device}, not {type(graph).__name__}"
        )

    def capture_turn(self) -> Any:
        """Return a context in which no other capture of this process is under way."""
        raise NotImplementedError

    def compile_function(self, source: str, name: str, signature: Any) -> Any:
        """Compile a kernel; for devices with the capability ``device_kernels``."""
        raise NotImplementedError

    def load_function(self, image: bytes | str, name: str, signature: Any) -> Any:
        """Load a compiled kernel; for devices with the capability ``device_kernels``."""
        raise NotImplementedError

    def enable_peer_access(self, other: Backend) -> None:
        """Let this device reach another's memory; for those with ``peer_access``."""
        raise NotImplementedError

    @abstractmethod
    def new_scratch(self, block: Block | None = None) -> SharedScratch:
        """Return what a pool of graphs shares."""

    @abstractmethod
    def state(
        self,
        context: Any,
        recorded: Recorded,
        settings: Settings,
        shared: SharedScratch | None,
    ) -> GraphState:
        """Return the executable of a record, with all that its handles share."""

    def block_like(self, blocks: Sequence[Block]) -> Block:
        """Return one block over the bytes of all, which it keeps alive."""
        low = min(block.ptr for block in blocks)
        high = max(block.ptr + block.nbytes for block in blocks)
        return buffer.borrow(low, high - low, list(blocks), blocks[0].memory)


def named(error: OutOfMemoryError, *what: object) -> OutOfMemoryError:
    """Return an error like `error` that says in words what the memory was for."""
    text = f"{' '.join(map(str, what))}: {error}"
    return OutOfMemoryError(text, error.code, error.name, error.node)


_backends: dict[str, Backend] = {}


def note_backend(backend: Backend) -> Backend:
    """Make a backend known under its device's name; return the one that is."""
    return _backends.setdefault(backend.device, backend)


def backend_of(device: str) -> Backend:
    """Return the backend of a device that a context was made for."""
    return _backends[device]
