# cython: language_level=3, nonecheck=False
"""Several runs of a model in flight: lanes, each with staging, an arena and outputs of its own.

A run that is handed in takes the next lane of the ring; where that is taken still, its run is
waited for. Lane 0 is the runner of all other runs, which are for themselves: they begin when all
that was handed in is over. Everything here happens with the model's lock but for the wait of a
ticket, so that more runs can be handed in meanwhile.
"""

from collections.abc import Mapping

import numpy as np

from libc.string cimport memcpy

from fastgraph._core.dispatch cimport (
    Engine, Engine_by_position, Engine_check, Engine_check_ready, Engine_end, Engine_finish,
    Engine_fresh, Engine_is_plain, Engine_lock, Engine_place, Engine_settle)
from fastgraph._core.lock cimport GraphLock_give, GraphLock_take
from fastgraph._core.runner cimport Runner
from fastgraph._core.staging cimport Active_fits

from fastgraph._core.buffer import Buffer
from fastgraph._core.checks import as_array, as_checked, describe, scalar_values
from fastgraph.errors import GraphError, InputError

# More would not be told apart by a worker's ring of jobs.
cdef Py_ssize_t MAX_LANES = 64
cdef dict NO_SCALARS = {}


cdef class Ticket:
    """A run that was handed in: its outputs or its error, once it is settled."""

    def __init__(self):
        raise TypeError("tickets are made by Lanes.hand_in")

    @property
    def settled(self):
        """bool: the run is over and its lane was given to another or is free."""
        return self.lane < 0


cdef class Lanes:
    """The lanes of one model. Every method is given the model, which is not kept."""

    def __init__(self):
        raise TypeError("lanes are made by open_lanes")

    @property
    def depth(self):
        """int: how many lanes there are."""
        return len(self.runners)

    def has(self, depth):
        """Return whether there are so many lanes, or more would be of no use."""
        return 1 <= depth <= (len(self.runners) if self.useful else MAX_LANES)

    def full(self, Engine engine not None):
        """Return whether the next run would have to wait for its lane."""
        cdef bint full
        Engine_lock(engine)
        try:
            full = Lanes_busy(self, Lanes_lane(self, engine))
        finally:
            GraphLock_give(engine.runner.lock)
        return full

    def stream(self, Py_ssize_t lane):
        """Return the stream of a lane; None on cpu."""
        return (<Runner> self.runners[lane]).own_stream

    def ticket(self, Py_ssize_t lane):
        """Return the ticket of the run in a lane, or None."""
        return self.tickets[lane]

    def oldest(self, Engine engine not None):
        """Return the ticket of the run whose lane is next, or None."""
        return self.tickets[Lanes_lane(self, engine)]

    def hand_in(self, Engine engine not None, inputs, dict scalars not None, bint wanted):
        """Hand in a run by name and return its ticket.

        What earlier runs met that were handed in unwanted is raised, and nothing is handed in.
        """
        Engine_check_ready(engine)
        Engine_lock(engine)
        try:
            Engine_check_ready(engine)
            Lanes_look(self, engine)
            raise_failed(self)
            Engine_settle(engine)
            return Lanes_commit(self, engine, inputs, scalars, wanted)
        finally:
            Engine_end(engine)

    def wait(self, Ticket ticket not None):
        """Wait until a run is over, without the lock: more can be handed in meanwhile.

        What handlers of signals raise comes out, and the run goes on.
        """
        cdef Runner runner
        if ticket.lane >= 0:
            runner = self.runners[ticket.lane]
            runner.await_over(False)

    def settle(self, Engine engine not None, Ticket ticket not None):
        """Wait for a run and let its ticket have outputs or error."""
        if ticket.lane < 0:
            return
        try:
            Engine_lock(engine)
        except GraphError:
            if ticket.lane < 0:
                return                   # settled by who has closed the model meanwhile
            raise
        try:
            if ticket.lane >= 0:
                Lanes_settle(self, engine, ticket.lane)
        finally:
            GraphLock_give(engine.runner.lock)

    def join(self, Engine engine not None):
        """Settle all runs; raise what unwanted ones met. The lock is held."""
        Lanes_join(self, engine)
        raise_failed(self)
        engine.ahead = self.latest != 0

    def make_way(self, Engine engine not None):
        """Join, for a run that is not in a lane: what lane 0 has after it are its outputs."""
        self.join(engine)
        self.latest = 0
        engine.ahead = False

    def sync(self, Engine engine not None):
        """Settle all runs, leave the outputs of the latest in lane 0, return their offsets.

        Raises what unwanted runs met.
        """
        Engine_lock(engine)
        try:
            Lanes_join(self, engine)
            raise_failed(self)
            Lanes_bring_home(self, engine)
            engine.ahead = False
            return engine.offsets
        finally:
            GraphLock_give(engine.runner.lock)

    def run_all(self, Engine engine not None, list sets not None):
        """Run sets one after another, and return their outputs, in order.

        All are checked before the first is handed in. An error says which it was.
        """
        cdef Py_ssize_t i, depth = len(self.runners)
        cdef list tickets = []
        cdef list outputs = []
        Engine_check_ready(engine)
        Engine_lock(engine)
        try:
            Engine_check_ready(engine)
            for i in range(len(sets)):
                check_set(engine, i, sets[i])
            if engine.ahead:
                self.make_way(engine)
            Engine_settle(engine)
            if (not self.useful or engine.runner.feeds is not None
                    or engine.growing is not None):
                for i in range(len(sets)):
                    outputs.append(run_set(engine, i, sets[i]))
                return outputs
            for i in range(len(sets)):
                if i >= depth:
                    outputs.append(Lanes_take(self, engine, <Ticket> tickets[i - depth], i - depth))
                tickets.append(Lanes_commit_set(self, engine, i, sets[i]))
            for i in range(max(len(sets) - depth, 0), len(sets)):
                outputs.append(Lanes_take(self, engine, <Ticket> tickets[i], i))
            Lanes_bring_home(self, engine)
            engine.ahead = False
            return outputs
        finally:
            Engine_end(engine)

    def check(self, Engine engine not None, inputs, dict scalars not None):
        """Raise what handing in such a run would."""
        Engine_check_ready(engine)
        check_run(engine, inputs, scalars)

    def adopt(self, Engine engine not None, list places not None, bint ready):
        """Let the other lanes have new parameters too, as lane 0 has them. No run is under way."""
        cdef Py_ssize_t i
        # Memories of programs for extents are known to lane 0 alone.
        own = [place for place in places if place[0] < self.n_memories]
        try:
            for i in range(1, len(self.runners)):
                Runner_adopt(self.runners[i], own, ready)
        except Exception:
            # The model has them. Lanes are made anew, or told why not, when they are needed.
            Lanes_drop(self)

    def close(self, Engine engine not None):
        """Wait for all runs and give up the lanes; what runs met stays with their tickets."""
        cdef Ticket ticket
        try:
            Lanes_join(self, engine)
        except Exception as error:
            # Nothing runs any more on a device that is lost.
            for ticket in self.tickets:
                if ticket is not None:
                    ticket.error = error
                    ticket.lane = -1
            self.tickets = [None] * len(self.tickets)
        Lanes_drop(self)
        self.runners = []
        self.tickets = []
        self.failed = []
        engine.ahead = False


