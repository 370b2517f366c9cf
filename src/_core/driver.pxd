"""The CUDA driver as verbs that raise. Handles are `uintptr_t`: no other module names its types.

A verb that needs a current context takes it first, and leaves the thread's as it was. Unless said
otherwise a verb returns 0, and -1 with an exception set.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t, uintptr_t

# The verbs of the process, devices, memory, streams, events and modules are declared and explained
# there; everyone but `driver` takes them from here.
from fastgraph._core.driver_base cimport (
    host_call,
    context_memory, context_priorities, context_retain, device_bytes, device_count, device_name,
    driver_check, driver_idle, driver_is_poisoned, driver_lost, driver_start,
    driver_trouble, driver_version,
    event_create, event_destroy, event_elapsed, event_query, event_record, function_attribute,
    function_name, function_parameter, function_residency, function_set_attribute,
    host_allocate, host_free, kernel_function, memory_allocate, memory_free, module_function,
    module_global, module_load, module_unload, peer_enable, peer_possible, pointer_kind,
    stream_call, stream_capturing, stream_context, stream_create, stream_destroy, stream_query,
    stream_wait_event)


# A device in numbers, by the driver's names in lower case.
cdef dict device_attributes(int ordinal)


cdef enum:
    # Streams up to this one are the driver's own, of the calling thread's current context.
    LAST_BUILTIN = 2


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


# ---- work on a stream
cdef int copy_async(uintptr_t context, const copy_spec *spec, uintptr_t stream) except -1 nogil
# Device to device or pinned: one call where the driver and the stream take batches.
cdef int copy_batch(uintptr_t context, const copy_spec *specs, size_t count,
                    uintptr_t stream) except -1 nogil
cdef int set_async(uintptr_t context, const set_spec *spec, uintptr_t stream) except -1 nogil
cdef int launch_async(uintptr_t context, const launch_spec *spec, uintptr_t stream) except -1 nogil

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
# The driver's own function for that, for streams that are not built in: it takes executable and
# stream and returns a result, of which `exec_launched` raises the bad ones. NULL: there is none.
cdef void *exec_launcher() except? NULL
cdef int exec_launched(uintptr_t context, int result) except -1 nogil
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
