"""The CUDA driver as verbs that raise. Handles are `uintptr_t`: no other module names its types.

A verb that needs a current context takes it first, and leaves the thread's as it was. Unless said
otherwise a verb returns 0, and -1 with an exception set.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t, uintptr_t

ctypedef void (*host_call)(void *data) noexcept nogil


cdef enum condition_kind:
    CONDITION_IF
    CONDITION_WHILE
    CONDITION_SWITCH


cdef enum update_answer:
    UPDATE_TAKEN
    UPDATE_REFUSED


# What a kernel is launched with; a cluster of 0 is none.
cdef struct launch_spec:
    uintptr_t function
    uint32_t[3] grid
    uint32_t[3] block
    uint32_t[3] cluster
    uint32_t shared_bytes
    int32_t priority
    bint has_priority
    bint cooperative
    bint programmatic                    # eager launches alone: may start before the last one ends
    void **args


# Bytes from `src` to `dst`; what a side is decides how a graph's node describes it.
cdef struct copy_spec:
    uintptr_t dst
    uintptr_t src
    size_t nbytes
    bint dst_is_host
    bint src_is_host
    uintptr_t dst_context                # of device sides
    uintptr_t src_context


# `count` elements of 1, 2 or 4 bytes set to `value`.
cdef struct set_spec:
    uintptr_t dst
    uint32_t value
    uint32_t element
    size_t count


# What a new node waits for; `programmatic[i]` tells of the edge from `nodes[i]`.
cdef struct edges:
    const uintptr_t *nodes
    const uint8_t *programmatic          # NULL: none is
    size_t count


# ---- process and devices
cdef int driver_start() except -1                                # needs the GIL; again and again
cdef bint driver_lost() noexcept nogil                           # in a forked child of a user
cdef int driver_check(uintptr_t context) except -1 nogil         # raises if forked or poisoned
cdef bint driver_is_poisoned(uintptr_t context) noexcept nogil
cdef int driver_version() except -1
cdef int device_count() except -1
cdef object device_name(int ordinal)
cdef int device_attribute(int ordinal, int attribute) except? -1 nogil
cdef uintptr_t context_retain(int ordinal) except 0
cdef int context_memory(uintptr_t context, size_t *free, size_t *total) except -1 nogil
cdef bint peer_possible(int ordinal, int other) except -1
cdef int peer_enable(uintptr_t context, uintptr_t other) except -1   # enabled already is fine

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
cdef uintptr_t event_create(uintptr_t context, bint timing) except 0 nogil
cdef int event_destroy(uintptr_t context, uintptr_t event) except -1 nogil
cdef int event_record(uintptr_t context, uintptr_t event, uintptr_t stream) except -1 nogil
cdef int event_query(uintptr_t context, uintptr_t event) except -1 nogil       # 1 done, 0 not yet
cdef int event_elapsed(uintptr_t context, uintptr_t start, uintptr_t end,
                       float *milliseconds) except -1 nogil

# ---- work on a stream
cdef int copy_async(uintptr_t context, const copy_spec *spec, uintptr_t stream) except -1 nogil
# Device to device or pinned: one call where the driver and the stream take batches.
cdef int copy_batch(uintptr_t context, const copy_spec *specs, size_t count,
                    uintptr_t stream) except -1 nogil
cdef int set_async(uintptr_t context, const set_spec *spec, uintptr_t stream) except -1 nogil
cdef int launch_async(uintptr_t context, const launch_spec *spec, uintptr_t stream) except -1 nogil

# ---- modules and functions
# A bad image raises GraphError with the driver's log.
cdef uintptr_t module_load(uintptr_t context, const uint8_t *image, size_t nbytes) except 0
cdef int module_unload(uintptr_t context, uintptr_t module) except -1 nogil
cdef uintptr_t module_function(uintptr_t context, uintptr_t module, const char *name) except 0
cdef int module_global(uintptr_t context, uintptr_t module, const char *name, uintptr_t *ptr,
                       size_t *nbytes) except -1
cdef int function_attribute(uintptr_t context, uintptr_t function, int attribute) except? -1
cdef int function_set_attribute(uintptr_t context, uintptr_t function, int attribute,
                                int value) except -1
# 1, or 0 when there is no parameter `index`.
cdef int function_parameter(uintptr_t context, uintptr_t function, size_t index, size_t *offset,
                            size_t *nbytes) except -1
# How many blocks of a cooperative launch fit on the device at once.
cdef int function_residency(uintptr_t context, uintptr_t function, int block_threads,
                            size_t shared_bytes) except -1

# ---- graphs. A verb that adds returns the new node.
cdef uintptr_t graph_create() except 0 nogil
cdef int graph_destroy(uintptr_t graph) except -1 nogil
cdef uintptr_t graph_add_kernel(uintptr_t context, uintptr_t graph, const edges *before,
                                const launch_spec *spec) except 0 nogil
cdef uintptr_t graph_add_copy(uintptr_t context, uintptr_t graph, const edges *before,
                              const copy_spec *spec) except 0 nogil
cdef uintptr_t graph_add_set(uintptr_t context, uintptr_t graph, const edges *before,
                             const set_spec *spec) except 0 nogil
cdef uintptr_t graph_add_empty(uintptr_t graph, const edges *before) except 0 nogil
cdef uintptr_t graph_add_host(uintptr_t graph, const edges *before, host_call f,
                              void *data) except 0 nogil
cdef uintptr_t graph_add_child(uintptr_t graph, const edges *before,
                               uintptr_t child) except 0 nogil
cdef uint64_t condition_create(uintptr_t context, uintptr_t graph) except? 0 nogil
cdef uintptr_t graph_add_condition(uintptr_t context, uintptr_t graph, const edges *before,
                                   uint64_t condition, condition_kind kind, uint32_t n_bodies,
                                   uintptr_t *bodies) except 0 nogil
cdef int graph_count_nodes(uintptr_t graph, size_t *count) except -1 nogil
# Whether it, or a graph inside it, holds a node that no body of a conditional may hold; and
# whether it holds a conditional.
cdef int graph_contents(uintptr_t graph, bint *forbidden, bint *conditional) except -1

# ---- executables
cdef uintptr_t exec_create(uintptr_t context, uintptr_t graph, bint priorities) except 0 nogil
cdef int exec_destroy(uintptr_t exec_) except -1 nogil
cdef int exec_upload(uintptr_t context, uintptr_t exec_, uintptr_t stream) except -1 nogil
cdef int exec_launch(uintptr_t context, uintptr_t exec_, uintptr_t stream) except -1 nogil
# UPDATE_TAKEN, or UPDATE_REFUSED where the driver cannot change that without another executable.
cdef int exec_set_kernel(uintptr_t context, uintptr_t exec_, uintptr_t node,
                         const launch_spec *spec) except -1 nogil
cdef int exec_set_copy(uintptr_t context, uintptr_t exec_, uintptr_t node,
                       const copy_spec *spec) except -1 nogil
cdef int exec_set_set(uintptr_t context, uintptr_t exec_, uintptr_t node,
                      const set_spec *spec) except -1 nogil
cdef int exec_set_child(uintptr_t context, uintptr_t exec_, uintptr_t node,
                        uintptr_t child) except -1 nogil
cdef int exec_set_enabled(uintptr_t exec_, uintptr_t node, bint enabled) except -1 nogil

# ---- capture
cdef int capture_begin(uintptr_t context, uintptr_t stream) except -1 nogil    # relaxed mode
# The graph, or 0 where something has spoilt the capture.
cdef int capture_end(uintptr_t context, uintptr_t stream, uintptr_t *graph) except -1 nogil
