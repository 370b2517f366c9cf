"""The fake driver by itself: what it does late, in which order, and how it fails.

What the real one was seen to refuse and to take is asked in ``test_rules.py``.
"""

from __future__ import annotations

import ctypes
import os
import threading

import pytest

# The first of them waits for the compiler.
pytestmark = pytest.mark.timeout(600)

U32, U64, P, F32 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_float
INVALID_VALUE, OUT_OF_MEMORY, INVALID_IMAGE, INVALID_PTX = 1, 2, 200, 218
INVALID_HANDLE, NOT_FOUND, NOT_READY, ILLEGAL_ADDRESS = 400, 500, 600, 700
NOT_SUPPORTED = 801
PEER_ENABLED, PEER_NOT_ENABLED = 704, 705
UNSUPPORTED, INVALIDATED, MERGE, UNMATCHED, UNJOINED, ISOLATION = 900, 901, 902, 903, 904, 905
IMPLICIT, CAPTURED_EVENT, WRONG_THREAD = 906, 907, 908


# ---- late, and in order ----


def test_held_work_is_done_later_and_no_call_waits_for_it(bench):
    d, p = bench.d, bench.memory()
    with bench.fake.held():
        d.cuMemsetD32Async(p, 7, 1, bench.stream)
        assert d.code.cuStreamQuery(bench.stream) == NOT_READY
        assert bench.read(p) == 0
    assert bench.wait() == 0
    assert bench.read(p) == 7
    assert d.code.cuStreamQuery(bench.stream) == 0


def test_held_work_goes_step_by_step(bench):
    d, p = bench.d, bench.memory()
    event = d.cuEventCreate(0)
    with bench.fake.held():
        d.cuMemsetD32Async(p, 1, 1, bench.stream)
        d.cuEventRecord(event, bench.stream)
        d.cuMemsetD32Async(p, 2, 1, bench.stream)
        bench.fake.step(2)
        d.cuEventSynchronize(event)
        assert bench.read(p) == 1
        assert d.code.cuStreamQuery(bench.stream) == NOT_READY
    assert bench.wait() == 0
    assert bench.read(p) == 2
    d.cuEventDestroy(event)


def test_streams_wait_for_events_and_not_for_each_other(bench):
    d, p = bench.d, bench.memory()
    other, event = d.cuStreamCreate(1), d.cuEventCreate(0)
    done = d.cuEventCreate(0)
    assert bench.launch("linger", (30_000_000,), (U64,)) == 0
    d.cuMemsetD32Async(p, 5, 1, bench.stream)
    d.cuEventRecord(event, bench.stream)
    d.cuMemsetD32Async(p + 4, 1, 1, other)
    d.cuStreamSynchronize(other)
    assert d.code.cuEventQuery(event) == NOT_READY
    d.cuStreamWaitEvent(other, event, 0)
    d.cuMemcpyDtoDAsync(p + 4, p, 4, other)
    d.cuEventRecord(done, other)
    d.cuStreamSynchronize(other)
    assert bench.read(p + 4) == 5
    assert d.cuEventElapsedTime(event, done) >= 0
    for made in (event, done):
        d.cuEventDestroy(made)
    assert d.code.cuEventQuery(event) == INVALID_HANDLE
    d.cuStreamDestroy(other)
    assert d.code.cuStreamQuery(other) == INVALID_HANDLE


def test_the_legacy_stream_is_ordered_with_blocking_streams_alone(bench):
    d, p = bench.d, bench.memory()
    blocking = d.cuStreamCreate(0)
    with bench.fake.held():
        d.cuMemsetD32Async(p, 1, 1, blocking)
        d.cuMemsetD32Async(p, 2, 1, 0)
        d.cuMemsetD32Async(p, 3, 1, blocking)
        d.cuMemsetD32Async(p + 4, 4, 1, bench.stream)
    d.cuStreamSynchronize(0)
    assert bench.wait() == 0
    assert bench.read(p) == 3
    assert bench.read(p + 4) == 4
    d.cuStreamDestroy(blocking)


