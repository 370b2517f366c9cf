# cython: language_level=3, binding=False, embedsignature=True, embedsignature.format=clinic
"""What the executables of all devices have in common, and the front of the handles on them."""

cimport cython
from cpython.dict cimport PyDict_Update
from cpython.object cimport PyObject, PyTypeObject

from fastgraph._core.counters cimport EXECUTABLES, counters_add
from fastgraph._core.lock cimport (
    GraphLock, GraphLock_give, GraphLock_is_mine, GraphLock_take)
from fastgraph._core.scalars cimport ScalarTable, ScalarTable_one, ScalarTable_read

from fastgraph.errors import GraphError


cdef extern from "front.hpp" namespace "fastgraph":
    ctypedef int (*front_plain)(PyObject *self) except -1
    ctypedef int (*front_named)(PyObject *self, PyObject *name, PyObject *value) except -1
    int install_front "fastgraph::install_front<0>" (
        PyTypeObject *type, const char *name, front_plain plain, front_named named) except -1
    int install_other_front "fastgraph::install_front<1>" (
        PyTypeObject *type, const char *name, front_plain plain, front_named named) except -1


cdef class Executable:
    """A record bound to memory, ready to run; `HostGraph` and `CudaGraph` are the kinds.

    What touches it does so under its lock, which several executables may share.
    """

    def __cinit__(self):
        self.lock = GraphLock.__new__(GraphLock)
        counters_add(EXECUTABLES, 1)

    def __init__(self):
        raise TypeError("executables are made by the instantiate of their module")

    def __dealloc__(self):
        counters_add(EXECUTABLES, -1)

    cdef int replay(self) except -1:
        """Run every node once, or enqueue that; takes the lock."""
        raise NotImplementedError

    cdef int replay_values(self, dict values) except -1:
        """`replay` with these values of scalars in this run."""
        raise NotImplementedError

    cdef int replay_value(self, tuple where, bytes value) except -1:
        return self.replay_values({where: value})

    cdef int store_value(self, tuple where, bytes value) except -1:
        (<object> self).set_scalars({where: value})
        return 0

    cdef int launched(self, int result) except -1:
        raise NotImplementedError

    cdef int check_thread(self) except -1:
        return 0

    def locked(self, work, *args):
        """Return ``work(*args)``, called while no run is under way and none can begin."""
        self.check_thread()
        GraphLock_take(self.lock)
        try:
            return work(*args)
        finally:
            GraphLock_give(self.lock)

    def check_held(self):
        """Raise GraphError unless this thread holds the lock."""
        if not GraphLock_is_mine(self.lock):
            raise GraphError("held=True is for work of `locked`")


cdef int adopt(object holder, dict changes) except -1:
    cdef dict held = holder.__dict__
    cdef dict _before = dict(held)       # what goes is let go of at the end: that may run code
    PyDict_Update(held, changes)
    return 0


@cython.no_gc_clear
cdef class Cell:
    """What all handles of one executable share: how to replay it when nothing is given.

    ``plain`` is the executable, or None where a replay takes more than one run of it; ``scalars``
    tells its scalars by name.
    """

    def __init__(self, Executable plain=None, ScalarTable scalars=None):
        self.scalars = scalars
        self.set(plain)

    def set(self, Executable plain):
        """Let a replay that is given nothing be one run of `plain`; with None it is more."""
        self.line = NULL
        self.plain = plain
        if plain is not None:
            self.line = plain.line

    def adopt(self, state, dict changes not None, Executable plain):
        """Let `state` have these attributes, and a replay be what `set` says, in one step."""
        adopt(state, changes)
        self.set(plain)

    @property
    def n_caches(self):
        """int: how many caches hold the graph."""
        return self.n_caches


