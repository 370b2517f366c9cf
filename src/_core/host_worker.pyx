# cython: language_level=3, nonecheck=False
"""A thread beside the caller's, in which cpu graphs run one after another."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint32_t

from fastgraph._core.host_graph cimport HostGraph, HostGraph_resolve
from fastgraph._core.pool cimport now_ns, pool_forks, pool_get


# A wait keeps the GIL for so long: handing it over costs about as much.
cdef int64_t WITH_GIL_NS = 20_000
cdef int64_t SIGNALS_NS = 1_000_000
# A longer run would keep who does it from looking for signals for too long.
cdef double LONG_NS = 5_000_000.0


cdef class HostWorker:
    """The thread, made when it is first needed and anew in a forked child; parked in between.

    It ends with this object, once all that was handed in is done.
    """

    def __cinit__(self):
        self.worker = NULL

    def __dealloc__(self):
        cdef NativeWorker *worker = self.worker
        # In a forked child there is no such thread; what is left of it is left alone.
        if worker != NULL and self.forks == pool_forks():
            with nogil:
                worker.stop()
                del worker


cdef int HostWorker_post(HostWorker self, HostGraph graph, host_post *post) except -1:
    cdef host_job job
    if self.worker == NULL or self.forks != pool_forks():
        self.worker = new NativeWorker()
        self.forks = pool_forks()
    if not self.worker.start():
        return 0
    HostGraph_resolve(graph)
    job.tables = &graph.tables
    job.branches = &graph.branches if graph.branches.possible() else NULL
    job.pool = pool_get()
    job.entries = <uint32_t> graph.program.nodes.size()
    job.threads = graph.threads if graph.program.max_parts > 1 else 1
    job.kept = graph.kept
    post.short_run = graph.program.cost_ns < LONG_NS
    post.keeps_gil = not graph.release_gil
    post.number = self.worker.post(job)
    post.worker = self.worker
    post.forks = self.forks
    return 1


cdef bint post_lost(const host_post *post) noexcept:
    return post.worker != NULL and post.forks != pool_forks() and not post.worker.done(post.number)


cdef bint post_over(const host_post *post) noexcept:
    return (post.worker == NULL or post.worker.done(post.number)
            or post.forks != pool_forks())


cdef inline bint post_help(const host_post *post) noexcept:
    """Do a run that nobody has begun; False where there is none."""
    cdef bint helped
    if post.keeps_gil:
        return post.worker.help()
    with nogil:
        helped = post.worker.help()
    return helped


cdef int post_wait(const host_post *post, bint helping) except -1:
    # Another thread may take note of its end meanwhile, and hand in the next.
    cdef host_post mine = post[0]
    cdef int64_t start
    cdef bint done = post_over(&mine)
    if done:
        return 0
    if helping and mine.short_run:
        while not done and post_help(&mine):
            PyErr_CheckSignals()
            done = post_over(&mine)
    start = now_ns()
    while not done and now_ns() - start < WITH_GIL_NS:
        done = post_over(&mine)
    while not done:
        with nogil:
            done = mine.worker.wait(mine.number, SIGNALS_NS)
        PyErr_CheckSignals()
        done = done or post_over(&mine)
    return 0


cdef void post_settle(const host_post *post) noexcept:
    cdef bint done = post_over(post)
    with nogil:
        while not done:
            done = post.worker.wait(post.number, SIGNALS_NS)