def test_pageable_sources_have_been_read_and_pinned_ones_are_read_later(bench):
    d, p = bench.d, bench.memory()
    pageable, pinned = U32(1), d.cuMemHostAlloc(4, 0)
    word = U32.from_address(pinned)
    word.value = 1
    with bench.fake.held():
        d.cuMemcpyHtoDAsync(p, ctypes.addressof(pageable), 4, bench.stream)
        d.cuMemcpyHtoDAsync(p + 4, pinned, 4, bench.stream)
        pageable.value = word.value = 2
    assert bench.wait() == 0
    assert (bench.read(p), bench.read(p + 4)) == (1, 2)
    d.cuMemFreeHost(pinned)


def test_host_functions_run_in_stream_order(bench):
    d, seen = bench.d, []
    callback = ctypes.CFUNCTYPE(None, P)(lambda data: seen.append(data))
    assert bench.launch("linger", (5_000_000,), (U64,)) == 0
    d.cuLaunchHostFunc(bench.stream, d.CUhostFn(ctypes.cast(callback, P).value), 3)
    assert bench.wait() == 0
    assert seen == [3]


# ---- memory ----


def test_memory_is_limited_and_known_by_its_address(bench):
    d = bench.d
    bench.fake.memory_total(1 << 20)
    free, total = d.cuMemGetInfo()
    assert total == 1 << 20
    p = bench.memory(1000)
    assert d.cuMemGetInfo()[0] == free - 1000
    assert d.code.cuMemAlloc(total) == OUT_OF_MEMORY
    assert d.code.cuMemAlloc(0) == INVALID_VALUE
    name = d.CUpointer_attribute
    assert d.cuPointerGetAttribute(name.CU_POINTER_ATTRIBUTE_RANGE_SIZE, p + 999) == 1000
    assert d.cuPointerGetAttribute(name.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p) == 0
    kind = name.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    assert d.cuPointerGetAttribute(kind, p) == 2
    assert d.code.cuPointerGetAttribute(kind, p + 1000) == INVALID_VALUE
    pinned = d.cuMemHostAlloc(64, 0)
    assert d.cuPointerGetAttribute(kind, pinned) == 1
    assert int(d.cuMemHostGetDevicePointer(pinned, 0)) == pinned
    assert d.code.cuMemFree(pinned) == INVALID_VALUE
    d.cuMemFreeHost(pinned)
    bench.free(p)
    assert d.code.cuMemFree(p) == INVALID_VALUE


@pytest.mark.parametrize(
    ("what", "is_good"),
    [("inside", True), ("beyond the end", False), ("freed", False)],
)
@pytest.mark.parametrize("how", ["kernel", "memset", "copy"])
def test_work_may_touch_live_memory_alone(bench, how, what, is_good):
    d, p, q = bench.d, bench.memory(8), bench.memory(8)
    where = {"inside": p, "beyond the end": p + 4096 - 4, "freed": p}[what]
    if what == "beyond the end" and how == "kernel":
        where = p + 4096  # no parameter is looked at there, but nobody may write to the page
    if what == "freed":
        bench.free(p)
    if how == "kernel":
        assert bench.launch("inc", (where,), (P,)) == 0
    elif how == "memset":
        d.cuMemsetD32Async(where, 1, 2 if what == "inside" else 4, bench.stream)
    else:
        d.cuMemcpyDtoDAsync(q, where, 8, bench.stream)
    assert bench.wait() == (0 if is_good else ILLEGAL_ADDRESS)
    assert bench.fake.poisoned() == (0 if is_good else ILLEGAL_ADDRESS)


