"""What caches hold: one build for a key, least recently used out first, shared scratch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from fastgraph._core.key import Key
from fastgraph._core.shelf import Shelf
from fastgraph.device.backend import Backend, SharedScratch
from fastgraph.device.context import DeviceContext
from fastgraph.device.inputs import compose_key
from fastgraph.errors import InputError

__all__ = ["CacheStats", "GraphStore", "ScratchPool", "Store", "check_settings", "key_of"]


class CacheStats(NamedTuple):
    """Counts of a cache since it was made; graphs and bytes that it holds now."""

    hits: int
    misses: int
    builds: int
    evictions: int
    live_graphs: int
    live_bytes: int


class ScratchPool:
    """Scratch that the graphs of one cache and device share; one of them runs at a time.

    Made by `DeviceGraphCache.get_or_create_pool`.

    Attributes
    ----------
    nbytes : int
        How much there is.
    """

    __slots__ = ("_backend", "_mutex", "_shared")

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._shared = backend.new_scratch()
        self._mutex = threading.Lock()

    @property
    def nbytes(self) -> int:
        """int: bytes of the block that the next graph takes."""
        return 0 if self._shared.block is None else self._shared.block.nbytes

    def take(self, nbytes: int | None) -> SharedScratch:
        """Return what a graph shares with the others, a block of at least `nbytes` among it.

        A larger one replaces the block for later graphs; those that have the old one keep it, so
        the pool at least doubles.
        """
        if nbytes is None:
            return self._shared._replace(block=None)
        with self._mutex:
            if self._shared.block is None or self.nbytes < nbytes:
                size = max(nbytes, 2 * self.nbytes)
                block = self._backend.allocate_for(size, "scratch shared by the graphs of a cache")
                self._shared = self._shared._replace(block=block)
            return self._shared


class Store(Shelf):
    """What a cache holds, by key: the least recently used goes first when a limit is passed.

    Its states have ``nbytes``, ``running`` and a ``cell``.
    """

    def __init__(self, max_graphs: int = 256, max_bytes: int | None = None) -> None:
        for name, limit in (("max_graphs", max_graphs), ("max_bytes", max_bytes)):
            good = isinstance(limit, int) and not isinstance(limit, bool) and limit > 0
            if not good and not (limit is None and name == "max_bytes"):
                raise InputError(f"{name} is {limit!r}; a positive integer is needed")
        self.max_graphs = max_graphs
        self.max_bytes = max_bytes
        self._mutex = threading.RLock()

    @property
    def stats(self) -> CacheStats:
        """CacheStats: hits, misses, builds, evictions, live graphs, live bytes."""
        with self._mutex:
            return CacheStats(
                self._hits,
                self._misses,
                self._builds,
                self._evictions,
                len(self._held),
                self._nbytes,
            )

    def clear(self) -> None:
        """Let every graph go but those whose replay is under way; not counted as evictions."""
        with self._mutex:
            # A hit elsewhere moves an entry at any time, so not while walking over them.
            for key, state in list(self._held.items()):
                if not state.running:
                    self._remove(key)

    def _insert(self, key: Key, state: Any) -> None:
        with self._mutex:
            if key in self._held:  # by `cache`, while this one was built
                self._remove(key)
            self._put(key, state, state.nbytes)
            self._shrink()

    def _shrink(self) -> None:
        """Let what was used least recently go until the limits are kept."""
        over = [*self._held]
        for oldest in over:
            if len(self._held) <= self.max_graphs and (
                self.max_bytes is None or self._nbytes <= self.max_bytes
            ):
                break
            if not self._held[oldest].running:
                self._remove(oldest, evicted=True)

    def _remove(self, key: Key, evicted: bool = False) -> None:
        self._drop(key, self._held[key].nbytes, evicted)


class GraphStore(Store):
    """What a `DeviceGraphCache` holds, by key; the states, not the handles."""

    def __init__(self, max_graphs: int = 256, max_bytes: int | None = None) -> None:
        super().__init__(max_graphs, max_bytes)
        self._pools: dict[DeviceContext, ScratchPool] = {}

    def get_or_create_pool(self, context: DeviceContext) -> ScratchPool:
        """Return the scratch that this cache's graphs on a device share."""
        if not isinstance(context, DeviceContext):
            raise InputError(f"a pool is of a DeviceContext, not {type(context).__name__}")
        with self._mutex:
            return self._pools.setdefault(context, ScratchPool(context._backend))


def check_settings(check: object, verify: object) -> None:
    """Raise InputError for values of ``check=`` and ``verify=`` that mean nothing."""
    if not isinstance(check, bool) and not (isinstance(check, str) and check == "known"):
        raise InputError(f"check is {check!r}; 'known', True and False are possible")
    if isinstance(verify, bool) or not isinstance(verify, int) or verify < 0:
        raise InputError(f"verify is {verify!r}; a number of replays is needed")


def key_of(
    build: Callable[..., object],
    inputs: tuple[Any, ...],
    context: DeviceContext,
    key: object,
    check: object,
    verify: object,
) -> Key:
    """Return the key of a graph; see `DeviceGraphCache.make_key`."""
    return compose_key(build, inputs, (context.device, key, check, verify))
