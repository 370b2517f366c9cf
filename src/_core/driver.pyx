# cython: language_level=3
"""The CUDA driver as verbs that raise; with `driver_base` the only module that names its bindings.

A verb looks first whether the driver may be called at all: not in the child of a fork, and not for
a context that an earlier fault has lost, because there the driver answers some calls as if nothing
had happened and kills the process on others. Verbs that destroy do nothing then, as they do nothing
while the interpreter ends: the end of the process frees all.
"""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset
from cuda.bindings cimport cydriver as cu

from fastgraph._core.driver_base cimport (
    Scope, check, check_gone, device_attribute, device_bytes, device_count, device_name,
    driver_check, driver_idle, driver_version, enter, host_call)

from fastgraph.errors import OutOfMemoryError

cdef enum:
    BATCH = 64
    FEW_EDGES = 32

# The driver's numbers (CUdevice_attribute) of its names.
cdef dict ATTRIBUTES = {
    "max_threads_per_block": 1, "max_block_dim_x": 2, "max_block_dim_y": 3, "max_block_dim_z": 4,
    "max_grid_dim_x": 5, "max_grid_dim_y": 6, "max_grid_dim_z": 7, "max_shared_memory_per_block": 8,
    "total_constant_memory": 9, "warp_size": 10, "max_registers_per_block": 12, "clock_rate": 13,
    "multiprocessor_count": 16, "integrated": 18, "concurrent_kernels": 31, "ecc_enabled": 32,
    "memory_clock_rate": 36, "global_memory_bus_width": 37, "l2_cache_size": 38,
    "max_threads_per_multiprocessor": 39, "async_engine_count": 40, "compute_capability_major": 75,
    "compute_capability_minor": 76, "max_shared_memory_per_multiprocessor": 81,
    "max_registers_per_multiprocessor": 82, "cooperative_launch": 95,
    "max_shared_memory_per_block_optin": 97, "max_blocks_per_multiprocessor": 106,
    "max_persisting_l2_cache_size": 108, "reserved_shared_memory_per_block": 111,
    "cluster_launch": 120,
}


# ---- for Python

def version():
    """Return the version of CUDA that the driver is of, as (major, minor).

    Raises
    ------
    UnsupportedError
        There is no driver, it is too old, or it sees no device.
    """
    number = driver_version()
    return number // 1000, number % 1000 // 10


