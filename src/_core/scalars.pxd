"""The scalars of a graph by name."""

from cpython.object cimport PyObject


cdef class ScalarTable:
    cdef dict entries
    cdef object pattern

# The value of one as bytes, if it is a plain number, and where it goes; else None.
cdef bytes ScalarTable_one(ScalarTable self, object name, object value, PyObject **where)
# The values as bytes, by (memory, offset); None where a name is no scalar's.
cdef dict ScalarTable_read(ScalarTable self, dict given)
