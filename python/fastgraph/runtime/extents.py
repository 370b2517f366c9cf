"""Active extents: runs on fewer rows than a model was compiled for, without compiling again."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from fastgraph._core.sizes import ActiveSize, SizeTable, activated, dims_of
from fastgraph._core.staging import Active
from fastgraph.errors import FastGraphError, InputError, UnsupportedError
from fastgraph.ir.dims import LEADING, Dim, follows
from fastgraph.ir.graph import Graph, Value
from fastgraph.lower.program import Program
from fastgraph.lower.residency import Residency
from fastgraph.lower.sharing import ports_that_share
from fastgraph.passes.extents import Guard, Source, resized
from fastgraph.runtime.side import Narrow, Narrowing
from fastgraph.runtime.state import Stateful

if TYPE_CHECKING:
    from fastgraph._core.buffer import Block
    from fastgraph.runtime.compiled import Compilation
    from fastgraph.runtime.params import ParamSet

__all__ = ["Extended", "Extension", "Extents", "kept_params"]

_Dims = tuple[Dim, ...]
_Port = tuple[tuple[int, ...], tuple[slice, ...]]
_TWO_INTS = [int, int]
MOST_WORKED_OUT = 4096


class Ports:
    """The active parts of inputs or outputs: which axes are cut, and by which size."""

    def __init__(self, shapes: Sequence[tuple[int, ...]], table: SizeTable) -> None:
        self._cuts: list[list[tuple[int, int | None]] | None] = [
            [(int(n), table.number(n) if isinstance(n, ActiveSize) else None) for n in shape]
            if follows(shape)
            else None
            for shape in shapes
        ]

    def of(self, values: tuple[int, ...]) -> tuple[_Port | None, ...]:
        """Return shape and slices of each, from what the steps of the table give."""
        found: list[_Port | None] = []
        for cuts in self._cuts:
            if cuts is None:
                found.append(None)
                continue
            shape = tuple([n if number is None else values[number] for n, number in cuts])
            found.append((shape, tuple([slice(0, n) for n in shape])))
        return tuple(found)


class Extension:
    """A graph whose sizes follow some dimensions; a model and its clones share it."""

    def __init__(
        self, dims: _Dims, graph: Graph, guards: Sequence[Guard], source: Source, way: Narrowing
    ) -> None:
        self.dims = dims
        self.way = way
        self._table = table = SizeTable(dims)
        self._guards = [
            (table.number(guard.size), table.number(guard.unless), guard) for guard in guards
        ]
        shapes = [tuple(activated(n, dims) for n in shape) for shape in source.shapes]
        self._ins = Ports(shapes, table)
        self._outs = Ports([value.shape for _, value in graph.outputs], table)

    def active_shape(self, shape: tuple[int, ...], actual: tuple[int, ...]) -> tuple[int, ...]:
        """Return what a shape that follows the dimensions is."""
        port = Ports([shape], self._table).of(self._table.work_out(actual))[0]
        return shape if port is None else port[0]

    def ports(self, actual: tuple[int, ...]) -> tuple[Any, Any]:
        """Return the active parts of inputs and outputs; InputError for an extent too small."""
        values = self._table.work_out(actual)
        for size, unless, guard in self._guards:
            if values[size] < 0 < values[unless]:
                wanted = ", ".join(
                    f"{describe(dim)} {n}" for dim, n in zip(self.dims, actual, strict=True)
                )
                raise InputError(f"active extent of {wanted}: {guard.message}")
        return self._ins.of(values), self._outs.of(values)


@dataclass(frozen=True)
class Extent:
    """Extents that can be set: what runs, with which of them, on which parts."""

    made: tuple[Extension, Narrow]
    actual: tuple[int, ...]
    wanted: Mapping[Dim, int]
    outs: tuple[_Port | None, ...]
    parts: Active
    runs: list[Any]


@dataclass
class Extents:
    """The extents of one model, and the executables that it has for them.

    Attributes
    ----------
    now : Extent or None
        What is set; with the lock replaced by another one, and never changed.
    own : object
        On the cpu the executable for runs without extents.
    made : dict
        By the dimensions that are followed: extension, and what runs.
    worked_out : dict
        By what `set_active_extent` was given, of calls that set one dimension alone.
    """

    now: Extent | None = None
    own: Any = None
    made: dict[_Dims, tuple[Extension, Narrow]] = field(default_factory=dict)
    worked_out: dict[Any, Extent] = field(default_factory=dict)

    @property
    def active(self) -> Mapping[Dim, int]:
        """Mapping of Dim to int: what is set."""
        return {} if self.now is None else self.now.wanted

    @property
    def running(self) -> Narrow | None:
        """Narrow or None: what runs now; None where that is the model's own program."""
        return None if self.now is None else self.now.made[1]

    @property
    def outs(self) -> tuple[_Port | None, ...]:
        """Tuple of (shape, slices) or None: what runs write of each output, where not all."""
        return () if self.now is None else self.now.outs

    @property
    def dims(self) -> _Dims:
        """Tuple of Dim: those that have extents."""
        return tuple(sorted(self.active))

    @property
    def actual(self) -> tuple[int, ...]:
        """Tuple of int: how many there are of each."""
        return tuple([self.active[dim] for dim in self.dims])