def devices():
    """Return (name, compute capability, bytes of memory) of each device, by ordinal."""
    found = []
    for ordinal in range(device_count()):
        major = device_attribute(ordinal, cu.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        minor = device_attribute(ordinal, cu.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        found.append((device_name(ordinal), (major, minor), device_bytes(ordinal)))
    return found


cdef dict device_attributes(int ordinal):
    return {name: device_attribute(ordinal, number) for name, number in ATTRIBUTES.items()}


# ---- specs in the driver's words

cdef void describe_kernel(const launch_spec *spec, cu.CUgraphNodeParams *params) noexcept nogil:
    memset(params, 0, sizeof(cu.CUgraphNodeParams))
    params.type = cu.CU_GRAPH_NODE_TYPE_KERNEL
    params.kernel.func = <cu.CUfunction> spec.function
    params.kernel.gridDimX = spec.grid[0]
    params.kernel.gridDimY = spec.grid[1]
    params.kernel.gridDimZ = spec.grid[2]
    params.kernel.blockDimX = spec.block[0]
    params.kernel.blockDimY = spec.block[1]
    params.kernel.blockDimZ = spec.block[2]
    params.kernel.sharedMemBytes = spec.shared_bytes
    params.kernel.kernelParams = <void **> spec.args


cdef void describe_copy(uintptr_t context, const copy_spec *spec,
                        cu.CUgraphNodeParams *params) noexcept nogil:
    cdef cu.CUDA_MEMCPY3D *copy = &params.memcpy.copyParams
    memset(params, 0, sizeof(cu.CUgraphNodeParams))
    params.type = cu.CU_GRAPH_NODE_TYPE_MEMCPY
    params.memcpy.copyCtx = <cu.CUcontext> context
    copy.WidthInBytes = spec.nbytes
    copy.Height = 1
    copy.Depth = 1
    if spec.src_is_host:
        copy.srcMemoryType = cu.CU_MEMORYTYPE_HOST
        copy.srcHost = <const void *> spec.src
    else:
        copy.srcMemoryType = cu.CU_MEMORYTYPE_DEVICE
        copy.srcDevice = spec.src
    if spec.dst_is_host:
        copy.dstMemoryType = cu.CU_MEMORYTYPE_HOST
        copy.dstHost = <void *> spec.dst
    else:
        copy.dstMemoryType = cu.CU_MEMORYTYPE_DEVICE
        copy.dstDevice = spec.dst


cdef void describe_set(uintptr_t context, const set_spec *spec,
                       cu.CUgraphNodeParams *params) noexcept nogil:
    memset(params, 0, sizeof(cu.CUgraphNodeParams))
    params.type = cu.CU_GRAPH_NODE_TYPE_MEMSET
    params.memset.dst = spec.dst
    params.memset.value = spec.value
    params.memset.elementSize = spec.element
    params.memset.width = spec.count
    params.memset.height = 1
    params.memset.ctx = <cu.CUcontext> context


# The attributes of a launch, at most four; returns how many. A graph's edges say what is
# programmatic there.
cdef unsigned int describe_attributes(const launch_spec *spec, bint eager,
                                      cu.CUlaunchAttribute *attributes) noexcept nogil:
    cdef unsigned int n = 0
    memset(attributes, 0, 4 * sizeof(cu.CUlaunchAttribute))
    if spec.cluster[0]:
        attributes[n].id = cu.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        attributes[n].value.clusterDim.x = spec.cluster[0]
        attributes[n].value.clusterDim.y = spec.cluster[1]
        attributes[n].value.clusterDim.z = spec.cluster[2]
        n += 1
    if spec.cooperative:
        attributes[n].id = cu.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        attributes[n].value.cooperative = 1
        n += 1
    if spec.has_priority:
        attributes[n].id = cu.CU_LAUNCH_ATTRIBUTE_PRIORITY
        attributes[n].value.priority = spec.priority
        n += 1
    if spec.programmatic and eager:
        attributes[n].id = cu.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attributes[n].value.programmaticStreamSerializationAllowed = 1
        n += 1
    return n


# ---- work on a stream

cdef int copy_async(uintptr_t context, const copy_spec *spec, uintptr_t stream) except -1 nogil:
    cdef cu.CUstream on = <cu.CUstream> stream
    cdef int result
    cdef Scope scope
    enter(&scope, context)
    if spec.nbytes == 0:
        return 0
    if spec.src_is_host and spec.dst_is_host:
        result = cu.cuMemcpyAsync(spec.dst, spec.src, spec.nbytes, on)
    elif spec.src_is_host:
        result = cu.cuMemcpyHtoDAsync(spec.dst, <const void *> spec.src, spec.nbytes, on)
    elif spec.dst_is_host:
        result = cu.cuMemcpyDtoHAsync(<void *> spec.dst, spec.src, spec.nbytes, on)
    elif spec.dst_context != spec.src_context:
        result = cu.cuMemcpyPeerAsync(spec.dst, <cu.CUcontext> spec.dst_context, spec.src,
                                      <cu.CUcontext> spec.src_context, spec.nbytes, on)
    else:
        result = cu.cuMemcpyDtoDAsync(spec.dst, spec.src, spec.nbytes, on)
    return check(result, context, "enqueuing a copy")


cdef int copy_batch(uintptr_t context, const copy_spec *specs, size_t count,
                    uintptr_t stream) except -1 nogil:
    cdef cu.CUdeviceptr[BATCH] to
    cdef cu.CUdeviceptr[BATCH] of
    cdef size_t[BATCH] sizes
    cdef cu.CUmemcpyAttributes how
    cdef size_t first = 0
    cdef size_t n = 0
    cdef size_t i
    cdef Scope scope
    if count == 1 or stream <= 1:        # the legacy stream takes no batches
        for i in range(count):
            copy_async(context, &specs[i], stream)
        return 0
    enter(&scope, context)
    memset(&how, 0, sizeof(how))
    how.srcAccessOrder = cu.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    for i in range(count):
        if specs[i].nbytes:
            to[n] = specs[i].dst
            of[n] = specs[i].src
            sizes[n] = specs[i].nbytes
            n += 1
        if n == BATCH or (n and i + 1 == count):
            check(cu.cuMemcpyBatchAsync(to, of, sizes, n, &how, &first, 1, <cu.CUstream> stream),
                  context, "enqueuing copies")
            n = 0
    return 0


cdef int set_async(uintptr_t context, const set_spec *spec, uintptr_t stream) except -1 nogil:
    cdef cu.CUstream on = <cu.CUstream> stream
    cdef int result
    cdef Scope scope
    enter(&scope, context)
    if spec.count == 0:
        return 0
    if spec.element == 1:
        result = cu.cuMemsetD8Async(spec.dst, <unsigned char> spec.value, spec.count, on)
    elif spec.element == 2:
        result = cu.cuMemsetD16Async(spec.dst, <unsigned short> spec.value, spec.count, on)
    else:
        result = cu.cuMemsetD32Async(spec.dst, spec.value, spec.count, on)
    return check(result, context, "enqueuing a memset")


cdef int launch_async(uintptr_t context, const launch_spec *spec, uintptr_t stream) except -1 nogil:
    cdef cu.CUlaunchConfig config
    cdef cu.CUlaunchAttribute[4] attributes
    cdef Scope scope
    enter(&scope, context)
    memset(&config, 0, sizeof(config))
    config.gridDimX = spec.grid[0]
    config.gridDimY = spec.grid[1]
    config.gridDimZ = spec.grid[2]
    config.blockDimX = spec.block[0]
    config.blockDimY = spec.block[1]
    config.blockDimZ = spec.block[2]
    config.sharedMemBytes = spec.shared_bytes
    config.hStream = <cu.CUstream> stream
    config.attrs = attributes
    config.numAttrs = describe_attributes(spec, True, attributes)
    return check(
        cu.cuLaunchKernelEx(&config, <cu.CUfunction> spec.function, <void **> spec.args, NULL),
        context, "launching a kernel")


# ---- graphs

cdef uintptr_t graph_create() except 0 nogil:
    cdef cu.CUgraph graph = NULL
    driver_check(0)
    check(cu.cuGraphCreate(&graph, 0), 0, "making a graph")
    return <uintptr_t> graph


cdef int graph_destroy(uintptr_t graph) except -1 nogil:
    if driver_idle(0):
        return 0
    return check_gone(cu.cuGraphDestroy(<cu.CUgraph> graph), 0, "destroying a graph")


cdef uintptr_t add_node(uintptr_t context, uintptr_t graph, const edges *before,
                        cu.CUgraphNodeParams *params, const char *what) except 0 nogil:
    cdef cu.CUgraphNode node = NULL
    cdef cu.CUgraphEdgeData[FEW_EDGES] few
    cdef cu.CUgraphEdgeData *data = NULL
    cdef size_t i
    cdef int result
    cdef Scope scope
    enter(&scope, context)
    if before.programmatic != NULL and before.count:
        data = few
        if before.count > FEW_EDGES:
            data = <cu.CUgraphEdgeData *> malloc(before.count * sizeof(cu.CUgraphEdgeData))
            if data == NULL:
                with gil:
                    raise OutOfMemoryError(f"the host has no room for {before.count} edges")
        memset(data, 0, before.count * sizeof(cu.CUgraphEdgeData))
        for i in range(before.count):
            if before.programmatic[i]:
                data[i].from_port = cu.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
                data[i].type = cu.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
    result = cu.cuGraphAddNode(&node, <cu.CUgraph> graph, <const cu.CUgraphNode *> before.nodes,
                               data, before.count, params)
    if data != few:
        free(data)
    check(result, context, what)
    return <uintptr_t> node


cdef uintptr_t graph_add_kernel(uintptr_t context, uintptr_t graph, const edges *before,
                                const launch_spec *spec) except 0 nogil:
    cdef cu.CUgraphNodeParams params
    cdef cu.CUlaunchAttribute[4] attributes
    cdef unsigned int i
    cdef Scope scope
    enter(&scope, context)
    describe_kernel(spec, &params)
    node = add_node(context, graph, before, &params, "adding a kernel to a graph")
    for i in range(describe_attributes(spec, False, attributes)):
        check(cu.cuGraphKernelNodeSetAttribute(
                  <cu.CUgraphNode> node, attributes[i].id, &attributes[i].value),
              context, "setting an attribute of a graph's kernel")
    return node


cdef uintptr_t graph_add_copy(uintptr_t context, uintptr_t graph, const edges *before,
                              const copy_spec *spec) except 0 nogil:
    cdef cu.CUgraphNodeParams params
    describe_copy(context, spec, &params)
    return add_node(context, graph, before, &params, "adding a copy to a graph")


cdef uintptr_t graph_add_set(uintptr_t context, uintptr_t graph, const edges *before,
                             const set_spec *spec) except 0 nogil:
    cdef cu.CUgraphNodeParams params
    describe_set(context, spec, &params)
    return add_node(context, graph, before, &params, "adding a memset to a graph")


cdef uintptr_t graph_add_empty(uintptr_t graph, const edges *before) except 0 nogil:
    cdef cu.CUgraphNodeParams params
    memset(&params, 0, sizeof(params))
    params.type = cu.CU_GRAPH_NODE_TYPE_EMPTY
    return add_node(0, graph, before, &params, "adding an empty node to a graph")


cdef uintptr_t graph_add_host(uintptr_t graph, const edges *before, host_call f,
                              void *data) except 0 nogil:
    cdef cu.CUgraphNodeParams params
    memset(&params, 0, sizeof(params))
    params.type = cu.CU_GRAPH_NODE_TYPE_HOST
    params.host.fn = <cu.CUhostFn> <void *> f
    params.host.userData = data
    return add_node(0, graph, before, &params, "adding a host function to a graph")


cdef uintptr_t graph_add_child(uintptr_t graph, const edges *before,
                               uintptr_t child) except 0 nogil:
    cdef cu.CUgraphNodeParams params
    memset(&params, 0, sizeof(params))
    params.type = cu.CU_GRAPH_NODE_TYPE_GRAPH
    params.graph.graph = <cu.CUgraph> child
    params.graph.ownership = cu.CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE
    return add_node(0, graph, before, &params, "adding a child to a graph")


cdef uint64_t condition_create(uintptr_t context, uintptr_t graph) except? 0 nogil:
    cdef cu.CUgraphConditionalHandle handle = 0
    cdef Scope scope
    enter(&scope, context)
    check(cu.cuGraphConditionalHandleCreate(
              &handle, <cu.CUgraph> graph, <cu.CUcontext> context, 0,
              cu.CU_GRAPH_COND_ASSIGN_DEFAULT),
          context, "making the handle of a conditional")
    return handle


cdef uintptr_t graph_add_condition(uintptr_t context, uintptr_t graph, const edges *before,
                                   uint64_t condition, condition_kind kind, uint32_t n_bodies,
                                   uintptr_t *bodies) except 0 nogil:
    cdef cu.CUgraphNodeParams params
    cdef uint32_t i
    memset(&params, 0, sizeof(params))
    params.type = cu.CU_GRAPH_NODE_TYPE_CONDITIONAL
    params.conditional.handle = condition
    params.conditional.size = n_bodies
    params.conditional.ctx = <cu.CUcontext> context
    params.conditional.type = cu.CU_GRAPH_COND_TYPE_IF
    if kind == CONDITION_WHILE:
        params.conditional.type = cu.CU_GRAPH_COND_TYPE_WHILE
    elif kind == CONDITION_SWITCH:
        params.conditional.type = cu.CU_GRAPH_COND_TYPE_SWITCH
    node = add_node(context, graph, before, &params, "adding a conditional to a graph")
    for i in range(n_bodies):
        bodies[i] = <uintptr_t> params.conditional.phGraph_out[i]
    return node


cdef int graph_count_nodes(uintptr_t graph, size_t *count) except -1 nogil:
    driver_check(0)
    return check(cu.cuGraphGetNodes(<cu.CUgraph> graph, NULL, count), 0, "counting nodes")


cdef bint is_pageable(cu.CUmemorytype kind, const void *host,
                      cu.CUdeviceptr unified) except -1 nogil:
    """Whether one side of a copy lies in memory that the driver does not know."""
    cdef unsigned int found = 0
    if kind == cu.CU_MEMORYTYPE_HOST:
        unified = <cu.CUdeviceptr> <uintptr_t> host
    elif kind != cu.CU_MEMORYTYPE_UNIFIED:
        return False
    result = cu.cuPointerGetAttribute(&found, cu.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, unified)
    return result != cu.CUDA_SUCCESS or found == 0


cdef int graph_contents(uintptr_t graph, bint *forbidden, bint *conditional) except -1:
    cdef size_t count = 0
    cdef size_t i
    cdef cu.CUgraphNode *nodes
    cdef cu.CUgraphNodeType kind
    cdef cu.CUgraph child
    cdef cu.CUDA_MEMCPY3D copy
    graph_count_nodes(graph, &count)
    if count == 0:
        return 0                         # the driver refuses to list none
    nodes = <cu.CUgraphNode *> malloc((count + 1) * sizeof(cu.CUgraphNode))
    if nodes == NULL:
        raise OutOfMemoryError(f"the host has no room for {count} nodes")
    try:
        check(cu.cuGraphGetNodes(<cu.CUgraph> graph, nodes, &count), 0, "listing nodes")
        for i in range(count):
            check(cu.cuGraphNodeGetType(nodes[i], &kind), 0, "asking for the kind of a node")
            if kind == cu.CU_GRAPH_NODE_TYPE_CONDITIONAL:
                conditional[0] = True
            elif kind == cu.CU_GRAPH_NODE_TYPE_GRAPH:
                check(cu.cuGraphChildGraphNodeGetGraph(nodes[i], &child), 0, "looking into a child")
                graph_contents(<uintptr_t> child, forbidden, conditional)
            elif kind == cu.CU_GRAPH_NODE_TYPE_MEMCPY:
                check(cu.cuGraphMemcpyNodeGetParams(nodes[i], &copy), 0, "looking at a copy")
                if (is_pageable(copy.srcMemoryType, copy.srcHost, copy.srcDevice)
                        or is_pageable(copy.dstMemoryType, copy.dstHost, copy.dstDevice)):
                    forbidden[0] = True
            elif kind not in (cu.CU_GRAPH_NODE_TYPE_KERNEL, cu.CU_GRAPH_NODE_TYPE_MEMSET,
                              cu.CU_GRAPH_NODE_TYPE_EMPTY):
                forbidden[0] = True
    finally:
        free(nodes)
    return 0


# ---- executables

cdef uintptr_t exec_create(uintptr_t context, uintptr_t graph, bint priorities) except 0 nogil:
    cdef cu.CUgraphExec made = NULL
    cdef Scope scope
    enter(&scope, context)
    check(cu.cuGraphInstantiate(
              &made, <cu.CUgraph> graph,
              cu.CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY if priorities else 0),
          context, "making a graph executable")
    return <uintptr_t> made


cdef int exec_destroy(uintptr_t exec_) except -1 nogil:
    if driver_idle(0):
        return 0
    return check_gone(cu.cuGraphExecDestroy(<cu.CUgraphExec> exec_), 0, "destroying an executable")


cdef int exec_upload(uintptr_t context, uintptr_t exec_, uintptr_t stream) except -1 nogil:
    cdef Scope scope
    enter(&scope, context)
    return check(cu.cuGraphUpload(<cu.CUgraphExec> exec_, <cu.CUstream> stream), context,
                 "uploading an executable")


cdef int exec_launch(uintptr_t context, uintptr_t exec_, uintptr_t stream) except -1 nogil:
    cdef Scope scope
    # A launch needs no current context, but the driver's own streams are those of the current one.
    if stream <= LAST_BUILTIN:
        enter(&scope, context)
    else:
        driver_check(context)
    return check(cu.cuGraphLaunch(<cu.CUgraphExec> exec_, <cu.CUstream> stream), context,
                 "launching a graph")


ctypedef int (*node_setter)(void *exec_, void *node, void *params) noexcept nogil

cdef node_setter _set_params = NULL      # the driver's own, once it was asked for


cdef void *function_of(const char *name, int version) except? NULL:
    """Where a function of the driver is, past all that leads there; NULL: it does not tell."""
    cdef void *found = NULL
    cdef cu.CUdriverProcAddressQueryResult status
    driver_check(0)
    if cu.cuGetProcAddress(name, &found, version, 0, &status) != cu.CUDA_SUCCESS:
        return NULL
    return found


cdef void *exec_launcher() except? NULL:
    global _set_params
    if _set_params == NULL:
        _set_params = <node_setter> function_of(b"cuGraphExecNodeSetParams", 12020)
    return function_of(b"cuGraphLaunch", 12000)


cdef int exec_launched(uintptr_t context, int result) except -1 nogil:
    return check(result, context, "launching a graph")


cdef int set_node(uintptr_t context, uintptr_t exec_, uintptr_t node,
                  cu.CUgraphNodeParams *params) except -1 nogil:
    cdef Scope scope
    enter(&scope, context)
    if _set_params != NULL:
        return answer(_set_params(<void *> exec_, <void *> node, params), context)
    return answer(
        cu.cuGraphExecNodeSetParams(<cu.CUgraphExec> exec_, <cu.CUgraphNode> node, params), context)


cdef int answer(int result, uintptr_t context) except -1 nogil:
    """What the driver says to an update; that it cannot be done is an answer."""
    if result in (cu.CUDA_ERROR_INVALID_VALUE, cu.CUDA_ERROR_NOT_SUPPORTED,
                  cu.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE):
        return UPDATE_REFUSED
    check(result, context, "updating a node")
    return UPDATE_TAKEN


cdef int exec_set_kernel(uintptr_t context, uintptr_t exec_, uintptr_t node,
                         const launch_spec *spec) except -1 nogil:
    cdef cu.CUgraphNodeParams params
    describe_kernel(spec, &params)
    return set_node(context, exec_, node, &params)


cdef int exec_set_copy(uintptr_t context, uintptr_t exec_, uintptr_t node,
                       const copy_spec *spec) except -1 nogil:
    cdef cu.CUgraphNodeParams params
    describe_copy(context, spec, &params)
    return set_node(context, exec_, node, &params)


cdef int exec_set_set(uintptr_t context, uintptr_t exec_, uintptr_t node,
                      const set_spec *spec) except -1 nogil:
    cdef cu.CUgraphNodeParams params
    describe_set(context, spec, &params)
    return set_node(context, exec_, node, &params)


cdef int exec_set_child(uintptr_t context, uintptr_t exec_, uintptr_t node,
                        uintptr_t child) except -1 nogil:
    cdef cu.CUgraphNodeParams params
    memset(&params, 0, sizeof(params))
    params.type = cu.CU_GRAPH_NODE_TYPE_GRAPH
    params.graph.graph = <cu.CUgraph> child
    return set_node(context, exec_, node, &params)


cdef int exec_set_enabled(uintptr_t exec_, uintptr_t node, bint enabled) except -1 nogil:
    driver_check(0)
    return answer(
        cu.cuGraphNodeSetEnabled(<cu.CUgraphExec> exec_, <cu.CUgraphNode> node, enabled), 0)


# ---- capture

cdef int capture_begin(uintptr_t context, uintptr_t stream) except -1 nogil:
    cdef Scope scope
    enter(&scope, context)
    return check(
        cu.cuStreamBeginCapture(<cu.CUstream> stream, cu.CU_STREAM_CAPTURE_MODE_RELAXED),
        context, "beginning a capture")


cdef int capture_end(uintptr_t context, uintptr_t stream, uintptr_t *graph) except -1 nogil:
    cdef cu.CUgraph made = NULL
    cdef Scope scope
    enter(&scope, context)
    result = cu.cuStreamEndCapture(<cu.CUstream> stream, &made)
    graph[0] = 0
    if result == cu.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
        return 0
    check(result, context, "ending a capture")
    graph[0] = <uintptr_t> made
    return 0