def test_memory_of_another_device_needs_peer_access(bench):
    d = bench.d
    other = d.cuDevicePrimaryCtxRetain(1)
    assert d.cuDeviceCanAccessPeer(0, 1) == d.cuDeviceCanAccessPeer(1, 0) == 1
    d.code.cuCtxDisablePeerAccess(other)  # that other tests of this process may have enabled
    d.cuCtxPushCurrent(other)
    far = int(d.cuMemAlloc(4096))
    d.cuMemsetD8(far, 0, 4096)
    assert int(d.cuCtxGetDevice()) == 1
    d.cuCtxPopCurrent()
    d.cuMemcpyPeerAsync(bench.memory(), bench.context, far, other, 64, bench.stream)
    assert bench.wait() == 0
    d.cuCtxEnablePeerAccess(other, 0)
    assert d.code.cuCtxEnablePeerAccess(other, 0) == PEER_ENABLED
    assert bench.launch("inc", (far,), (P,)) == 0
    assert bench.wait() == 0
    assert bench.read(far, F32) == 1.0
    d.cuCtxDisablePeerAccess(other)
    assert d.code.cuCtxDisablePeerAccess(other) == PEER_NOT_ENABLED
    assert bench.launch("inc", (far,), (P,)) == 0
    assert bench.wait() == ILLEGAL_ADDRESS
    bench.fake.reset()
    d.cuMemFree(far)
    d.cuDevicePrimaryCtxRelease(1)


def test_batched_copies_read_their_sources_as_they_are_told(bench):
    d, p = bench.d, bench.memory()
    order = d.CUmemcpySrcAccessOrder
    for how, result in (
        (order.CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL, 1),
        (order.CU_MEMCPY_SRC_ACCESS_ORDER_ANY, 2),
    ):
        words, attributes = (U32 * 2)(1, 1), d.CUmemcpyAttributes()
        attributes.srcAccessOrder = how
        start = ctypes.addressof(words)
        to = [d.CUdeviceptr(p), d.CUdeviceptr(p + 64)]
        sources = [d.CUdeviceptr(start), d.CUdeviceptr(start + 4)]
        with bench.fake.held():
            d.cuMemcpyBatchAsync(to, sources, [4, 4], 2, [attributes], [0], 1, bench.stream)
            words[:] = (2, 2)
        assert bench.wait() == 0
        assert (bench.read(p), bench.read(p + 64)) == (result, result)


@pytest.mark.parametrize("side", ["pinned", "pageable"])
def test_rows_are_copied(bench, side):
    d, p = bench.d, bench.memory()
    words = (U32 * 4)(1, 2, 3, 4)
    start = d.cuMemHostAlloc(16, 0) if side == "pinned" else ctypes.addressof(words)
    ctypes.memmove(start, words, 16)
    rows = d.CUDA_MEMCPY2D()
    rows.srcMemoryType = d.CUmemorytype.CU_MEMORYTYPE_HOST
    rows.dstMemoryType = d.CUmemorytype.CU_MEMORYTYPE_DEVICE
    rows.srcHost, rows.srcPitch, rows.dstDevice, rows.dstPitch = start, 8, p, 64
    rows.WidthInBytes, rows.Height = 4, 2
    d.cuMemcpy2DAsync(rows, bench.stream)
    assert bench.wait() == 0
    assert [bench.read(p + at) for at in (0, 4, 64, 68)] == [1, 0, 3, 0]
    rows.dstPitch = 2
    assert d.code.cuMemcpy2DAsync(rows, bench.stream) == INVALID_VALUE
    if side == "pinned":
        d.cuMemFreeHost(start)


# ---- kernels and images ----


