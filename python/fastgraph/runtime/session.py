"""Sessions: where graphs are compiled, and with how many threads they run."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from fastgraph._core import pool
from fastgraph._core.buffer import Block
from fastgraph._core.key import Key
from fastgraph.device.context import DeviceContext
from fastgraph.errors import CompileError, InputError
from fastgraph.ir.graph import Graph
from fastgraph.passes.extents import Source
from fastgraph.runtime.compiled import Compilation, CompiledGraph, connect
from fastgraph.runtime.extents import kept_params
from fastgraph.runtime.host import HostSide
from fastgraph.runtime.options import CompileOptions
from fastgraph.runtime.params import ParamSet, SetUp
from fastgraph.runtime.side import Side

__all__ = ["CompileOptions", "Session", "checked_options", "initial_of"]


class Session:
    """Compiles graphs for one device.

    Parameters
    ----------
    device : str, optional
        ``"cpu"``, ``"cuda"``, ``"cuda:1"`` …; as `DeviceContext` takes it.
    threads : int, optional
        How many threads of the host share the work of one run on cpu; by default every core that
        the process may use. On cuda up to eight of them share long copies to pinned memory and
        from there. Results depend on neither this nor on what else runs.
    release_gil : "auto" or bool, default "auto"
        Whether runs let other Python threads go on. "auto" keeps the GIL for work estimated under
        200 microseconds, since handing it over costs more than that; on cuda the wait for longer
        work lets it go at once, for shorter work after 50 microseconds.

    Raises
    ------
    InputError
        `threads` is not a positive integer, `release_gil` is none of the three.
    UnsupportedError
        The device is not in this build, or this machine has none that can be used.

    Examples
    --------
    >>> import fastgraph as fg, numpy as np
    >>> g = fg.Graph("scale")
    >>> x = g.input("x", (2,))
    >>> _ = g.output(x * 3.0, "y")
    >>> model = fg.Session("cpu", threads=1).compile(g)
    >>> model.run({"x": np.array([1, 2], "f4")})
    (array([3., 6.], dtype=float32),)
    """

    __slots__ = ("_side", "context", "release_gil", "threads")

    def __init__(
        self,
        device: str | None = None,
        threads: int | None = None,
        release_gil: Literal["auto"] | bool = "auto",
    ) -> None:
        if threads is not None and (
            isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= 1024
        ):
            raise InputError(f"threads is {threads!r}; 1 to 1024, or None, is possible")
        if not isinstance(release_gil, bool) and not (
            isinstance(release_gil, str) and release_gil == "auto"
        ):
            raise InputError(f"release_gil is {release_gil!r}; 'auto', True or False is possible")
        self.context = DeviceContext(device)
        self.threads = threads or pool.available_cores()
        self.release_gil = release_gil
        self._side = self._open()

    def _open(self) -> Side:
        if self.context.api == "cpu":
            return HostSide(self.context, self.threads, self.release_gil)
        # By name, so that a build without the modules loads the rest.
        module: Any = importlib.import_module("fastgraph.runtime.cuda")
        side: Side = module.CudaSide(self.context, self.threads, self.release_gil)
        return side

    def compile(self, graph: Graph, options: CompileOptions | None = None) -> CompiledGraph:
        """Compile a copy of `graph`: fuse, plan one arena, lower, record.

        On cuda kernels are compiled too, several at once, and kept on disk for the next process;
        logger ``fastgraph`` tells how far it is, at level INFO.

        Parameters
        ----------
        graph : Graph
            Left as it is; it may be changed or compiled again afterwards.
        options : CompileOptions, optional

        Returns
        -------
        CompiledGraph
            Its parameters have no value yet, but for those declared with one.

        Raises
        ------
        CompileError
            The graph has no outputs, or operators that the device cannot do: all are listed.
        InputError
            `graph` or `options` is something else, the machine lacks the instruction set, or
            parameters declared with a value hold an index out of range.
        UnsupportedError
            On cuda: the compiler of kernels is not installed.
        OutOfMemoryError
            The arena or the constants do not fit. Nothing is held after any of these.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("layer")
        >>> x, w, b = g.input("x", (1, 2)), g.param("w", (2, 2)), g.param("b", (2,))
        >>> _ = g.output(fg.ops.relu(x @ w + b), "y")
        >>> session = fg.Session("cpu")
        >>> model = session.compile(g)
        >>> model
        <CompiledGraph 'layer' on cpu: x: float32[1, 2] -> y: float32[1, 2]>
        >>> model.set_params({"w": np.eye(2, dtype="f4"), "b": np.array([-1, 1], "f4")})
        >>> model.run({"x": np.zeros((1, 2), "f4")})
        (array([[0., 1.]], dtype=float32),)
        >>> plain = session.compile(g, fg.CompileOptions(fuse=False))
        >>> len(plain.graph.nodes) > len(model.graph.nodes)
        True
        """
        options = checked_options(graph, options)
        initial = initial_of(graph)
        compilation = self._compilation(graph, options)
        return connect(compilation, ParamSet(compilation.setup), initial)

    def _compilation(
        self, graph: Graph, options: CompileOptions, known: Mapping[Key, Block] | None = None
    ) -> Compilation:
        """Compile; `known` are blocks of constants, and of what depends on them alone, to share."""
        source = Source.of(graph)
        code = self._side.code(self._side.optimise(source.graph, options), options)
        setup = SetUp(code, graph.fixed, known, kept_params(source))
        return Compilation(graph.name, self._side, code, setup, source, options)

    def __repr__(self) -> str:
        threads = f", {self.threads} threads" if self.context.api == "cpu" else ""
        return f"<Session {self.context.device}{threads}>"


def checked_options(graph: Any, options: Any) -> CompileOptions:
    """Return the options of a compile; raises what is known to be wrong before it begins."""
    options = CompileOptions() if options is None else options
    if not isinstance(graph, Graph):
        raise InputError(f"compile takes a Graph, not {type(graph).__name__}")
    if not isinstance(options, CompileOptions):
        raise InputError(f"options are CompileOptions, not {type(options).__name__}")
    options.check()
    if not graph.outputs:
        raise CompileError(f"graph {graph.name!r} has no outputs; name one with g.output")
    return options


def initial_of(graph: Graph) -> dict[str, np.ndarray[Any, Any]]:
    """Return what parameters of a graph hold from the start, by name."""
    return {
        value.name: value.node.attrs["initial"]
        for value in graph.params
        if "initial" in value.node.attrs
    }
