"""State of a compiled graph between runs: handles on inputs, and feeds from outputs into them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from fastgraph._core import buffer
from fastgraph._core.buffer import Buffer
from fastgraph._core.checks import as_array, describe
from fastgraph._core.dispatch import Engine
from fastgraph._core.feeds import Feed, Growth, feed, growth
from fastgraph.device.backend import named
from fastgraph.errors import InputError, OutOfMemoryError
from fastgraph.ir.types import is_integer
from fastgraph.lower.residency import FeedSpec, Residency

if TYPE_CHECKING:
    from fastgraph._core.buffer import Block
    from fastgraph.lower.program import Program
    from fastgraph.runtime.compiled import Compilation
    from fastgraph.runtime.params import ParamSet

__all__ = ["NO_STATE", "State", "Stateful"]

_Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Handle:
    """What stands in for an input that a run is not given.

    `own`: the model's alone. `frozen`: its memory may not be written. `growth`: of one that grows.
    `gpu`: bound by `bind_gpu_handle`.
    """

    buffer: Buffer
    own: bool = True
    frozen: bool = False
    growth: Growth | None = None
    gpu: bool = False


@dataclass(frozen=True)
class Rule:
    """What goes into a handle after each run: an output, whole or from the row that `at` tells."""

    output: int
    at: str | None
    ring: bool


@dataclass(frozen=True)
class State:
    """Handles and feeds by the number of their input. Never changed."""

    handles: Mapping[int, Handle] = field(default_factory=dict)
    rules: Mapping[int, Rule] = field(default_factory=dict)

    def put(self, i: int, handle: Handle | None, rule: Rule | None) -> State:
        """Return the state in which input `i` has these."""
        handles = {**self.handles, i: handle}
        rules = {**self.rules, i: rule}
        return State(
            {k: v for k, v in handles.items() if v is not None},
            {k: v for k, v in rules.items() if v is not None},
        )


NO_STATE = State()


class Stateful(Engine):
    """Handles and feeds: what a compiled graph keeps from one run to the next."""

    __slots__ = ("_program", "_resident", "_state")

    _compilation: Compilation
    _params: ParamSet
    _state: State
    # What the runner runs, and which inputs it reads where they lie on the device.
    _program: Program
    _resident: frozenset[int]

    # ---- handles

    def bind_handle(self, name: str, array: Any) -> None:
        """Let an input be what `array` holds in all runs that are not given it.

        Per input, what a run is given goes before a handle, and a missing input without a handle
        raises, in every way to run.

        Parameters
        ----------
        name : str
            Of an input. What was bound to it is let go of; its feed stays.
        array : array
            Exact shape and dtype. A NumPy array, or another library's in memory of the host, is
            copied to where the graph runs. A `Buffer` of the graph's device is used where it lies,
            and kept alive; on cuda also another library's array on the device. To bind another
            such buffer costs no copy.

        Raises
        ------
        InputError
            No such input, another shape, dtype or device, or memory in which two feeds would
            write. What was bound before still is.
        OutOfMemoryError
            The copy does not fit. The same holds.
        GraphError
            The model is closed.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("count")
        >>> n = g.input("n", (2,))
        >>> _ = g.output(n + 1.0, "next")
        >>> model = fg.Session("cpu").compile(g)
        >>> model.bind_handle("n", np.array([0, 10], "f4"))
        >>> model.run({})
        (array([ 1., 11.], dtype=float32),)
        >>> model.run({"n": np.zeros(2, "f4")})
        (array([1., 1.], dtype=float32),)
        """
        self._bind(name, array, gpu=False)

    def read_handle(self, name: str) -> _Array:
        """Return a copy of what a handle holds, after all runs so far.

        Parameters
        ----------
        name : str

        Returns
        -------
        numpy.ndarray
            Of one that grows, the rows that it was given and those up to the last that was fed.

        Raises
        ------
        InputError
            No handle is bound to it, or a run that was to write it where it lies has failed.
        GraphError
            The model is closed.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("count")
        >>> n = g.input("n", (2,))
        >>> _ = g.output(n + 1.0, "next")
        >>> model = fg.Session("cpu").compile(g)
        >>> model.bind_handle("n", np.zeros(2, "f4"))
        >>> model.read_handle("n")
        array([0., 0.], dtype=float32)
        """
        return self._read(name, gpu=False)

    def unbind_handle(self, name: str) -> None:
        """Let go of a handle and of its feed: from now on runs have to be given the input.

        Parameters
        ----------
        name : str

        Raises
        ------
        InputError
            No handle is bound to it.
        GraphError
            The model is closed.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("count")
        >>> n = g.input("n", (2,))
        >>> _ = g.output(n + 1.0, "next")
        >>> model = fg.Session("cpu").compile(g)
        >>> model.bind_handle("n", np.zeros(2, "f4"))
        >>> model.unbind_handle("n")
        >>> model.run({})  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        fastgraph.errors.InputError: input 'n' (float32[2]) was not given; given: []
        """
        self._check_open()
        i = self._input_of(name)

        def work() -> None:
            if i not in self._spoiled():
                self._handle_of(i, gpu=False)
            self._hold(i, None, self._state.put(i, None, None))

        self._locked(work)

    def bind_gpu_handle(self, name: str, array: Any, grow: bool = False) -> None:
        """Do as `bind_handle`, and let `has_gpu_handle` and `read_gpu_handle` know of it.

        Parameters
        ----------
        name : str
            Of an input.
        array : array
            As `bind_handle` takes it. On the cpu, too, it is resident where the graph runs.
        grow : bool, default False
            The array may have fewer rows (leading axis) than the input. It is copied to addresses
            that are reserved for all of them, and behind which there is memory for its rows alone.
            Before a run that reads or is fed more rows these get memory, full of zeros; nothing
            moves, and none is given back before the handle goes. A run reads all rows of an input,
            or those of the active extent of its leading axis.

        Raises
        ------
        InputError, OutOfMemoryError, GraphError
            As `bind_handle`.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("count")
        >>> n = g.input("n", (2,))
        >>> _ = g.output(n + 1.0, "next")
        >>> model = fg.Session("cpu").compile(g)
        >>> one = model.context.to_device(np.zeros(2, "f4"))
        >>> other = model.context.to_device(np.full(2, 7, "f4"))
        >>> for talk in (one, other):
        ...     model.bind_gpu_handle("n", talk)
        ...     model.run({})
        (array([1., 1.], dtype=float32),)
        (array([8., 8.], dtype=float32),)
        """
        self._bind(name, array, gpu=True, grow=bool(grow))

    def has_gpu_handle(self, name: str) -> bool:
        """Return whether `bind_gpu_handle` has bound a handle to an input.

        Parameters
        ----------
        name : str

        Returns
        -------
        bool

        Raises
        ------
        InputError
            No such input.
        GraphError
            The model is closed.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("count")
        >>> _ = g.output(g.input("n", (2,)) + 1.0, "next")
        >>> model = fg.Session("cpu").compile(g)
        >>> model.bind_handle("n", np.zeros(2, "f4"))
        >>> model.has_gpu_handle("n")
        False
        """
        self._check_open()
        handle = self._state.handles.get(self._input_of(name))
        return handle is not None and handle.gpu

    def read_gpu_handle(self, name: str) -> _Array:
        """Return a copy of what a handle holds that `bind_gpu_handle` has bound.

        Parameters
        ----------
        name : str

        Returns
        -------
        numpy.ndarray
            In memory of the host.

        Raises
        ------
        InputError
            That has bound none to it, or as `read_handle`.
        GraphError
            The model is closed.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("count")
        >>> _ = g.output(g.input("n", (2,)) + 1.0, "next")
        >>> model = fg.Session("cpu").compile(g)
        >>> model.bind_gpu_handle("n", np.zeros(2, "f4"))
        >>> model.read_gpu_handle("n")
        array([0., 0.], dtype=float32)
        """
        return self._read(name, gpu=True)

    # ---- feeds

    def set_gpu_handle_feed(
        self, handle: str, output: int | str, at: str | None = None, ring: bool = False
    ) -> None:
        """After each run, put an output into a handle, on the device.

        A run reads what the handle held before it. A run that fails on its data copies nothing.
        Where the output can be computed where the handle lies, nothing is copied; then a run that
        fails leaves a handle that is not valid until it is bound again, and the output lies
        there: see Notes.

        Parameters
        ----------
        handle : str
            An input that a handle is bound to. It has one feed: the last that was set.
        output : int or str
            Number or name. Of the input's dtype, and of its shape but for the number of rows
            where `at` is given.
        at : str, optional
            A scalar, or an input of one element, of an integer dtype: the first row to write. A
            scalar for a handle that grows.
        ring : bool, default False
            With `at`: rows wrap around, so the handle keeps the last ones.

        Raises
        ------
        InputError
            No handle is bound to it, there is no such output or position, or shapes or dtypes do
            not fit. A run raises it for rows that are not those of the handle; where the position
            is known on the host, before anything has run.
        GraphError
            The model is closed.

        Notes
        -----
        The feed lasts until `unbind_handle`, also when another array is bound. On the cpu an
        output that is computed in its handle has its place and its `output_view` there, from the
        first run after a handle or feed has changed.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("count")
        >>> n = g.input("n", (2,))
        >>> _ = g.output(n + 1.0, "next")
        >>> model = fg.Session("cpu").compile(g)
        >>> model.bind_handle("n", np.zeros(2, "f4"))
        >>> model.set_gpu_handle_feed("n", "next")
        >>> for _ in range(5):
        ...     y = model.run({})
        >>> model.read_handle("n")
        array([5., 5.], dtype=float32)
        """
        self._check_open()
        i = self._input_of(handle)
        j = self._output_of(output)
        rule = self._rule(i, j, at, ring)

        def work() -> None:
            bound = self._written(i)
            self._check_growth(i, bound.growth, rule)
            state = self._state.put(i, bound, rule)
            self._check_apart(state)
            self._hold(i, bound.buffer, state)

        self._locked(work)

    def run_feed_gpu_handle(
        self, inputs: Mapping[str, Any], handle: str, output: int | str, **scalars: Any
    ) -> _Array:
        """Run once and put an output into a handle, this time only.

        Parameters
        ----------
        inputs : mapping of str to array
            As `run` takes them.
        handle : str
            An input that a handle is bound to.
        output : int or str
            Number or name; of the input's shape and dtype.
        **scalars
            Values of the graph's scalars for this call.

        Returns
        -------
        numpy.ndarray
            That output; it belongs to the caller.

        Raises
        ------
        InputError
            As `run` and `set_gpu_handle_feed`; of a run that has failed nothing is put there.
        GraphError
            The model is closed.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("count")
        >>> n, by = g.input("n", (2,)), g.input("by", (2,))
        >>> _ = g.output(n + by, "next")
        >>> model = fg.Session("cpu").compile(g)
        >>> model.bind_handle("n", np.zeros(2, "f4"))
        >>> model.run_feed_gpu_handle({"by": np.array([1, 2], "f4")}, "n", "next")
        array([1., 2.], dtype=float32)
        >>> model.read_handle("n")
        array([1., 2.], dtype=float32)
        """
        self._check_open()
        i = self._input_of(handle)
        j = self._output_of(output)
        self._rule(i, j, None, False)
        return self._run_feed(inputs, scalars, i, j)

    # ---- what these are made of

    def _bind(self, name: str, array: Any, gpu: bool, grow: bool = False) -> None:
        self._check_open()
        i = self._input_of(name)
        handle = replace(self._taken(i, array, grow), gpu=gpu)

        def work() -> None:
            rule = self._state.rules.get(i)
            self._check_growth(i, handle.growth, rule)
            if rule is not None and handle.frozen:
                raise InputError(f"handle {name!r} has a feed and cannot be memory that may not "
                                 "be written")  # fmt: skip
            state = self._state.put(i, handle, rule)
            self._check_apart(state)
            self._hold(i, handle.buffer, state)

        self._locked(work)

    def _taken(self, i: int, array: Any, grow: bool) -> Handle:
        """Return memory of the graph's device that holds an array."""
        name, shape, dtype = self.input_specs[i]
        if grow and not shape:
            raise InputError(
                f"handle {name!r} has no rows to grow by: it is {describe(shape, dtype)}"
            )
        what = f"handle {name!r}"
        found, frozen = self._compilation.side.resident(what, array)
        if not isinstance(found, Buffer):
            found = as_array(what, found, shape, dtype)
        given = tuple(found.shape)
        fits = given == shape or (grow and given[1:] == shape[1:] and given[:1] <= shape[:1])
        if found.dtype != dtype or not fits or len(given) != len(shape):
            raise InputError(
                f"{what} was given {describe(found.shape, found.dtype)}; the input is "
                f"{describe(shape, dtype)}; nothing is cast or broadcast"
            )
        if grow:
            return self._grown(i, found.numpy() if isinstance(found, Buffer) else found)
        if isinstance(found, Buffer):
            return Handle(found, own=False, frozen=frozen)
        try:
            block = self._compilation.code.block_of(np.ascontiguousarray(found))
        except OutOfMemoryError as error:
            raise named(error, what, "of", self._compilation.title) from None
        device = self._compilation.side.context.device
        return Handle(buffer.view(block, 0, shape, dtype, device))

    def _grown(self, i: int, array: _Array) -> Handle:
        """Return a handle with the rows of an array and addresses for all of an input's."""
        name, shape, dtype = self.input_specs[i]
        device = self._compilation.side.context.device
        row = int(np.prod(shape[1:])) * dtype.itemsize
        try:
            reserved, block = self._compilation.code.reserve(row * shape[0])
            grown = growth(i, reserved, row, shape[0])
            grown.fill(array.shape[0])
        except OutOfMemoryError as error:
            raise named(error, f"handle {name!r} of", self._compilation.title) from None
        if array.size:
            buffer.view(block, 0, array.shape, dtype, device).copy_from(array)
        return Handle(buffer.view(block, 0, shape, dtype, device), growth=grown)

    def _read(self, name: str, gpu: bool) -> _Array:
        self._check_open()
        i = self._input_of(name)
        return self._locked(lambda: _rows_of(self._handle_of(i, gpu)).numpy())

    def _handle_of(self, i: int, gpu: bool) -> Handle:
        """Return the handle of an input, which the gpu form has to have bound if `gpu`."""
        name = self.input_specs[i][0]
        handle = self._state.handles.get(i)
        if handle is None or (gpu and not handle.gpu):
            form = "bind_gpu_handle" if gpu else "bind_handle"
            raise InputError(f"no handle is bound to input {name!r}; {form} does that")
        if i in self._spoiled():
            raise InputError(
                f"handle {name!r} is not valid: a run that was to write it where it lies has "
                "failed; bind it again"
            )
        return handle

    def _written(self, i: int) -> Handle:
        """Return the handle of an input, which is to be written."""
        handle = self._handle_of(i, gpu=False)
        if handle.frozen:
            name = self.input_specs[i][0]
            raise InputError(f"handle {name!r} is memory that may not be written")
        return handle

    def _filled(self, i: int) -> Buffer:
        """Return the memory of a handle that is to be written as a whole."""
        handle = self._written(i)
        if handle.growth is not None:
            handle.growth.fill(handle.growth.rows)
        return handle.buffer

    def _check_growth(self, i: int, grown: Growth | None, rule: Rule | None) -> None:
        """Raise InputError where rows go into a handle that grows, and no scalar tells which."""
        if grown is None or rule is None or rule.at is None:
            return
        if all(rule.at != name for name, *_ in self.scalar_specs):
            raise InputError(
                f"handle {self.input_specs[i][0]!r} grows, so a scalar has to tell the row, which "
                f"the host knows before a run; {rule.at!r} is an input"
            )

    def _input_of(self, name: Any) -> int:
        names = [spec[0] for spec in self.input_specs]
        if name in names:
            return names.index(name)
        known = f"handles stand in for inputs, and those are {names}"
        if any(name == scalar[0] for scalar in self.scalar_specs):
            raise InputError(f"{name!r} is a scalar, which runs take by keyword; {known}")
        if any(name == value.name for value in self._compilation.setup.params):
            raise InputError(f"{name!r} is a parameter, which set_param sets; {known}")
        raise InputError(f"the graph has no input {name!r}; {known}")

    def _output_of(self, output: Any) -> int:
        names = [spec[0] for spec in self.output_specs]
        if isinstance(output, str) and output in names:
            return names.index(output)
        if isinstance(output, int) and not isinstance(output, bool) and 0 <= output < len(names):
            return output
        raise InputError(f"the graph has no output {output!r}; it has {names}, counted from 0")

    def _rule(self, i: int, j: int, at: str | None, ring: bool) -> Rule:
        """Return the feed of an output into a handle, or raise InputError where it does not fit."""
        name, shape, dtype = self.input_specs[i]
        output, given, kind = self.output_specs[j]
        what = f"output {output!r}, {describe(given, kind)},"
        into = f"handle {name!r}, {describe(shape, dtype)}"
        if kind != dtype:
            raise InputError(f"{what} does not go into {into}: nothing is cast")
        if at is None:
            if ring:
                raise InputError(f"ring=True without at=: {what} goes into all of {into}")
            if given != shape:
                raise InputError(f"{what} does not go into {into}; rows of it do, with at=")
            return Rule(j, None, False)
        if not shape or not given or given[1:] != shape[1:] or given[0] > shape[0]:
            raise InputError(f"{what} is not rows of {into}")
        self._position(at)
        return Rule(j, at, bool(ring))

    def _position(self, at: Any) -> dict[str, int]:
        """Return where a run is told a position; InputError where `at` names none."""
        for name, dtype, offset, _ in self.scalar_specs:
            if name == at:
                return {"scalar": offset, "width": _width(f"scalar {name!r}", dtype)}
        for i, (name, shape, dtype) in enumerate(self.input_specs):
            if name == at:
                what = f"input {name!r}"
                if int(np.prod(shape)) != 1:
                    raise InputError(f"{what} has {describe(shape, dtype)}; a position is one row")
                return {"input": i, "width": _width(what, dtype)}
        names = [spec[0] for spec in (*self.scalar_specs, *self.input_specs)]
        raise InputError(f"at={at!r} is neither a scalar nor an input; those are {names}")

    def _check_apart(self, state: State) -> None:
        """Raise InputError where two feeds would write the same bytes, or one a position."""
        fed = [(i, state.handles[i].buffer) for i in state.rules]
        for number, (i, one) in enumerate(fed):
            for k, other in fed[:number]:
                if _overlap(one, other):
                    names = [self.input_specs[n][0] for n in (k, i)]
                    raise InputError(
                        f"handles {names[0]!r} and {names[1]!r} have feeds and share memory"
                    )
        inputs = [spec[0] for spec in self.input_specs]
        for i, rule in state.rules.items():
            if rule.at not in inputs:
                continue
            k = inputs.index(rule.at)
            if k in state.rules and state.rules[k].at is not None:
                raise InputError(
                    f"handle {rule.at!r} tells the row for handle {inputs[i]!r}: a feed writes all "
                    "of it, and takes no at="
                )
            told = state.handles.get(k)
            for n, other in fed:
                if told is not None and n != k and _overlap(told.buffer, other):
                    raise InputError(
                        f"handle {rule.at!r} tells a row and shares memory with {inputs[n]!r}, "
                        "which has a feed"
                    )

    def _refuse_fed(self, outputs: Iterable[tuple[int, Any]]) -> None:
        """Raise InputError where an output is to go where a feed puts another one."""
        for j, array in outputs:
            for i, rule in self._state.rules.items():
                if rule.output != j and _touches(array, self._state.handles[i].buffer):
                    raise InputError(
                        f"output {self.output_specs[j][0]!r} is to be put into memory of handle "
                        f"{self.input_specs[i][0]!r}, which is fed output "
                        f"{self.output_specs[rule.output][0]!r}; give it memory of its own"
                    )

    def _asked(self) -> Residency:
        """Return which inputs runs have in handles, and what goes into them, as it could be."""
        state = self._state
        taken: set[int] = set()
        wanted = []
        for i, rule in state.rules.items():
            # An output is computed in one place, and what another handle reads stays.
            in_place = rule.at is None and rule.output not in taken and not _is_shared(state, i)
            if in_place:
                taken.add(rule.output)
            wanted.append(self._spec(i, rule, in_place))
        resident = {i for i, handle in state.handles.items() if handle.buffer.nbytes}
        return Residency(self._resident | resident, tuple(wanted))

    def _run_as(self, asked: Residency) -> Residency:
        """Let the runner run the program for that; return what it is one for."""
        code = self._compilation.code
        program, residency = code.reside(asked)
        if program is not self._program:
            handles = {i: handle.buffer for i, handle in self._state.handles.items()}
            title = self._compilation.title
            code.retake(self._runner, program, residency, self._params, handles, title)
            self._program, self._resident = program, residency.inputs
        return residency

    def _settle(self) -> None:
        """Tell the runner of handles and feeds; called by the first run after a change."""
        residency = self._run_as(self._asked())
        feeds = [self._feed(spec) for spec in self._possible(residency).feeds]
        by_handle = {fed.handle: fed for fed in feeds}
        growing = []
        for i, handle in self._state.handles.items():
            if handle.growth is not None:
                handle.growth.follow(by_handle.get(i))
                growing.append(handle.growth)
        self._connect(feeds, [self._place(i) for i in range(len(self.input_specs))], growing)

    def _place(self, i: int) -> tuple[Block, int, int, bool] | None:
        handle = self._state.handles.get(i)
        if handle is None:
            return None
        held = handle.buffer
        return held.block, held.offset, held.nbytes, not handle.own

    def _spec(self, i: int, rule: Rule, in_place: bool) -> FeedSpec:
        names = [spec[0] for spec in self.scalar_specs]
        scalar = names.index(rule.at) if rule.at in names else None
        given = None if rule.at is None or scalar is not None else self._input_of(rule.at)
        return FeedSpec(i, rule.output, in_place, scalar, given, rule.ring)

    def _feed(self, spec: FeedSpec) -> Feed:
        name, shape, dtype = self.input_specs[spec.handle]
        output, given = self.output_specs[spec.output][0], self._written_shape(spec.output)
        held = self._state.handles[spec.handle].buffer
        at = self._state.rules[spec.handle].at
        position = {} if at is None else self._position(at)
        return feed(
            spec.handle,
            spec.output,
            held.block,
            held.offset,
            int(np.prod(given)) * dtype.itemsize,
            shape[0] if shape else 1,
            given[0] if given else 1,
            (name, output, at),
            spec.in_place,
            spec.ring,
            **position,
        )

    def _possible(self, residency: Residency) -> Residency:
        """Return what of feeds every program can do of which a run may be one."""
        return residency

    def _written_shape(self, j: int) -> tuple[int, ...]:
        """Return the shape of what a run writes of an output."""
        shape: tuple[int, ...] = self.output_specs[j][1]
        return shape

    def _share(self, other: Stateful) -> None:
        """Give a clone handles with copies of what these hold, and the same feeds."""
        if not self._state.handles:
            return  # without the lock, which the thread of a signal handler may have
        code, device = self._compilation.code, self._compilation.side.context.device

        def work() -> None:
            handles = {}
            for i, handle in self._state.handles.items():
                name, shape, dtype = self.input_specs[i]
                if handle.growth is not None:
                    grown = self._grown(i, _rows_of(handle).numpy())
                    handles[i] = replace(grown, gpu=handle.gpu)
                    continue
                try:
                    block = code.copy_of(handle.buffer)
                except OutOfMemoryError as error:
                    raise named(error, f"handle {name!r} of a clone of", self._compilation.title) \
                        from None  # fmt: skip
                held = buffer.view(block, 0, shape, dtype, device)
                handles[i] = Handle(held, gpu=handle.gpu)
            state = State(handles, self._state.rules)
            for i, handle in handles.items():
                other._hold(i, handle.buffer, state)
            other._spoil(self._spoiled())

        self._locked(work)