class Extended(Stateful):
    """The part of a compiled graph that knows of extents."""

    __slots__ = ()

    _compilation: Compilation
    _params: ParamSet
    _extents: Extents

    def set_active_extent(self, extent: tuple[int, int] | None, dim: str | None = None) -> None:
        """Let later runs compute fewer rows: what the graph compiled for that size would give.

        Takes microseconds, but for the first call with a dimension, which lowers the graph once
        more, and on cuda for the first one of each class of extents. `arena_ptr`, offsets, views,
        bound steps and parameters stay as they are.

        Parameters
        ----------
        extent : (int, int) or None
            How many there are of how many: ``(actual, upper)``, with `actual` from 0 to `upper`.
            None lets runs compute all again: of the dimension, or without one of all dimensions.
        dim : str, optional
            A dimension that `fg.dim` has named, of `upper`. Without it, the leading axis of every
            input whose leading axis has size `upper`.

        Raises
        ------
        InputError
            `extent` is no such pair, there is no such dimension or it has another size, or an
            operator needs more elements than `actual` leaves it. On cuda also a run that nobody
            waited for and that met bad data.
        UnsupportedError
            An operator cannot follow; it is named.
        GraphError
            The model is closed.

        After any of these, runs are as they were before.

        Notes
        -----
        `run`, `run_typed` and futures return the active rows alone; all other ways out write those
        and leave the rest of their memory as it was. Inputs are given in full, of which the active
        rows are read, or as the active rows alone, but for those of `bind`.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("total")
        >>> x = g.input("x", (4, 2))
        >>> _ = g.output(x * 2, "y"), g.output(x.sum(axis=0), "total")
        >>> model = fg.Session("cpu").compile(g)
        >>> model.set_active_extent((1, 4))
        >>> model.run({"x": np.ones((4, 2), "f4")})
        (array([[2., 2.]], dtype=float32), array([1., 1.], dtype=float32))
        >>> model.set_active_extent(None)
        >>> model.run({"x": np.ones((4, 2), "f4")})[1]
        array([4., 4.], dtype=float32)
        """
        self._check_open()
        # Worked out without the lock, so once more where another thread has set one meanwhile.
        while not self._try_extent(extent, dim):
            pass

    def _try_extent(self, extent: tuple[int, int] | None, dim: str | None) -> bool:
        """Set an extent beside those that there are; False where these have changed meanwhile."""
        extents, before = self._extents, self._extents.now
        active = {} if before is None else before.wanted
        # What was set before, of the one dimension that is, is worked out already.
        if type(extent) is tuple and [type(one) for one in extent] == _TWO_INTS:
            found = extents.worked_out.get((extent, dim))
            if found is not None and found.wanted.keys() == active.keys():
                return self._locked(lambda: self._change(found, before))
        wanted = dict(active)
        if extent is None:
            for one in self._dims_named(dim) if dim is not None else list(wanted):
                wanted.pop(one, None)
        else:
            actual, upper = pair_of(extent)
            for one in self._dims_meant(dim, upper):
                wanted[one] = actual
        state = self._work_out(wanted) if wanted else None
        done = self._locked(lambda: self._change(state, before))
        if done and state is not None and extent is not None and len(wanted) == 1:
            if len(extents.worked_out) >= MOST_WORKED_OUT:
                extents.worked_out.clear()
            extents.worked_out[(actual, upper), dim] = state
        return done

    @property
    def active_extents(self) -> dict[str, tuple[int, int]]:
        """dict of str to (int, int): what is set, by dimension; "" is a leading axis of no name.

        Examples
        --------
        >>> import fastgraph as fg
        >>> g = fg.Graph("twice")
        >>> _ = g.output(g.input("x", (fg.dim("n", 4),)) * 2)
        >>> model = fg.Session("cpu").compile(g)
        >>> model.set_active_extent((3, 4), dim="n")
        >>> model.active_extents
        {'n': (3, 4)}
        """
        return {name: (n, upper) for (name, upper), n in self._extents.active.items()}

    @property
    def _timed(self) -> Program:
        """The program that a run is one of now."""
        running = self._extents.running
        return self._program if running is None else running.program

    def _extend_as(self, other: Extended) -> None:
        """Take over the extents of another model of the same compilation; this one has none."""
        wanted = other._extents.active
        if wanted:
            state = self._work_out(wanted)
            self._locked(lambda: self._change(state, None))

    def _work_out(self, wanted: Mapping[Dim, int]) -> Extent:
        """Return what runs are with these extents, or raise."""
        extents = self._extents
        dims = tuple(sorted(wanted))
        made = extents.made.get(dims)
        if made is None:
            made = self._made_for(dims)
        extension, narrow = made
        actual = tuple([wanted[dim] for dim in dims])
        ins, outs = extension.ports(actual)
        narrow.prepare(self, actual)
        parts = tuple([None if port is None else port[1] for port in outs])
        specs = zip(self.output_specs, outs, strict=True)
        runs = [
            None if port is None else partial(runs_of, spec[1], spec[2].itemsize, port[0])
            for spec, port in specs
        ]
        return Extent(made, actual, wanted, outs, Active(ins, parts), runs)

    def _made_for(self, dims: _Dims) -> tuple[Extension, Narrow]:
        compilation = self._compilation
        extension = compilation.extensions.get(dims)
        if extension is None:
            extension = extension_of(compilation, dims)
            extension = compilation.extensions.setdefault(dims, extension)
        return extension, extension.way.start(compilation.title)

    def _change(self, state: Extent | None, before: Extent | None) -> bool:
        """With the lock held: let this be set, if what was set before still is."""
        if self._extents.now is not before:
            return False
        if state is before:
            return True
        if state is not None and self._state.rules:
            self._check_feeds(state.made[1], state.outs)
        try:
            self._become(state, before)
        except FastGraphError:
            raise  # and everything is as it was
        except BaseException:
            # An interrupt, wherever it has come.
            self._become(before, state, anew=True)
            raise
        return True

    def _become(self, state: Extent | None, before: Extent | None, anew: bool = False) -> None:
        """Let runs be those of `state`; they are those of `before`, or on the way from there.

        Handles and feeds are told to the runner anew where that is needed, or asked for.
        """
        extents = self._extents
        anew = anew or bool(self._state.rules)
        if state is not None:
            extension, narrow = state.made
            anew = narrow.enter(self, state.actual) or anew
            extents.made[extension.dims] = state.made
            extents.now = state
            self._set_active(state.parts, state.runs, anew)
        elif before is not None:
            narrow = before.made[1]
            narrow.leave(self)
            extents.now = None
            self._set_active(None, [], narrow.resides or anew)

    def _check_feeds(self, narrow: Narrow, outs: Sequence[_Port | None]) -> None:
        """Raise UnsupportedError for a feed that would not be what it is now."""
        for i, rule in self._state.rules.items():
            port = outs[rule.output]
            handle = self.input_specs[i][0]
            if port is not None and port[0][1:] != self.output_specs[rule.output][1][1:]:
                raise UnsupportedError(
                    f"the feed of handle {handle!r} copies rows, of which the active extent would "
                    "make others than the leading ones"
                )
            pair = {(i, rule.output)}
            if (
                rule.at is None
                and not narrow.resides
                and ports_that_share(self._program, pair)
                and not ports_that_share(narrow.program, pair)
            ):
                raise UnsupportedError(
                    f"the feed of handle {handle!r} is computed where the handle lies, which the "
                    "program for active extents cannot do"
                )

    def _settle(self) -> None:
        extents = self._extents
        if extents.running is not None:
            self._check_feeds(extents.running, extents.outs)
        super()._settle()

    def _run_as(self, asked: Residency) -> Residency:
        extents = self._extents
        if extents.running is None or not extents.running.resides:
            return super()._run_as(asked)
        return extents.running.settle(self, extents.actual)

    def _possible(self, residency: Residency) -> Residency:
        here = {(feed.handle, feed.output) for feed in residency.feeds if feed.in_place}
        shared = set(here)
        for _, narrow in self._extents.made.values() if here else ():
            if not narrow.resides:
                shared = ports_that_share(narrow.program, shared)
        # Nothing is fed of an output of which a run writes nothing.
        feeds = [feed for feed in residency.feeds if self._written_shape(feed.output)[:1] != (0,)]
        return replace(residency, feeds=tuple(feeds)).copying(here - shared)

    def _written_shape(self, j: int) -> tuple[int, ...]:
        outs = self._extents.outs
        port = outs[j] if outs else None
        return super()._written_shape(j) if port is None else port[0]

    def _extent_places(self, made: Mapping[int, Block]) -> list[tuple[int, Block]]:
        """Where new blocks, by slot, belong that the program for extents alone reads."""
        running = self._extents.running
        if running is None:
            return []
        slot_of = self._compilation.setup.slot_of
        return [
            (memory, made[slot_of[value]])
            for memory, value in running.params(self, running.program).items()
            if slot_of[value] in made
        ]

    def _shape_in_run(self, node: str, output: int, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape that an output of a node has in runs; `shape` without extents."""
        extents = self._extents
        if extents.running is None:
            return shape
        found = next(one for one in extents.running.program.graph.nodes if one.name == node)
        extension, _ = extents.made[extents.dims]
        return extension.active_shape(found.outputs[output].shape, extents.actual)

    @property
    def _active_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the active parts of inputs."""
        extents = self._extents
        if not extents.active:
            return {}
        ins, _ = extents.made[extents.dims][0].ports(extents.actual)
        specs = zip(self.input_specs, ins, strict=True)
        return {spec[0]: port[0] for spec, port in specs if port is not None}

    def _dims_meant(self, name: str | None, upper: int) -> list[Dim]:
        known = self._compilation.meant
        found = known.get((name, upper))
        if found is None:
            if name is None:
                found = self._dims_leading(upper)
            else:
                found = self._dims_named(name)
                if found[0][1] != upper:
                    raise InputError(
                        f"{describe(found[0])} has size {found[0][1]}, not {upper} as in the "
                        "active extent"
                    )
            known[name, upper] = found
        return found

    def _dims_named(self, name: str) -> list[Dim]:
        known = self._compilation.source.dims
        found = [dim for dim in known if dim[0] == name and name != LEADING]
        if not found:
            names = sorted({dim[0] for dim in known} - {LEADING})
            raise InputError(
                f"there is no dimension {name!r}; those of the inputs are {names}, named by fg.dim"
            )
        return found

    def _dims_leading(self, upper: int) -> list[Dim]:
        shapes = self._compilation.source.shapes
        found = {
            dim
            for shape in shapes
            if shape and shape[0] == upper
            for dim in dims_of(shape[0])
            if dim[1] == upper
        }
        if not found:
            sizes = {name: shape[0] for name, shape, _ in self.input_specs if shape}
            raise InputError(
                f"no input has a leading axis of size {upper}; leading axes are {sizes}"
            )
        return sorted(found)


def runs_of(shape: tuple[int, ...], itemsize: int, part: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return where a part with the first of each axis lies in a dense array: offsets and bytes.

    >>> runs_of((4, 3), 4, (2, 3)), runs_of((2, 3, 2), 4, (2, 1, 2))
    ([(0, 24)], [(0, 8), (24, 8)])
    """
    axis = len(shape)
    # Axes that are whole behind one of which some are taken are one run.
    while axis > 1 and part[axis - 1] == shape[axis - 1]:
        axis -= 1
    steps = [itemsize * prod(shape[i + 1 :]) for i in range(axis - 1)]
    nbytes = itemsize * prod(part[axis - 1 :])
    return [
        (sum(at * step for at, step in zip(place, steps, strict=True)), nbytes)
        for place in product(*map(range, part[: axis - 1]))
    ]


def pair_of(extent: Any) -> tuple[int, int]:
    """Return (actual, upper), or raise InputError."""
    try:
        actual, upper = extent
        if any(isinstance(one, bool | np.bool_) for one in (actual, upper)):
            raise TypeError
        actual, upper = operator.index(actual), operator.index(upper)
    except (TypeError, ValueError):
        raise InputError(
            f"an active extent is (actual, upper), two ints, or None, not {extent!r:.80}"
        ) from None
    if not 0 <= actual <= upper:
        raise InputError(f"active extent {actual} is not from 0 to {upper}")
    return actual, upper


def describe(dim: Dim) -> str:
    """Return how messages call a dimension."""
    return f"dimension {dim[0]!r}" if dim[0] != LEADING else f"the leading axis of {dim[1]}"


def extension_of(compilation: Compilation, dims: _Dims) -> Extension:
    """Infer the graph of a model with sizes that follow `dims`, and what runs it."""
    source = compilation.source
    graph, guards = resized(source, dims)
    way = compilation.code.extend(source, dims, compilation.options)
    return Extension(dims, graph, guards, source, way)


def kept_params(source: Source) -> frozenset[str]:
    """Return the parameters of which a program for extents may read parts that it cuts itself."""
    if not source.attrs:
        return frozenset()
    found: set[str] = set()
    needs: dict[Value, frozenset[str]] = {}
    for node in source.graph.nodes:
        if node.op == "param":
            needs[node.outputs[0]] = frozenset((node.outputs[0].name,))
        elif node.op == "constant":
            needs[node.outputs[0]] = frozenset()
        elif not node.is_leaf and all(value in needs for value in node.inputs):
            above = frozenset().union(*(needs[value] for value in node.inputs))
            needs.update(dict.fromkeys(node.outputs, above))
            if node in source.attrs:
                found |= above
    return frozenset(found)
