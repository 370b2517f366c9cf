"""Device graphs on the cpu: inputs and scalars are stored where they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastgraph._core import buffer, calls, host_graph, isa, pool
from fastgraph._core.buffer import Buffer
from fastgraph._core.checks import check_stream
from fastgraph._core.host_graph import HostGraph
from fastgraph._core.host_program import HostProgram
from fastgraph._core.record import Record
from fastgraph.device.pending import Where, Work
from fastgraph.device.state import GraphState, Place

__all__ = ["HostState"]

_Array = np.ndarray[Any, np.dtype[Any]]
FOREIGN_KINDS = frozenset(("function", "host", "child", "if", "while", "switch"))


class HostState(GraphState):
    """What the handles of a graph on the cpu share."""

    executable: HostGraph
    twins: list[Buffer]
    views: list[_Array]  # of the outputs

    @property
    def running(self) -> bool:
        """bool: a replay is under way."""
        return self.busy or self.executable.active

    def upload(self) -> None:
        """Nothing to bring anywhere."""

    def stream_of(self, stream: Any) -> None:
        """UnsupportedError unless None."""
        check_stream(stream)

    def collect(self, out: Sequence[Any] | None, stream: Any) -> tuple[_Array, ...]:
        """Return the outputs as arrays of the caller's own, or copied to `out`."""
        if out is None:
            return tuple([view.copy() for view in self.views])
        for place, view in zip(out, self.views, strict=True):
            place[...] = view
        return tuple(out)

    def _program(self, record: Record) -> HostProgram:
        return HostProgram(record, self.isa or isa.chosen())

    def _instantiate(
        self,
        program: HostProgram,
        record: Record,
        blocks: Sequence[Place],
        scalars: dict[Where, bytes],
    ) -> HostGraph:
        # Foreign code may take long, or wait for another Python thread.
        foreign = any(node.kind in FOREIGN_KINDS for node in record.nodes)
        return host_graph.instantiate(
            program,
            dict(enumerate(blocks)),
            threads=pool.available_cores(),
            release_gil=True if foreign else "auto",
            lock=self.shared.lock,
            scalars=scalars,
        )

    def _take(self, record: Record, works: Sequence[Work], blocks: Sequence[Place]) -> None:
        # Not a copy: who sets a scalar meanwhile may still do so through the old executable.
        scalars = self.executable.scalars
        self._bind(record, self._program(record), works, blocks, scalars)

    def _attach(self) -> None:
        self.twins = [self._buffer(*place) for place in self.twin_places]
        self.views = [np.asarray(self._buffer(*place)) for place in self.outputs]

    def _begin(self, stream: Any) -> None:
        """All is done when the call that gave it returns."""

    def _fill(self, arrays: list[Any], stream: Any) -> None:
        calls.fill(self.twins, arrays)

    def _point(self, targets: Mapping[str, Buffer]) -> None:
        for name, target in targets.items():
            self.executable.bind(self.names[name][1][0], target.block, target.offset, held=True)

    def _values_now(self) -> dict[Where, bytes]:
        return {}  # all lie in memory

    def _execute(self, stream: Any) -> None:
        self.executable.run(held=True)

    _finish = _execute

    def _run_node(self, executable: HostGraph, node: int) -> None:
        executable.run_subset([node], held=True)

    def _buffer(self, memory: int, offset: int, shape: tuple[int, ...], dtype: Any) -> Buffer:
        block, start = self.version.blocks[memory]
        return buffer.view(block, start + offset, shape, dtype, "cpu")
