cdef class Node:
    cdef readonly object _builder
    cdef readonly Py_ssize_t id
    cdef readonly object name
    cdef object _outputs


cdef class Access:
    cdef readonly object place
    cdef readonly bint reads
    cdef readonly bint writes
    cdef readonly bint known


cdef class Work:
    cdef readonly object name
    cdef readonly object kind
    cdef readonly object kernel
    cdef readonly tuple accesses
    cdef readonly tuple params
    cdef readonly object keep
    cdef readonly object call
    cdef readonly object spec
    cdef readonly tuple bodies


cdef class Pending:
    cdef readonly object name
    cdef readonly Work work
    cdef readonly tuple dependencies
    cdef readonly tuple bodies
    cdef readonly object inlined


cdef class Gatherer:
    cdef readonly list _nodes
    cdef public list _pending
    cdef public object _region
    cdef public object _shared
    cdef public str _device
    cdef public bint _in_body
    cdef public bint _open
    cdef public bint _busy
    cdef unsigned long _thread


cdef Access Access_create(object place, bint reads, bint writes)
cpdef tuple operands_of(tuple accesses, dict located, bint unknown)
