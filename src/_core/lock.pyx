# cython: language_level=3
"""The lock of executables: fair, open to signals while waiting, sound in a forked child."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals

from fastgraph._core.pool cimport pool_forks, pool_nap

from fastgraph.errors import GraphError


cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() nogil

# After so many naps a thread that waits for a graph has it next.
cdef int PATIENCE = 20


@cython.final
cdef class GraphLock:
    """Held by the thread whose run is under way; one lock may serve many executables."""

    @property
    def held(self):
        """bool: a run is under way."""
        return self.busy and self.busy_forks == pool_forks()


cdef int GraphLock_take(GraphLock self) except -1:
    """Take the lock for this thread. The GIL is held on entry and exit, not while waiting."""
    cdef unsigned long me = PyThread_get_thread_ident()
    cdef int polls = 0
    if (self.busy or self.reserved) and self.busy_forks != pool_forks():
        self.busy = False                # the threads that had it or wanted it are the parent's
        self.reserved = 0
    while self.busy or (self.reserved and self.reserved != me):
        if self.busy and self.owner_thread == me:
            raise GraphError("this graph is running in this very thread (from a signal handler?)")
        if polls >= PATIENCE and not self.reserved:
            self.reserved = me           # else threads that run in a loop keep it for ever
        try:
            pool_nap()
            polls += 1
            if polls % PATIENCE == 0:
                PyErr_CheckSignals()
        except BaseException:
            if self.reserved == me:
                self.reserved = 0
            raise
    self.reserved = 0
    self.busy = True
    self.busy_forks = pool_forks()
    self.owner_thread = me
    return 0


cdef void GraphLock_give(GraphLock self) noexcept:
    self.busy = False


cdef bint GraphLock_is_mine(GraphLock self) noexcept:
    return (self.busy and self.busy_forks == pool_forks()
            and self.owner_thread == PyThread_get_thread_ident())
