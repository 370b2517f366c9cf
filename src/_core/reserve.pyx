# cython: language_level=3
"""Addresses that are reserved as a whole, with memory behind their first part.

What lies behind the rest of them cannot be touched: on the host, too, that is a fault.
"""

cimport cython
from libc.stdint cimport uintptr_t

from fastgraph._core.buffer cimport Block_borrow
from fastgraph._core.counters cimport BLOCK_BYTES, BLOCKS, counters_add

from fastgraph.errors import OutOfMemoryError

cdef extern from "<sys/mman.h>" nogil:
    void *mmap(void *addr, size_t length, int prot, int flags, int fd, long offset)
    int munmap(void *addr, size_t length)
    int mprotect(void *addr, size_t length, int prot)
    int PROT_NONE
    int PROT_READ
    int PROT_WRITE
    int MAP_PRIVATE
    int MAP_ANONYMOUS
    int MAP_NORESERVE
    void *MAP_FAILED

# Of the host; several pages, so that a cache that grows row by row asks the system now and then.
cdef size_t HOST_GRANULE = 64 << 10


cdef class Reservation:
    """Addresses of which the first part has memory; it grows, and nothing else."""

    def __init__(self):
        raise TypeError("reservations are made by the functions of their modules")

    cdef int extend(self, size_t stop) except -1:
        raise NotImplementedError

    def commit(self, size_t nbytes):
        """See to it that the first `nbytes` have memory, full of zeros at first.

        Raises
        ------
        OutOfMemoryError
            There is none; all is as it was.
        """
        Reservation_commit(self, nbytes)


cdef size_t whole_granules(size_t nbytes, size_t granule) noexcept:
    return max((nbytes + granule - 1) // granule, 1) * granule


cdef int Reservation_commit(Reservation self, size_t nbytes) except -1:
    cdef size_t stop
    if nbytes > self.committed:
        stop = whole_granules(min(nbytes, self.nbytes), self.granule)
        self.extend(stop)
        self.committed = stop
    return 0


@cython.final
@cython.no_gc_clear
cdef class HostReservation(Reservation):
    """Addresses of the host; pages are there once they may be touched."""

    cdef int extend(self, size_t stop) except -1:
        cdef void *start = <void *> (self.ptr + self.committed)
        if mprotect(start, stop - self.committed, PROT_READ | PROT_WRITE) != 0:
            raise OutOfMemoryError(f"the host has no {stop - self.committed} bytes left")
        counters_add(BLOCK_BYTES, stop - self.committed)
        return 0

    def __dealloc__(self):
        if self.ptr:
            munmap(<void *> self.ptr, self.nbytes)
            counters_add(BLOCKS, -1)
            counters_add(BLOCK_BYTES, -<Py_ssize_t> self.committed)


def reserve(size_t nbytes):
    """Return a `Reservation` of the host's addresses, and the `Block` of its `nbytes`.

    Raises
    ------
    OutOfMemoryError
        There are not so many addresses; nothing is held.
    """
    cdef HostReservation self = HostReservation.__new__(HostReservation)
    cdef size_t size = whole_granules(nbytes, HOST_GRANULE)
    cdef void *start = mmap(
        NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
    if start == MAP_FAILED:
        raise OutOfMemoryError(f"the host has no {nbytes} bytes of addresses left")
    self.ptr = <uintptr_t> start
    self.nbytes = size
    self.granule = HOST_GRANULE
    counters_add(BLOCKS, 1)
    return self, Block_borrow(self.ptr, nbytes, self)
