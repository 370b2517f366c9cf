"""Addresses that are reserved as a whole, with memory behind their first part."""

from libc.stdint cimport uintptr_t


cdef class Reservation:
    cdef readonly uintptr_t ptr
    cdef readonly size_t nbytes          # of addresses
    cdef readonly size_t committed       # bytes from the start that memory is behind
    cdef readonly size_t granule

    # Put memory, full of zeros, behind bytes from `committed` to `stop`, which is whole granules.
    cdef int extend(self, size_t stop) except -1

# See to it that the first `nbytes` have memory. Nothing moves, and none goes before the last
# reference.
cdef int Reservation_commit(Reservation self, size_t nbytes) except -1
cdef size_t whole_granules(size_t nbytes, size_t granule) noexcept
