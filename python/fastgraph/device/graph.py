"""Device graphs: recorded once, replayed with one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Concatenate, NamedTuple, TypeVar, overload

import numpy as np

from fastgraph._core.executable import Cell, Handle
from fastgraph._core.key import Key
from fastgraph._core.record import Foreign, Record, RecordNode
from fastgraph._core.shelf import hit
from fastgraph.device.builder import DeviceGraphBuilder
from fastgraph.device.child import Part
from fastgraph.device.context import DeviceContext
from fastgraph.device.hazards import check_hazards
from fastgraph.device.inputs import ARRAYS, CopiedInput, as_input, record_input
from fastgraph.device.outputs import check_outputs
from fastgraph.device.part import part_of
from fastgraph.device.pending import Family, Node
from fastgraph.device.recording import record
from fastgraph.device.same import check_same
from fastgraph.device.state import GraphState, Settings
from fastgraph.device.store import GraphStore, ScratchPool, check_settings, key_of
from fastgraph.device.update import update
from fastgraph.errors import GraphError, InputError, UnsupportedError

__all__ = ["DeviceGraph", "GraphStats", "NodeInfo"]

_Array = np.ndarray[Any, np.dtype[Any]]
_Out = TypeVar("_Out")


class NodeInfo(NamedTuple):
    """One node of a finished graph: id, name, kind and the ids that it waits for.

    ``bodies`` has the nodes inside a conditional or a child graph (one body), numbered from 0 in
    each; `DeviceGraph.update` finds node ``n`` of body ``b`` of node ``i`` as ``(i, b, n)``.
    """

    id: int
    name: str
    kind: str
    dependencies: tuple[int, ...]
    bodies: tuple[tuple[NodeInfo, ...], ...] = ()


class GraphStats(NamedTuple):
    """Counts of a graph: nodes (those in bodies too), edges, updates, bytes of its own memory.

    ``rebuilds`` are updates that the driver refused, so that a new executable was made.
    """

    nodes: int
    edges: int
    updates: int
    nbytes: int
    rebuilds: int = 0


class _Model(NamedTuple):
    """What the graph of a compiled model knows: how it is called, and what a parent makes of it."""

    record: Record
    owner: str
    part: Callable[[], Part]


class DeviceGraph(Handle):
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

    __slots__ = ()

    _context: DeviceContext
    _state: GraphState | None
    _model: _Model | None  # of a compiled model's graph

    def __init__(self) -> None:
        raise TypeError("graphs are made by DeviceGraph.create")

    @classmethod
    def _of(
        cls, context: DeviceContext, record: Record, owner: str, part: Callable[[], Part]
    ) -> DeviceGraph:
        """Return the graph of a compiled model, which runs through the model or as a child."""
        self = cls._handle(context, None)
        self._model = _Model(record, owner, part)
        return self

    @classmethod
    def _handle(cls, context: DeviceContext, state: GraphState | None) -> DeviceGraph:
        self = cls.__new__(cls)
        self._context = context
        self._state = state
        self._share(Cell() if state is None else state.cell)
        return self

    @classmethod
    def create(
        cls,
        ctx: DeviceContext,
        build: Callable[Concatenate[DeviceGraphBuilder, ...], object],
        *inputs: Any,
        cache: GraphStore | None = None,
        key: object = None,
        check: str | bool = "known",
        verify: int = 0,
    ) -> DeviceGraph:
        """Record a graph; nothing is executed.

        Parameters
        ----------
        ctx : DeviceContext
        build : callable
            Called once with a `DeviceGraphBuilder` and what stands for each input in the graph.
        *inputs
            Buffers and arrays, those of other libraries too, which each replay copies in,
            `InPlace`, `HostValue`, or objects with a rule of their own (`DeviceGraphInput`). Only
            their shapes matter here.
        cache : DeviceGraphCache, optional
            Where a graph of the same key is taken from, and this one is kept.
        key : object, optional
            Whatever else tells this graph from others of the cache.
        check : "known", True or False
            "known" refuses unordered nodes that touch the same bytes, one of them writing. True
            takes arguments of unknown use as read and written, names the node of an error, and
            on a hit records again and compares: what the key does not see has not changed.
        verify : int
            So many replays are run again on copies of all memory, node by node in another legal
            order, and the results compared.

        Returns
        -------
        DeviceGraph

        Raises
        ------
        HazardError
            See `check`.
        InputError
            A bad option, or an object that is no input.
        GraphError
            ``check=True``, and `build` records something else than the cached graph.
        Exception
            What `build` raises comes through as it is. Nothing is left of the graph.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> ctx = fg.DeviceContext("cpu")
        >>> def build(b, x):
        ...     y = b.create_buffer(x.shape)
        ...     b.add_copy(y, x)
        ...     b.add_output(y)
        >>> graph = fg.DeviceGraph.create(ctx, build, np.zeros(3, "f4"))
        >>> graph.run(np.arange(3, dtype="f4"))
        (array([0., 1., 2.], dtype=float32),)
        """
        # No more in this frame than a hit needs.
        found = None
        if cache is not None and check is not True and type(ctx) is DeviceContext:
            on = ctx._backend.device
            found = hit(cls, cache, ctx, on, build, inputs, key, check, verify, ARRAYS, as_input)
            if isinstance(found, DeviceGraph):
                return found
        known = found if isinstance(found, Key) else None
        return cls._create(ctx, build, inputs, cache, key, check, verify, known)

    @classmethod
    def _create(
        cls,
        ctx: DeviceContext,
        build: Callable[Concatenate[DeviceGraphBuilder, ...], object],
        inputs: tuple[Any, ...],
        cache: GraphStore | None,
        key: object,
        check: str | bool,
        verify: int,
        found: Key | None,
    ) -> DeviceGraph:
        """`create` where no graph is held; `found` is the key, if that is known."""
        check_settings(check, verify)
        if not isinstance(ctx, DeviceContext):
            raise InputError(f"create takes a DeviceContext first, not {type(ctx).__name__}")
        if not callable(build):
            raise InputError(f"create takes a build callback, not {type(build).__name__}")
        if cache is None:
            if key is not None:
                raise InputError("key= tells graphs of a cache apart; give cache= too")
            return cls._handle(ctx, _build(ctx, build, inputs, check, verify, None))
        if not isinstance(cache, GraphStore):
            raise InputError(f"cache is a DeviceGraphCache, not {type(cache).__name__}")
        if not isinstance(found, Key):
            found = key_of(build, inputs, ctx, key, check, verify)
        pool = cache.get_or_create_pool(ctx)
        built: list[GraphState] = []

        def make() -> GraphState:
            built.append(_build(ctx, build, inputs, check, verify, pool))
            return built[0]

        state = cache._get_or_build(found, make)
        if check is True and not built:
            # The same graph, so that nodes of these recordings are nodes of it.
            family = state.settings.family
            again = [_build(ctx, build, inputs, check, verify, None, family) for _ in range(2)]
            check_same(state, *again)
        return cls._handle(ctx, state)

    @property
    def context(self) -> DeviceContext:
        """DeviceContext: the device that the graph was recorded for."""
        return self._context

    @property
    def inputs(self) -> list[str]:
        """list of str: what each input was recorded as."""
        return [recorded.text for recorded in self._live().settings.inputs]

    @property
    def outputs(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """list of (shape, dtype): what `run` returns."""
        return [(shape, dtype) for _, _, shape, dtype in self._live().outputs]

    @property
    def nodes(self) -> list[NodeInfo]:
        """list of NodeInfo: every node in order of its id."""
        return list(_infos(self._recorded().nodes))

    @property
    def edges(self) -> list[tuple[int, int]]:
        """list of (int, int): every edge as (earlier, later) ids; none twice."""
        return self._recorded().edges()

    @property
    def nbytes(self) -> int:
        """int: bytes of memory of the graph's own: scratch, scalars and copied inputs."""
        if self._model is not None:
            return sum(m.nbytes for m in self._model.record.memories if m.kind == "arena")
        return self._live().nbytes

    @property
    def stats(self) -> GraphStats:
        """GraphStats: nodes, edges, updates so far, bytes."""
        recorded, state = self._recorded(), self._state
        updates, rebuilds = (0, 0) if state is None else (state.updates, state.rebuilds)
        nodes = _count(recorded.nodes)
        return GraphStats(nodes, len(recorded.edges()), updates, self.nbytes, rebuilds)

    def _replay(self, live: tuple[Any, ...], stream: Any, scalars: dict[str, Any]) -> None:
        """`replay` where it is more than one run of the executable."""
        self._live().run(self._token, live, scalars, stream)

    @overload
    def run(
        self, *live: Any, out: None = None, stream: Any = None, **scalars: Any
    ) -> tuple[_Array, ...]: ...
    @overload
    def run(
        self, *live: Any, out: Iterable[_Out], stream: Any = None, **scalars: Any
    ) -> tuple[_Out, ...]: ...
    def run(
        self,
        *live: Any,
        out: Iterable[Any] | None = None,
        stream: Any = None,
        **scalars: Any,
    ) -> tuple[Any, ...]:
        """Replay, wait, and return a copy of every output in the order of `add_output`.

        No other run comes between the copy of the inputs and that of the outputs.

        Parameters
        ----------
        *live, stream, **scalars
            As `replay` has them.
        out : iterable, optional
            Where the outputs go; returned. An ndarray, a Buffer of the device, or an array of
            another library, dense where it is on a GPU, for each.

        Raises
        ------
        InputError, GraphError
            As `replay`; `out` does not fit.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> ctx = fg.DeviceContext("cpu")
        >>> graph = fg.DeviceGraph.create(ctx, lambda b, x: b.add_output(x), np.zeros(2, "f4"))
        >>> mine = np.empty(2, "f4")
        >>> graph.run(np.ones(2, "f4"), out=[mine])[0] is mine
        True
        >>> mine
        array([1., 1.], dtype=float32)
        """
        state = self._live()
        where = state.stream_of(stream)
        given = places = None
        if out is not None:
            specs = [(str(i), shape, dtype) for i, (_, _, shape, dtype) in enumerate(state.outputs)]
            given = tuple(out) if isinstance(out, Iterable) and not isinstance(out, dict) else out
            places = check_outputs(specs, given, self._context.device, where)
        arrays = state.run(self._token, live, scalars, where, True, places)
        return arrays if given is None else tuple(given)

    def _set(self, scalars: dict[str, Any]) -> None:
        """`set` where it is more than a new default of one scalar."""
        self._changeable("set").set(scalars)

    def update(self, node: int | str | Sequence[int] | Node, **changes: Any) -> None:
        """Change one node; the next replay sees it, clones do not.

        Parameters
        ----------
        node : int, str, sequence of int, or Node
            Its id; its name, if no other node has it, those inside bodies and child graphs
            included; or what `add_function` and the others returned for this graph, or for the one
            that it is a clone of. A node inside another is found by ids too: ``(3, 0, 1)`` is node
            1 in body 0 of node 3. A child graph is one body, in which the copies to its inputs
            come first.
        **changes
            ``args`` (all of them), ``grid_dim``, ``block_dim`` of a function; ``value``, ``dst``
            of a memset; ``dst``, ``src`` of a copy; ``enabled`` of these three.

        Raises
        ------
        InputError, GraphError, HazardError, UnsupportedError
            As the method that added the node, with the same limits inside bodies. Nothing was
            changed.
        GraphError
            As `set`.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> flag, x = ctx.create_buffer(1, "uint32"), ctx.create_buffer(2)
        >>> def build(b):
        ...     start = b.add_memset(flag, 1, name="start")
        ...     b.add_if(flag, lambda t: t.add_memset(x, 1.0, name="then"), dependencies=[start])
        >>> graph = fg.DeviceGraph.create(ctx, build)
        >>> graph.update("then", value=2.0)
        >>> graph.replay()
        >>> x.numpy()
        array([2., 2.], dtype=float32)
        >>> graph.update((1, 0, 0), dst=x[:1], value=5.0)
        >>> graph.replay()
        >>> x.numpy()
        array([5., 2.], dtype=float32)
        """
        state = self._changeable("update")
        state.executable.locked(lambda: update(state, node, changes))

    def clone(self) -> DeviceGraph:
        """Return the same graph with an executable and memory of its own.

        Raises
        ------
        GraphError
            The handle is closed.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> x = ctx.create_buffer(2)
        >>> graph = fg.DeviceGraph.create(ctx, lambda b: b.add_memset(x, 1.0))
        >>> clone = graph.clone()
        >>> graph.update(0, value=2.0)
        >>> clone.replay()
        >>> x.numpy()
        array([1., 1.], dtype=float32)
        """
        return self._handle(self._context, self._live().clone())

    def upload(self) -> None:
        """Bring the executable to the device before the first replay; on cpu it is there.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> graph = fg.DeviceGraph.create(ctx, lambda b: b.add_empty())
        >>> graph.upload()
        """
        self._live().upload()

    def to_dot(self) -> str:
        r"""Return the graph in the language of Graphviz.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> graph = fg.DeviceGraph.create(ctx, lambda b: b.add_empty(name="start"))
        >>> print(graph.to_dot(), end="")
        digraph {
          n0 [label="0 start\nempty"];
        }
        """
        lines = ["digraph {"]
        for node in self.nodes:
            label = f"{node.id} {node.name}\\n{node.kind}".replace('"', r"\"")
            lines.append(f'  n{node.id} [label="{label}"];')
        lines += [f"  n{before} -> n{after};" for before, after in self.edges]
        return "\n".join([*lines, "}"]) + "\n"

    def close(self) -> None:
        """Give the handle up; the last handle of an executable frees it. May be called again.

        Everything else but `context` raises GraphError from then on.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> graph = fg.DeviceGraph.create(ctx, lambda b: b.add_empty())
        >>> graph.close()
        >>> graph.replay()
        Traceback (most recent call last):
        fastgraph.errors.GraphError: this graph handle is closed
        """
        self._give_up()

    def __copy__(self) -> DeviceGraph:
        if self._model is not None:
            twin = self._handle(self._context, None)
            twin._model = self._model
            return twin
        return self._handle(self._context, self._live())

    def __deepcopy__(self, memo: object) -> DeviceGraph:
        return self.clone()

    def _recorded(self) -> Record:
        return self._live().record if self._model is None else self._model.record

    def _live(self) -> GraphState:
        if self._state is None:
            if self._model is not None:
                raise GraphError(
                    f"this is the graph of {self._model.owner}; run it through its methods"
                )
            raise GraphError("this graph handle is closed")
        return self._state

    def _changeable(self, what: str) -> GraphState:
        state = self._live()
        if state.cell.n_caches:
            raise GraphError(
                f"{what}: a cache holds this graph for other callers; clone() it first"
            )
        return state

    def _part(self) -> Part:
        """Return what a parent takes of this graph."""
        if self._model is not None:
            return self._model.part()
        state = self._live()
        return state.executable.locked(lambda: part_of(state))

    def __repr__(self) -> str:
        if self._state is None and self._model is None:
            return "<DeviceGraph closed>"
        return f"<DeviceGraph {len(self._recorded().nodes)} nodes, {self._context.device}>"