def test_launches_are_measured(bench):
    d, p = bench.d, bench.memory()
    inc = bench.function("inc")

    def launch(grid=(1, 1, 1), block=(1, 1, 1), shared=0, params=((p,), (P,))):
        return d.code.cuLaunchKernel(inc, *grid, *block, shared, bench.stream, params, 0)

    assert launch(block=(1024, 1, 1)) == 0
    assert launch(block=(1025, 1, 1)) == INVALID_VALUE
    assert launch(block=(1, 1, 65)) == INVALID_VALUE
    assert launch(grid=(0, 1, 1)) == INVALID_VALUE
    assert launch(grid=(1, 65536, 1)) == INVALID_VALUE
    assert launch(params=0) == INVALID_VALUE
    assert launch(shared=48 * 1024) == 0
    assert launch(shared=48 * 1024 + 1) == INVALID_VALUE
    limit = d.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    assert d.code.cuFuncSetAttribute(inc, limit, 232448 + 1) == INVALID_VALUE
    d.cuFuncSetAttribute(inc, limit, 232448)
    assert launch(shared=232448) == 0
    assert bench.wait() == 0


def test_parameters_of_kernels_are_told(bench):
    d, mixed = bench.d, bench.function("mixed")
    found = [d.cuFuncGetParamInfo(mixed, i) for i in range(3)]
    assert found == [(0, 4), (4, 2), (8, 8)]
    assert d.code.cuFuncGetParamInfo(mixed, 3) == INVALID_VALUE
    assert d.code.cuFuncGetParamInfo(bench.function("none"), 0) == INVALID_VALUE
    others = d.cuModuleGetFunction(bench.modules[1], b"others")
    assert [d.cuFuncGetParamInfo(others, i) for i in range(3)] == [(0, 4), (8, 24), (32, 8)]
    assert d.cuFuncGetName(mixed) == b"mixed"
    assert d.code.cuModuleGetFunction(bench.modules[0], b"absent") == NOT_FOUND


def test_variables_of_a_module_are_memory(bench):
    d, p = bench.d, bench.memory()
    where, size = d.cuModuleGetGlobal(bench.modules[0], b"table")
    assert size == 16
    d.cuMemsetD32Async(where, 9, 1, bench.stream)
    assert bench.launch("add_table", (p,), (P,)) == 0
    assert bench.wait() == 0
    assert bench.read(p, F32) == 9.0
    assert d.code.cuModuleGetGlobal(bench.modules[0], b"absent") == NOT_FOUND


def test_kernels_of_a_library_and_of_ptx_with_bodies(bench, image):
    d, p = bench.d, bench.memory()
    text = f"// host: {image}\n.version 8.0\n.visible .entry inc(.param .u64 p) {{ ret; }}\n"
    library = d.cuLibraryLoadData(text.encode(), [], [], 0, [], [], 0)
    kernel = d.cuLibraryGetKernel(library, b"inc")
    function = d.cuKernelGetFunction(kernel)
    params = ((p,), (P,))
    d.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, bench.stream, params, 0)
    assert bench.wait() == 0
    assert bench.read(p, F32) == 1.0
    d.cuLibraryUnload(library)
    assert d.code.cuFuncGetName(function) == INVALID_HANDLE


SOURCE = """
struct Six { int at[6]; };
__constant__ float factors[8];
__device__ int counter = 5;
extern "C" __global__ void f(float *x, Six s, char c, const double *y, short n) {
  x[0] = factors[c] + s.at[1] + (float)y[0] + n;
  atomicAdd(&counter, 1);
}
"""


def test_a_real_cubin_is_read(bench):
    core = pytest.importorskip("cuda.core")
    d = bench.d
    program = core.Program(SOURCE, "c++", core.ProgramOptions(arch="sm_90"))
    module = d.cuModuleLoadData(bytes(program.compile("cubin").code))
    f = d.cuModuleGetFunction(module, b"f")
    sizes = [d.cuFuncGetParamInfo(f, i) for i in range(5)]
    assert sizes == [(0, 8), (8, 24), (32, 1), (40, 8), (48, 2)]
    where, size = d.cuModuleGetGlobal(module, b"counter")
    assert (size, bench.read(where)) == (4, 5)
    assert d.cuModuleGetGlobal(module, b"factors")[1] == 32
    d.cuModuleUnload(module)


