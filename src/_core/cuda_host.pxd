"""Python functions that a device calls back in the middle of a graph."""


cdef class HostFaults:
    cdef object error
    cdef int ordinal                         # of the device

cdef HostFaults HostFaults_create(int ordinal)
cdef int HostFaults_raise(HostFaults self) except -1


cdef class HostCall:
    cdef readonly object function
    cdef object node                         # the record's, for messages
    cdef HostFaults faults

cdef HostCall HostCall_create(object node, HostFaults faults)

# What the driver calls; its data is a `HostCall`, kept alive by the executable.
cdef void host_entry(void *data) noexcept nogil
cdef bint host_inside() noexcept             # this thread is in such a function
# Raises GraphError on a thread that is inside such a function: the driver forbids nearly all calls.
cdef int host_refuse() except -1
