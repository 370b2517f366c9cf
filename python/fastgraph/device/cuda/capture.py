"""Work of other libraries as a node of a graph."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from fastgraph._core import cuda_capture
from fastgraph._core.stream import CudaDevice, Stream
from fastgraph.device.pending import Node, Work
from fastgraph.errors import GraphError

if TYPE_CHECKING:
    from fastgraph.device.builder import DeviceGraphBuilder

__all__ = ["BuilderCapture"]


class BuilderCapture:
    """What is enqueued on ``stream`` inside ``with`` becomes a node; made by `capture`."""

    __slots__ = ("_builder", "_capture", "_dependencies", "_keep", "_node")

    def __init__(
        self,
        builder: DeviceGraphBuilder,
        gpu: CudaDevice,
        dependencies: tuple[Node, ...],
        keep: tuple[object, ...],
    ) -> None:
        self._builder = builder
        self._dependencies = dependencies
        self._keep = keep
        self._capture = cuda_capture.Capture(gpu, keep)
        self._node: Node | None = None

    @property
    def stream(self) -> Stream:
        """Stream: where the work goes; inside ``with`` alone."""
        if self._capture.stream is None:
            raise GraphError("the stream of a capture is there inside its `with`")
        return self._capture.stream

    @property
    def node(self) -> Node:
        """Node: all of the captured work."""
        if self._node is None:
            raise GraphError("a capture has its node once it is over without an error")
        return self._node

    def __enter__(self) -> BuilderCapture:
        self._builder._check_open()
        self._capture.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._capture.__exit__(kind, error, trace)
        if kind is None:
            foreign = self._capture.foreign
            work = Work("capture", "child", None, (), keep=self._keep, call=foreign)
            self._node = self._builder._add(None, work, self._dependencies)
