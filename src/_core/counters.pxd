"""Live objects and bytes, counted for leak tests and `fastgraph info`."""

from libc.stdint cimport int64_t

cdef enum Counted:
    BLOCKS
    BLOCK_BYTES
    BUFFERS
    PROGRAMS
    EXECUTABLES
    ENGINES
    STREAMS
    EVENTS
    MODULES
    DEVICE_BYTES
    PINNED_BYTES
    PRODUCTS
    COUNTED

cdef int counters_add(Counted what, int64_t amount) except -1
