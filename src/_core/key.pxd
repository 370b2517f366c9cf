cdef class Key:
    cdef bytes data
    cdef tuple kept
    cdef Py_hash_t hash
