# cython: language_level=3
"""What a cache of graphs holds, by key, and the way of `DeviceGraph.create` to it."""

from collections import OrderedDict
from threading import Lock

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyCallable_Check, PyObject, PyTypeObject
from libc.string cimport memcmp, memset

from fastgraph._core.contributions cimport search_begin, search_end
from fastgraph._core.executable cimport Cell, Handle
from fastgraph._core.key cimport Key
from fastgraph._core.keys cimport KeyWriter, written_hash

from fastgraph.errors import GraphError, InputError


cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() nogil
    PyObject *PyDict_GetItemWithError(object mapping, object key) except? NULL


cdef tuple NOTHING = ()


@cython.final
@cython.auto_pickle(False)
cdef class Flight:
    """A build under way."""


@cython.auto_pickle(False)
cdef class Shelf:
    """The states of graphs by key, the one used last at the end, and counts of searches.

    Finding takes no lock but the GIL: keys are hashed and compared in C, so no other thread comes
    between.
    """

    def __cinit__(self):
        self._held = OrderedDict()
        forget(self)
        self.flights = {}
        self.waiting = {}

    def _find(self, key):
        """Return the state of a key, now the one used last, or None; count that."""
        if type(key) is not Key:
            raise InputError(f"a key is made by make_key, not a {type(key).__name__}")
        state = find(self, key)
        if state is None:
            self._misses += 1
        return state

    def _get_or_build(self, Key key not None, build):
        """Return the state of a key; who misses it first builds it, others wait for that.

        An interrupt is raised in `build` or in waiting alone, so none leaves a key behind that
        nobody builds any more.

        Parameters
        ----------
        key : Key
        build : callable
            Makes the state.

        Raises
        ------
        GraphError
            The build is under way in this very thread, or waits for it.
        Exception
            What the build raised, in whichever thread.
        """
        cdef Flight flight
        cdef unsigned long me = PyThread_get_thread_ident()
        while True:
            state = self._find(key)
            if state is not None:
                return state
            flight = self.flights.get(key)
            if flight is None:
                return fly(self, key, me, build)
            check_no_circle(self, flight, me)
            self.waiting[me] = flight
            try:
                with flight.over:
                    pass
            finally:
                del self.waiting[me]
            if flight.state is not None:
                return flight.state
            if isinstance(flight.error, Exception):
                raise flight.error
            # That thread was interrupted, which is no reason for this one to stop.

    # An entry and what is counted of it change in one step, without Python code: an interrupt
    # comes before or after.

    def _touch(self, Key key not None):
        """Let the key of a state be the one used last; not counted."""
        self._held.move_to_end(key)
        self.newest = NULL

    def _put(self, Key key not None, state, Py_ssize_t nbytes):
        """Hold the state of a key that is not there."""
        cdef Cell cell = state.cell
        self.newest = NULL
        self._held[key] = state
        cell.n_caches += 1
        self._nbytes += nbytes

    def _drop(self, Key key not None, Py_ssize_t nbytes, bint evicted=False):
        """Let go of the state of a key."""
        state = self._held[key]
        cdef Cell cell = state.cell
        forget(self)
        del self._held[key]
        cell.n_caches -= 1
        self._nbytes -= nbytes
        self._evictions += evicted


cdef object find(Shelf self, Key key):
    cdef PyObject *found = PyDict_GetItemWithError(self._held, key)
    if found == NULL:
        return None
    state = <object> found
    self._hits += 1
    self._held.move_to_end(key)
    self.newest = NULL
    return state


cdef int forget(Shelf self) except -1:
    """Know nothing of what is held: an entry is about to go."""
    memset(self.nearby, 0, sizeof(self.nearby))
    self.newest = NULL
    return 0


cdef near *find_near(Shelf self, KeyWriter writer) except? NULL:
    """The entry of what was written, now the one used last, if it is at hand; that is counted."""
    cdef Py_hash_t hash = written_hash(writer)
    cdef near *entry = &self.nearby[<size_t> hash % NEAR]
    cdef Key key
    if entry.key == NULL or (<Key> entry.key).hash != hash:
        return NULL
    key = <Key> entry.key
    if (PyBytes_GET_SIZE(key.data) != writer.size
            or memcmp(PyBytes_AS_STRING(key.data), writer.data, writer.size) != 0):
        return NULL
    self._hits += 1
    if self.newest != entry.key:
        self._held.move_to_end(key)
        self.newest = entry.key
    return entry


cdef int note_near(Shelf self, Key key, object state) except -1:
    """Have an entry at hand that was found and is the one used last."""
    cdef near *entry = &self.nearby[<size_t> key.hash % NEAR]
    cdef Cell cell = state.cell
    # The key that is held, which need not be the one it was found by. Making an iterator may run
    # code, so it is looked at again.
    for held in reversed(self._held):
        if held == key and PyDict_GetItemWithError(self._held, held) == <PyObject *> state:
            entry.key = self.newest = <PyObject *> held
            entry.state = <PyObject *> state
            entry.cell = <PyObject *> cell
        break
    return 0


cdef object fly(Shelf self, Key key, unsigned long me, build):
    """Build the state of a key, and let who waits for it go on whatever comes of that."""
    cdef Flight flight = Flight.__new__(Flight)
    flight.thread = me
    flight.over = Lock()
    flight.over.acquire()
    self.flights[key] = flight
    self._builds += 1
    try:
        flight.state = build()
        self._insert(key, flight.state)
        return flight.state
    except BaseException as error:
        flight.error = error
        raise
    finally:
        del self.flights[key]
        flight.over.release()


cdef int check_no_circle(Shelf self, Flight flight, unsigned long me) except -1:
    while flight is not None:
        if flight.thread == me:
            raise GraphError(
                "the build of this key is under way in this thread, or waits for it; a build "
                "cannot create the graph that it is building")
        flight = self.waiting.get(flight.thread)
    return 0


def hit(type kind not None, shelf, context, str device not None, build, tuple inputs not None,
        key, check, verify, frozenset arrays not None, convert):
    """Return a handle of the graph that `create` is asked for, its key, or None.

    Parameters
    ----------
    kind : type
        Of the handle.
    shelf : Shelf
    context : DeviceContext
        With its `device`.
    build, inputs, key, check, verify
        As `DeviceGraph.create` has them.
    arrays, convert
        As `fastgraph._core.contributions.compose` has them.

    Returns
    -------
    Handle, Key or None
        The key where no graph is held under it, which is not counted; None where one of the
        arguments wants a closer look.
    """
    if (not isinstance(shelf, Shelf) or not PyCallable_Check(build)
            or not (check is False or type(check) is str and check == "known")
            or type(verify) is not int or verify < 0):
        return None
    cdef KeyWriter writer = search_begin(
        build, inputs, device, key, check, verify, arrays, convert)
    cdef Shelf self = shelf
    cdef near *entry
    cdef Key found = None
    cdef Cell cell = None
    state = None
    try:
        entry = find_near(self, writer)
        if entry != NULL:
            # Kept from here on: whatever runs below may drop the entry.
            state = <object> entry.state
            cell = <Cell> entry.cell
        else:
            found = writer.key()
    finally:
        search_end(writer)
    if found is not None:
        state = find(self, found)
        if state is None:
            return found
        cell = state.cell
        note_near(self, found, state)
    # As `Handle.__new__(kind)`, which would be looked up first.
    cdef Handle handle = (<PyTypeObject *> kind).tp_new(kind, <PyObject *> NOTHING, NULL)
    handle._context = context
    handle._state = state
    handle.cell = cell
    return handle
