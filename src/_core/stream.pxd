"""GPUs, their streams and events, and what is known of the work on them."""

from libc.stdint cimport uint64_t, uintptr_t
from libcpp.vector cimport vector

cdef enum:
    # So many launches that nobody has seen done may fill the driver's queue: the next may block.
    MANY_UNOBSERVED = 64


cdef class CudaDevice:
    cdef readonly int ordinal
    cdef readonly uintptr_t context
    cdef dict numbers                        # attributes, once they were asked for
    # All streams, linked; not kept alive, each leaves as it dies.
    cdef void *first
    cdef vector[uintptr_t] left              # events behind such work of streams that are gone
    cdef vector[uintptr_t] idle              # events to be used again


cdef class Stream:
    cdef readonly CudaDevice device
    cdef readonly uintptr_t handle
    cdef object owner                        # of a borrowed handle; None: it is ours
    cdef uint64_t marks                      # launches so far
    cdef uint64_t seen                       # so many of them are known to be done
    cdef readonly Py_ssize_t unobserved      # the difference
    cdef unsigned long recorder              # the thread that captures it for a graph of ours, or 0
    # Not weakly referable: a callback could take a dying one out of the list of its device.
    cdef void *before
    cdef void *after


cdef class Event:
    cdef readonly CudaDevice device
    cdef readonly uintptr_t handle
    cdef Stream home                         # where it is recorded by default, or None
    cdef Stream stream                       # where it was recorded last, or None
    cdef uint64_t marks                      # the stream's then


cdef class LastUse:
    cdef Stream stream
    cdef void *at                        # that stream

cpdef CudaDevice cuda_device(int ordinal)
# An event of the device's own, to be given back; recorded again it may still be waited for.
cdef uintptr_t CudaDevice_event(CudaDevice self) except 0
cdef int CudaDevice_give(CudaDevice self, uintptr_t event) except -1
cdef int CudaDevice_wait(CudaDevice self) except -1
# Let what is put on the stream `handle` from now on wait for all unobserved work of ours.
cdef int CudaDevice_order(CudaDevice self, uintptr_t handle) except -1
# Wait for the unobserved work of ours on this device, and of others', which may reach it.
cdef int devices_wait(CudaDevice self) except -1
# Wait for it whatever signals come, for a destructor; nobody has seen it done then.
cdef int devices_drain(CudaDevice self) except -1

cdef Stream Stream_create(CudaDevice device, int priority)
cdef Stream Stream_borrow(CudaDevice device, uintptr_t handle, object owner)
# Let what is put here from now on wait for what is on another library's CUstream, and the reverse.
cdef int Stream_follow(Stream self, uintptr_t handle) except -1
cdef int Stream_precede(Stream self, uintptr_t handle) except -1
cdef int Stream_wait(Stream self, bint expect_long) except -1
cdef int Stream_see(Stream self, uint64_t marks) except -1
# Whether a call that enqueues on the stream may keep the GIL: it cannot block on what needs it.
cdef bint keeps_gil(Stream self) noexcept
# Where it is counted how many Python functions work on a GPU may call.
cdef const Py_ssize_t *host_functions() noexcept
cdef int host_functions_add(Py_ssize_t amount) except -1
# Let what is put on `now` next wait for the last use, and be that.
cdef int LastUse_before(LastUse self, Stream now) except -1


cdef inline int Stream_mark(Stream self) except -1:
    """Note that work of ours was put on the stream."""
    self.marks += 1
    self.unobserved += 1
    return 0
