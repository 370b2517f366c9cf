from libc.stdint cimport uint64_t

from fastgraph._core.lock cimport GraphLock
from fastgraph._core.scalars cimport ScalarTable


cdef extern from "line.hpp" namespace "fastgraph" nogil:
    ctypedef int (*graph_launcher)(void *exec_, void *stream) noexcept nogil
    cppclass launch_line:
        graph_launcher launch
        void *exec_ "exec"
        void *stream
        void *home
        void **last_use
        const bint *busy
        const unsigned long *reserved
        uint64_t *marks
        Py_ssize_t *unobserved
        Py_ssize_t most_unobserved
        const Py_ssize_t *host_functions
        const void *trouble
        bint care
    bint is_free(const launch_line *line)
    bint is_clear(const launch_line *line)
    int launch_at_once(const launch_line *line)


cdef class Executable:
    cdef GraphLock lock
    cdef readonly bint active            # inside `replay` or `run_with`
    cdef launch_line *line               # how it may be replayed at once; NULL where it never is

    cdef int replay(self) except -1
    # Raises what the driver has said to a launch at once.
    cdef int launched(self, int result) except -1
    # Raises where this thread must not wait for the lock.
    cdef int check_thread(self) except -1
    # The same with values of scalars, by memory and offset, for this run alone.
    cdef int replay_values(self, dict values) except -1
    # The same, and a new default, of one scalar.
    cdef int replay_value(self, tuple where, bytes value) except -1
    cdef int store_value(self, tuple where, bytes value) except -1


cdef class Cell:
    cdef Executable plain
    cdef launch_line *line               # of it; NULL where there is none
    cdef ScalarTable scalars
    cdef Py_ssize_t n_caches

# Let an object have these attributes from now on, all at once: no Python code runs meanwhile, so
# neither a signal nor another thread comes between. `holder` has them already.
cdef int adopt(object holder, dict changes) except -1


cdef class Handle:
    cdef readonly Cell cell
    cdef public object _context
    cdef public object _state            # None once closed, and for the graph of a model
    cdef public object _model            # None for all others
    cdef object token
    cdef object __weakref__
