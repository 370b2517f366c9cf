"""Caches of compiled graphs by their structure."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import Literal

from fastgraph._core.executable import Cell
from fastgraph.device.store import Store
from fastgraph.ir.graph import Graph
from fastgraph.runtime.compiled import Compilation, CompiledGraph, connect
from fastgraph.runtime.identity import key_of_graph
from fastgraph.runtime.options import CompileOptions
from fastgraph.runtime.params import ParamSet
from fastgraph.runtime.session import Session, checked_options, initial_of

__all__ = ["CompileCache"]


class Entry:
    """What a cache holds of a compile: all but memory of a model's own."""

    running = False

    def __init__(self, compilation: Compilation) -> None:
        self.compilation = compilation
        self.cell = Cell()
        self.nbytes = sum(block.nbytes for block in compilation.setup.constant_blocks.values())


class CompileCache(Store):
    """Compiles each graph once, however often it is written anew.

    Graphs count as one where they have the same operators, in the same order and of the same
    names, the same constants (by their bytes), inputs, scalars, outputs and options, and
    parameters of the same names, shapes and dtypes. What parameters hold does not count.

    Parameters
    ----------
    device : str, optional
        As `Session` takes it.
    threads : int, optional
    release_gil : "auto" or bool
        As `Session` takes them.
    max_graphs : int, default 256
    max_bytes : int, optional
        Of constants, and of what was computed of them.

    Raises
    ------
    InputError
        A limit is no positive integer, or as `Session`.
    UnsupportedError
        As `Session`.

    Notes
    -----
    Every `compile` gives a model of its own, with its own arena and parameters: models of one
    cache never see each other. They have in common what a model and its clone have, the program,
    its kernels and its constants. Beyond a limit the compiles that were used least recently go;
    models made of them stay good. Any thread may use a cache at any time: a graph that several
    miss at once is compiled by one of them, and what that raises is raised in all of them and
    leaves nothing.

    Examples
    --------
    >>> import fastgraph as fg, numpy as np
    >>> def layer(value):
    ...     g = fg.Graph("layer")
    ...     x, w = g.input("x", (2,)), g.param("w", (2,), initial=np.full(2, value, "f4"))
    ...     _ = g.output(x * w, "y")
    ...     return g
    >>> cache = fg.CompileCache("cpu")
    >>> one, two = cache.compile(layer(2)), cache.compile(layer(3))
    >>> x = {"x": np.ones(2, "f4")}
    >>> one.run(x)[0].tolist(), two.run(x)[0].tolist()
    ([2.0, 2.0], [3.0, 3.0])
    >>> cache.stats.builds, cache.stats.hits
    (1, 1)
    """

    def __init__(
        self,
        device: str | None = None,
        *,
        threads: int | None = None,
        release_gil: Literal["auto"] | bool = "auto",
        max_graphs: int = 256,
        max_bytes: int | None = None,
    ) -> None:
        super().__init__(max_graphs, max_bytes)
        self._session = Session(device, threads, release_gil)

    @property
    def device(self) -> str:
        """str: the device that models are compiled for."""
        return self._session.context.device

    def compile(self, graph: Graph, options: CompileOptions | None = None) -> CompiledGraph:
        """Return a model of `graph`, compiled now or for an earlier call.

        Parameters
        ----------
        graph : Graph
            Left as it is; it may be changed afterwards.
        options : CompileOptions, optional

        Returns
        -------
        CompiledGraph
            As `Session.compile` returns it. Messages about its nodes name the lines of the graph
            that was compiled.

        Raises
        ------
        CompileError, InputError, UnsupportedError, OutOfMemoryError
            As `Session.compile`. The cache is as it was but for its counts.
        GraphError
            The compile of the same graph is under way in this very thread.
        """
        options = checked_options(graph, options)
        entry: Entry = self._get_or_build(
            key_of_graph(graph, astuple(options)),
            lambda: Entry(self._session._compilation(graph, options)),
        )
        compilation = replace(entry.compilation, name=graph.name)
        return connect(compilation, ParamSet(compilation.setup), initial_of(graph))

    def __repr__(self) -> str:
        return f"<CompileCache {self.device}, {len(self._held)} graphs>"
