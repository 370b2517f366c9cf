# What counts by its shape and dtype; buffers are such.
cdef class Described:
    cdef readonly tuple shape
    cdef readonly object dtype


cdef class Key:
    cdef bytes data
    cdef tuple kept
    cdef Py_hash_t hash
