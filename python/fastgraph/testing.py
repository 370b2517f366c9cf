"""Tools for tests of code that uses this package."""

from __future__ import annotations

from typing import Any

from fastgraph.device.graph import DeviceGraph
from fastgraph.device.orders import random_order
from fastgraph.errors import InputError

__all__ = ["replay_in_random_order"]


def replay_in_random_order(graph: DeviceGraph, seed: int, *live: Any, **scalars: Any) -> list[int]:
    """Replay a graph one node after another in an order that its edges allow.

    A graph whose results differ between orders lacks an edge. Bodies of conditionals and child
    graphs run whole, at their node.

    Parameters
    ----------
    graph : DeviceGraph
    seed : int
        Draws the order; the same seed gives the same one.
    *live, **scalars
        As `DeviceGraph.replay` has them.

    Returns
    -------
    list of int
        The order.

    Raises
    ------
    InputError, GraphError
        As `DeviceGraph.replay`.

    Examples
    --------
    >>> import fastgraph as fg
    >>> from fastgraph.testing import replay_in_random_order
    >>> ctx = fg.DeviceContext("cpu")
    >>> x = ctx.create_buffer(2)
    >>> def build(b):
    ...     first = b.add_memset(x, 1.0)
    ...     b.add_memset(x, 2.0, dependencies=[first])
    >>> graph = fg.DeviceGraph.create(ctx, build)
    >>> replay_in_random_order(graph, seed=7)
    [0, 1]
    """
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise InputError(f"seed is an integer, not {seed!r}")
    state = graph._live()
    order = random_order(state.record.dependencies(), seed)
    state.run(graph._token, live, scalars, order=order)
    return order
