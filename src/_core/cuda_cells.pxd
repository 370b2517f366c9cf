"""The scalars of one graph that lie in memory of a GPU."""

from libc.stdint cimport uintptr_t
from libcpp.vector cimport vector

from fastgraph._core.buffer cimport Block
from fastgraph._core.stream cimport CudaDevice, Stream


cdef class Cells:
    cdef dict sizes                          # (memory, offset) → bytes of that scalar
    cdef size_t memory                       # where all of them lie
    cdef vector[unsigned char] image         # what they are to be, from the first byte of it on
    cdef size_t low                          # from here …
    cdef size_t high                         # … to here it is not on its way yet
    # What is on its way, in two halves: while one is filled, the other is on its way.
    cdef CudaDevice device
    cdef Block ring
    cdef size_t half
    cdef size_t next
    cdef size_t stop                         # of the half that is being filled
    cdef uintptr_t[2] events
    cdef bint[2] pending

# For scalars with these values, none of which is there yet.
cdef Cells Cells_create(CudaDevice device, dict values)
# Raises GraphError where the value has another size.
cdef int Cells_check(Cells self, tuple key, bytes value) except -1
cdef int Cells_put(Cells self, tuple key, bytes value) except -1
# All of them are somewhere else now.
cdef int Cells_moved(Cells self) except -1
# Enqueue the copy of what changed, to memory at `base`. The stream comes after all earlier ones.
cdef int Cells_send(Cells self, uintptr_t base, Stream stream) except -1
