from libc.stdint cimport uint32_t


cdef class GraphLock:
    cdef bint busy
    cdef uint32_t busy_forks
    cdef unsigned long reserved              # the thread that has waited longest, or 0
    cdef unsigned long owner_thread

cdef int GraphLock_take(GraphLock self) except -1
cdef void GraphLock_give(GraphLock self) noexcept
cdef bint GraphLock_is_mine(GraphLock self) noexcept
