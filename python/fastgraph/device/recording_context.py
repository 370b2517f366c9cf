"""A stand-in for a `DeviceContext` that records what is given to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy.typing as npt

from fastgraph.device.pending import Node, Scratch
from fastgraph.device.values import check_dtype, check_shape
from fastgraph.errors import GraphError

if TYPE_CHECKING:
    from fastgraph.device.builder import DeviceGraphBuilder

__all__ = ["RecordingContext"]


class RecordingContext:
    """Takes what a `DeviceContext` takes and adds nodes, one after another as on a stream.

    Made by `DeviceGraphBuilder.recording_context`. What waits, times or reads on the host raises
    GraphError: there is no work yet to wait for.
    """

    __slots__ = ("_builder", "_dependencies", "_recorded")

    def __init__(self, builder: DeviceGraphBuilder, dependencies: tuple[Node, ...]) -> None:
        self._builder = builder
        self._dependencies = dependencies
        self._recorded: list[Node] = []

    @property
    def device(self) -> str:
        """str: the device of the graph."""
        return self._builder.context.device

    @property
    def node(self) -> Node | None:
        """Node or None: the last node recorded here, for the dependencies of others."""
        # A region that raised took its nodes along.
        while self._recorded and not self._builder._has(self._recorded[-1]):
            self._recorded.pop()
        return self._recorded[-1] if self._recorded else None

    def create_buffer(
        self, shape: int | Sequence[int], dtype: npt.DTypeLike = "float32"
    ) -> Scratch:
        """Return a buffer of the graph's own, zero before the first replay, shared with nothing."""
        self._builder._check_open()
        kind = check_dtype(dtype)
        return self._builder._own(
            Scratch(check_shape(shape, kind.itemsize), kind, self.device, True)
        )

    create_host_buffer = create_buffer

    def copy(self, dst: Any, src: Any) -> None:
        """Record a copy, as `DeviceGraphBuilder.add_copy` does."""
        self._recorded.append(self._builder.add_copy(dst, src, dependencies=self._before()))

    def memset(self, dst: Any, value: Any) -> None:
        """Record a memset, as `DeviceGraphBuilder.add_memset` does."""
        self._recorded.append(self._builder.add_memset(dst, value, dependencies=self._before()))

    def launch(
        self,
        f: Any,
        *args: Any,
        grid_dim: int | Sequence[int] = 1,
        block_dim: int | Sequence[int] = 1,
        **options: Any,
    ) -> None:
        """Record the call of a function, as `DeviceGraphBuilder.add_function` does."""
        node = self._builder.add_function(
            f,
            *args,
            grid_dim=grid_dim,
            block_dim=block_dim,
            dependencies=self._before(),
            **options,
        )
        self._recorded.append(node)

    def _before(self) -> tuple[Node, ...]:
        last = self.node
        return self._dependencies if last is None else (last,)

    def _refuse(self, *args: object, **options: object) -> NoReturn:
        raise GraphError(
            "while a graph is recorded nothing waits, times or is read on the host; "
            "do it after a replay"
        )

    synchronize = create_event = create_stream = wait_for = execution_time = to_device = _refuse

    @property
    def stream(self) -> NoReturn:
        """Not while recording: GraphError."""
        self._refuse()

    def __enter__(self) -> NoReturn:
        self._refuse()

    def __exit__(self, *exc: object) -> None:
        pass

    def __repr__(self) -> str:
        return f"<RecordingContext {self.device}, {len(self._recorded)} nodes>"
