"""CuPy, cuda.core and numba-cuda on a GPU: arrays, kernels, graphs."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import fastgraph as fg
from tests.interop.conftest import library

N = 1 << 12
SOURCE = """
extern "C" __global__ void inc(float *x, float d, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += d;
}
"""
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),
    # Other libraries may warn; we may not.
    pytest.mark.filterwarnings("ignore", "error::fastgraph.errors.FastGraphWarning"),
]


def passed_on(b, x):
    y = b.create_buffer(x.shape, x.dtype)
    b.add_copy(y, x)
    b.add_output(y)


def cupy_stream(cupy, stream):
    """A stream of ours as one of CuPy's."""
    make = getattr(cupy.cuda.Stream, "from_external", None)
    if make is not None:
        return make(stream)
    return cupy.cuda.ExternalStream(stream.handle)


# ---- CuPy


def test_arrays_of_cupy(cuda, cupy):
    x = cupy.arange(N, dtype="f4")
    graph = fg.DeviceGraph.create(cuda, passed_on, x)
    out = cupy.zeros(N, "f4")
    side = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    for i in range(10):
        with side:
            given = cupy.sort(cupy.arange(1 << 20, dtype="f4")[::-1])[:N] * 0 + i
            (found,) = graph.run(given, out=[out])
            given += 100
        assert found is out
        assert bool((out == i).all())
    for wrong in (x[::2], x.astype("f8"), cupy.asfortranarray(cupy.zeros((8, 8), "f4"))):
        with pytest.raises(fg.InputError, match="input 0"):
            graph.replay(wrong)
    with pytest.raises(fg.InputError, match="dense"):
        fg.InPlace(cupy.zeros((8, 8), "f4").T)
    made = cuda.to_device(x)
    assert np.array_equal(made.numpy(), cupy.asnumpy(x))


def test_buffers_for_cupy(cuda, cupy):
    x = cuda.to_device(np.arange(N, dtype="f4"))
    for take in (cupy.from_dlpack, cupy.asarray):
        y = take(x)
        assert y.data.ptr == x.ptr
        y += 1
        cupy.cuda.get_current_stream().synchronize()
    assert np.array_equal(x.numpy(), np.arange(N) + 2)
    del x
    gc.collect()
    assert float(y[0]) == 2


def test_work_of_cupy(cuda, cupy):
    x, y = cupy.arange(N, dtype="f4"), cupy.zeros(N, "f4")
    cupy.add(x, 1, out=y)  # compiled before the capture
    cupy.cuda.Device().synchronize()

    def build(b):
        with b.capture(keep=[x, y]) as c, cupy_stream(cupy, c.stream):
            cupy.add(x, 1, out=y)
            cupy.multiply(y, y, out=y)

    graph = fg.DeviceGraph.create(cuda, build)
    x += 1
    cupy.cuda.Device().synchronize()
    graph.replay()
    cuda.synchronize()
    assert bool((y == (cupy.arange(N, dtype="f4") + 2) ** 2).all())
    with pytest.raises(fg.UnsupportedError):
        graph.clone()


# ---- cuda.core


def test_kernels_of_cuda_core(cuda):
    core = library("cuda.core")
    device = core.Device(0)
    device.set_current()
    major, minor = device.compute_capability
    options = core.ProgramOptions(arch=f"sm_{major}{minor}")
    code = core.Program(SOURCE, "c++", options).compile("cubin", name_expressions=("inc",))
    kernel = code.get_kernel("inc")
    x = cuda.create_buffer(N)
    shape = {"grid_dim": N // 256, "block_dim": 256}
    # An extern "C" function tells no types, so numbers say theirs.
    numbers = np.float32(2), np.int32(N)
    declared = fg.Kernel("inc", cuda=code, signature="float *x, float d, int n")

    def build(b, kernel=kernel):
        n = b.add_function(kernel, x, *numbers, **shape)
        b.add_function(declared, x, 1.0, N, dependencies=[n], **shape)

    graph = fg.DeviceGraph.create(cuda, build)
    del kernel, code, build
    gc.collect()
    graph.replay()
    cuda.launch(declared, x, 1.0, N, **shape)
    assert (x.numpy() == 4).all()


def test_graphs_of_cuda_core(cuda):
    core, theirs = library("cuda.core"), library("cuda.core.graph")
    core.Device(0).set_current()
    x = cuda.create_buffer(N, "u1")
    made = theirs.GraphDefinition()
    made.memset(x.ptr, 7, N)
    graph = fg.DeviceGraph.create(cuda, lambda b: b.add_child_graph(made, owner=x))
    graph.replay()
    assert (x.numpy() == 7).all()
    with pytest.raises(fg.UnsupportedError, match="not Graph"):
        fg.DeviceGraph.create(cuda, lambda b: b.add_child_graph(made.instantiate()))


# ---- numba-cuda


def test_kernels_and_arrays_of_numba(cuda):
    numba = library("numba.cuda")
    library("numba.cuda.np.npyimpl")  # what its compiler asks for, where this release has it

    @numba.jit("void(float32[:], float32)")
    def inc(x, d):
        i = numba.grid(1)
        if i < x.size:
            x[i] += d

    x = cuda.create_buffer(N)
    shape = {"grid_dim": N // 256, "block_dim": 256}
    graph = fg.DeviceGraph.create(cuda, lambda b: b.add_function(inc, x, 2.0, **shape))
    graph.replay()
    assert (x.numpy() == 2).all()
    seen = numba.as_cuda_array(x)
    inc[N // 256, 256](seen, 1.0)
    numba.synchronize()
    assert (x.numpy() == 3).all()
    theirs = numba.to_device(np.arange(N, dtype="f4"))
    other = fg.DeviceGraph.create(cuda, lambda b: b.add_function(inc, theirs, 1.0, **shape))
    other.replay()
    cuda.synchronize()
    assert (theirs.copy_to_host() == np.arange(N) + 1).all()
    taken = fg.DeviceGraph.create(cuda, passed_on, theirs)
    assert (taken.run(theirs)[0] == np.arange(N) + 1).all()
