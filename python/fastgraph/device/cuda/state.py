"""Device graphs on a GPU: work is enqueued, inputs are staged, scalars lie in nodes or travel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fastgraph._core import buffer, cuda_graph, cuda_work
from fastgraph._core.buffer import Block, Buffer
from fastgraph._core.cuda_graph import CudaGraph
from fastgraph._core.device_memory import ForeignMemory
from fastgraph._core.record import Record
from fastgraph._core.stream import Stream
from fastgraph.device.libraries import Live
from fastgraph.device.pending import Scalar, Where, Work
from fastgraph.device.state import GraphState, Place, Version
from fastgraph.errors import InputError

if TYPE_CHECKING:
    from fastgraph.device.cuda.backend import CudaBackend

__all__ = ["CudaState"]

_Array = np.ndarray[Any, np.dtype[Any]]


class CudaState(GraphState):
    """What the handles of a graph on a GPU share."""

    executable: CudaGraph
    # Where each output is read on the host, once there was a run that had to; and the twins.
    _pinned: list[Buffer] | None
    _outs: list[Buffer] | None
    # Arrays of other libraries that copies which are enqueued read.
    _held: list[Buffer]
    # Where kernels leave which node met bad data, and what messages call the nodes.
    _words: list[tuple[_Array, tuple[str, ...]]]
    # Memory was bound once: what comes then is a clone.
    bound = False
    twins: list[Buffer]

    @property
    def gpu(self) -> CudaBackend:
        """CudaBackend: the device."""
        found: Any = self.backend
        return found

    @property
    def running(self) -> bool:
        """bool: a replay is under way, or is not known to be done."""
        return self.executable.active or not self.executable.idle

    @property
    def rebuilds(self) -> int:
        """int: how often the driver refused an update, so that a new executable was made."""
        return self.executable.rebuilds

    def upload(self) -> None:
        """Bring the executable to the device and wait."""
        self.executable.upload(self.stream_of(None))

    def stream_of(self, stream: Any) -> Stream:
        """Return a stream, by default the one of the graph's context."""
        if stream is None:
            found: Stream = self.context.stream
            return found
        return self.gpu.as_stream(stream)

    def collect(self, out: Sequence[Any] | None, stream: Any) -> tuple[_Array, ...]:
        """Wait; return the outputs as arrays of the caller's own, or copied to `out`."""
        sources = self._output_buffers()
        there = [] if out is None else [isinstance(place, Buffer) for place in out]
        # What stays on the device takes no way round by the host.
        hosts = sources if there and all(there) else self._results()
        targets = [out[i] if out is not None and there[i] else host for i, host in enumerate(hosts)]
        pairs = [
            (target, source)
            for target, source in zip(targets, sources, strict=True)
            if target.ptr != source.ptr
        ]
        cuda_work.copy(stream, pairs)
        self.executable.wait(stream)
        self.raise_faults()
        if out is None:
            return tuple(np.array(np.asarray(host)) for host in hosts)
        for place, host in zip(out, hosts, strict=True):
            if not isinstance(place, Buffer):
                place[...] = np.asarray(host)
        return tuple(out)

    def _output_buffers(self) -> list[Buffer]:
        if self._outs is None:
            self._outs = [self._buffer(*place) for place in self.outputs]
        return self._outs

    def _results(self) -> list[Buffer]:
        """Where each output can be read on the host: pinned memory, kept for the next run."""
        if self._pinned is None:
            total, places = 0, []
            for found in self._output_buffers():
                places.append(total)
                total += 0 if found.host_visible else -(-found.nbytes // 64) * 64
            block = self.gpu.allocate_host(total)
            self._pinned = [
                found
                if found.host_visible
                else buffer.view(block, at, found.shape, found.dtype, found.device)
                for found, at in zip(self._output_buffers(), places, strict=True)
            ]
        return self._pinned

    def _program(self, record: Record) -> None:
        return None

    def _instantiate(
        self, program: None, record: Record, blocks: Sequence[Place], scalars: dict[Where, bytes]
    ) -> CudaGraph:
        return cuda_graph.instantiate(
            record,
            list(blocks),
            self.gpu.gpu,
            self.context.stream,
            self.gpu.helpers,
            lock=self.shared.lock,
            last_use=self.shared.last_use,
            scalars=scalars,
            cells=[
                where
                for held, where in self.names.values()
                if isinstance(held, Scalar) and held.where == "memory"
            ],
            again=self.bound,
        )

    def replace(self, record: Record, works: Sequence[Work], blocks: Sequence[Place]) -> None:
        """Take another record over the same private memory; the executable stays, if it can."""
        version = Version(record, None, tuple(works), tuple(blocks))
        changes = {"version": version, "updates": self.updates + 1, "_outs": None}
        self.executable.take(record, list(blocks), held=True, state=self, changes=changes)

    def _attached(self, version: Version) -> dict[str, Any]:
        twins = [self._buffer(*place) for place in self.twin_places]
        words = []
        for number, names in self.faults.items():
            block, offset = version.blocks[number]
            view = buffer.view(block, offset, (1,), np.dtype("u8"), self.context.device)
            words.append((np.asarray(view), names))
        if words:
            self.gpu.watch(self)
        return {
            "_pinned": None,
            "_outs": None,
            "_held": [],
            "_words": words,
            "bound": True,
            "twins": twins,
        }

    def _begin(self, stream: Any) -> None:
        self.executable.begin(stream)

    def _fill(self, arrays: list[Any], stream: Any) -> None:
        hosted: list[tuple[Buffer, _Array]] = []
        there: list[tuple[Buffer, Any]] = []
        producers: list[int] = []
        for twin, array in zip(self.twins, arrays, strict=True):
            if isinstance(array, Buffer):
                there.append((twin, array))
                if isinstance(array.block.memory, ForeignMemory):
                    self._held.append(array)
            elif isinstance(array, Live):
                there.append((twin, array.ptr))
                if array.stream not in producers:
                    producers.append(array.stream)
            else:
                hosted.append((twin, array))
        if hosted:
            cuda_work.upload(stream, self.gpu.staging, hosted)
        if there:
            cuda_work.copy(stream, there, tuple(producers))

    def _values_now(self) -> dict[Where, bytes]:
        return self.executable.scalar_values(now=True)

    def _execute(self, stream: Any) -> None:
        self.executable.launch_held(stream)
        if self._held:
            self.executable.keep(tuple(self._held))
            self._held.clear()

    def _finish(self, stream: Any) -> None:
        self.executable.launch_held(stream)
        self.executable.wait()
        self.raise_faults()

    def raise_faults(self) -> None:
        """Raise InputError where a node of a model met bad data in a run that is done, once."""
        for word, names in self._words:
            if number := int(word[0]):
                word[0] = 0
                raise InputError(
                    f"{names[number - 1]} met an index out of range in a run of a graph that holds "
                    "the model; what that run has left is not to be used"
                )

    def _run_node(self, executable: CudaGraph, node: int) -> None:
        executable.run_subset([node], held=True)

    def _buffer(
        self, memory: int, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> Buffer:
        place: tuple[Block, int] = self.version.blocks[memory]
        return buffer.view(place[0], place[1] + offset, shape, dtype, self.context.device)