def open_lanes(Engine engine not None, depth, make, Py_ssize_t n_memories):
    """See to it that a model has so many lanes, or one where more are of no use; with its lock.

    Parameters
    ----------
    engine : Engine
    depth : int
    make : callable
        ``make(i)`` returns the runner of lane `i`, and (memory, block) to adopt before its runs.
    n_memories : int
        Of the model's program.

    Raises
    ------
    InputError
        More than there can be.
    OutOfMemoryError
        A lane does not fit; there are as many as before.
    """
    cdef Lanes self = engine.lanes
    cdef Runner runner
    cdef list more = []
    if not 1 <= depth <= MAX_LANES:
        raise InputError(f"depth is {depth}; 1 to {MAX_LANES} is possible")
    if self is None:
        self = Lanes.__new__(Lanes)
        self.runners = [engine.runner]
        self.tickets = [None]
        self.failed = []
        self.n_memories = n_memories
        self.useful = engine.runner.join_lanes(engine.runner)
    if not self.useful:
        depth = 1
    for i in range(len(self.runners), depth):
        runner, places = make(i)
        runner.join_lanes(engine.runner)
        if places:
            Runner_adopt(runner, places, engine.ready)
        more.append(runner)
    self.runners += more
    self.tickets += [None] * len(more)
    engine.lanes = self
    return self


cdef int Runner_adopt(Runner runner, list places, bint ready) except -1:
    GraphLock_take(runner.lock)
    try:
        return runner.adopt(places, ready)
    finally:
        GraphLock_give(runner.lock)


