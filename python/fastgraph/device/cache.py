"""Caches of device graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastgraph._core.key import Key
from fastgraph.device.context import DeviceContext
from fastgraph.device.graph import DeviceGraph
from fastgraph.device.store import GraphStore, check_settings, key_of
from fastgraph.errors import InputError

__all__ = ["DeviceGraphCache"]


class DeviceGraphCache(GraphStore):
    """Graphs by key, for `DeviceGraph.create`.

    Parameters
    ----------
    max_graphs : int, default 256
    max_bytes : int, optional
        Of memory of the graphs' own, `DeviceGraph.nbytes`.

    Raises
    ------
    InputError
        A limit is no positive integer.

    Notes
    -----
    Beyond a limit the least recently used graphs go, but none whose replay is under way. A graph
    that went stays good for the handles that have it. Any thread may use a cache at any time; a
    key that several miss at once is built by one of them.

    Examples
    --------
    >>> import fastgraph as fg, numpy as np
    >>> ctx, cache = fg.DeviceContext("cpu"), fg.DeviceGraphCache()
    >>> def build(b, x):
    ...     y = b.create_buffer(x.shape)
    ...     b.add_copy(y, x)
    ...     b.add_output(y)
    >>> for value in (1, 2):
    ...     x = np.full(2, value, "f4")
    ...     print(fg.DeviceGraph.create(ctx, build, x, cache=cache).run(x)[0])
    [1. 1.]
    [2. 2.]
    >>> cache.stats.builds
    1
    """

    @staticmethod
    def make_key(
        build: Callable[..., object],
        *inputs: Any,
        context: DeviceContext | None = None,
        key: object = None,
        check: str | bool = "known",
        verify: int = 0,
    ) -> Key:
        """Return what `DeviceGraph.create` looks up for the same arguments.

        Raises
        ------
        InputError
            As `DeviceGraph.create`.
        """
        check_settings(check, verify)
        if context is None:
            context = DeviceContext()
        if not isinstance(context, DeviceContext):
            raise InputError(f"context is a DeviceContext, not {type(context).__name__}")
        return key_of(build, inputs, context, key, check, verify)

    def lookup(self, key: Key) -> DeviceGraph | None:
        """Return a handle of the graph of `key`, or None."""
        with self._mutex:
            state = self._find(key)
            return None if state is None else DeviceGraph._handle(state.context, state)

    def cache(self, key: Key, graph: DeviceGraph) -> DeviceGraph:
        """Keep `graph` under `key`; return it, or a handle of the one that is there already.

        Raises
        ------
        InputError
            `key` is no key.
        GraphError
            The handle is closed, or of a compiled model.
        """
        if not isinstance(key, Key):
            raise InputError(f"a key is made by make_key, not a {type(key).__name__}")
        if not isinstance(graph, DeviceGraph):
            raise InputError(f"a cache keeps DeviceGraphs, not a {type(graph).__name__}")
        state = graph._live()
        with self._mutex:
            present = self._held.get(key)
            if present is None:
                self._insert(key, state)
                return graph
            self._touch(key)
            return DeviceGraph._handle(present.context, present)
