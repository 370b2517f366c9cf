from cpython.object cimport PyObject

cdef enum:
    NEAR = 64


# An entry that was found before, borrowed from what is held.
cdef struct near:
    PyObject *key
    PyObject *state
    PyObject *cell


cdef class Flight:
    cdef object over                     # a lock that is held until then
    cdef unsigned long thread
    cdef object state                    # what was built
    cdef BaseException error             # or what was raised


cdef class Shelf:
    cdef public object _held             # an OrderedDict of Key to state
    # Some of them by the hashes of their keys, and the key that was used last or NULL.
    cdef near[NEAR] nearby
    cdef PyObject *newest
    cdef dict flights                    # Key → Flight
    cdef dict waiting                    # thread → the Flight that it waits for
    cdef readonly Py_ssize_t _hits
    cdef readonly Py_ssize_t _misses
    cdef readonly Py_ssize_t _builds
    cdef readonly Py_ssize_t _evictions
    cdef readonly Py_ssize_t _nbytes     # of memory of the graphs' own