def _rows_of(handle: Handle) -> Buffer:
    """Return the part of a handle that can be read."""
    held = handle.buffer
    if handle.growth is None:
        return held
    shape = handle.growth.filled, *held.shape[1:]
    return buffer.view(held.block, held.offset, shape, held.dtype, held.device)


def _width(what: str, dtype: np.dtype[Any]) -> int:
    """Bytes of a position; less than 0 where it has no sign."""
    if not is_integer(dtype):
        raise InputError(f"{what} is {dtype}; a position is an integer")
    return -dtype.itemsize if dtype.kind == "u" else dtype.itemsize


def _overlap(one: Buffer, other: Buffer) -> bool:
    return one.ptr < other.ptr + other.nbytes and other.ptr < one.ptr + one.nbytes


def _touches(array: Any, buffer: Buffer) -> bool:
    if isinstance(array, Buffer):
        return _overlap(array, buffer)
    if not isinstance(array, np.ndarray):
        return False  # another library's, on a device: never memory of the host
    low, high = byte_bounds(array)
    return low < buffer.ptr + buffer.nbytes and buffer.ptr < high


def _is_shared(state: State, i: int) -> bool:
    """Whether another handle has bytes of this one: it is read as it was before the run."""
    mine = state.handles[i].buffer
    return any(k != i and _overlap(mine, handle.buffer) for k, handle in state.handles.items())
