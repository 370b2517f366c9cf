"""Runs in flight: several at once, each in a lane of its own, beside what the caller does."""

from __future__ import annotations

import importlib
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import numpy as np

from fastgraph._core import pool
from fastgraph._core.buffer import Block
from fastgraph._core.lanes import Lanes, Ticket, open_lanes, split
from fastgraph._core.runner import Runner
from fastgraph.errors import GraphError, InputError
from fastgraph.runtime.moe import Routed

__all__ = ["Pipelined", "RunFuture"]

Array = np.ndarray[Any, np.dtype[Any]]
Outputs = tuple[Array, ...]


class Pipelined(Routed):
    """The run methods of a model that return before the run is over."""

    __slots__ = ("_deliverer",)

    _deliverer: Deliverer | None

    def commit_no_wait(self, inputs: Mapping[str, Any], **scalars: Any) -> None:
        """Hand in a run and return, as soon as a lane is free; `sync_pending` waits for it.

        Parameters
        ----------
        inputs : mapping of str to array
            As `run` takes them; they may be changed once the call has returned.
        **scalars
            Values of the graph's scalars for this run.

        Raises
        ------
        InputError
            As `run`; nothing was handed in.
        Exception
            What an earlier run met that was handed in here, such as bad data. Nothing was handed
            in; the model is as good as before.
        OutOfMemoryError
            In the first call: the lanes do not fit.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("twice")
        >>> x = g.input("x", (3,))
        >>> _ = g.output(x + x, "y")
        >>> model = fg.Session("cpu").compile(g)
        >>> for step in range(100):
        ...     model.commit_no_wait({"x": np.full(3, step, "f4")})
        >>> model.sync_pending()
        ((0, 3),)
        >>> model.output_view(0)
        array([198., 198., 198.], dtype=float32)
        """
        self._open_lanes().hand_in(self, inputs, scalars, False)

    def sync_pending(self) -> tuple[tuple[int, int], ...]:
        """Wait for all runs that were handed in.

        Returns
        -------
        tuple of (int, int)
            As `run_slots` returns it. There, and in `output_view`, are the outputs of the run that
            was handed in last.

        Raises
        ------
        Exception
            What the first of those met that `commit_no_wait` handed in and that failed. All are
            over then, too, and the model is as good as before.
        """
        return self._open_lanes(1).sync(self)

    def run_pipelined(self, sets: Iterable[Mapping[str, Any]]) -> list[Outputs]:
        """Run on many sets of inputs, several at a time.

        Parameters
        ----------
        sets : iterable of mapping
            Inputs by name, and values of scalars beside them. All are looked at before the first
            is run; `pipeline` takes them one by one.

        Returns
        -------
        list of tuple of numpy.ndarray
            What `run` returns for each set, in order.

        Raises
        ------
        InputError
            A set does not fit: nothing was run. Or one has bad data: later ones may have been run.
            The message has the number of the set, from 0 on.
        OutOfMemoryError
            The lanes do not fit.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("shift")
        >>> x, by = g.input("x", (2,)), g.scalar("by", "float32", default=1.0)
        >>> _ = g.output(x + by, "y")
        >>> model = fg.Session("cpu").compile(g)
        >>> zero = np.zeros(2, "f4")
        >>> model.run_pipelined([{"x": zero}, {"x": zero, "by": 5.0}])
        [(array([1., 1.], dtype=float32),), (array([5., 5.], dtype=float32),)]
        """
        if isinstance(sets, Mapping) or not isinstance(sets, Iterable):
            raise InputError(
                f"run_pipelined takes mappings of names to arrays, not {type(sets).__name__}"
            )
        return self._open_lanes().run_all(self, list(sets))

    def pipeline(
        self, iterable: Iterable[Mapping[str, Any]], depth: int | None = None
    ) -> Iterator[Outputs]:
        """Return an iterator over the outputs for each set of inputs that an iterable gives.

        Runs go on while the iterable makes the next set and while the outputs are used.

        Parameters
        ----------
        iterable : iterable of mapping
            As `run_pipelined` takes them. One is asked for when it is needed, so there may be
            infinitely many.
        depth : int, optional
            How many runs may be under way; each takes a lane of memory, which is kept. By default
            2 on cpu and 4 on cuda.

        Returns
        -------
        iterator of tuple of numpy.ndarray
            In the order of the sets.

        Raises
        ------
        InputError
            `depth` is not possible. From the iterator, when it is the set's turn: the set does
            not fit or has bad data; the message has its number.
        OutOfMemoryError
            The lanes do not fit.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("twice")
        >>> x = g.input("x", (2,))
        >>> _ = g.output(x + x, "y")
        >>> model = fg.Session("cpu").compile(g)
        >>> sets = ({"x": np.full(2, step, "f4")} for step in range(3))
        >>> [y.tolist() for (y,) in model.pipeline(sets, depth=2)]
        [[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]]
        """
        if isinstance(iterable, Mapping) or not isinstance(iterable, Iterable):
            raise InputError(
                f"pipeline takes an iterable of mappings, not {type(iterable).__name__}"
            )
        lanes = self._open_lanes(depth)
        return self._stream(lanes, iter(iterable), lanes.depth if depth is None else depth)

    def _stream(
        self, lanes: Lanes, sets: Iterator[Mapping[str, Any]], depth: int
    ) -> Iterator[Outputs]:
        tickets: deque[tuple[int, Ticket]] = deque()
        number = 0
        problem: Exception | None = None
        while problem is None:
            try:
                one = next(sets)
                inputs, scalars = split(self, one)
                lanes.check(self, inputs, scalars)
            except StopIteration:
                break
            except InputError as error:
                problem = InputError(f"set {number}: {error}")
            except Exception as error:
                problem = error
            else:
                if len(tickets) == depth:
                    yield self._outputs(lanes, *tickets.popleft())
                self._open_lanes(1)
                tickets.append((number, lanes.hand_in(self, inputs, scalars, True)))
                number += 1
                del one, inputs
        # Those before an error come first.
        while tickets:
            yield self._outputs(lanes, *tickets.popleft())
        if problem is not None:
            raise problem

    def _outputs(self, lanes: Lanes, number: int, ticket: Ticket) -> Outputs:
        lanes.settle(self, ticket)
        error = ticket.error
        if isinstance(error, InputError):
            raise InputError(f"set {number}: {error}") from error
        if error is not None:
            raise error
        return ticket.outputs

    def submit(self, inputs: Mapping[str, Any], **scalars: Any) -> Future[Outputs]:
        """Hand in a run and return a future, as soon as a lane is free.

        Parameters
        ----------
        inputs : mapping of str to array
            As `run` takes them; they may be changed once the call has returned.
        **scalars
            Values of the graph's scalars for this run.

        Returns
        -------
        concurrent.futures.Future
            Of what `run` returns. Futures of one model are done in the order of submission, in a
            thread of the model's, which also calls their callbacks. The run is under way: it
            cannot be cancelled.

        Raises
        ------
        InputError
            As `run`, but for bad data, which the future holds. Nothing was handed in.
        Exception
            As `commit_no_wait`.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("twice")
        >>> x = g.input("x", (2,))
        >>> _ = g.output(x + x, "y")
        >>> model = fg.Session("cpu").compile(g)
        >>> futures = [model.submit({"x": np.full(2, step, "f4")}) for step in range(3)]
        >>> [future.result()[0].tolist() for future in futures]
        [[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]]
        """
        lanes = self._open_lanes()
        return self._deliver(lanes, lanes.hand_in(self, inputs, scalars, True))

    async def run_async(self, inputs: Mapping[str, Any], **scalars: Any) -> Outputs:
        """Run and return the outputs; to be awaited under asyncio, which goes on meanwhile.

        Parameters
        ----------
        inputs : mapping of str to array
            As `run` takes them; they are read once a lane is free, which is awaited too.
        **scalars
            Values of the graph's scalars for this run.

        Returns
        -------
        tuple of numpy.ndarray
            What `run` returns.

        Raises
        ------
        InputError
            As `run`.
        asyncio.CancelledError
            The task was cancelled. Its run goes on if it is in a lane; nobody gets its outputs.
        Exception
            As `commit_no_wait`.

        Examples
        --------
        >>> import asyncio
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("twice")
        >>> x = g.input("x", (2,))
        >>> _ = g.output(x + x, "y")
        >>> model = fg.Session("cpu").compile(g)
        >>> async def serve():
        ...     runs = [model.run_async({"x": np.full(2, step, "f4")}) for step in range(3)]
        ...     return await asyncio.gather(*runs)
        >>> [y.tolist() for (y,) in asyncio.run(serve())]
        [[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]]
        """
        # By name: whoever awaits has it loaded, and nobody else has to wait for that.
        asyncio: Any = importlib.import_module("asyncio")
        lanes = self._open_lanes()
        while lanes.full(self):
            oldest = lanes.oldest(self)
            if oldest is not None:
                await asyncio.wrap_future(self._deliver(lanes, oldest, quietly=True))
        found: Outputs = await asyncio.wrap_future(
            self._deliver(lanes, lanes.hand_in(self, inputs, scalars, True))
        )
        return found

    # ---- lanes

    def _open_lanes(self, depth: int | None = None) -> Lanes:
        """Return the lanes, so many at least; their memory is made here."""
        self._check_open()
        if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int)):
            raise InputError(f"depth is {depth!r}; an integer is needed")
        wanted = self._compilation.side.lanes if depth is None else depth
        lanes: Lanes | None = self._lanes
        if lanes is None or not lanes.has(wanted):
            memories = self._compilation.program.record.memories
            lanes = self._locked(lambda: open_lanes(self, wanted, self._make_lane, len(memories)))
        # What notes of experts are written to is the same in all lanes.
        lanes.ordered = bool(self._routing.places)
        return lanes

    def _make_lane(self, number: int) -> tuple[Runner, list[tuple[int, Block]]]:
        compilation = self._compilation
        runner = compilation.code.runner(self._params, f"lane {number} of {compilation.title}")
        return runner, self._routing.places

    def _deliver(self, lanes: Lanes, ticket: Ticket, quietly: bool = False) -> Future[Any]:
        deliverer = self._deliverer
        if deliverer is None or not deliverer.alive:
            deliverer = self._deliverer = Deliverer()
        return deliverer.put(self, lanes, ticket, quietly)


