"""Regions: nodes that run one after another and stand as one node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastgraph.device.pending import Node
from fastgraph.errors import GraphError

if TYPE_CHECKING:
    from fastgraph.device.builder import DeviceGraphBuilder

__all__ = ["Region"]


class Region:
    """Nodes one after another; made by `DeviceGraphBuilder.region` and entered by ``with``."""

    __slots__ = ("_builder", "_last", "_mark", "_node", "_outer", "_state")

    def __init__(self, builder: DeviceGraphBuilder, dependencies: tuple[int, ...]) -> None:
        self._builder = builder
        self._last = dependencies  # what the next node waits for
        self._outer: Region | None = None
        self._mark: tuple[int, tuple[int, ...]] = 0, ()
        self._node: Node | None = None
        self._state = "new"

    @property
    def node(self) -> Node:
        """Node: what stands for the whole region: its last node."""
        if self._node is None:
            raise GraphError("a region has its node once it is over without an error")
        return self._node

    def __enter__(self) -> Region:
        builder = self._builder
        builder._check_open()
        if self._state != "new":
            raise GraphError("a region is entered once")
        self._state = "entered"
        self._outer = builder._region
        if self._outer is not None:
            self._last = tuple(dict.fromkeys((*self._last, *self._outer._last)))
        self._mark = builder._mark()
        builder._region = self
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        builder = self._builder
        if self._state != "entered":
            raise GraphError("this region was not entered, or is over")
        if not builder._open:
            self._state = "over"
            return
        if kind is None and builder._region is not self:
            raise GraphError("regions end in the opposite order of their beginning")
        if kind is None and builder.num_nodes == self._mark[0]:
            builder.add_empty(name="region")
        self._state = "over"
        builder._region = self._outer
        if kind is not None:
            builder._roll_back(self._mark)
            return
        self._node = builder._nodes[self._last[0]]
        if self._outer is not None:
            self._outer._last = self._last
