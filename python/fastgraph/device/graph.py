"""Device graphs: recorded once, replayed with one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fastgraph._core import buffer, host_graph, isa
from fastgraph._core.buffer import Block
from fastgraph._core.host_graph import HostGraph, HostProgram
from fastgraph._core.record import Record
from fastgraph.device.builder import DeviceGraphBuilder
from fastgraph.device.context import DeviceContext
from fastgraph.errors import GraphError, InputError, UnsupportedError

__all__ = ["DeviceGraph", "NodeInfo"]


class NodeInfo(NamedTuple):
    """One node of a finished graph: id, name, kind and the ids that it waits for."""

    id: int
    name: str
    kind: str
    dependencies: tuple[int, ...]


class DeviceGraph:
    """A recorded graph of work. Made by `create`.

    Notes
    -----
    ``copy.copy`` gives a second handle to the same executable, `clone` and ``copy.deepcopy`` an
    executable of its own. The graph keeps alive every buffer, array and kernel that it names.
    Replays of one executable are serialised.

    Examples
    --------
    >>> import fastgraph as fg
    >>> ctx = fg.DeviceContext("cpu")
    >>> x, y = ctx.create_buffer(4), ctx.create_buffer(4)
    >>> def build(b):
    ...     n = b.add_memset(x, 5.0)
    ...     b.add_copy(y, x, dependencies=[n])
    >>> graph = fg.DeviceGraph.create(ctx, build)
    >>> y.numpy()
    array([0., 0., 0., 0.], dtype=float32)
    >>> graph.replay()
    >>> y.numpy()
    array([5., 5., 5., 5.], dtype=float32)
    """

    def __init__(self) -> None:
        raise TypeError("graphs are made by DeviceGraph.create")

    _context: DeviceContext
    _record: Record
    _executable: HostGraph | None
    _bindings: dict[int, Block | None]
    _outputs: list[tuple[int, int, tuple[int, ...], np.dtype[Any]]]
    _owner: str | None

    @classmethod
    def _of(
        cls,
        context: DeviceContext,
        executable: HostGraph,
        bindings: dict[int, Block | None],
        outputs: list[tuple[int, int, tuple[int, ...], np.dtype[Any]]],
        owner: str | None = None,
    ) -> DeviceGraph:
        self = cls.__new__(cls)
        self._context = context
        self._record = executable.program.record
        self._executable = executable
        self._bindings = bindings
        self._outputs = outputs
        self._owner = owner
        return self

    @classmethod
    def create(
        cls,
        ctx: DeviceContext,
        build: Callable[[DeviceGraphBuilder], object],
        *inputs: object,
        cache: object = None,
        key: object = None,
        check: str | bool = "known",
        verify: int = 0,
    ) -> DeviceGraph:
        """Record a graph; nothing is executed.

        Parameters
        ----------
        ctx : DeviceContext
        build : callable
            Called once with a `DeviceGraphBuilder`.
        check : "known" or False
            "known" refuses unordered nodes that touch the same bytes, one of them writing.

        Returns
        -------
        DeviceGraph

        Raises
        ------
        HazardError
            See `check`.
        UnsupportedError
            `inputs`, `cache`, `key`, `verify` and ``check=True`` are not there yet.
        Exception
            What `build` raises comes through as it is. Nothing is left of the graph.
        """
        if inputs or cache is not None or key is not None or verify or check is True:
            raise UnsupportedError("graph inputs, caches, verify and check=True are not there yet")
        if check not in ("known", False):
            raise InputError(f"check is {check!r}; 'known' and False are possible")
        if not isinstance(ctx, DeviceContext):
            raise InputError(f"create takes a DeviceContext first, not {type(ctx).__name__}")
        if not callable(build):
            raise InputError(f"create takes a build callback, not {type(build).__name__}")
        builder = DeviceGraphBuilder(ctx)
        try:
            build(builder)
            recorded = builder._finish()
        finally:
            builder._close()
        if check:
            recorded.record.check_hazards()
        bindings = dict(enumerate(recorded.blocks))
        program = HostProgram(recorded.record, isa.chosen())
        return cls._of(ctx, _bind(program, bindings), bindings, recorded.outputs)

    @property
    def context(self) -> DeviceContext:
        """DeviceContext: the device that the graph was recorded for."""
        return self._context

    @property
    def nodes(self) -> list[NodeInfo]:
        """list of NodeInfo: every node in order of its id."""
        return [
            NodeInfo(i, node.name, node.kind, node.dependencies)
            for i, node in enumerate(self._record.nodes)
        ]

    @property
    def edges(self) -> list[tuple[int, int]]:
        """list of (int, int): every edge as (earlier, later) ids; none twice."""
        return self._record.edges()

    @property
    def nbytes(self) -> int:
        """int: bytes of memory of the graph's own (its scratch)."""
        return sum(m.nbytes for m in self._record.memories if m.kind == "arena")

    def replay(self) -> None:
        """Run every node once.

        Raises
        ------
        GraphError
            The handle is closed, or the graph is a compiled model's and runs through it.
        """
        self._live().run()

    def run(self) -> tuple[np.ndarray[Any, np.dtype[Any]], ...]:
        """Replay, wait, and return a copy of every output in the order of `add_output`.

        Raises
        ------
        GraphError
            As `replay`.
        """
        executable, device = self._live(), self._context.device

        def collect() -> tuple[np.ndarray[Any, np.dtype[Any]], ...]:
            arrays = []
            for memory, offset, shape, dtype in self._outputs:
                block = executable.bound(memory)
                assert block is not None
                arrays.append(buffer.view(block, offset, shape, dtype, device).numpy())
            return tuple(arrays)

        return executable.run(collect)

    def clone(self) -> DeviceGraph:
        """Return the same graph with an executable and scratch of its own.

        Raises
        ------
        GraphError
            The handle is closed.
        """
        program = self._live().program
        return self._of(
            self._context, _bind(program, self._bindings), self._bindings, self._outputs
        )

    def close(self) -> None:
        """Give the handle up; the last handle of an executable frees it. May be called again."""
        self._executable = None
        self._bindings = {}

    def __copy__(self) -> DeviceGraph:
        return self._of(self._context, self._live(), self._bindings, self._outputs, self._owner)

    def __deepcopy__(self, memo: object) -> DeviceGraph:
        return self.clone()

    def _live(self) -> HostGraph:
        if self._executable is None:
            raise GraphError("this graph handle is closed")
        if self._owner is not None:
            raise GraphError(f"this is the graph of {self._owner}; run it through its run methods")
        return self._executable

    def __repr__(self) -> str:
        state = "closed" if self._executable is None else self._context.device
        return f"<DeviceGraph {len(self._record.nodes)} nodes, {state}>"


def _bind(program: HostProgram, bindings: dict[int, Block | None]) -> HostGraph:
    """One executable; a memory without a block is the graph's own and made here."""
    blocks = {
        number: buffer.allocate(program.record.memories[number].nbytes) if block is None else block
        for number, block in bindings.items()
    }
    # Foreign code may take long, or wait for another Python thread.
    foreign = any(node.kind == "function" for node in program.record.nodes)
    return host_graph.instantiate(program, blocks, release_gil=True if foreign else "auto")
