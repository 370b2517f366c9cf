# cython: language_level=3
"""Host nodes: the driver calls Python from a thread of its own.

Such a function may take the GIL at any time, so a thread of ours must not hold it while it is
inside the driver and the driver waits for the function. It must not run once the interpreter
goes away: from then on callbacks return without having done anything.
"""

import atexit

cimport cython
from libcpp.atomic cimport atomic

from fastgraph._core.driver cimport driver_lost
from fastgraph._core.pool cimport now_ns, pool_nap
from fastgraph._core.stream cimport host_functions_add

from fastgraph.errors import GraphError

cdef extern from *:
    """
    static thread_local int fg_inside_host_call = 0;
    """
    int fg_inside_host_call

# How long the end of the process waits for functions that have begun.
cdef long long LAST_WAIT_NS = 5_000_000_000

cdef bint _watched = False
cdef list _faulty = []                   # the graphs whose functions have raised
cdef atomic[int] _inside
cdef atomic[bint] _stopped


@cython.final
cdef class HostFaults:
    """The first exception of the host functions of one graph, until somebody takes it."""

    def __init__(self):
        raise TypeError("made by a graph")


cdef HostFaults HostFaults_create(int ordinal):
    cdef HostFaults self = HostFaults.__new__(HostFaults)
    self.ordinal = ordinal
    return self


cdef int HostFaults_raise(HostFaults self) except -1:
    """Raise what a host function raised, once."""
    if self.error is not None:
        error, self.error = self.error, None
        _faulty.remove(self)
        raise error
    return 0


def raise_faults(int ordinal):
    """Raise what a host function of a graph on a device raised, unless that was raised before.

    For who waits for a whole device or stream: the graph itself tells at its next replay.
    """
    cdef HostFaults faults
    for faults in list(_faulty):
        if faults.ordinal == ordinal:
            HostFaults_raise(faults)


@cython.final
@cython.no_gc_clear
cdef class HostCall:
    """A function without arguments, and where its exception goes."""

    def __cinit__(self):
        host_functions_add(1)

    def __init__(self):
        raise TypeError("made by a graph")

    def __dealloc__(self):
        host_functions_add(-1)


cdef HostCall HostCall_create(object node, HostFaults faults):
    """The function of a host node."""
    global _watched
    cdef HostCall self = HostCall.__new__(HostCall)
    if not _watched:
        atexit.register(stop)
        _watched = True
    self.function = node.call.function
    self.node = node
    self.faults = faults
    return self


cdef bint host_inside() noexcept:
    return fg_inside_host_call != 0


cdef int host_refuse() except -1:
    if fg_inside_host_call:
        raise GraphError(
            "a host function of a graph must not use the device: CUDA forbids it. Let it set a "
            "flag for another thread, or make what it does nodes of the graph")
    return 0


cdef void host_entry(void *data) noexcept nogil:
    # The count first, then the flag: `stop` sets the flag and then waits for the count, so none
    # can slip in between and ask for a GIL that is gone.
    _inside.fetch_add(1)
    if not _stopped.load():
        call(data)
    _inside.fetch_sub(1)


cdef void call(void *data) noexcept with gil:
    global fg_inside_host_call
    cdef HostCall self = <HostCall> data
    fg_inside_host_call = 1
    try:
        self.function()
    except BaseException as error:
        if self.faults.error is None:
            error.add_note(f"in host node {self.node.name!r}; the nodes behind it ran all the same")
            self.faults.error = error
            _faulty.append(self.faults)
    finally:
        fg_inside_host_call = 0


def stop():
    """Let no host function begin any more, and wait for those that have; at the process's end."""
    cdef long long start = now_ns()
    _stopped.store(True)
    # In a forked child the threads that were inside do not exist.
    while _inside.load() and not driver_lost() and now_ns() - start < LAST_WAIT_NS:
        pool_nap()
