"""Compiled graphs: what a session gives, and what a server calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from fastgraph._core.buffer import Block
from fastgraph._core.raw import RawOutput, raw_outputs
from fastgraph._core.step import Step, bind
from fastgraph.device.child import Part
from fastgraph.device.context import DeviceContext
from fastgraph.device.graph import DeviceGraph
from fastgraph.errors import InputError, UnsupportedError
from fastgraph.ir.graph import Value
from fastgraph.lower.program import Program
from fastgraph.passes.extents import Source
from fastgraph.runtime.extents import Extension, Extents
from fastgraph.runtime.info import NodeTime, Profile, TensorInfo, table
from fastgraph.runtime.options import CompileOptions
from fastgraph.runtime.params import ParamSet, SetUp
from fastgraph.runtime.pipeline import Pipelined
from fastgraph.runtime.routing import Routing
from fastgraph.runtime.side import Code, Side
from fastgraph.runtime.state import NO_STATE
from fastgraph.runtime.typed import arrays_of, bytes_of, param_of

__all__ = ["Compilation", "CompiledGraph", "connect"]


@dataclass(frozen=True)
class Compilation:
    """What a model and its clones share: everything but memory."""

    name: str
    side: Side
    code: Code
    setup: SetUp
    source: Source
    options: CompileOptions
    extensions: dict[Any, Extension] = field(default_factory=dict)
    # What (dim, upper) of `set_active_extent` stands for.
    meant: dict[Any, list[Any]] = field(default_factory=dict)

    @property
    def program(self) -> Program:
        """Program: the records and what is known of their nodes."""
        return self.code.program

    @property
    def title(self) -> str:
        """str: what messages call the model."""
        return f"the compiled model {self.name!r}"


class CompiledGraph(Pipelined):
    """A graph made ready to run. Made by `Session.compile`, `fg.load` and `clone`.

    Calls on one model are serialised; clones run at once. Views and raw outputs show the latest
    run of any thread. ``copy.copy`` gives the same model, `clone` and ``copy.deepcopy`` one with
    an arena of its own.

    Examples
    --------
    >>> import fastgraph as fg, numpy as np
    >>> g = fg.Graph("layer")
    >>> x, w = g.input("x", (1, 2)), g.param("w", (2, 2))
    >>> _ = g.output(fg.ops.relu(x @ w), "y")
    >>> model = fg.Session("cpu").compile(g)
    >>> model.set_param("w", np.array([[1, 0], [0, -1]], "f4"))
    >>> model.run({"x": np.array([[3, 4]], "f4")})
    (array([[3., 0.]], dtype=float32),)
    """

    __slots__ = ("_compilation", "_extents", "_params")

    _compilation: Compilation
    _params: ParamSet

    def __init__(self) -> None:
        raise TypeError("compiled graphs are made by Session.compile")

    @property
    def device(self) -> str:
        """str: the device that the model runs on."""
        return self._compilation.side.context.device

    @property
    def context(self) -> DeviceContext:
        """DeviceContext: the device that the model runs on."""
        return self._compilation.side.context

    @property
    def capabilities(self) -> frozenset[str]:
        """frozenset of str: what the device can do."""
        return self._compilation.side.context.capabilities

    @property
    def name(self) -> str:
        """str: the graph's name."""
        return self._compilation.name

    @property
    def threads(self) -> int:
        """int: how many threads of the host share the work of a run."""
        return self._compilation.side.threads

    @property
    def inputs(self) -> list[TensorInfo]:
        """list of TensorInfo: the inputs in declared order, also unused ones."""
        return [TensorInfo(*spec) for spec in self.input_specs]

    @property
    def outputs(self) -> list[TensorInfo]:
        """list of TensorInfo: the outputs in declared order."""
        return [TensorInfo(*spec) for spec in self.output_specs]

    @property
    def params(self) -> list[TensorInfo]:
        """list of TensorInfo: the parameters in declared order."""
        return [TensorInfo(v.name, v.shape, v.dtype) for v in self._compilation.setup.params]

    @property
    def tensor_nbytes(self) -> int:
        """int: bytes that the arena's values would take side by side."""
        return self._program.tensor_nbytes

    @property
    def graph(self) -> DeviceGraph:
        """DeviceGraph: the recorded graph, for its nodes and edges.

        It runs through the model, or as a part of another graph that it is added to by
        `DeviceGraphBuilder.add_child_graph`.
        """
        self._check_open()
        return DeviceGraph._of(
            self.context,
            self._program.record,
            self._compilation.title,
            self._part,
        )

    def _part(self) -> Part:
        compilation = self._compilation
        if self._state.rules:
            raise UnsupportedError(
                f"{compilation.title} has feeds, which run with the model alone: inside another "
                "graph, copy its outputs there by a node"
            )
        return self._locked(lambda: compilation.code.part(self, compilation.title))

    def close(self) -> None:  # noqa: D102 (documented where it is inherited from)
        super().close()
        self._params = ParamSet(self._compilation.setup)
        self._state = NO_STATE
        self._routing = Routing(self._compilation.code, self._compilation.title)
        self._extents = Extents()

    close.__doc__ = Pipelined.close.__doc__

    def set_param(self, name: str, array: Any) -> None:
        """Set one parameter; as `set_params`.

        Parameters
        ----------
        name : str
        array : numpy.ndarray
            Exact shape and dtype, any strides; copied before the call returns.

        Raises
        ------
        InputError
            As `set_params`.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("scale")
        >>> x, s = g.input("x", (2,)), g.param("s", (2,))
        >>> _ = g.output(x * s, "y")
        >>> model = fg.Session("cpu").compile(g)
        >>> model.set_param("s", np.array([2, 3], "f4"))
        >>> model.run({"x": np.ones(2, "f4")})
        (array([2., 3.], dtype=float32),)
        """
        self.set_params({name: array})

    def set_params(self, arrays: Mapping[str, Any]) -> None:
        """Set parameters: ordered after every earlier run and before every later one.

        What depends on parameters alone (packed weights, folded products) is computed here, as
        soon as all that it needs is set, so that runs do not.

        Parameters
        ----------
        arrays : mapping of str to numpy.ndarray
            Exact shapes and dtypes, any strides; copied before the call returns.

        Raises
        ------
        InputError
            An unknown name, a wrong shape or dtype, or an index out of range in the data. No
            parameter has changed.
        OutOfMemoryError
            The new blocks do not fit. No parameter has changed.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("scale")
        >>> x, s = g.input("x", (2,)), g.param("s", (2,))
        >>> _ = g.output(x * s, "y")
        >>> model = fg.Session("cpu").compile(g)
        >>> model.set_params({"s": np.array([2, 3], "f4")})
        >>> model.run({"x": np.ones(2, "f4")})
        (array([2., 3.], dtype=float32),)
        """
        if not isinstance(arrays, Mapping):
            raise InputError(f"set_params takes a mapping, not {type(arrays).__name__}")
        self._check_open()
        checked = self._params.check(arrays)
        self._locked(lambda: self._replace(checked))

    def _replace(self, checked: Mapping[Value, np.ndarray[Any, Any]]) -> None:
        self._take(*self._params.replaced(checked))

    def _take(self, params: ParamSet, made: Mapping[int, Block]) -> None:
        """Have these parameters, of which `made` are new blocks by slot; with the lock."""
        program, slots = self._program, self._compilation.setup.slots
        places = [
            (program.blocks[slots[slot]], block)
            for slot, block in made.items()
            if slots[slot] in program.blocks
        ]
        places += self._extent_places(made)
        move = self._routing.prepare(params, made)
        self._adopt(params, places, params.unset)
        self._routing.follow(self, move)

    def set_param_typed(self, name: str, data: Any, dtype: str) -> None:
        """Set one parameter from bytes; else as `set_param`.

        Parameters
        ----------
        name : str
        data : bytes-like
            All elements, dense, in order, little-endian; copied before the call returns.
        dtype : str
            The name of the dtype that `data` holds, such as ``"bfloat16"``. A float dtype is
            converted to a declared float dtype, rounded once; every other must be the declared one.

        Raises
        ------
        InputError
            An unknown name or dtype, another number of bytes, a conversion that is not between
            floats, or as `set_params`. No parameter has changed.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("scale")
        >>> x, s = g.input("x", (2,)), g.param("s", (2,))
        >>> _ = g.output(x * s, "y")
        >>> model = fg.Session("cpu").compile(g)
        >>> model.set_param_typed("s", np.array([2, 3], "f2").tobytes(), "float16")
        >>> model.run({"x": np.ones(2, "f4")})
        (array([2., 3.], dtype=float32),)
        """
        self._check_open()
        found = [info for info in self.params if info.name == name]
        # A name that is unknown is explained where all are checked.
        self.set_params({name: param_of(found[0], data, dtype) if found else data})

    def run_typed(self, inputs: Iterable[Any], **scalars: Any) -> tuple[tuple[bytes, str], ...]:
        r"""Run on tensors as bytes and return the outputs as bytes.

        Parameters
        ----------
        inputs : list of (str, bytes-like, str)
            For every declared input its name, all elements in order, little-endian, and the name
            of its dtype, which must be the declared one.
        **scalars
            Values of the graph's scalars for this call.

        Returns
        -------
        tuple of (bytes, str)
            For each output, in order, its elements and the name of its dtype.

        Raises
        ------
        InputError
            A missing, unknown or repeated name, another dtype or number of bytes, or as `run`.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("twice")
        >>> x = g.input("x", (3,), "int16")
        >>> _ = g.output(x + x, "y")
        >>> model = fg.Session("cpu").compile(g)
        >>> model.run_typed([("x", np.array([1, 2, 300], "i2").tobytes(), "int16")])
        ((b'\x02\x00\x04\x00X\x02', 'int16'),)
        """
        self._check_open()
        arrays = arrays_of(self.inputs, inputs, self._active_shapes)
        return tuple([bytes_of(array) for array in self.run(arrays, **scalars)])

    def run_raw(self, inputs: Mapping[str, Any], **scalars: Any) -> tuple[RawOutput, ...]:
        """Run on arrays given by name and return handles to the outputs where they lie.

        Parameters
        ----------
        inputs : mapping of str to array
            As `run` takes them.
        **scalars
            Values of the graph's scalars for this call.

        Returns
        -------
        tuple of RawOutput
            With ``ptr``, ``size``, ``shape``, ``dtype`` and ``array()``. After the next run
            ``array()`` and ``ptr`` raise StaleOutputError; an array taken before stays readable
            memory, which later runs change.

        Raises
        ------
        InputError
            As `run` raises it.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("twice")
        >>> x = g.input("x", (3,))
        >>> _ = g.output(x + x, "y")
        >>> model = fg.Session("cpu").compile(g)
        >>> (y,) = model.run_raw({"x": np.array([1, 2, 3], "f4")})
        >>> y.shape, y.array().tolist()
        ((3,), [2.0, 4.0, 6.0])
        """
        return raw_outputs(self, self._run_named(inputs, scalars))

    def bind(
        self,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        stream: Any = None,
    ) -> Step:
        """Fix the addresses of inputs and outputs once and return a step to call.

        Parameters
        ----------
        inputs : mapping of str to array
            Every input without a handle, dense; each call reads what the array then holds. On cuda
            an array on the device is read where it lies. What is not named here is in each call
            what its handle then holds.
        outputs : mapping of str to array, optional
            Dense writable arrays that each call fills, on cuda also such on the device; outputs
            not named stay where `output_view` shows them. An output may be given the array of an
            input.
        stream : Stream or object with __cuda_stream__, optional
            Not on cpu, where a step is over when the call returns. On cuda each call puts a run
            there, behind all that is there, and returns; host arrays have been read by then.

        Returns
        -------
        Step
            ``step(**scalars)`` runs once and waits, unless there is a stream. It keeps the arrays
            alive.

        Raises
        ------
        InputError
            A name, shape or dtype does not fit, an array is not dense or on another device, an
            output is read-only or overlaps another, or is a NumPy array that a step on a stream
            would have to wait for. Nothing was bound.
        UnsupportedError
            A stream on cpu.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("count")
        >>> x = g.input("x", (2,))
        >>> _ = g.output(x + 1.0, "y")
        >>> model = fg.Session("cpu").compile(g)
        >>> state = np.zeros(2, "f4")
        >>> step = model.bind({"x": state}, {"y": state})
        >>> step(); step()
        >>> state
        array([2., 2.], dtype=float32)
        """
        given = [{} if arrays is None else arrays for arrays in (inputs, outputs)]
        for arrays, what in zip(given, ("inputs", "outputs"), strict=True):
            if not isinstance(arrays, Mapping):
                raise InputError(
                    f"bind takes {what} as a mapping of names to arrays, "
                    f"not {type(arrays).__name__}"
                )
        names = [spec[0] for spec in self.output_specs]
        # A name that is unknown is told of by what binds.
        self._refuse_fed((names.index(n), array) for n, array in given[1].items() if n in names)
        return bind(self, dict(given[0]), dict(given[1]), stream)

    # What the run methods ask of arrays and streams that they do not know.

    def _on_device(self, name: str, array: Any, stream: Any, written: bool = False) -> Any:
        return self._compilation.side.on_device(name, array, stream, written)

    def _check_out(self, out: Any, stream: Any) -> tuple[list[Any], list[Any]]:
        given, places = self._compilation.side.check_out(self.output_specs, out, stream)
        self._refuse_fed(enumerate(places))
        return given, places

    def _as_stream(self, stream: Any) -> Any:
        return self._compilation.side.as_stream(stream)

    def _let_go(self, given: tuple[Any, Any], stream: Any) -> None:
        self._compilation.side.let_go(given, stream)

    def clone(self) -> CompiledGraph:
        """Return a model with an arena of its own; parameters are shared until one side sets them.

        Handles hold copies of what these hold, in memory of the clone's own; feeds are the same.
        It has the same resident experts, and captures what routers choose where this one does.

        Returns
        -------
        CompiledGraph
            Runs at the same time as this one and never waits for it. Steps that were bound stay
            with the model that they were bound on.

        Raises
        ------
        OutOfMemoryError
            The arena, or what there is beside it, does not fit.
        GraphError
            The model is closed.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("scale")
        >>> x, s = g.input("x", (2,)), g.param("s", (2,))
        >>> _ = g.output(x * s, "y")
        >>> model = fg.Session("cpu").compile(g)
        >>> model.set_param("s", np.array([2, 3], "f4"))
        >>> other = model.clone()
        >>> model.set_param("s", np.zeros(2, "f4"))
        >>> other.run({"x": np.ones(2, "f4")})
        (array([2., 3.], dtype=float32),)
        """
        self._check_open()
        other = connect(self._compilation, self._params, {})
        self._share(other)
        other._route_as(self)
        other._extend_as(self)
        return other

    def __copy__(self) -> CompiledGraph:
        return self

    def __deepcopy__(self, memo: object) -> CompiledGraph:
        return self.clone()

    def profile(self, inputs: Mapping[str, Any], n: int = 20, **scalars: Any) -> Profile:
        """Time every node over `n` runs.

        Parameters
        ----------
        inputs : mapping of str to array
            As `run` takes them.
        n : int, default 20
        **scalars
            Values of the graph's scalars.

        Returns
        -------
        Profile
            Medians by node: name, operator, shape, microseconds, bytes and operations a second.

        Raises
        ------
        InputError
            As `run`, or `n` is less than 1.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("layer")
        >>> x = g.input("x", (4, 8))
        >>> _ = g.output(fg.ops.softmax(x), "y")
        >>> model = fg.Session("cpu").compile(g)
        >>> times = model.profile({"x": np.ones((4, 8), "f4")}, n=5)
        >>> [(node.operator, node.shape) for node in times.slowest()]
        [('softmax', (4, 8))]
        >>> times.total_us > 0
        True
        """
        if not isinstance(n, int) or n < 1:
            raise InputError(f"profile over {n!r} runs; a whole number from 1 on is needed")
        times = [self._time_nodes(inputs, scalars) for _ in range(n)]
        nodes = []
        for meta, samples in zip(self._timed.meta, zip(*times, strict=True), strict=True):
            ns = max(float(median(samples)), 1.0)
            nodes.append(
                NodeTime(
                    meta.name,
                    meta.operator,
                    meta.shape,
                    ns / 1e3,
                    meta.nbytes / ns * 1e9,
                    meta.flops / ns * 1e9,
                )
            )
        return Profile(self.name, nodes, n)

    def summary(self) -> str:
        """Return a table of the nodes with shapes and work, and the memory that the model takes.

        Returns
        -------
        str
            Several lines, for reading; their form may change.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("layer")
        >>> x = g.input("x", (4, 8))
        >>> _ = g.output(fg.ops.softmax(x), "y")
        >>> print(fg.Session("cpu", threads=2).compile(g).summary())  # doctest: +ELLIPSIS
        layer on cpu, 2 threads, ...
          input   x: float32[4, 8]
          output  y: float32[4, 8]
        node     operator  shape   bytes  flops
        softmax  softmax   [4, 8]  ...
        """
        self._check_open()
        program = self._program
        rows = [
            (m.name, m.operator, str(list(m.shape)), str(m.nbytes), str(m.flops))
            for m in program.meta
        ]
        lines = [
            f"{self.name} on {self.device}, {self._compilation.code.words}",
            *(f"  input   {info}" for info in self.inputs),
            *(f"  param   {info}" for info in self.params),
            *(f"  output  {info}" for info in self.outputs),
            table(("node", "operator", "shape", "bytes", "flops"), rows),
            f"arena {self.arena_nbytes} bytes for {self.tensor_nbytes} bytes of tensors",
            f"parameters and constants {self._params.blocks.nbytes} bytes",
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        inputs = ", ".join(str(info) for info in self.inputs)
        outputs = ", ".join(str(info) for info in self.outputs)
        if self.closed:
            return f"<CompiledGraph {self.name!r}, closed>"
        return f"<CompiledGraph {self.name!r} on {self.device}: {inputs} -> {outputs}>"


def connect(
    compilation: Compilation, params: ParamSet, initial: Mapping[str, np.ndarray[Any, Any]]
) -> CompiledGraph:
    """Bind a compilation to an arena of its own and to `params`, and set the `initial` ones."""
    code = compilation.code
    program = code.program
    graph = program.graph
    model = CompiledGraph.__new__(CompiledGraph)
    model._compilation = compilation
    model._params = params
    model._deliverer = None
    model._state = NO_STATE
    model._routing = Routing(code, compilation.title)
    model._program = program
    model._resident = frozenset()
    model._extents = Extents()
    model._setup(
        code.runner(params, compilation.title),
        [(value.name, value.shape, value.dtype) for value in graph.inputs],
        [
            (name, value.shape, value.dtype, offset)
            for (name, value), offset in zip(graph.outputs, program.output_offsets, strict=True)
        ],
        program.scalars,
        params.unset,
    )
    if initial:
        model.set_params(initial)
    return model
