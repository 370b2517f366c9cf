"""What was replaced, kept until no launch that is under way can need it."""

from libc.stdint cimport uintptr_t

from fastgraph._core.stream cimport CudaDevice, Stream


cdef class Retired:
    cdef list young
    cdef list old                            # can go once the event is there
    cdef uintptr_t event                     # 0: none is recorded
    cdef CudaDevice device                   # the event's

cdef Retired Retired_create()
# `used` is the stream of the last launch; those before are done when it is.
cdef int Retired_add(Retired self, object what, Stream used) except -1
cdef int Retired_clear(Retired self) except -1
