cdef class Shelf:
    cdef public object _held             # an OrderedDict of Key to state
    cdef readonly Py_ssize_t _hits
    cdef readonly Py_ssize_t _misses
