"""Driver graphs of others as nodes, and children of ours with values in nodes."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import counters

N = 16
pytestmark = pytest.mark.cuda


class Owned:
    """A driver graph of another library, destroyed with its owner."""

    def __init__(self, driver):
        self.driver = driver
        code, self.graph = driver.cuGraphCreate(0)
        assert code == 0

    def fill(self, cuda, x, value):
        params = self.driver.CUDA_MEMSET_NODE_PARAMS()
        params.dst, params.value, params.elementSize = x.ptr, value, 1
        params.width, params.height = x.nbytes, 1
        code, _ = self.driver.cuGraphAddMemsetNode(
            self.graph, None, 0, params, cuda._backend.gpu.context
        )
        assert code == 0
        return self

    def call(self):
        code, _ = self.driver.cuGraphAddEmptyNode(self.graph, None, 0)
        assert code == 0
        params = self.driver.CUDA_HOST_NODE_PARAMS()
        params.fn, params.userData = self.function(), 0
        code, _ = self.driver.cuGraphAddHostNode(self.graph, None, 0, params)
        assert code == 0
        return self

    def function(self):
        ctypes = pytest.importorskip("ctypes")
        self.kept = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: None)
        return self.driver.CUhostFn(ctypes.cast(self.kept, ctypes.c_void_p).value)

    def __int__(self):
        return int(self.graph)

    def __del__(self):
        self.driver.cuGraphDestroy(self.graph)


class LikeTorch:
    """A CUDAGraph of PyTorch."""

    def __init__(self, owned, kept=True):
        self.owned, self.kept = owned, kept

    def raw_cuda_graph(self):
        if not self.kept:
            raise RuntimeError("keep_graph=False")
        return int(self.owned)


@pytest.fixture
def driver():
    return pytest.importorskip("cuda.bindings.driver")


def test_handles_and_objects(cuda, driver):
    x = cuda.create_buffer(N, "u1")
    owned = Owned(driver).fill(cuda, x, 3)
    kept = weakref.ref(owned)
    for given, owner in (
        (int(owned), owned),
        (owned.graph, owned),
        (LikeTorch(owned), None),
    ):
        y = cuda.create_buffer(N, "u1")

        def build(b, given=given, owner=owner, y=y):
            node = b.add_child_graph(given, owner=owner, name="theirs")
            assert node.name == "theirs"
            b.add_copy(y, x, dependencies=[node])

        graph = fg.DeviceGraph.create(cuda, build)
        assert [node.kind for node in graph.nodes] == ["child", "copy"]
        cuda.memset(x, 0)
        graph.replay()
        cuda.synchronize()
        assert (y.numpy() == 3).all()
        del build
    del owned, given, owner
    gc.collect()
    assert kept() is not None
    graph.replay()
    cuda.synchronize()
    del graph
    gc.collect()
    assert kept() is None


def test_what_is_refused(cuda, driver):
    x = cuda.create_buffer(N, "u1")
    owned = Owned(driver).fill(cuda, x, 3)

    def adding(*args, **options):
        return lambda: fg.DeviceGraph.create(cuda, lambda b: b.add_child_graph(*args, **options))

    for make, error, words in (
        (adding(int(owned)), fg.GraphError, "a bare handle does not keep its graph alive"),
        (adding(owned.graph), fg.GraphError, "a bare handle"),
        (adding(0, owner=owned), fg.GraphError, "0 is no handle"),
        (adding(True, owner=owned), fg.UnsupportedError, "takes a DeviceGraph, a CUgraph"),
        (adding("x", owner=owned), fg.UnsupportedError, "not str"),
        (adding(LikeTorch(owned, False)), fg.GraphError, r"CUDAGraph\(keep_graph=True\)"),
        (adding(LikeTorch(owned), inputs=[x]), fg.InputError, "no inputs to fill"),
    ):
        with pytest.raises(error, match=words):
            make()
    host = fg.DeviceContext("cpu")
    with pytest.raises(fg.UnsupportedError, match="takes a DeviceGraph on cpu, not int"):
        fg.DeviceGraph.create(host, lambda b: b.add_child_graph(int(owned), owner=owned))


def test_it_is_bound_once(cuda, driver):
    x = cuda.create_buffer(N, "u1")
    owned = Owned(driver).fill(cuda, x, 3)

    def build(b):
        b.add_child_graph(LikeTorch(owned))

    graph = fg.DeviceGraph.create(cuda, build)
    before = counters.snapshot()
    with pytest.raises(fg.UnsupportedError, match="cannot be bound a second time"):
        graph.clone()
    gc.collect()
    assert counters.snapshot()["executables"] == before["executables"]
    with pytest.raises(fg.UnsupportedError, match="verify: the graph holds work of another"):
        fg.DeviceGraph.create(cuda, build, verify=1)
    graph.replay()
    assert (x.numpy() == 3).all()


def test_inside_bodies(cuda, driver):
    x, flag = cuda.create_buffer(N, "u1"), cuda.create_buffer(1, "u4")
    owned = Owned(driver).fill(cuda, x, 3)
    calling = Owned(driver).call()

    def build(b, given):
        b.add_if(flag, lambda body: body.add_child_graph(LikeTorch(given)))

    graph = fg.DeviceGraph.create(cuda, lambda b: build(b, owned))
    for value in (0, 1):
        cuda.memset(flag, value)
        graph.replay()
        assert (x.numpy() == 3 * value).all()
    with pytest.raises(fg.GraphError, match="holds a node that CUDA forbids in a body"):
        fg.DeviceGraph.create(cuda, lambda b: build(b, calling))


def test_values_in_nodes_of_a_child_stay_what_they_are(cuda, cuda_kernels):
    x, y = cuda.create_buffer(N), cuda.create_buffer(N)

    def inner(b):
        value = b.scalar("value", "f4", 1.0)
        b.add_function(cuda_kernels.fill, x, value, N, grid_dim=1, block_dim=N)

    child = fg.DeviceGraph.create(cuda, inner)
    child.set(value=5.0)

    def build(b):
        value = b.scalar("value", "f4", 2.0)
        node = b.add_child_graph(child)
        b.add_function(cuda_kernels.fill, y, value, N, grid_dim=1, block_dim=N, dependencies=[node])

    graph = fg.DeviceGraph.create(cuda, build)
    child.set(value=7.0)
    for given, wanted in (({}, 2), ({"value": 3.0}, 3), ({}, 2)):
        graph.replay(**given)
        assert (x.numpy() == 5).all()
        assert (y.numpy() == wanted).all()
    clone = graph.clone()
    clone.replay(value=9.0)
    assert (x.numpy() == 5).all()
    assert (y.numpy() == np.float32(9)).all()
    child.replay()
    assert (x.numpy() == 7).all()
