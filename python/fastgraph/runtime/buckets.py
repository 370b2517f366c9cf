"""Compiles for ranges of sizes: one model for many numbers of rows, one set of parameters."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from fastgraph._core.checks import as_array
from fastgraph._core.executable import Cell
from fastgraph._core.keys import KeyWriter
from fastgraph._core.sizes import dims_of
from fastgraph.device.store import Store
from fastgraph.errors import CompileError, InputError
from fastgraph.ir.graph import Graph
from fastgraph.ir.rows import RowFlow, follow_rows
from fastgraph.runtime.compiled import CompiledGraph, connect
from fastgraph.runtime.info import TensorInfo
from fastgraph.runtime.narrowed import Narrowed
from fastgraph.runtime.options import CompileOptions
from fastgraph.runtime.params import ParamSet
from fastgraph.runtime.session import Session, checked_options, initial_of
from fastgraph.runtime.shared_params import Member, SharedParams

__all__ = ["BucketStats", "BucketedCompileCache", "power_of_two_ladder"]

Build = Callable[[int], Graph]
Array = np.ndarray[Any, np.dtype[Any]]
Range = tuple[int, int]


class BucketStats(NamedTuple):
    """Counts of a cache since it was made, and what it holds now.

    Attributes
    ----------
    hits, misses : int
        Searches that found a model, and that found none yet or none for such a number of rows.
    compiles : int
    live_models : int
    rows, padded_rows : int
        What `run_padded` was given, and what was run beyond that.
    """

    hits: int
    misses: int
    compiles: int
    live_models: int
    rows: int
    padded_rows: int


def power_of_two_ladder(lo: int, hi: int) -> list[Range]:
    """Return half-open ranges whose largest sizes are the powers of two from `lo` to `hi`.

    Parameters
    ----------
    lo, hi : int
        Each rounded up to a power of two. The first range begins at 1.

    Raises
    ------
    InputError
        `lo` is no positive integer, or `hi` a smaller one.

    Examples
    --------
    >>> import fastgraph as fg
    >>> fg.power_of_two_ladder(10, 64)
    [(1, 17), (17, 33), (33, 65)]
    """
    for name, size in (("lo", lo), ("hi", hi)):
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InputError(f"{name} is {size!r}; a positive integer is needed")
    if hi < lo:
        raise InputError(f"a ladder from {lo} to {hi}: the second must not be smaller")
    sizes = [1 << (lo - 1).bit_length()]
    while sizes[-1] < hi:
        sizes.append(2 * sizes[-1])
    return ranges_of(sizes)


def ranges_of(sizes: Sequence[int]) -> list[Range]:
    """Return the ranges that end with these sizes, each from the one before on."""
    return [(before + 1, size + 1) for before, size in zip((0, *sizes[:-1]), sizes, strict=True)]


class Bucket(Member):
    """One compile: the model, and what becomes of the rows of its inputs."""

    running = False
    nbytes = 0

    def __init__(
        self, model: CompiledGraph, title: str, inputs: list[str], flow: RowFlow | None
    ) -> None:
        super().__init__(model, title)
        self.rows_of = [info for info in model.inputs if info.name in inputs]
        # None: rows lie along a named dimension, and are never filled up.
        self.flow = flow
        self.narrowed = Narrowed(model, title)
        self.cell = Cell()


class BucketedCompileCache:
    """Models of one family of graphs, one for each range of sizes.

    Parameters
    ----------
    device : str, optional
        As `Session` takes it.
    ranges : sequence of (int, int), optional
        Half-open ranges of numbers of rows, such as ``[(1, 9), (9, 33)]``. A graph is compiled
        for the largest number of a range, its *upper*: 8 and 32.
    sizes : sequence of int, optional
        The uppers instead, each range beginning where the one before ends.
    max_padding : float, optional
        Where a range's upper is more than so many times the number of rows, the graph is compiled
        for that very number; the models for the latest `max_exact` such numbers are kept.
    max_exact : int, default 8
    dim : str, optional
        The dimension that rows lie along, where the graph names it by `fg.dim`; else they lie along
        the first axis of every input that has `upper` elements there.
    threads : int, optional
    release_gil : "auto" or bool
        As `Session` takes them.
    options : CompileOptions, optional

    Raises
    ------
    InputError
        Ranges are empty or overlap, sizes do not grow, both or none of the two are given, or
        another argument does not fit.
    UnsupportedError
        As `Session`.

    Notes
    -----
    A cache is for one model: a function ``build(upper)`` writes its graph for a number of rows,
    and is called once for each range. Parameters are set for all ranges at once, and what is
    computed of them alone, such as packed weights, is held once where it is the same for several
    ranges. As long as a range may still be compiled, parameters are also kept as they were given.

    Any thread may use a cache at any time: a range that several miss at once is compiled by one of
    them. A compile that raises does so in all of them and leaves nothing.

    Examples
    --------
    >>> import fastgraph as fg, numpy as np
    >>> def build(rows):
    ...     g = fg.Graph("layer")
    ...     x, w = g.input("x", (rows, 2)), g.param("w", (2, 2))
    ...     _ = g.output(fg.ops.relu(x @ w), "y")
    ...     return g
    >>> cache = fg.BucketedCompileCache("cpu", sizes=[4, 16])
    >>> cache.set_param("w", np.eye(2, dtype="f4"))
    >>> (y,) = cache.run_padded(3, build, {"x": np.full((3, 2), 5, "f4")})
    >>> y.tolist()
    [[5.0, 5.0], [5.0, 5.0], [5.0, 5.0]]
    >>> upper, model = cache.get_or_compile(2, build)
    >>> upper, model.inputs[0].shape, cache.get_or_compile(17, build)
    (4, (4, 2), None)
    """

    def __init__(
        self,
        device: str | None = None,
        ranges: Iterable[Range] | None = None,
        *,
        sizes: Iterable[int] | None = None,
        max_padding: float | None = None,
        max_exact: int = 8,
        dim: str | None = None,
        threads: int | None = None,
        release_gil: Literal["auto"] | bool = "auto",
        options: CompileOptions | None = None,
    ) -> None:
        if (ranges is None) == (sizes is None):
            raise InputError("buckets are given as ranges or as sizes")
        if sizes is not None:
            ranges = ranges_of(checked_sizes(sizes))
        self._ranges = checked_ranges(ranges)
        self._starts = [start for start, _ in self._ranges]
        if max_padding is not None and not (
            isinstance(max_padding, int | float) and max_padding >= 1
        ):
            raise InputError(f"max_padding is {max_padding!r}; a factor from 1 on is needed")
        if isinstance(max_exact, bool) or not isinstance(max_exact, int) or max_exact < 1:
            raise InputError(f"max_exact is {max_exact!r}; a positive integer is needed")
        if dim is not None and not (isinstance(dim, str) and dim):
            raise InputError(f"dim is {dim!r}; the name of a dimension, or None, is needed")
        self._dim = dim
        self._max_padding = max_padding
        self._max_exact = max_exact
        self._options = options
        self._session = Session(device, threads, release_gil)
        self._regular = Store(len(self._ranges))
        self._exact = Store(max_exact)
        self._params = SharedParams()
        # Held while parameters change or a model gets its own.
        self._changing = threading.RLock()
        self._mutex = threading.Lock()
        self._outside = self._rows = self._padded = 0

    @property
    def device(self) -> str:
        """str: the device that models are compiled for."""
        return self._session.context.device

    @property
    def ranges(self) -> list[Range]:
        """list of (int, int): the half-open ranges, in order."""
        return list(self._ranges)

    @property
    def stats(self) -> BucketStats:
        """BucketStats: what was found, compiled and padded."""
        regular, exact = self._regular.stats, self._exact.stats
        return BucketStats(
            regular.hits + exact.hits,
            regular.misses + exact.misses + self._outside,
            regular.builds + exact.builds,
            regular.live_graphs + exact.live_graphs,
            self._rows,
            self._padded,
        )

    @property
    def param_nbytes(self) -> int:
        """int: bytes of all that is held of parameters and constants, each block counted once."""
        with self._changing:
            return self._params.nbytes

    # ---- models

    def get_or_compile(self, rows: int, build: Build) -> tuple[int, CompiledGraph] | None:
        """Return the model for so many rows, compiled now if there is none yet.

        Parameters
        ----------
        rows : int
        build : callable
            ``build(upper)`` returns the Graph for `upper` rows.

        Returns
        -------
        (int, CompiledGraph) or None
            The number of rows that the model takes, and the model, the same one each time; its
            parameters are set through the cache. None where `rows` lies in no range.

        Raises
        ------
        InputError
            `rows` is no integer, or parameters that were set do not fit the graph.
        GraphError
            The compile is under way in this very thread.
        Exception
            What `build` raises, or as `Session.compile`. Nothing is left of it.
        """
        upper = self._upper(rows)
        if upper is None:
            self._count(outside=1)
            return None
        return upper, self._get(upper, build).model

    def prepare(self, build: Build, *, background: bool = False) -> Future[None]:
        """Compile all ranges that are not compiled yet, the largest first.

        Parameters
        ----------
        build : callable
            As `get_or_compile` takes it.
        background : bool, default False
            Do so in a thread, and return at once. Who needs a range meanwhile compiles it or waits
            for its compile.

        Returns
        -------
        concurrent.futures.Future
            Done when all are compiled; in the background it holds what a compile raised. It cannot
            be cancelled.

        Raises
        ------
        Exception
            As `get_or_compile`, if not in the background. Ranges compiled before stay.

        Examples
        --------
        >>> import fastgraph as fg
        >>> def build(rows):
        ...     g = fg.Graph()
        ...     _ = g.output(g.input("x", (rows,)) * 2, "y")
        ...     return g
        >>> cache = fg.BucketedCompileCache("cpu", fg.power_of_two_ladder(8, 64))
        >>> cache.prepare(build, background=True).result()
        >>> cache.stats.compiles
        4
        """
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()

        def work() -> None:
            for _, end in reversed(self._ranges):
                self._get(end - 1, build)

        def in_thread() -> None:
            try:
                work()
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        if background:
            # A process that ends does not wait for what nobody will use.
            threading.Thread(target=in_thread, name="fastgraph prepare", daemon=True).start()
        else:
            work()
            done.set_result(None)
        return done

    def _upper(self, rows: Any) -> int | None:
        if isinstance(rows, bool) or not isinstance(rows, int | np.integer):
            raise InputError(f"rows is {rows!r}; an integer is needed")
        index = bisect_right(self._starts, rows) - 1
        if index < 0 or rows >= self._ranges[index][1]:
            return None
        upper = self._ranges[index][1] - 1
        if self._max_padding is not None and upper > self._max_padding * rows:
            return int(rows)
        return upper

    def _get(self, upper: int, build: Build) -> Bucket:
        """Return the bucket of `upper`, made now if there is none."""
        if not callable(build):
            raise InputError(f"build is a function of the number of rows, not {build!r:.80}")
        regular = any(end == upper + 1 for _, end in self._ranges)
        store = self._regular if regular else self._exact
        writer = KeyWriter()
        writer.write_int(upper)
        key = writer.take_key()
        bucket: Bucket = store._get_or_build(key, lambda: self._compile(upper, build))
        if bucket.model.closed:  # by whoever got it
            with store._mutex:
                if store._held.get(key) is bucket:
                    store._remove(key)
            return self._get(upper, build)
        if regular and self._complete():
            with self._changing:
                self._params.complete()
        return bucket

    def _compile(self, upper: int, build: Build) -> Bucket:
        graph = build(upper)
        options = checked_options(graph, self._options)
        inputs = [v.name for v in graph.inputs if v.shape and v.shape[0] == upper]
        if self._dim is not None:
            sizes = (size for v in graph.inputs for size in v.shape)
            if not any((self._dim, upper) in dims_of(size) for size in sizes):
                raise CompileError(
                    f"graph {graph.name!r}, built for {upper} rows, has no input of dimension "
                    f"{self._dim!r} of that size, as fg.dim({self._dim!r}, {upper}) names it"
                )
        elif not inputs:
            raise CompileError(
                f"graph {graph.name!r}, built for {upper} rows, has no input whose first axis has "
                f"{upper} elements: {[f'{v.name}: {list(v.shape)}' for v in graph.inputs]}"
            )
        flow = None
        if self._dim is None:
            flow = follow_rows(graph, dict.fromkeys(inputs, 0), upper)
        with self._changing:
            known = self._params.constants()
        compilation = self._session._compilation(graph, options, known)
        model = connect(compilation, ParamSet(compilation.setup), {})
        bucket = Bucket(model, f"the model for {upper} rows", inputs, flow)
        with self._changing:
            self._params.add(bucket, initial_of(graph))
        return bucket

    def _complete(self) -> bool:
        """Whether nothing will be compiled any more."""
        return self._max_padding is None and len(self._regular._held) == len(self._ranges)

    def _count(self, outside: int = 0, rows: int = 0, padded: int = 0) -> None:
        with self._mutex:
            self._outside += outside
            self._rows += rows
            self._padded += padded

    # ---- parameters

    def set_param(self, name: str, array: Any) -> None:
        """Set one parameter of all models; as `set_params`."""
        self.set_params({name: array})

    def set_params(self, arrays: Mapping[str, Any]) -> None:
        """Set parameters of all models, also of those that are compiled later.

        Parameters
        ----------
        arrays : mapping of str to array
            As `CompiledGraph.set_params` takes them; copied before the call returns.

        Raises
        ------
        InputError
            A name, shape or dtype does not fit one of the models, which is named. Before the
            first compile that is seen by the compile, which raises it then.
        OutOfMemoryError
            The new blocks do not fit.

        Notes
        -----
        All models change or none. Runs of other threads see the old values of all of these
        parameters or the new ones.
        """
        if not isinstance(arrays, Mapping):
            raise InputError(f"set_params takes a mapping, not {type(arrays).__name__}")
        with self._changing:
            self._params.set(arrays, self._complete())
            for member in self._params.members:
                if isinstance(member, Bucket):
                    member.narrowed.forget()

    # ---- runs

    def run_padded(
        self, rows: int, build: Build, inputs: Mapping[str, Any], **scalars: Any
    ) -> tuple[Array, ...]:
        """Run the model for so many rows on inputs of exactly so many.

        Parameters
        ----------
        rows : int
        build : callable
            As `get_or_compile` takes it.
        inputs : mapping of str to array
            As `CompiledGraph.run` takes them, with `rows` elements along the axes that have
            `upper` in the graph. They are filled up with copies of the last row where that changes
            no other row; where it could, and with `dim`, the model runs with an active extent.
        **scalars
            Values of the graph's scalars.

        Returns
        -------
        tuple of numpy.ndarray
            The outputs, with `rows` elements along the axes of rows.

        Raises
        ------
        InputError
            `rows` lies in no range, an input has another number of rows, an active extent was set
            on the model of the range, or as `run`.
        UnsupportedError
            Rows that were filled in could change one that was given, and an extent cannot be set
            for an operator, which is named.
        Exception
            As `get_or_compile`.
        """
        upper = self._upper(rows)
        if upper is None:
            self._count(outside=1)
            raise InputError(
                f"{rows} rows lie in none of the ranges {self._ranges} of this cache, which are "
                "half-open"
            )
        bucket = self._get(upper, build)
        if active := bucket.model.active_extents:
            raise InputError(
                f"{bucket.title} has active extents, {active}, and run_padded gives all rows: take "
                "them back with set_active_extent(None), or run the model itself"
            )
        if upper == rows:
            found = bucket.model.run(inputs, **scalars)
            self._count(rows=rows)
            return found
        flow = bucket.flow
        if flow is None or flow.mixed:
            found = self._run_narrowed(bucket, (int(rows), upper), inputs, scalars)
            self._count(rows=rows)
            return found
        found = bucket.model.run(filled(inputs, bucket.rows_of, rows, upper), **scalars)
        self._count(rows=rows, padded=upper - rows)
        return tuple(
            [
                array if place is None else array[(*[slice(None)] * place.axis, slice(rows))]
                for array, place in zip(found, flow.outputs, strict=True)
            ]
        )

    def _run_narrowed(
        self,
        bucket: Bucket,
        extent: tuple[int, int],
        inputs: Mapping[str, Any],
        scalars: Mapping[str, Any],
    ) -> tuple[Array, ...]:
        """Run with an active extent, which takes rows as they are."""
        if bucket.flow is not None:
            check_rows(inputs, bucket.rows_of, extent[0])
        return bucket.narrowed.run(extent, self._dim, inputs, scalars)

    def __repr__(self) -> str:
        return f"<BucketedCompileCache {self.device}, {self._ranges}>"


def checked_sizes(sizes: Iterable[int]) -> list[int]:
    """Return sizes of buckets that grow, or raise InputError."""
    found = list(sizes)
    if not found:
        raise InputError("no sizes were given; one at least is needed")
    for before, size in zip((0, *found), found, strict=False):
        if isinstance(size, bool) or not isinstance(size, int) or size <= before:
            raise InputError(f"sizes are {found!r:.200}; growing positive integers are needed")
    return found


def checked_ranges(ranges: Any) -> list[Range]:
    """Return half-open ranges in order that have no number in common, or raise InputError."""
    found: list[Range] = []
    for one in ranges:
        pair = tuple(one) if isinstance(one, tuple | list | range) else ()
        if isinstance(one, range):
            pair = (one.start, one.stop)
        if len(pair) != 2 or any(isinstance(n, bool) or not isinstance(n, int) for n in pair):
            raise InputError(f"range {one!r:.80}: a pair of integers (start, end) is needed")
        start, end = pair
        if start < 1:
            raise InputError(f"range {pair} begins at {start}; it takes one row at least")
        if end <= start:
            raise InputError(f"range {pair} is empty: it is half-open, the end is not in it")
        found.append((start, end))
    found.sort()
    for one, other in pairwise(found):
        if other[0] < one[1]:
            raise InputError(f"ranges {one} and {other} overlap; they are half-open")
    if not found:
        raise InputError("no ranges were given; one at least is needed")
    return found


def filled(
    inputs: Mapping[str, Any], infos: Sequence[TensorInfo], rows: int, upper: int
) -> dict[str, Any]:
    """Return inputs of which those with rows have `upper` of them, the last one repeated.

    So rows that are filled in meet no data that those given do not.
    """
    given = check_rows(inputs, infos, rows)
    found = dict(inputs)
    for name, array in given.items():
        whole = np.empty((upper, *array.shape[1:]), array.dtype)
        whole[:rows] = array
        whole[rows:] = array[rows - 1]
        found[name] = whole
    return found


def check_rows(
    inputs: Mapping[str, Any], infos: Sequence[TensorInfo], rows: int
) -> dict[str, Array]:
    """Return those of the inputs that have rows, which are so many, or raise InputError."""
    if not isinstance(inputs, Mapping):
        raise InputError(
            f"run_padded takes a mapping of names to arrays, not {type(inputs).__name__}"
        )
    found = {}
    for name, shape, dtype in infos:
        if name not in inputs:
            continue  # The run says so.
        wanted = rows, *shape[1:]
        array = as_array(f"input {name!r}", inputs[name], wanted, dtype)
        if array.shape != wanted:
            raise InputError(
                f"input {name!r} has shape {array.shape}, not {wanted}, for {rows} rows"
            )
        found[name] = array
    return found
