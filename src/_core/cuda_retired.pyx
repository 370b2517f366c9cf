# cython: language_level=3
"""What was replaced in a graph: blocks, functions, executables.

A launch that is under way still reads the memory and calls the functions that it began with, so
a change of the graph frees nothing at once, and waits for nothing either.
"""

cimport cython
from fastgraph._core.driver cimport event_query, event_record
from fastgraph._core.stream cimport CudaDevice_event, CudaDevice_give, Stream

from fastgraph.errors import FastGraphError

# So many things are reason to find out which are not needed any more.
cdef Py_ssize_t MANY = 64


@cython.final
@cython.no_gc_clear
cdef class Retired:
    """Old things of one graph."""

    def __init__(self):
        raise TypeError("made by a CudaGraph")

    def __dealloc__(self):
        if self.event:
            CudaDevice_give(self.device, self.event)


cdef Retired Retired_create():
    cdef Retired self = Retired.__new__(Retired)
    self.young = []
    self.old = []
    self.event = 0
    return self


cdef int Retired_add(Retired self, object what, Stream used) except -1:
    """Keep `what`, and let go of what is not needed any more."""
    self.young.append(what)
    try:
        review(self, used)
    except FastGraphError:
        pass                             # the change is made; whoever waits is told
    return 0


cdef int review(Retired self, Stream used) except -1:
    if used.query():
        return Retired_clear(self)
    if self.event and event_query(used.device.context, self.event):
        self.old = []
        drop_event(self)
    if not self.event and len(self.young) >= MANY:
        # The stream may never be idle: what is behind an event in it can go when that is there.
        self.device = used.device
        self.event = CudaDevice_event(used.device)
        self.old, self.young = self.young, []
        event_record(used.device.context, self.event, used.handle)
    return 0


cdef int Retired_clear(Retired self) except -1:
    self.young = []
    self.old = []
    return drop_event(self)


cdef int drop_event(Retired self) except -1:
    if self.event:
        CudaDevice_give(self.device, self.event)
        self.event = 0
    return 0
