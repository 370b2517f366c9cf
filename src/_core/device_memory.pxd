"""Memory that a GPU works on: its own, pinned memory of the host, other libraries'; and staging."""

from libc.stdint cimport uintptr_t

from fastgraph._core.buffer cimport Memory
from fastgraph._core.stream cimport CudaDevice, Stream

cdef enum:
    STAGING_SLOTS = 4


cdef class GpuMemory(Memory):
    cdef readonly CudaDevice device
    cdef object owner                    # of foreign bytes
    cdef uintptr_t ptr                   # of bytes to free
    cdef size_t nbytes


cdef struct slot_state:
    uintptr_t ptr
    size_t nbytes
    uintptr_t event
    bint pending                         # the event tells when the last use is done
    bint taken


cdef class Staging:
    cdef readonly CudaDevice device
    cdef slot_state[4] slots
    cdef int last


cdef class Slot:
    cdef Staging staging
    cdef int index
    cdef readonly uintptr_t ptr
    cdef readonly size_t nbytes

# 0 for memory that no device knows.
cdef uintptr_t memory_context(Memory memory) noexcept
# A slot of `nbytes` at least, to be filled; waits where all are on their way. Given up when the
# last reference goes.
cdef Slot Staging_take(Staging self, size_t nbytes)
# What uses the slot is on the stream: it is free again once that is done.
cdef int Staging_sent(Staging self, Slot slot, Stream stream) except -1
