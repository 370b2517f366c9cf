"""Driver graphs that other libraries made, as nodes."""

from __future__ import annotations

import operator
from typing import Any

from fastgraph._core import cuda_capture
from fastgraph._core.record import Foreign
from fastgraph.errors import GraphError, UnsupportedError

__all__ = ["as_foreign"]


def as_foreign(graph: Any, owner: object, in_body: bool) -> Foreign:
    """Return what ``add_child_graph`` takes beside device graphs as something to put in a node.

    Parameters
    ----------
    graph : int or object
        A CUgraph as a number or as an object of cuda.bindings; an object with ``raw_cuda_graph()``,
        as a ``torch.cuda.CUDAGraph(keep_graph=True)``; a ``GraphDefinition`` of cuda.core.
    owner : object
        What keeps the handle good; needed for a bare handle.
    in_body : bool
        It goes into the body of a conditional.

    Raises
    ------
    GraphError
        There is no owner; the library does not give its graph; it holds what CUDA forbids in a
        body.
    UnsupportedError
        `graph` is nothing of the kind, or holds a conditional node.
    """
    handle = _handle(graph, owner)
    forbidden, conditional = cuda_capture.contents(handle)
    if conditional:
        raise UnsupportedError(
            "add_child_graph: the foreign graph holds a conditional node, and CUDA takes no such "
            "graph as a child; record what it does as nodes of this graph"
        )
    if in_body and forbidden:
        raise GraphError(
            "add_child_graph: the foreign graph holds a node that CUDA forbids in a body: a host "
            "function, an event, an allocation, or a copy of pageable memory"
        )
    return Foreign(handle, (graph, owner))


def _handle(graph: Any, owner: object) -> int:
    raw = getattr(graph, "raw_cuda_graph", None)
    if callable(raw):
        try:
            return _checked(raw())
        except RuntimeError as error:
            raise GraphError(
                f"add_child_graph: this {type(graph).__name__} does not give its graph: {error}; "
                "make it with CUDAGraph(keep_graph=True) and capture first"
            ) from error
    kind = type(graph)
    # Executables of cuda.core have a handle too, but not one of a graph.
    if kind.__module__.split(".")[:2] == ["cuda", "core"]:
        if kind.__name__ == "GraphDefinition":
            return _checked(int(graph.handle))
        definition = getattr(graph, "graph_definition", None)
        if definition is not None:
            return _checked(int(definition.handle))
    elif kind.__name__ == "CUgraph" or (isinstance(graph, int) and not isinstance(graph, bool)):
        if owner is None:
            raise GraphError(
                "add_child_graph: a bare handle does not keep its graph alive: give owner=, the "
                "object that does"
            )
        return _checked(int(graph))
    raise UnsupportedError(
        "add_child_graph takes a DeviceGraph, a CUgraph (with owner=), a torch.cuda.CUDAGraph "
        f"(keep_graph=True) or a GraphDefinition of cuda.core, not {kind.__name__}"
    )


def _checked(handle: Any) -> int:
    number = operator.index(handle)
    if number <= 0:
        raise GraphError(f"add_child_graph: {number} is no handle of a graph")
    return number
