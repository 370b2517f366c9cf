"""The scalars of a graph by name."""

cdef class ScalarTable:
    cdef dict entries
    cdef object pattern

# The values as bytes, by (memory, offset); None where a name is no scalar's.
cdef dict ScalarTable_read(ScalarTable self, dict given)