cdef Py_ssize_t Lanes_lane(Lanes self, Engine engine) except -1:
    """The lane of the next run: the first one where only one can be used."""
    # An active extent is one of lane 0's executable alone.
    if (self.ordered or engine.active is not None or engine.runner.feeds is not None
            or engine.growing is not None):
        return 0
    return self.next


cdef bint Lanes_busy(Lanes self, Py_ssize_t lane) except -1:
    return self.tickets[lane] is not None and not (<Runner> self.runners[lane]).over()


cdef Ticket Lanes_commit(Lanes self, Engine engine, inputs, dict scalars, bint wanted):
    """Hand in a run in the next lane, once that is free.

    Runs that write memory in common, handles or notes of experts, are done in order: in one lane.
    Those that feed handles or let them grow are over when this returns, for the host sees to that.
    """
    cdef bint at_once = engine.runner.feeds is not None or engine.growing is not None
    cdef Py_ssize_t lane = Lanes_lane(self, engine)
    cdef Runner runner = self.runners[lane]
    cdef Ticket ticket
    if self.tickets[lane] is not None:
        Lanes_settle(self, engine, lane)
        raise_failed(self)
    ticket = Ticket.__new__(Ticket)
    ticket.lane = -1
    if lane:
        GraphLock_take(runner.lock)
    engine.target = runner
    try:
        runner.set_apart(True)
        runner.start(True)
        Engine_place(engine, inputs, scalars)
        if at_once:
            Engine_check(engine)
            engine.ahead = True
            self.latest = 0
            run_now(self, engine, ticket, wanted)
            return ticket
        engine.generation += 1
        engine.ahead = True
        runner.commit()
        ticket.lane = lane
        ticket.wanted = wanted
        self.tickets[lane] = ticket
        self.latest = lane
        self.next = (lane + 1) % len(self.runners)
    finally:
        runner.set_apart(False)
        engine.target = engine.runner
        if lane:
            GraphLock_give(runner.lock)
    if runner.on_device and not all([isinstance(array, np.ndarray) for array in engine.held]):
        engine._let_go((inputs, ()), runner.own_stream)
    return ticket


cdef int run_now(Lanes self, Engine engine, Ticket ticket, bint wanted) except -1:
    """Run in lane 0 and let the ticket have what comes of it."""
    try:
        Engine_finish(engine, True)
        if wanted:
            ticket.outputs = tuple(Engine_fresh(engine, 0))
    except InputError as error:
        if wanted:
            ticket.error = error
        else:
            self.failed.append(error)
    return 0


cdef int Lanes_settle(Lanes self, Engine engine, Py_ssize_t lane) except -1:
    """Wait for the run in a lane and let its ticket have what came of it."""
    cdef Runner runner = self.runners[lane]
    cdef Runner first = engine.runner
    cdef Ticket ticket = self.tickets[lane]
    runner.await_over(True)
    if self.tickets[lane] is not ticket:
        return 0
    self.tickets[lane] = None
    try:
        runner.conclude()
        if ticket.wanted:
            ticket.outputs = tuple(Engine_fresh(
                engine, <Py_ssize_t> (runner.outputs.ptr - first.outputs.ptr)))
    except BaseException as error:
        if ticket.wanted:
            ticket.error = error
        else:
            self.failed.append(error)
        if not isinstance(error, Exception):
            raise
    finally:
        ticket.lane = -1                 # last: others look at it without the lock
    return 0


cdef int Lanes_look(Lanes self, Engine engine) except -1:
    """Settle the runs that are over, in order."""
    cdef Py_ssize_t i, lane
    for i in range(len(self.runners)):
        lane = (self.next + i) % len(self.runners)
        if self.tickets[lane] is not None:
            if not (<Runner> self.runners[lane]).over():
                break
            Lanes_settle(self, engine, lane)
    return 0


cdef int Lanes_join(Lanes self, Engine engine) except -1:
    """Settle all runs, in the order in which they were handed in."""
    cdef Py_ssize_t i, lane
    for i in range(len(self.runners)):
        lane = (self.next + i) % len(self.runners)
        if self.tickets[lane] is not None:
            Lanes_settle(self, engine, lane)
    return 0


cdef tuple Lanes_take(Lanes self, Engine engine, Ticket ticket, Py_ssize_t number):
    """The outputs of set `number`, or its error."""
    if ticket.lane >= 0:
        Lanes_settle(self, engine, ticket.lane)
    if ticket.error is not None:
        raise_named(ticket.error, number)
    return ticket.outputs


