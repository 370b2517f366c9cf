"""The cpu as a device: memory is the host's, and work is done when the call returns."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from fastgraph._core import buffer, host_graph, isa, pool
from fastgraph._core.buffer import Block, Buffer
from fastgraph._core.checks import check_stream
from fastgraph._core.host_program import HostProgram
from fastgraph._core.lock import GraphLock
from fastgraph.device.backend import Backend, LaunchOptions, PlaceMaker, SharedScratch
from fastgraph.device.host_state import HostState
from fastgraph.device.native import function_work
from fastgraph.device.pending import Pending, Shared, Work
from fastgraph.device.recording import Recorded, record
from fastgraph.device.state import GraphState, Settings
from fastgraph.errors import GraphError, UnsupportedError

__all__ = ["HostBackend"]

_Array = np.ndarray[Any, np.dtype[Any]]


class HostEvent:
    """A point in time on the host's clock; made by `DeviceContext.create_event`."""

    __slots__ = ("_at",)

    def __init__(self) -> None:
        self._at: int | None = None

    def record(self, stream: None = None) -> None:
        """Take the time now: all work before it is done."""
        check_stream(stream)
        self._at = time.perf_counter_ns()

    def query(self) -> bool:
        """Return whether the work before it is done: always."""
        return True

    def synchronize(self) -> None:
        """Wait for the work before it: it is done."""

    def elapsed_ms(self, start: HostEvent) -> float:
        """Return the milliseconds since another event.

        Raises
        ------
        GraphError
            One of the two was not recorded.
        """
        if self._at is None or start._at is None:
            raise GraphError("the time between events is known once both were recorded")
        return (self._at - start._at) / 1e6


class HostBackend(Backend):
    """The cpu."""

    api = "cpu"
    ordinal = 0
    device = "cpu"
    capabilities = frozenset({"host_memory", "native_kernels", "compiled_graphs"})

    @property
    def attributes(self) -> dict[str, int]:
        """dict: ``cores`` that this process may use."""
        return {"cores": pool.available_cores()}

    @property
    def memory_info(self) -> tuple[int, int]:
        """tuple of int: (available, total) bytes of memory."""
        page = os.sysconf("SC_PAGE_SIZE")
        return (
            page * os.sysconf("SC_AVPHYS_PAGES"),
            page * os.sysconf("SC_PHYS_PAGES"),
        )

    def allocate(self, nbytes: int) -> Block:
        """Return zero-filled memory."""
        return buffer.allocate(nbytes)

    allocate_host = allocate

    def borrow(self, ptr: int, nbytes: int, owner: object) -> Block:
        """Return a block over bytes that `owner` holds."""
        return buffer.borrow(ptr, nbytes, owner)

    def create_stream(self, priority: int = 0) -> Any:
        """Not on cpu: UnsupportedError."""
        raise UnsupportedError("streams: the cpu does its work within the call")

    def context_stream(self, stream: Any) -> None:
        """There is none: UnsupportedError for another."""
        check_stream(stream)

    def create_event(self, stream: Any) -> Any:
        """Return an event of the host's clock."""
        return HostEvent()

    def copy(self, dst: Any, src: Any, stream: Any) -> None:
        """Copy between checked places."""
        np.asarray(dst)[...] = np.asarray(src)

    def memset(self, dst: Buffer, element: _Array, stream: Any) -> None:
        """Set every element."""
        np.asarray(dst)[...] = element

    def function_work(
        self, place: PlaceMaker, f: Any, args: tuple[Any, ...], options: LaunchOptions
    ) -> Work:
        """Check the call of a function."""
        return function_work(place, f, args, options)

    def launch(self, work: Work, stream: Any) -> None:
        """Call a function now."""
        recorded = record([Pending(work.name, work, ())], Shared("cpu"), False)
        blocks = {i: place for i, place in enumerate(recorded.blocks) if place is not None}
        program = HostProgram(recorded.record, isa.chosen())
        host_graph.instantiate(program, blocks, release_gil=True).run()

    def new_scratch(self, block: Block | None = None) -> SharedScratch:
        """Return what a pool of graphs shares."""
        return SharedScratch(GraphLock(), None, block)

    def state(
        self,
        context: Any,
        recorded: Recorded,
        settings: Settings,
        shared: SharedScratch | None,
    ) -> GraphState:
        """Return the executable of a record."""
        return HostState(context, recorded, settings, shared)
