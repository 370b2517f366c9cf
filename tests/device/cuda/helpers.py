"""Small helpers of the tests of the cuda device."""

from __future__ import annotations

import ctypes

import fastgraph as fg
from tests.device.kernels import fill

MS = 1_000_000  # nanoseconds

# Every call of the driver that puts work on a stream.
ENQUEUES = (
    *("cuGraphLaunch", "cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel"),
    *("cuMemcpyAsync", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync"),
    *("cuMemcpyPeerAsync", "cuMemcpyBatchAsync", "cuMemcpy2DAsync", "cuMemcpy3DAsync"),
    *("cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async", "cuMemsetD2D32Async"),
    *("cuLaunchHostFunc", "cuStreamWaitEvent", "cuEventRecord", "cuEventRecordWithFlags"),
    *("cuGraphUpload", "cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemcpyDtoD", "cuMemcpy"),
    *("cuMemsetD8", "cuMemsetD16", "cuMemsetD32", "cuMemAllocAsync", "cuMemFreeAsync"),
    *("cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuStreamSynchronize", "cuCtxSynchronize"),
)


class EdgeData(ctypes.Structure):
    """A CUgraphEdgeData."""

    _fields_ = (
        ("from_port", ctypes.c_ubyte),
        ("to_port", ctypes.c_ubyte),
        ("type", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte * 5),
    )


class Foreign:
    """A stream of another library."""

    def __init__(self, stream):
        self.stream = stream

    def __cuda_stream__(self):
        return 0, self.stream.handle


class Torch:
    """A stream as torch's are."""

    def __init__(self, stream):
        self.stream = stream
        self.cuda_stream = stream.handle


def enqueued(fake):
    """Which calls that put work on a stream were made, and how often."""
    return {name: fake.calls(name) for name in ENQUEUES if fake.calls(name)}


def linger(b, more, ms, **options):
    """A node that takes some milliseconds."""
    return b.add_function(more.linger, ms * MS, **options)


def filling(ctx, kernels, x, value=5.0):
    """A graph that fills `x`."""
    return fg.DeviceGraph.create(ctx, lambda b: fill(b, kernels, x, value, name="fill"))


def driver_nodes(binding, handle):
    """The nodes of a graph of the driver, in the order of adding."""
    graph = binding.CUgraph(handle)
    code, _, count = binding.cuGraphGetNodes(graph)
    assert code == 0
    code, nodes, count = binding.cuGraphGetNodes(graph, count)
    assert code == 0
    return nodes[:count]


def kinds(binding, handle):
    """The kinds of the nodes of a graph of the driver, as ``kernel``, ``memset`` …"""
    found = []
    for node in driver_nodes(binding, handle):
        code, kind = binding.cuGraphNodeGetType(node)
        assert code == 0
        found.append(kind.name.removeprefix("CU_GRAPH_NODE_TYPE_").lower())
    return found


def driver_edges(binding, handle):
    """The edges of a graph of the driver: (from, to, programmatic), by number of node."""
    nodes = [int(node) for node in driver_nodes(binding, handle)]
    # The binding's own list of edges lets go of what its items point to.
    driver = ctypes.CDLL("libcuda.so.1")
    get_edges, graph = driver.cuGraphGetEdges_v2, ctypes.c_void_p(handle)
    count = ctypes.c_size_t(0)
    assert get_edges(graph, None, None, None, ctypes.byref(count)) == 0
    before, after = (ctypes.c_void_p * count.value)(), (ctypes.c_void_p * count.value)()
    data = (EdgeData * count.value)()
    assert not count.value or get_edges(graph, before, after, data, ctypes.byref(count)) == 0
    return sorted(
        (nodes.index(a), nodes.index(b), each.type == 1)
        for a, b, each in zip(before, after, data, strict=True)
    )


def kernel_params(binding, node):
    """Parameters of a kernel node."""
    code, params = binding.cuGraphKernelNodeGetParams(node)
    assert code == 0
    return params


def attribute(binding, node, name):
    """The value of an attribute of a kernel node."""
    kind = getattr(binding.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}")
    code, value = binding.cuGraphKernelNodeGetAttribute(node, kind)
    assert code == 0
    return value
