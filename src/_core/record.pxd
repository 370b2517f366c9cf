cdef class Operand:
    cdef readonly object memory          # ints of any size: what is too large is refused by name
    cdef readonly object offset
    cdef readonly object nbytes
    cdef readonly bint reads
    cdef readonly bint writes


cdef class RecordNode:
    cdef readonly object name
    cdef readonly object kind
    cdef readonly object kernel
    cdef readonly tuple operands
    cdef readonly tuple params
    cdef readonly int parts
    cdef readonly double cost_ns
    cdef readonly tuple dependencies
    cdef readonly object label
    cdef readonly object keep
    cdef readonly tuple bodies
    cdef readonly object call
    cdef readonly bint enabled


cdef class Record:
    cdef readonly list memories
    cdef readonly list nodes

    cdef int add(self, RecordNode node) except -1
    cpdef Record body(self)


cdef Operand Operand_create(object memory, object offset, object nbytes, bint reads, bint writes)
