from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uintptr_t
from libcpp.vector cimport vector

from fastgraph._core.executable cimport Executable
from fastgraph._core.types cimport host_control, host_node, host_operand


cdef struct signal_watch:
    int64_t looked_ns                        # when signals were last looked for
    int64_t last_ns                          # when the clock was last read
    int32_t stride
    int32_t left                             # parts until the next reading


cdef class HostProgram:
    cdef vector[host_node] nodes
    cdef vector[host_operand] operands
    cdef vector[int64_t] params
    cdef vector[int64_t] node_ids            # top-level record id of each entry of `nodes`
    cdef vector[uint32_t] first              # first entry of each top-level node, and the end
    cdef list flat                           # the record node of each entry
    cdef bint has_control                    # jumps or Python: only `walk` knows them

    cdef int emit(self, node, Py_ssize_t top, list first_param) except -1
    cdef Py_ssize_t append(self, node, Py_ssize_t top, list first_param,
                           host_control control) except -1

    cdef readonly object record
    cdef readonly str isa
    cdef readonly double cost_ns
    cdef readonly uint32_t max_parts
    cdef uint32_t max_operands


cdef class HostGraph(Executable):
    cdef readonly HostProgram program
    cdef readonly uint32_t threads
    cdef readonly bint release_gil
    cdef vector[void *] bases
    cdef vector[void *] args
    cdef list owners
    cdef uint64_t fault
    cdef signal_watch watch
    cdef object __weakref__

cdef int HostGraph_lock(HostGraph self) except -1
cdef void HostGraph_unlock(HostGraph self) noexcept
cdef int HostGraph_run(HostGraph self) except -1
cdef int HostGraph_check_fault(HostGraph self) except -1
cdef list HostGraph_run_timed(HostGraph self)