def test_what_is_no_image_is_refused(bench):
    d = bench.d
    log = b"\0" * 200
    option = d.CUjit_option
    options = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    answer = d.code.cuModuleLoadDataEx(b"not PTX\n", 2, options, [log, len(log)])
    assert answer == INVALID_PTX
    assert b".version" in log
    assert d.code.cuModuleLoadData(b"\x01\x02\x03") == INVALID_IMAGE


def test_kernels_without_a_body_load_and_are_refused_at_the_launch(bench):
    d = bench.d
    others = d.cuModuleGetFunction(bench.modules[1], b"others")
    params = ((1, 0, 0.0), (U32, U64, ctypes.c_double))
    assert d.code.cuLaunchKernel(others, *(1,) * 6, 0, bench.stream, params, 0) == NOT_SUPPORTED


# ---- graphs ----


def chain_of(bench, graph, slots, counter, edges=True):
    nodes = []
    for slot in slots:
        params = bench.kernel("take_number", (counter, slot), (P, P))
        after = nodes[-1:] if edges else []
        nodes.append(bench.d.cuGraphAddKernelNode(graph, after, len(after), params))
    return nodes


def test_edges_are_kept_and_nothing_else_is(bench):
    d, p = bench.d, bench.memory()
    slots = [p + 4 * i for i in range(1, 9)]
    orders = {}
    for edges in (True, False):
        graph = d.cuGraphCreate(0)
        chain_of(bench, graph, slots, p, edges)
        exec_ = d.cuGraphInstantiate(graph, 0)
        orders[edges] = set()
        for seed in (0, 1, 2, 3):
            bench.fake.seed(seed)
            d.cuMemsetD32(p, 0, 1)
            assert bench.run(exec_) == 0
            orders[edges].add(tuple(bench.read(slot) for slot in slots))
        d.cuGraphExecDestroy(exec_)
        d.cuGraphDestroy(graph)
    assert orders[True] == {tuple(range(8))}
    assert tuple(range(8)) in orders[False]
    assert len(orders[False]) > 1
    assert all(sorted(order) == list(range(8)) for order in orders[False])


def test_a_launch_keeps_its_parameters(bench):
    d, p = bench.d, bench.memory()
    graph = d.cuGraphCreate(0)
    node = d.cuGraphAddMemsetNode(graph, [], 0, bench.fill(p, 1), bench.context)
    exec_ = d.cuGraphInstantiate(graph, 0)
    with bench.fake.held():
        d.cuGraphLaunch(exec_, bench.stream)
        d.cuMemcpyDtoDAsync(p + 4, p, 4, bench.stream)
        d.cuGraphExecMemsetNodeSetParams(exec_, node, bench.fill(p, 2), bench.context)
        d.cuGraphLaunch(exec_, bench.stream)
        d.cuGraphNodeSetEnabled(exec_, node, 0)
        d.cuGraphExecDestroy(exec_)
    assert bench.wait() == 0
    assert (bench.read(p + 4), bench.read(p)) == (1, 2)
    d.cuGraphDestroy(graph)


def test_one_executable_runs_one_launch_at_a_time(bench):
    d, p = bench.d, bench.memory()
    graph, other = d.cuGraphCreate(0), d.cuStreamCreate(1)
    params = bench.kernel("linger", (20_000_000,), (U64,))
    d.cuGraphAddKernelNode(graph, [], 0, params)
    exec_ = d.cuGraphInstantiate(graph, 0)
    first, second = d.cuEventCreate(0), d.cuEventCreate(0)
    for stream, event in ((bench.stream, first), (other, second)):
        d.cuGraphLaunch(exec_, stream)
        d.cuEventRecord(event, stream)
    d.cuStreamSynchronize(other)
    assert bench.wait() == 0
    assert d.cuEventElapsedTime(first, second) >= 15
    for event in (first, second):
        d.cuEventDestroy(event)
    d.cuGraphExecDestroy(exec_)
    d.cuGraphDestroy(graph)
    d.cuStreamDestroy(other)
    assert p