def _build(
    ctx: DeviceContext,
    build: Callable[Concatenate[DeviceGraphBuilder, ...], object],
    inputs: Sequence[Any],
    check: str | bool,
    verify: int,
    pool: ScratchPool | None,
    family: Family | None = None,
) -> GraphState:
    sources = [as_input(x) for x in inputs]
    family = Family(f"the graph of {_name_of(build)}") if family is None else family
    builder = DeviceGraphBuilder(ctx, family=family)
    try:
        stable, known = [], []
        copied = [source for source in sources if isinstance(source, CopiedInput)]
        builder._shared.expect_twins([source.nbytes for source in copied])
        for source in sources:
            before = len(builder._shared.twins)
            stable.append(source.allocate_stable(builder))
            known.append(record_input(source, stable[-1], builder._shared.twins[before:]))
        build(builder, *stable)
        builder._check_regions()
        builder._open = False
        recorded = record(builder._pending, builder._shared, check is True)
        if check:
            check_hazards(recorded.record, recorded.blocks)
    finally:
        builder._close()
    if verify and any(_hides(node) for node in _all(recorded.record.nodes)):
        raise UnsupportedError(
            "verify: the graph holds work of another library, which would write to the same memory "
            "again, not to the copies"
        )
    settings = Settings(check, verify, known, family)
    shared = None
    if pool is not None:
        arena = recorded.arena
        shared = pool.take(None if arena is None else recorded.record.memories[arena].nbytes)
    return ctx._backend.state(ctx, recorded, settings, shared)


def _name_of(build: Any) -> str:
    return getattr(build, "__qualname__", None) or type(build).__name__


def _infos(nodes: Iterable[RecordNode]) -> Iterator[NodeInfo]:
    for i, node in enumerate(nodes):
        bodies = tuple(tuple(_infos(body)) for body in node.bodies)
        yield NodeInfo(i, node.name, node.kind, node.dependencies, bodies)


def _all(nodes: Iterable[RecordNode]) -> Iterator[RecordNode]:
    for node in nodes:
        yield node
        for body in node.bodies:
            yield from _all(body)


def _hides(node: RecordNode) -> bool:
    """Whether a node may touch other memory than that of its operands."""
    return isinstance(node.call, Foreign) and node.call.handle != 0


def _count(nodes: Iterable[RecordNode]) -> int:
    return sum(1 + sum(_count(body) for body in node.bodies) for node in nodes)