@cython.auto_pickle(False)
cdef class Handle:
    """The front of a device graph: the common replay without a detour through Python code.

    Little is made with a handle, for `create` makes one at every hit of a cache.
    """

    def _share(self, Cell cell not None):
        """Replay what all handles with this cell replay."""
        self.cell = cell

    def _give_up(self):
        """Stand for no graph any longer."""
        _state, _model = self._state, self._model    # let go of at the end: that may run code
        self._state = None
        self._model = None
        self.cell = None

    @property
    def _token(self):
        """object: tells this handle from the others of its executable; keeps nothing alive."""
        if self.token is None:
            self.token = object()
        return self.token

    def replay(self, *live, stream=None, **scalars):
        """Run every node once.

        Work of a cuda graph is enqueued on the stream and done when that is waited for; on cpu it
        is done when the call returns.

        Parameters
        ----------
        *live
            Nothing, or an object for each input of `create`, of the same kind, shape and dtype.
            Host arrays have been read when the call returns; pinned ones and those on a device
            are read in the order of the stream.
        stream : Stream or object with __cuda_stream__, optional
            By default the stream of the graph's context. Not on cpu.
        **scalars
            Values of scalars and buffers for pointers, by name, for this call alone.

        Raises
        ------
        InputError
            The inputs or scalars do not fit; or there are none, and this handle was not the last
            to fill the copied inputs. Nothing was run.
        UnsupportedError
            A stream on cpu.
        GraphError
            The handle is closed, or the graph is a compiled model's and runs through it.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> ctx = fg.DeviceContext("cpu")
        >>> y = ctx.create_buffer(2)
        >>> graph = fg.DeviceGraph.create(ctx, lambda b, x: b.add_copy(y, x), np.zeros(2, "f4"))
        >>> graph.replay(np.array([3, 4], "f4"))
        >>> y.numpy()
        array([3., 4.], dtype=float32)
        """
        if live or stream is not None or not replay_given(self.cell, scalars):
            self._replay(live, stream, scalars)

    def set(self, **scalars):
        """Change the defaults of scalars, and point pointers elsewhere, for this graph.

        Raises
        ------
        InputError
            An unknown name or a value that does not fit. Nothing was changed.
        GraphError
            The handle is closed, or a cache holds the graph: others would see the change.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> x, y = ctx.create_buffer(2), ctx.create_buffer(2)
        >>> graph = fg.DeviceGraph.create(ctx, lambda b: b.add_memset(b.pointer("where", x), 1.0))
        >>> graph.set(where=y)
        >>> graph.replay()
        >>> x.numpy(), y.numpy()
        (array([0., 0.], dtype=float32), array([1., 1.], dtype=float32))
        """
        self._set(scalars)


cdef int replay_given(Cell cell, dict given) except -1:
    """A replay that is given scalars or nothing: 1, or 0 where it takes more than a run."""
    cdef Executable plain = None if cell is None else cell.plain
    cdef dict values
    if plain is None:
        return 0
    if not given:
        plain.replay()
        return 1
    values = None if cell.scalars is None else ScalarTable_read(cell.scalars, given)
    if values is None:
        return 0
    plain.replay_values(values)
    return 1


cdef int replay_plain(PyObject *handle) except -1:
    """The replay that is given nothing: 1, or 0 where it takes more than a run."""
    cdef Cell cell = (<Handle> handle).cell
    cdef int result
    if cell is None:
        return 0
    if cell.line != NULL and is_clear(cell.line):
        result = launch_at_once(cell.line)
        if result:
            cell.plain.launched(result)
        return 1
    if cell.plain is None:
        return 0
    cell.plain.replay()
    return 1


cdef int replay_named(PyObject *handle, PyObject *name, PyObject *value) except -1:
    """The replay that is given one scalar and nothing else: 1, or 0 where it takes more."""
    cdef Cell cell = (<Handle> handle).cell
    cdef Executable plain = None if cell is None else cell.plain
    cdef PyObject *where = NULL
    cdef bytes found
    if plain is None or cell.scalars is None:
        return 0
    found = ScalarTable_one(cell.scalars, <object> name, <object> value, &where)
    if found is None:
        return 0
    plain.replay_value(<tuple> where, found)
    return 1


cdef int set_named(PyObject *handle, PyObject *name, PyObject *value) except -1:
    """The new default of one scalar of a graph that no cache holds: 1, or 0 where it is more."""
    cdef Cell cell = (<Handle> handle).cell
    cdef Executable plain = None if cell is None else cell.plain
    cdef PyObject *where = NULL
    cdef bytes found
    if plain is None or cell.scalars is None or cell.n_caches:
        return 0
    found = ScalarTable_one(cell.scalars, <object> name, <object> value, &where)
    if found is None:
        return 0
    plain.store_value(<tuple> where, found)
    return 1


install_front(<PyTypeObject *> Handle, b"replay", replay_plain, replay_named)
install_other_front(<PyTypeObject *> Handle, b"set", NULL, set_named)
