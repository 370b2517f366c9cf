"""Device graphs on the cpu: inputs and scalars are stored where they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastgraph._core import buffer, calls, host_graph, isa, pool
from fastgraph._core.buffer import Buffer
from fastgraph._core.checks import check_stream
from fastgraph._core.host_graph import HostGraph
from fastgraph._core.host_program import HostProgram
from fastgraph._core.record import Record
from fastgraph.device.pending import Where, Work
from fastgraph.device.state import GraphState, Place, Version

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
        return self.executable.active

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

    def replace(self, record: Record, works: Sequence[Work], blocks: Sequence[Place]) -> None:
        """Take another record over the same private memory: with another executable."""
        program = self._program(record)
        placed = self.placed(blocks)
        # Not a copy: who sets a scalar meanwhile may still do so through the old executable.
        executable = self._instantiate(program, record, placed, self.executable.scalars)
        version = Version(record, program, tuple(works), tuple(placed))
        changes = {
            "executable": executable,
            "version": version,
            "updates": self.updates + 1,
            **self._attached(version),
        }
        self.cell.adopt(self, changes, self._plain(executable))

    def _attached(self, version: Version) -> dict[str, Any]:
        return {
            "twins": [_buffer(version, *place) for place in self.twin_places],
            "views": [np.asarray(_buffer(version, *place)) for place in self.outputs],
        }

    def _begin(self, stream: Any) -> None:
        """All is done when the call that gave it returns."""

    def _fill(self, arrays: list[Any], stream: Any) -> None:
        calls.fill(self.twins, arrays)

    def _values_now(self) -> dict[Where, bytes]:
        return {}  # all lie in memory

    def _execute(self, stream: Any) -> None:
        self.executable.run(held=True)

    _finish = _execute

    def _run_node(self, executable: HostGraph, node: int) -> None:
        executable.run_subset([node], held=True)


def _buffer(
    version: Version, memory: int, offset: int, shape: tuple[int, ...], dtype: Any
) -> Buffer:
    block, start = version.blocks[memory]
    return buffer.view(block, start + offset, shape, dtype, "cpu")
