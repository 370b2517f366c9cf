from fastgraph._core.lock cimport GraphLock


cdef class Executable:
    cdef GraphLock lock
    cdef readonly bint active            # inside `replay`

    cdef int replay(self) except -1


cdef class Cell:
    cdef Executable plain


cdef class Handle:
    cdef readonly Cell cell
