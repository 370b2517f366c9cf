"""A GPU as a device: memory, streams, code, and how graphs of its work are made."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any
from weakref import WeakSet

import numpy as np

from fastgraph._core import (
    buffer,
    cuda_capture,
    cuda_host,
    cuda_module,
    cuda_work,
    device_memory,
)
from fastgraph._core import stream as streams
from fastgraph._core.buffer import Block, Buffer
from fastgraph._core.device_memory import Staging
from fastgraph._core.lock import GraphLock
from fastgraph._core.record import Foreign, Launch
from fastgraph._core.stream import CudaDevice, Event, LastUse, Stream
from fastgraph.device.backend import (
    Backend,
    LaunchOptions,
    LaunchSpec,
    PlaceMaker,
    SharedScratch,
)
from fastgraph.device.cuda.accepted import as_cuda_function
from fastgraph.device.cuda.arguments import launch_arguments
from fastgraph.device.cuda.capture import BuilderCapture
from fastgraph.device.cuda.cublas import DeviceBlas
from fastgraph.device.cuda.foreign_graph import as_foreign
from fastgraph.device.cuda.function import CudaFunction, compile_function, load_function
from fastgraph.device.cuda.helpers import Helpers
from fastgraph.device.cuda.limits import DeviceLimits, Dims, check_launch
from fastgraph.device.cuda.loader import DeviceLoader
from fastgraph.device.cuda.state import CudaState
from fastgraph.device.pending import Work
from fastgraph.device.recording import Recorded
from fastgraph.device.state import GraphState, Settings
from fastgraph.device.values import check_dims, word
from fastgraph.errors import GraphError, InputError

__all__ = ["CudaBackend", "open_device"]

_Array = np.ndarray[Any, np.dtype[Any]]

CAPABILITIES = frozenset(
    {
        "capture",
        "compiled_graphs",
        "constant_memory",
        "cooperative_launch",
        "device_kernels",
        "peer_access",
        "shared_memory",
        "streams",
    }
)
# How many sizes of launches a function remembers as checked.
MAX_FITTING = 64


class CudaBackend(Backend):
    """One GPU."""

    api = "cuda"
    joins_twins = True

    def __init__(self, ordinal: int) -> None:
        self.gpu: CudaDevice = streams.cuda_device(ordinal)
        self.ordinal = ordinal
        self.device = f"cuda:{ordinal}"
        self.loader = DeviceLoader(self.gpu, self.device)
        self.blas = DeviceBlas(self.gpu)
        self.capabilities = CAPABILITIES
        self._watched: WeakSet[CudaState] = WeakSet()
        if self.gpu.compute_capability >= (9, 0):
            self.capabilities |= {"clusters", "programmatic_edges"}

    @property
    def attributes(self) -> dict[str, int]:
        """dict: the device in numbers, by the driver's names."""
        return self.gpu.attributes

    @property
    def memory_info(self) -> tuple[int, int]:
        """tuple of int: (available, total) bytes."""
        return self.gpu.memory_info

    @cached_property
    def limits(self) -> DeviceLimits:
        """DeviceLimits: what a launch may ask for."""
        return DeviceLimits.read(self.device, self.gpu.attribute)

    @cached_property
    def helpers(self) -> Helpers:
        """Helpers: the package's own kernels, compiled when first needed."""
        return Helpers(self.loader)

    @cached_property
    def staging(self) -> Staging:
        """Staging: pinned memory through which host arrays come."""
        return Staging(self.gpu)

    def allocate(self, nbytes: int) -> Block:
        """Return zero-filled memory of the device."""
        return device_memory.allocate(self.gpu, nbytes)

    def allocate_host(self, nbytes: int) -> Block:
        """Return zero-filled pinned memory."""
        return device_memory.allocate_pinned(self.gpu, nbytes)

    def borrow(self, ptr: int, nbytes: int, owner: object) -> Block:
        """Return a block over bytes of the device that `owner` holds."""
        return device_memory.borrow(self.gpu, ptr, nbytes, owner)

    def context_stream(self, stream: Any) -> Stream:
        """Return a new stream, or the caller's."""
        return self.create_stream() if stream is None else self.as_stream(stream)

    def create_stream(self, priority: int = 0) -> Stream:
        """Return a new stream that no other one waits for."""
        return Stream(self.gpu, priority)

    def create_event(self, stream: Any) -> Event:
        """Return a new event, by default on a context's stream."""
        return Event(self.gpu, stream)

    def as_stream(self, stream: Any) -> Stream:
        """Return what a caller gives as a stream of this device."""
        return streams.as_stream(stream, self.gpu)

    def enable_peer_access(self, other: Backend) -> None:
        """Let this device reach another's memory."""
        if not isinstance(other, CudaBackend):
            raise InputError(f"{other.device!r} is no GPU")
        self.gpu.enable_peer_access(other.gpu)

    def raise_faults(self) -> None:
        """Raise what graphs on the device met, each once: their host functions, and bad data."""
        cuda_host.raise_faults(self.ordinal)
        for state in list(self._watched):
            state.raise_faults()

    def watch(self, state: CudaState) -> None:
        """Look at what `state` met whenever the device is waited for."""
        self._watched.add(state)

    def capture(
        self, builder: Any, dependencies: tuple[Any, ...], keep: tuple[object, ...]
    ) -> BuilderCapture:
        """Return the capture of foreign work as a node of a graph."""
        return BuilderCapture(builder, self.gpu, dependencies, keep)

    def foreign_graph(self, graph: Any, owner: object, in_body: bool) -> Foreign:
        """Return another library's driver graph for a node."""
        return as_foreign(graph, owner, in_body)

    def capture_turn(self) -> cuda_capture.Turn:
        """Return a context in which no other capture of this process is under way."""
        return cuda_capture.Turn()

    def copy_sides(self, dst: Any, src: Any) -> tuple[Any, Any]:
        """Return the sides of a copy; one of them may be a buffer of another GPU."""
        if getattr(src, "device", None) == self.device:
            return self._near(dst), src
        if getattr(dst, "device", None) == self.device:
            return dst, self._near(src)
        return dst, src

    def _near(self, value: Any) -> Any:
        # The memory itself tells the driver whose it is.
        if isinstance(value, Buffer) and value.device.startswith("cuda:"):
            return buffer.view(value.block, value.offset, value.shape, value.dtype, self.device)
        return value

    def copy(self, dst: Any, src: Any, stream: Any) -> None:
        """Copy between checked places: waits where the destination is a host array."""
        if isinstance(dst, np.ndarray):
            dst[...] = src.numpy() if isinstance(src, Buffer) else src
        elif isinstance(src, Buffer):
            cuda_work.copy(stream, [(dst, src)])
        elif dst.host_visible:
            dst.copy_from(src)
        else:
            cuda_work.upload(stream, self.staging, [(dst, src)])

    def memset(self, dst: Buffer, element: _Array, stream: Any) -> None:
        """Enqueue a memset."""
        pattern = word(element) & (1 << 8 * element.itemsize) - 1
        low, high = pattern & 0xFFFFFFFF, pattern >> 32
        if element.itemsize == 8 and low == high:
            cuda_work.fill(stream, dst, low, 4)
        elif element.itemsize == 8:
            cuda_work.launch(stream, self.helpers.fill8_launch(pattern, dst.nbytes), [dst.ptr])
        else:
            cuda_work.fill(stream, dst, pattern, element.itemsize)

    def compile_function(self, source: str, name: str, signature: Any) -> CudaFunction:
        """Compile a kernel."""
        return compile_function(self.loader, source, name, signature)

    def load_function(self, image: bytes | str, name: str, signature: Any) -> CudaFunction:
        """Load a compiled kernel."""
        return load_function(self.loader, image, name, signature)

    def function_work(
        self, place: PlaceMaker, f: Any, args: tuple[Any, ...], options: LaunchOptions
    ) -> Work:
        """Check the launch of a kernel."""
        name, function = as_cuda_function(f, self.loader)
        grid = check_dims("grid_dim", options.grid_dim)
        block = check_dims("block_dim", options.block_dim)
        plain, cluster = None, None
        if function.plan is not None and _is_plain(options):
            plain = function.plan.launch_call(args, self.device, place)
        if plain is not None:
            accesses, arguments = plain
            self._check_sizes(name, function, grid, block)
        else:
            cluster = _check_options(options)
            accesses, arguments = launch_arguments(place, name, function, args)
            check_launch(
                self.limits,
                name,
                function,
                grid,
                block,
                cluster=cluster,
                shared_bytes=options.shared_mem_bytes,
                cooperative=options.cooperative,
                residency=lambda threads, nbytes: cuda_module.blocks_at_once(
                    self.gpu, function.handle, threads, nbytes
                ),
            )
            if options.constant_memory:
                function = self.loader.with_constants(function, options.constant_memory)
            if options.shared_mem_bytes > function.max_dynamic_shared_bytes:
                cuda_module.allow_shared_bytes(self.gpu, function.handle, options.shared_mem_bytes)
        call = Launch(
            function,
            grid,
            block,
            arguments,
            options.shared_mem_bytes,
            cluster,
            options.cooperative,
            options.priority,
            options.programmatic and "programmatic_edges" in self.capabilities,
        )
        spec = LaunchSpec(f, args, options)
        return Work(name, "function", None, accesses, (), (f, function), call, spec)

    def _check_sizes(self, name: str, function: CudaFunction, grid: Dims, block: Dims) -> None:
        """Check a launch that asks for sizes alone, once for all that ask for the same."""
        if (grid, block) not in function.fitting:
            check_launch(self.limits, name, function, grid, block)
            if len(function.fitting) >= MAX_FITTING:
                function.fitting.clear()
            function.fitting.add((grid, block))

    def launch(self, work: Work, stream: Any) -> None:
        """Enqueue a kernel."""
        assert isinstance(work.call, Launch)
        addresses = [access.place.ptr for access in work.accesses]
        cuda_work.launch(stream, work.call, addresses)

    def new_scratch(self, block: Block | None = None) -> SharedScratch:
        """Return what a pool of graphs shares."""
        return SharedScratch(GraphLock(), LastUse(), block)

    def state(
        self,
        context: Any,
        recorded: Recorded,
        settings: Settings,
        shared: SharedScratch | None,
    ) -> GraphState:
        """Return the executable of a record."""
        return CudaState(context, recorded, settings, shared)


