from libc.stdint cimport int64_t, uint32_t, uint64_t
from libcpp.vector cimport vector

from fastgraph._core.executable cimport Executable
from fastgraph._core.host_program cimport BranchPlan, HostProgram, host_node
from fastgraph._core.pool cimport Pool


cdef extern from "host_walk.hpp" namespace "fastgraph" nogil:
    ctypedef enum walk_end:
        WALKED
        STOPPED
        CUT_OFF

    ctypedef int (*host_python)(void *graph, size_t entry) except -1 nogil
    ctypedef int (*host_signals)() noexcept nogil

    ctypedef struct host_tables:
        const host_node *nodes
        void *const *args
        const int64_t *stream
        uint64_t *fault
        void *graph
        host_python python
        host_signals signals

    cdef cppclass Walker:
        void start(size_t parts)
        walk_end walk(const host_tables &tables, Pool *pool, const uint32_t *ranges, size_t n,
                      int64_t *times)
    void walk_kept(const host_tables &tables, size_t n, Pool *pool)


cdef extern from "branches.hpp" namespace "fastgraph" nogil:
    cdef cppclass Branches:
        void set(const BranchPlan *plan, uint32_t n_entries, uint32_t threads)
        bint possible()
        bint parallel()
        walk_end run(Walker &walker, const host_tables &tables, Pool *pool)


cdef class HostGraph(Executable):
    cdef readonly HostProgram program
    cdef readonly uint32_t threads
    cdef readonly bint release_gil
    cdef vector[void *] bases
    cdef vector[void *] args                 # every operand's address, as `bases` were last
    cdef vector[int64_t] stream              # the program's, with addresses
    cdef host_tables tables
    cdef Walker walker
    cdef Branches branches
    cdef bint moved                          # `bind` was called since `args` were resolved
    cdef bint kept                           # nothing in a run looks at signals or gives the GIL up
    cdef list owners
    cdef readonly dict scalars               # (memory, offset) → the lasting value
    cdef uint64_t fault
    cdef object __weakref__

cdef int HostGraph_lock(HostGraph self) except -1
cdef void HostGraph_unlock(HostGraph self) noexcept
cdef int HostGraph_run(HostGraph self) except -1
# Work out the address of every operand from where memories are now.
cdef void HostGraph_resolve(HostGraph self) noexcept
cdef int HostGraph_check_fault(HostGraph self) except -1
cdef list HostGraph_run_timed(HostGraph self)
