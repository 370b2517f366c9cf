"""A driver graph and its executable, made from a record; what an update would have to change."""

from libc.stdint cimport uintptr_t
from libcpp.vector cimport vector

from fastgraph._core.cuda_nodes cimport Maker, Shadow
from fastgraph._core.record cimport Record, RecordNode


cdef class DriverGraph:
    cdef uintptr_t context
    cdef uintptr_t graph
    cdef uintptr_t executable
    cdef list shadows                        # of every node with parameters, as the record has them
    cdef vector[Py_ssize_t] first            # of each top-level node, and the end
    cdef dict scalar_sites                   # (memory, offset) → numbers of shadows with its value
    cdef dict memory_sites                   # memory → numbers of shadows; made when asked for
    cdef dict foreigns                       # as `Maker.known`
    cdef size_t n_nodes                      # of the driver, those of foreign graphs included
    cdef bint has_priority

cdef DriverGraph DriverGraph_create(Record record, Maker maker)
# Changes are a dict: number of a shadow → what it becomes. For a record node that was replaced:
cdef int DriverGraph_diff(DriverGraph self, Maker maker, RecordNode old, RecordNode new,
                          Py_ssize_t top, dict changes) except -1
# The same for memories that moved.
cdef int DriverGraph_move(DriverGraph self, Maker maker, object memories, dict changes) except -1
# None, or why the driver did not take all; then, and when it raises, all is as it was.
cdef str DriverGraph_push(DriverGraph self, dict changes)
# Values of scalars, and what they were.
cdef str DriverGraph_store(DriverGraph self, dict values, dict before)
# The same for the value of one scalar, and what it was; "" where it is in many nodes: nothing has
# happened then.
cdef str DriverGraph_store_one(DriverGraph self, tuple key, bytes value, bytes before)
# What `Maker.known` needs to know of a foreign graph that is not in any executable yet.
cdef int DriverGraph_know(dict known, Shadow shadow) except -1
