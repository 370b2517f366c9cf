# cython: language_level=3
"""Waiting for a GPU: a loop of our own, never a wait inside the driver.

One can interrupt it, and it does not keep the GIL from callbacks that the awaited work may need.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uintptr_t

from fastgraph._core.driver cimport event_query
from fastgraph._core.pool cimport now_ns


cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int microseconds)

cdef int64_t WITH_GIL_NS = 50_000
cdef int64_t SIGNALS_NS = 1_000_000
# After so long a wait the poll naps: the few microseconds that this may lose no longer count.
cdef int64_t PATIENCE_NS = 2_000_000
cdef unsigned int NAP_US = 20


cdef int poll(uintptr_t context, uintptr_t event, int64_t until, bint nap) except -1 nogil:
    """1 once the event is there, 0 when it is `until`."""
    while True:
        if event_query(context, event):
            return 1
        if now_ns() >= until:
            return 0
        if nap:
            usleep(NAP_US)


cdef int wait_event(uintptr_t context, uintptr_t event, bint expect_long) except -1:
    cdef int64_t start = now_ns()
    cdef int64_t now = start
    cdef int done = 0
    if not expect_long and poll(context, event, start + WITH_GIL_NS, False):
        return 0
    while not done:
        with nogil:
            done = poll(context, event, now + SIGNALS_NS, now - start >= PATIENCE_NS)
        PyErr_CheckSignals()
        now = now_ns()
    return 0


cdef int wait_kept(uintptr_t context, uintptr_t event) except -1:
    while not poll(context, event, now_ns() + SIGNALS_NS, False):
        PyErr_CheckSignals()
    return 0


cdef int settle(uintptr_t context, uintptr_t event) except -1:
    cdef int64_t start = now_ns()
    cdef int64_t now = start
    cdef int done = poll(context, event, start + WITH_GIL_NS, False)
    with nogil:
        while not done:
            now = now_ns()
            done = poll(context, event, now + SIGNALS_NS, now - start >= PATIENCE_NS)
    return 0