def conditional(bench, graph, kind, size, after, handle):
    d = bench.d
    params = d.CUgraphNodeParams()
    params.type = d.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
    params.conditional.handle = handle
    params.conditional.type = getattr(d.CUgraphConditionalNodeType, f"CU_GRAPH_COND_TYPE_{kind}")
    params.conditional.size = size
    params.conditional.ctx = bench.context
    node = d.cuGraphAddNode(graph, after, None, len(after), params)
    return node, params.conditional.phGraph_out


def setter(bench, graph, handle, word, after=()):
    params = bench.kernel("fg_set_condition", (int(handle), word), (U64, P))
    return bench.d.cuGraphAddKernelNode(graph, list(after), len(after), params)


@pytest.mark.parametrize(
    ("kind", "size", "value", "marks"),
    [
        ("IF", 1, 5, [1]),
        ("IF", 1, 0, [0]),
        ("IF", 2, 5, [1, 0]),
        ("IF", 2, 0, [0, 1]),
        ("SWITCH", 3, 0, [1, 0, 0]),
        ("SWITCH", 3, 2, [0, 0, 1]),
        ("SWITCH", 3, 3, [0, 0, 0]),
    ],
)
def test_conditions_choose_bodies(bench, kind, size, value, marks):
    d, p = bench.d, bench.memory()
    graph = d.cuGraphCreate(0)
    handle = d.cuGraphConditionalHandleCreate(graph, bench.context, 0, 0)
    set_node = setter(bench, graph, handle, p)
    _, bodies = conditional(bench, graph, kind, size, [set_node], handle)
    for i, body in enumerate(bodies):
        d.cuGraphAddMemsetNode(body, [], 0, bench.fill(p + 4 + 4 * i, 1), bench.context)
    exec_ = d.cuGraphInstantiate(graph, 0)
    d.cuMemsetD32(p, value, 1)
    assert bench.run(exec_) == 0
    assert [bench.read(p + 4 + 4 * i) for i in range(size)] == marks
    d.cuGraphExecDestroy(exec_)
    d.cuGraphDestroy(graph)


def test_a_loop_runs_until_its_condition_is_zero(bench):
    d, p = bench.d, bench.memory()
    graph = d.cuGraphCreate(0)
    handle = d.cuGraphConditionalHandleCreate(graph, bench.context, 1, 1)
    _, (body,) = conditional(bench, graph, "WHILE", 1, [], handle)
    inc = d.cuGraphAddKernelNode(body, [], 0, bench.kernel("inc", (p + 8,), (P,)))
    less = d.cuGraphAddKernelNode(body, [inc], 1, bench.kernel("decrement", (p,), (P,)))
    setter(bench, body, handle, p, [less])
    exec_ = d.cuGraphInstantiate(graph, 0)
    for turns in (4, 3):
        d.cuMemsetD32(p, turns, 1)
        assert bench.run(exec_) == 0
    assert bench.read(p + 8, F32) == 7.0
    d.cuGraphExecDestroy(exec_)
    d.cuGraphDestroy(graph)


def test_words_of_eight_bytes_are_filled(bench):
    d, p = bench.d, bench.memory(64)
    assert bench.launch("fg_fill8", (p, 0x0102030405060708, 8), (P, U64, U64)) == 0
    assert bench.wait() == 0
    assert bench.read(p + 56, U64) == 0x0102030405060708
    assert d.code.cuStreamQuery(bench.stream) == 0
    assert bench.launch("fg_fill8", (p, 1, 9), (P, U64, U64)) == 0
    assert bench.wait() == ILLEGAL_ADDRESS


# ---- captures ----


def begin(bench, stream=None, mode="RELAXED"):
    modes = bench.d.CUstreamCaptureMode
    mode = getattr(modes, f"CU_STREAM_CAPTURE_MODE_{mode}")
    return bench.d.code.cuStreamBeginCapture(bench.stream if stream is None else stream, mode)