def _check_options(options: LaunchOptions) -> Dims | None:
    """Check what a launch asks for beside its sizes by itself; return the cluster's sizes."""
    cluster = None
    if options.cluster_dim is not None:
        cluster = check_dims("cluster_dim", options.cluster_dim)
    for what in ("cooperative", "programmatic"):
        if not isinstance(getattr(options, what), bool):
            raise GraphError(f"{what} is {getattr(options, what)!r}; True and False are known")
    priority = options.priority
    if priority is not None and (
        isinstance(priority, bool)
        or not isinstance(priority, int)
        or not -(2**31) <= int.__pos__(priority) < 2**31
    ):
        raise GraphError(
            f"the priority of a node is an integer of 32 bits, not {priority!r}; smaller ones "
            "come first"
        )
    return cluster


def _is_plain(options: LaunchOptions) -> bool:
    """Whether sizes, and programmatic or not, are all that is asked for."""
    return (
        options.cluster_dim is None
        and type(options.shared_mem_bytes) is int
        and options.shared_mem_bytes == 0
        and options.cooperative is False
        and options.priority is None
        and options.constant_memory is None
        and isinstance(options.programmatic, bool)
    )


_lock = threading.Lock()
_open: dict[int, CudaBackend] = {}


def open_device(ordinal: int) -> CudaBackend:
    """Return the GPU of a number.

    Raises
    ------
    UnsupportedError
        There is no driver, it is too old, or there is no such GPU, or it is too old.
    """
    with _lock:
        if ordinal not in _open:
            _open[ordinal] = CudaBackend(ordinal)
        return _open[ordinal]
