"""Device graphs on the cpu: inputs and scalars are stored where they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastgraph._core import buffer, host_graph, isa, pool
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

    @property
    def running(self) -> bool:
        """bool: a replay is under way."""
        return self.busy or self.executable.active

    def upload(self) -> None:
        """Nothing to bring anywhere."""

    def stream_of(self, stream: Any) -> None:
        """UnsupportedError unless None."""
        check_stream(stream)

    def collect(self, out: Sequence[_Array] | None, stream: Any) -> tuple[_Array, ...]:
        """Return the outputs as arrays of the caller's own, or copied to `out`."""
        arrays = []
        for i, place in enumerate(self.outputs):
            view = self._view(*place)
            if out is None:
                arrays.append(np.array(view))
            else:
                out[i][...] = view
                arrays.append(out[i])
        return tuple(arrays)

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
        self.twins = [self._view(*place) for place in self.twin_places]

    def _begin(self, stream: Any) -> None:
        """All is done when the call that gave it returns."""

    def _fill(self, arrays: Sequence[Buffer | _Array], stream: Any) -> None:
        for twin, array in zip(self.twins, arrays, strict=True):
            twin[...] = np.asarray(array)

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

    def _view(self, memory: int, offset: int, shape: tuple[int, ...], dtype: Any) -> _Array:
        block, start = self.version.blocks[memory]
        return np.asarray(buffer.view(block, start + offset, shape, dtype, "cpu"))
