"""Verbs of the driver for the process, devices, memory, streams, events and modules.

`driver` gives them on: other modules take them from there.
"""

from libc.stdint cimport uint8_t, uintptr_t

ctypedef void (*host_call)(void *data) noexcept nogil


cdef extern from "driver_scope.hpp" namespace "fastgraph" nogil:
    cppclass Scope:
        uintptr_t before
        void (*restore)(uintptr_t context) noexcept

# ---- for `driver*` and `blas` alone; `what` tells what was done, like "making a stream"
cdef int refuse(int result, uintptr_t context, const char *what) except -1 nogil
cdef inline int check(int result, uintptr_t context, const char *what) except -1 nogil:
    return refuse(result, context, what) if result != 0 else 0
cdef int check_room(int result, uintptr_t context, const char *what,
                    size_t nbytes) except -1 nogil
cdef int check_gone(int result, uintptr_t context, const char *what) except -1 nogil
cdef int enter(Scope *scope, uintptr_t context) except -1 nogil

# ---- process and devices
cdef int driver_start() except -1                                # needs the GIL; again and again
cdef bint driver_lost() noexcept nogil                           # in a forked child of a user
cdef int driver_check(uintptr_t context) except -1 nogil         # raises if forked or poisoned
# An atomic bool, true once the process or a context is lost: `driver_check` may raise.
cdef const void *driver_trouble() noexcept nogil
cdef bint driver_is_poisoned(uintptr_t context) noexcept nogil
# Whether there is nothing left to destroy: forked, poisoned, or the interpreter ends.
cdef bint driver_idle(uintptr_t context) noexcept nogil
cdef int driver_version() except -1
cdef int device_count() except -1
cdef object device_name(int ordinal)
cdef int device_attribute(int ordinal, int attribute) except? -1 nogil
cdef uintptr_t context_retain(int ordinal) except 0
cdef int context_memory(uintptr_t context, size_t *free, size_t *total) except -1 nogil
cdef bint peer_possible(int ordinal, int other) except -1
cdef int peer_enable(uintptr_t context, uintptr_t other) except -1   # enabled already is fine
cdef size_t device_bytes(int ordinal) except 0                   # of memory, in all
# Priorities of streams: a smaller number comes first.
cdef int context_priorities(uintptr_t context, int *lowest, int *highest) except -1 nogil

# ---- memory
cdef uintptr_t memory_allocate(uintptr_t context, size_t nbytes) except 0 nogil
cdef int memory_free(uintptr_t context, uintptr_t ptr) except -1 nogil
cdef uintptr_t host_allocate(uintptr_t context, size_t nbytes) except 0 nogil  # portable, mapped
cdef int host_free(uintptr_t context, uintptr_t ptr) except -1 nogil
# Whether `ptr` is memory of a device (with its ordinal), pinned, or unknown to the driver.
cdef int pointer_kind(uintptr_t ptr, bint *is_device, bint *is_pinned, int *ordinal) except -1

# ---- streams and events; stream 0, 1 and 2 are the driver's own
cdef uintptr_t stream_create(uintptr_t context, int priority) except 0 nogil   # non-blocking
cdef int stream_destroy(uintptr_t context, uintptr_t stream) except -1 nogil
cdef int stream_query(uintptr_t context, uintptr_t stream) except -1 nogil     # 1 done, 0 not yet
cdef int stream_capturing(uintptr_t context, uintptr_t stream) except -1 nogil  # 1 yes, 0 no
cdef int stream_wait_event(uintptr_t context, uintptr_t stream, uintptr_t event) except -1 nogil
cdef int stream_call(uintptr_t context, uintptr_t stream, host_call f, void *data) except -1 nogil
cdef uintptr_t stream_context(uintptr_t context, uintptr_t stream) except 0 nogil
cdef uintptr_t event_create(uintptr_t context, bint timing) except 0 nogil
cdef int event_destroy(uintptr_t context, uintptr_t event) except -1 nogil
cdef int event_record(uintptr_t context, uintptr_t event, uintptr_t stream) except -1 nogil
cdef int event_query(uintptr_t context, uintptr_t event) except -1 nogil       # 1 done, 0 not yet
cdef int event_elapsed(uintptr_t context, uintptr_t start, uintptr_t end,
                       float *milliseconds) except -1 nogil

# ---- modules and functions
# A bad image raises GraphError with the driver's log.
cdef uintptr_t module_load(uintptr_t context, const uint8_t *image, size_t nbytes) except 0
cdef int module_unload(uintptr_t context, uintptr_t module) except -1 nogil
# A name that is not there raises DriverError with code 500.
cdef uintptr_t module_function(uintptr_t context, uintptr_t module, const char *name) except 0
cdef int module_global(uintptr_t context, uintptr_t module, const char *name, uintptr_t *ptr,
                       size_t *nbytes) except -1
# (function, name) of what the kernel of a library is on this device.
cdef tuple kernel_function(uintptr_t context, uintptr_t kernel)
cdef str function_name(uintptr_t context, uintptr_t function)
cdef int function_attribute(uintptr_t context, uintptr_t function, int attribute) except? -1
cdef int function_set_attribute(uintptr_t context, uintptr_t function, int attribute,
                                int value) except -1
# 1, or 0 when there is no parameter `index`.
cdef int function_parameter(uintptr_t context, uintptr_t function, size_t index, size_t *offset,
                            size_t *nbytes) except -1
# How many blocks of a cooperative launch fit on the device at once.
cdef int function_residency(uintptr_t context, uintptr_t function, int block_threads,
                            size_t shared_bytes) except -1
