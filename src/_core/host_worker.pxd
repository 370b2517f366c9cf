from libc.stdint cimport int64_t, uint32_t

from fastgraph._core.host_graph cimport Branches, HostGraph, host_tables
from fastgraph._core.pool cimport Pool


cdef extern from "host_worker.hpp" namespace "fastgraph" nogil:
    ctypedef struct host_job:
        const host_tables *tables
        Branches *branches
        Pool *pool
        uint32_t entries
        uint32_t threads
        bint kept

    cdef cppclass NativeWorker "fastgraph::HostWorker":
        bint start() except +
        uint32_t post(const host_job &job)
        bint done(uint32_t number)
        bint help()
        bint wait(uint32_t number, int64_t ns)
        void stop()


cdef struct host_post:
    NativeWorker *worker                 # NULL: nothing was handed in
    uint32_t number
    uint32_t forks                       # when that was
    bint short_run                       # who waits for it may do another one meanwhile
    bint keeps_gil                       # and would not let other threads go on


cdef class HostWorker:
    cdef NativeWorker *worker
    cdef uint32_t forks

# Hand in a run of a graph on the addresses that it has now; the graph and all that it names stay
# until it is over. 0 where there is no thread to be had: nothing was handed in.
cdef int HostWorker_post(HostWorker self, HostGraph graph, host_post *post) except -1
# Whether a run is over. One that a fork cut off is, in the child.
cdef bint post_over(const host_post *post) noexcept
# Whether a fork cut it off.
cdef bint post_lost(const host_post *post) noexcept
# Wait for it, looking for signals: what their handlers raise comes out, and it goes on. `helping`:
# meanwhile do what the thread has not begun.
cdef int post_wait(const host_post *post, bint helping) except -1
# Wait for it, whatever comes, for a destructor.
cdef void post_settle(const host_post *post) noexcept