class RunFuture(Future[Any]):
    """The outputs of a run to come. In a forked child those of its parent raise GraphError."""

    def __init__(self) -> None:
        super().__init__()
        self._forks = pool.forks()

    def result(self, timeout: float | None = None) -> Any:  # noqa: D102 (documented there)
        self._check_fork()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:  # noqa: D102
        self._check_fork()
        return super().exception(timeout)

    def _check_fork(self) -> None:
        if self._forks != pool.forks() and not self.done():
            raise GraphError(
                "a fork has left this run with the parent: in the child hand it in again"
            )


_Item = tuple[Pipelined, Lanes, Ticket, RunFuture, bool]


class Deliverer:
    """A thread that sees runs end, in the order in which they were handed in, and says so."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[_Item | None] = SimpleQueue()
        # A process that ends does not wait for outputs that nobody will see.
        self._thread = threading.Thread(
            target=_deliver_all, args=(self._queue,), name="fastgraph futures", daemon=True
        )
        self._thread.start()

    @property
    def alive(self) -> bool:
        """bool: False in a forked child."""
        return self._thread.is_alive()

    def put(self, engine: Pipelined, lanes: Lanes, ticket: Ticket, quietly: bool) -> RunFuture:
        """Return a future that will have what comes of a run; `quietly`: None, whatever comes."""
        future = RunFuture()
        future.set_running_or_notify_cancel()
        self._queue.put((engine, lanes, ticket, future, quietly))
        return future

    def __del__(self) -> None:
        self._queue.put(None)


def _deliver_all(queue: SimpleQueue[_Item | None]) -> None:
    # Nothing is kept alive while the next one is waited for.
    while _deliver_next(queue):
        pass


def _deliver_next(queue: SimpleQueue[_Item | None]) -> bool:
    item = queue.get()
    if item is None:
        return False
    engine, lanes, ticket, future, quietly = item
    error: BaseException | None = None
    try:
        lanes.wait(ticket)
        lanes.settle(engine, ticket)
        error = ticket.error
    except BaseException as problem:
        error = problem
    if quietly:
        future.set_result(None)
    elif error is not None:
        future.set_exception(error)
    else:
        future.set_result(ticket.outputs)
    return True