cdef int Lanes_bring_home(Lanes self, Engine engine) except -1:
    """Copy the outputs of the latest run to where all see them. No run is under way."""
    cdef Runner first = engine.runner
    cdef Runner runner = self.runners[self.latest]
    cdef Py_ssize_t shift = <Py_ssize_t> (runner.outputs.ptr - first.outputs.ptr)
    cdef size_t i
    if runner is not first:
        for i in range(engine.results.size()):
            memcpy(engine.results[i].home, <char *> engine.results[i].home + shift,
                   engine.results[i].nbytes)
        self.latest = 0
    return 0


cdef int Lanes_drop(Lanes self) except -1:
    """Keep lane 0 alone."""
    cdef list dropped = self.runners[1:]
    del self.runners[1:]
    del self.tickets[1:]
    self.next = self.latest = 0
    for runner in dropped:
        (<Runner> runner).close()
    return 0


cdef int raise_failed(Lanes self) except -1:
    """Raise what the first run met of those that failed, and forget them."""
    cdef list failed = self.failed
    if not failed:
        return 0
    self.failed = []
    error = failed[0]
    more = f", and {len(failed) - 1} more runs failed" if len(failed) > 1 else ""
    error.add_note(f"a run that was handed in before has met this{more}; this call did nothing")
    raise error


def split(Engine engine not None, given):
    """Return a set's inputs and its scalars."""
    cdef dict inputs, scalars = {}
    if engine.n_scalars == 0 and type(given) is dict:
        return given, scalars
    if not isinstance(given, Mapping):
        raise InputError(f"a set is a mapping of names to arrays, not {type(given).__name__}")
    inputs = dict(given)
    for spec in engine.scalar_specs:
        if spec[0] in inputs:
            scalars[spec[0]] = inputs.pop(spec[0])
    return inputs, scalars


cdef int check_run(Engine engine, object inputs, dict scalars) except -1:
    """Raise what handing in a run would, without that."""
    cdef Py_ssize_t i
    cdef list arrays
    if engine.n_scalars or scalars:
        scalar_values(engine.scalar_specs, scalars)
    arrays = Engine_by_position(engine, inputs)
    for i in range(engine.n_inputs):
        if arrays[i] is not None and not Engine_is_plain(engine, i, arrays[i]):
            check_input(engine, i, arrays[i])
    return 0


cdef int check_input(Engine engine, Py_ssize_t i, value) except -1:
    name, shape, dtype = engine.input_specs[i]
    if engine.runner.on_device and not isinstance(value, np.ndarray):
        value = engine._on_device(name, value, engine.runner.stream())
        if isinstance(value, Buffer):
            fits = value.shape == shape or Active_fits(engine.active, i, value)
            if not fits or value.dtype != dtype:
                raise InputError(f"input {name!r} is {describe(shape, dtype)}, not {value!r}; "
                                 "nothing is cast or broadcast")
            return 0
    if engine.active is not None and engine.active.ins[i] is not None:
        array = as_array(f"input {name!r}", value, shape, dtype)
        if array.shape == engine.active.ins[i][0] and array.dtype == dtype:
            return 0
    as_checked(engine.input_specs[i], value)
    return 0


cdef int check_set(Engine engine, Py_ssize_t number, given) except -1:
    try:
        if engine.n_scalars == 0 and type(given) is dict:
            return check_run(engine, given, NO_SCALARS)
        inputs, scalars = split(engine, given)
        check_run(engine, inputs, scalars)
    except Exception as error:
        raise_named(error, number)
    return 0


cdef Ticket Lanes_commit_set(Lanes self, Engine engine, Py_ssize_t number, given):
    try:
        inputs, scalars = split(engine, given)
        return Lanes_commit(self, engine, inputs, scalars, True)
    except Exception as error:
        raise_named(error, number)


cdef tuple run_set(Engine engine, Py_ssize_t number, given):
    """Run in lane 0 and return the outputs."""
    try:
        engine.runner.start(True)
        if engine.n_scalars == 0 and type(given) is dict:
            Engine_place(engine, given, NO_SCALARS)
        else:
            inputs, scalars = split(engine, given)
            Engine_place(engine, inputs, scalars)
        Engine_finish(engine, True)
        return tuple(Engine_fresh(engine, 0))
    except Exception as error:
        raise_named(error, number)


cdef int raise_named(object error, Py_ssize_t number) except -1:
    """Raise an error that says of which set it is."""
    if type(error) in (InputError, GraphError):
        raise type(error)(f"set {number}: {error}") from error
    error.add_note(f"This is about set {number}.")
    raise error