def test_forked_and_joined_work_is_captured_and_not_done(bench):
    d, p = bench.d, bench.memory()
    other, fork, join = d.cuStreamCreate(1), d.cuEventCreate(2), d.cuEventCreate(2)
    assert begin(bench) == 0
    d.cuMemsetD32Async(p, 1, 1, bench.stream)
    d.cuEventRecord(fork, bench.stream)
    d.cuStreamWaitEvent(other, fork, 0)
    d.cuMemcpyDtoDAsync(p + 4, p, 4, other)
    assert bench.launch("inc", (p + 8,), (P,)) == 0
    d.cuEventRecord(join, other)
    d.cuStreamWaitEvent(bench.stream, join, 0)
    d.cuMemcpyDtoDAsync(p + 12, p + 4, 4, bench.stream)
    graph = d.cuStreamEndCapture(bench.stream)
    assert bench.read(p) == 0
    assert d.cuGraphGetNodes(graph)[1] == 4
    assert d.cuGraphGetEdges(graph)[-1] == 4
    exec_ = d.cuGraphInstantiate(graph, 0)
    assert bench.run(exec_) == 0
    assert bench.read(p + 12) == 1
    assert bench.read(p + 8, F32) == 1.0
    assert d.code.cuStreamQuery(other) == 0
    d.cuGraphExecDestroy(exec_)
    d.cuGraphDestroy(graph)
    for event in (fork, join):
        d.cuEventDestroy(event)
    d.cuStreamDestroy(other)


def test_a_capture_must_be_joined(bench):
    d, p = bench.d, bench.memory()
    other, fork = d.cuStreamCreate(1), d.cuEventCreate(2)
    assert begin(bench) == 0
    d.cuEventRecord(fork, bench.stream)
    d.cuStreamWaitEvent(other, fork, 0)
    d.cuMemsetD32Async(p, 1, 1, other)
    assert d.code.cuStreamEndCapture(other) == UNMATCHED
    assert d.code.cuEventQuery(fork) == CAPTURED_EVENT
    assert d.code.cuStreamEndCapture(bench.stream) == INVALIDATED
    assert begin(bench) == 0
    d.cuEventRecord(fork, bench.stream)
    d.cuStreamWaitEvent(other, fork, 0)
    d.cuMemsetD32Async(p, 1, 1, other)
    assert d.code.cuStreamEndCapture(bench.stream) == UNJOINED
    d.cuEventDestroy(fork)
    d.cuStreamDestroy(other)


@pytest.mark.parametrize(
    ("spoiler", "answer"),
    [
        ("query", UNSUPPORTED),
        ("synchronize", UNSUPPORTED),
        ("context", UNSUPPORTED),
        ("outside", ISOLATION),
        ("batch", UNSUPPORTED),
        ("nothing", 0),
    ],
)
def test_what_spoils_a_capture(bench, spoiler, answer):
    d, p = bench.d, bench.memory()
    event = d.cuEventCreate(2)
    d.cuEventRecord(event, bench.stream)
    assert bench.wait() == 0
    assert begin(bench) == 0
    attributes = d.CUmemcpyAttributes()
    attributes.srcAccessOrder = d.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    a, b = d.CUdeviceptr(p), d.CUdeviceptr(p + 64)
    batch = ([a], [b], [4], 1, [attributes], [0], 1, bench.stream)
    calls = {
        "query": lambda: d.code.cuStreamQuery(bench.stream),
        "synchronize": lambda: d.code.cuStreamSynchronize(bench.stream),
        "context": d.code.cuCtxSynchronize,
        "outside": lambda: d.code.cuStreamWaitEvent(bench.stream, event, 0),
        "batch": lambda: d.code.cuMemcpyBatchAsync(*batch),
        "nothing": lambda: 0,
    }
    assert calls[spoiler]() == answer
    after = d.code.cuMemsetD32Async(p, 1, 1, bench.stream)
    assert after == (INVALIDATED if answer else 0)
    code, graph = d.binding.cuStreamEndCapture(bench.stream)
    assert code == (INVALIDATED if answer else 0)
    if not answer:
        d.cuGraphDestroy(graph)
    assert d.code.cuStreamQuery(bench.stream) == 0
    d.cuEventDestroy(event)


