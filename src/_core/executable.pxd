from fastgraph._core.lock cimport GraphLock
from fastgraph._core.scalars cimport ScalarTable


cdef class Executable:
    cdef GraphLock lock
    cdef readonly bint active            # inside `replay` or `run_with`

    cdef int replay(self) except -1
    # Raises where this thread must not wait for the lock.
    cdef int check_thread(self) except -1
    # The same with values of scalars, by memory and offset, for this run alone.
    cdef int replay_values(self, dict values) except -1


cdef class Cell:
    cdef Executable plain
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