@pytest.mark.parametrize("mode", ["GLOBAL", "THREAD_LOCAL", "RELAXED"])
@pytest.mark.parametrize("where", ["here", "on another thread"])
def test_calls_that_a_capture_forbids(bench, mode, where):
    d, codes = bench.d, []
    is_forbidden = mode == "GLOBAL" or (mode == "THREAD_LOCAL" and where == "here")

    def allocate():
        d.cuCtxSetCurrent(bench.context)
        code, address = d.binding.cuMemAlloc(64)
        codes.append(int(code))
        if not code:
            freed.append(address)

    freed = []
    assert begin(bench, mode=mode) == 0
    if where == "here":
        allocate()
    else:
        thread = threading.Thread(target=allocate)
        thread.start()
        thread.join()
    code, graph = d.binding.cuStreamEndCapture(bench.stream)
    assert codes == [UNSUPPORTED if is_forbidden else 0]
    assert code == (INVALIDATED if is_forbidden else 0)
    if not code:
        d.cuGraphDestroy(graph)
    for address in freed:
        d.cuMemFree(address)


def test_the_legacy_stream_spoils_captures_of_blocking_streams_alone(bench):
    d, p = bench.d, bench.memory()
    blocking = d.cuStreamCreate(0)
    assert begin(bench, d.CUstream(0)) == UNSUPPORTED
    for stream, answer in ((bench.stream, 0), (blocking, IMPLICIT)):
        assert begin(bench, stream) == 0
        assert d.code.cuMemsetD32Async(p, 1, 1, 0) == answer
        code, graph = d.binding.cuStreamEndCapture(stream)
        assert code == (INVALIDATED if answer else 0)
        if not code:
            d.cuGraphDestroy(graph)
    d.cuStreamSynchronize(0)
    d.cuStreamDestroy(blocking)


# ---- injected faults ----


def test_a_call_fails_when_told(bench):
    d = bench.d
    bench.fake.fail("cuGraphCreate", OUT_OF_MEMORY, 2)
    bench.fake.forget_calls()
    graphs = [d.cuGraphCreate(0)]
    assert d.code.cuGraphCreate(0) == OUT_OF_MEMORY
    graphs.append(d.cuGraphCreate(0))
    assert bench.fake.calls("cuGraphCreate") == 3
    for graph in graphs:
        d.cuGraphDestroy(graph)


def test_the_next_kernel_poisons_when_told(bench):
    d, p = bench.d, bench.memory()
    bench.fake.poison_next_kernel()
    assert bench.launch("inc", (p,), (P,)) == 0
    assert bench.wait() == ILLEGAL_ADDRESS
    assert d.code.cuMemAlloc(64) == ILLEGAL_ADDRESS
    assert d.code.cuMemsetD32Async(p, 1, 1, bench.stream) == ILLEGAL_ADDRESS
    bench.fake.reset()
    assert bench.read(p, F32) == 0.0
    assert bench.wait() == 0
    assert d.code.cuStreamQuery(bench.stream) == 0


def test_another_driver_can_be_had(bench):
    d = bench.d
    bench.fake.driver(version=12080, devices=1, cc=(7, 5))
    assert d.cuDriverGetVersion() == 12080
    assert d.cuDeviceGetCount() == 1
    major = d.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    assert d.cuDeviceGetAttribute(major, 0) == 7
    bench.fake.driver()
    assert d.cuDeviceGetCount() == 2


def test_calls_of_a_forked_child_are_refused(bench):
    pid = os.fork()
    if not pid:
        os._exit(bench.d.code.cuMemAlloc(64))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
