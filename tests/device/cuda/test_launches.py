"""What a launch may ask for, in graphs and at once: the driver is told, limits are checked."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import fastgraph as fg
from tests import conftest
from tests.device.cuda.helpers import (
    attribute,
    driver_edges,
    driver_nodes,
    enqueued,
    kernel_params,
)
from tests.device.kernels import GRID, N, fill, inc

pytestmark = pytest.mark.cuda


def only_node(binding, graph):
    (node,) = driver_nodes(binding, graph._state.executable.handle)
    return node


def recorded(ctx, kernels, x, **options):
    return fg.DeviceGraph.create(ctx, lambda b: fill(b, kernels, x, 5.0, name="fill", **options))


@pytest.mark.parametrize("nbytes", [0, 1024, 48 << 10, 64 << 10, "most"])
def test_dynamic_shared_memory(ctx, kernels, binding, nbytes):
    """Above 48 KiB the kernel's own limit is raised."""
    if nbytes == "most":
        nbytes = ctx.attributes["max_shared_memory_per_block_optin"]
    x = ctx.create_buffer(N)
    graph = recorded(ctx, kernels, x, shared_mem_bytes=nbytes)
    assert kernel_params(binding, only_node(binding, graph)).sharedMemBytes == nbytes
    graph.replay()
    assert (x.numpy() == 5).all()
    ctx.launch(kernels.fill, x, 6.0, N, **GRID, shared_mem_bytes=nbytes)
    assert (x.numpy() == 6).all()
    graph.update("fill", shared_mem_bytes=0)
    graph.update("fill", shared_mem_bytes=nbytes)
    assert graph.stats.rebuilds == 0
    graph.clone().replay()
    assert (x.numpy() == 5).all()


def test_shared_memory_that_the_device_has_not(ctx, kernels):
    x = ctx.create_buffer(N)
    most = ctx.attributes["max_shared_memory_per_block_optin"]
    graph = recorded(ctx, kernels, x)
    for call in (
        lambda nbytes: recorded(ctx, kernels, x, shared_mem_bytes=nbytes),
        lambda nbytes: ctx.launch(kernels.fill, x, 1.0, N, **GRID, shared_mem_bytes=nbytes),
        lambda nbytes: graph.update("fill", shared_mem_bytes=nbytes),
    ):
        with pytest.raises(fg.UnsupportedError, match=rf"{most + 1}.*at most {most}"):
            call(most + 1)
        for bad in (-1, 1.5, True, "1", None):
            with pytest.raises(fg.GraphError, match="shared_mem_bytes"):
                call(bad)
    assert not x.numpy().any()


def test_one_functions_limit_is_raised_once(ctx, kernels, more_image):
    """A smaller launch after a larger one does not lower it under the other's feet."""
    x = ctx.create_buffer(N)
    large = recorded(ctx, kernels, x, shared_mem_bytes=100 << 10)
    small = recorded(ctx, kernels, x, shared_mem_bytes=50 << 10)
    for graph in (large, small, large):
        ctx.memset(x, 0.0)
        graph.replay()
        assert (x.numpy() == 5).all()
    small.update("fill", shared_mem_bytes=60 << 10)
    large.update("fill", grid_dim=4)
    assert large.stats.rebuilds == small.stats.rebuilds == 0


def test_clusters(ctx, kernels, binding):
    x = ctx.create_buffer(N)
    if "clusters" not in ctx.capabilities:
        with pytest.raises(fg.UnsupportedError, match="cluster"):
            recorded(ctx, kernels, x, cluster_dim=2)
        return
    graph = recorded(ctx, kernels, x, cluster_dim=2)
    dims = attribute(binding, only_node(binding, graph), "CLUSTER_DIMENSION").clusterDim
    assert (dims.x, dims.y, dims.z) == (2, 1, 1)
    graph.replay()
    assert (x.numpy() == 5).all()
    ctx.launch(kernels.fill, x, 6.0, N, **GRID, cluster_dim=(4, 1))
    assert (x.numpy() == 6).all()
    graph.update("fill", cluster_dim=4)
    assert graph.stats.rebuilds == 1
    dims = attribute(binding, only_node(binding, graph), "CLUSTER_DIMENSION").clusterDim
    assert dims.x == 4
    graph.replay()
    assert (x.numpy() == 5).all()
    for bad, words in ((3, "no multiple"), (16, "16 blocks"), (0, "cluster_dim"), ("x", "cluster")):
        with pytest.raises(fg.GraphError, match=words):
            recorded(ctx, kernels, x, cluster_dim=bad)


def test_cooperative(ctx, kernels, binding):
    x = ctx.create_buffer(N)
    graph = recorded(ctx, kernels, x, cooperative=True)
    assert attribute(binding, only_node(binding, graph), "COOPERATIVE").cooperative == 1
    graph.replay()
    assert (x.numpy() == 5).all()
    ctx.launch(kernels.fill, x, 6.0, N, **GRID, cooperative=True)
    assert (x.numpy() == 6).all()
    graph.update("fill", cooperative=False)
    assert graph.stats.rebuilds == 1
    assert attribute(binding, only_node(binding, graph), "COOPERATIVE").cooperative == 0
    with pytest.raises(fg.GraphError, match="at once"):
        ctx.launch(kernels.fill, x, 1.0, N, grid_dim=1 << 20, cooperative=True)
    with pytest.raises(fg.GraphError, match="cooperative is 1"):
        recorded(ctx, kernels, x, cooperative=1)


def test_priorities(ctx, kernels, binding):
    x = ctx.create_buffer(N)

    def build(b):
        first = fill(b, kernels, x, 5.0, priority=-1)
        inc(b, kernels, x, 1.0, name="inc", dependencies=[first])

    graph = fg.DeviceGraph.create(ctx, build)
    first, _ = driver_nodes(binding, graph._state.executable.handle)
    assert attribute(binding, first, "PRIORITY").priority == -1
    graph.replay()
    assert (x.numpy() == 6).all()
    graph.update("inc", args=(x, 2.0, N))
    graph.update("fill", args=(x, 4.0, N))
    assert graph.stats.rebuilds == 0
    graph.replay()
    assert (x.numpy() == 6).all()
    graph.update("fill", priority=0)
    assert graph.stats.rebuilds == 1
    for bad in (1.5, True, "high"):
        with pytest.raises(fg.GraphError, match="priority"):
            recorded(ctx, kernels, x, priority=bad)
        with pytest.raises(fg.InputError, match="priorities"):
            ctx.create_stream(bad)
    ctx.launch(kernels.fill, x, 1.0, N, **GRID, priority=-1)
    assert (x.numpy() == 1).all()


def test_programmatic_edges(ctx, kernels, binding):
    """From a kernel to a kernel that says so; everything else is a plain edge."""
    x, y = ctx.create_buffer(N), ctx.create_buffer(N)

    def build(b):
        a = fill(b, kernels, x, 1.0)
        s = b.add_memset(y, 1.0)
        c = inc(b, kernels, x, 1.0, dependencies=[a], programmatic=True)
        d = inc(b, kernels, x, 1.0, dependencies=[c])
        e = kernels_add(b, dependencies=[d, s], programmatic=True)
        b.add_memset(y, 0.0, dependencies=[e])

    def kernels_add(b, **options):
        return b.add_function(kernels.add, x, x, y, N, **GRID, **options)

    graph = fg.DeviceGraph.create(ctx, build)
    soft = "programmatic_edges" in ctx.capabilities
    assert driver_edges(binding, graph._state.executable.handle) == [
        (0, 2, soft),
        (1, 4, False),
        (2, 3, False),
        (3, 4, soft),
        (4, 5, False),
    ]
    graph.replay()
    assert (x.numpy() == 4).all()
    graph.update("add", args=(x, x, x, N))
    assert graph.stats.rebuilds == 0
    graph.update("add", programmatic=False)
    assert graph.stats.rebuilds == soft
    graph.replay()
    assert (x.numpy() == 6).all()
    for bad in (1, None, "yes"):
        with pytest.raises(fg.GraphError, match="programmatic"):
            recorded(ctx, kernels, x, programmatic=bad)
    ctx.launch(kernels.fill, x, 1.0, N, **GRID, programmatic=True)
    ctx.launch(kernels.inc, x, 1.0, N, **GRID, programmatic=True)
    assert (x.numpy() == 2).all()


def test_programmatic_edges_in_bodies_and_regions(ctx, kernels, binding):
    x, flag = ctx.create_buffer(N), ctx.to_device(np.ones(1, "u4"))

    def body(b):
        with b.region():
            fill(b, kernels, x, 1.0)
            inc(b, kernels, x, 1.0, programmatic=True)

    graph = fg.DeviceGraph.create(ctx, lambda b: b.add_if(flag, body))
    graph.replay()
    assert (x.numpy() == 2).all()
    plain = fg.DeviceGraph.create(ctx, body)
    soft = "programmatic_edges" in ctx.capabilities
    assert driver_edges(binding, plain._state.executable.handle) == [(0, 1, soft)]


def test_constant_memory(ctx, more, kernels):
    """Values of a launch's own, in a module of its own: others do not see them."""
    x = ctx.create_buffer(4)
    table = np.array([10, 20, 30, 40], "i4")

    def build(b, **options):
        first = b.add_memset(x, 0.0)
        b.add_function(
            more.add_table, x, block_dim=4, dependencies=[first], name="table", **options
        )

    one = fg.DeviceGraph.create(ctx, lambda b: build(b, constant_memory={"table": table}))
    two = fg.DeviceGraph.create(ctx, build)
    table[:] = 0  # has been read
    for graph, want in ((one, [10, 20, 30, 40]), (two, [1, 2, 3, 4]), (one, [10, 20, 30, 40])):
        graph.replay()
        assert x.numpy().tolist() == want
    two.update("table", constant_memory={"table": np.array([5, 6, 7, 8], "i4")})
    two.replay()
    assert x.numpy().tolist() == [5, 6, 7, 8]
    one.clone().replay()
    assert x.numpy().tolist() == [10, 20, 30, 40]
    ctx.memset(x, 0.0)
    ctx.launch(more.add_table, x, block_dim=4, constant_memory={"table": np.arange(4, dtype="i4")})
    assert x.numpy().tolist() == [0, 1, 2, 3]
    for bad, error, words in (
        ({"other": table}, fg.GraphError, "no variable 'other'"),
        ({"table": table[:2]}, fg.InputError, "16 bytes, the value 8"),
        ([1, 2], fg.InputError, "mapping"),
    ):
        with pytest.raises(error, match=words):
            fg.DeviceGraph.create(ctx, lambda b, bad=bad: build(b, constant_memory=bad))


def test_only_sizes_are_known(ctx, load_untyped):
    """Python's numbers say no size; NumPy's are taken if it fits."""
    linger = load_untyped(ctx, "linger")
    for bad in (1, 1.0, True, np.int32(1), np.uint8(1)):
        with pytest.raises(fg.InputError, match="argument 0"):
            ctx.launch(linger, bad)
    for good in (np.uint64(1), np.int64(1), np.float64(0)):
        ctx.launch(linger, good)
    ctx.synchronize()
    for args in ((), (np.uint64(1), np.uint64(1))):
        with pytest.raises(fg.InputError, match="argument"):
            ctx.launch(linger, *args)


def test_pointers_of_unknown_use_may_be_written(ctx, load_untyped):
    take = load_untyped(ctx, "take_number")
    x = ctx.create_buffer(4, "uint32")

    def build(b, **options):
        b.add_function(take, x[:1], x[1:2])
        b.add_function(take, x[:1], x[2:3])

    fg.DeviceGraph.create(ctx, build)
    with pytest.raises(fg.HazardError):
        fg.DeviceGraph.create(ctx, build, check=True)


def test_the_limits_of_a_launch(ctx, kernels):
    x = ctx.create_buffer(N)
    threads = ctx.attributes["max_threads_per_block"]
    widest = ctx.attributes["max_grid_dim_y"]
    for options, words in (
        ({"block_dim": threads + 1}, "block_dim"),
        ({"block_dim": (32, 33)}, f"allows {threads}"),
        ({"grid_dim": (1, widest + 1)}, r"grid_dim\.y"),
        ({"grid_dim": (1, 0)}, "grid_dim"),
        ({"block_dim": (1, 1, 1, 1)}, "block_dim"),
    ):
        with pytest.raises(fg.GraphError, match=words):
            ctx.launch(kernels.fill, x, 1.0, N, **options)
    ctx.launch(kernels.fill, x, 1.0, N, grid_dim=1, block_dim=threads)
    assert (x.numpy() == 1).all()


def test_a_scalar_or_scratch_has_no_place_in_a_launch(ctx, kernels):
    x = ctx.create_buffer(N)
    kept = []

    def build(b):
        kept.extend([b.scalar("v", "float32", 1.0), b.create_buffer(N)])
        fill(b, kernels, kept[1], kept[0])

    fg.DeviceGraph.create(ctx, build)
    with pytest.raises(fg.GraphError, match="belongs to a graph"):
        ctx.launch(kernels.fill, kept[1], 1.0, N, **GRID)
    with pytest.raises((fg.GraphError, fg.InputError), match=r"scalar|belongs"):
        ctx.launch(kernels.fill, x, kept[0], N, **GRID)
    with pytest.raises(fg.InputError):
        ctx.launch(kernels.fill, np.zeros(N, "f4"), 1.0, N, **GRID)


@pytest.mark.fake
def test_an_eager_launch_is_one_call(ctx, kernels, fake):
    x = ctx.create_buffer(N)
    fake.forget_calls()
    ctx.launch(kernels.fill, x, 1.0, N, **GRID)
    ctx.memset(x, 2.0)
    ctx.copy(x, x)
    assert enqueued(fake) == {
        "cuLaunchKernelEx": 1, "cuMemsetD32Async": 1, "cuMemcpyDtoDAsync": 1,
    }  # fmt: skip
    ctx.synchronize()


# ---- code that is no good


def test_source_that_does_not_compile(ctx, nvrtc):
    with pytest.raises(fg.GraphError, match=r"undefined_thing") as caught:
        ctx.compile_function("__global__ void f(int *x) { *x = undefined_thing; }", "f")
    assert "error" in str(caught.value)
    with pytest.raises(fg.GraphError, match="nothing_here"):
        ctx.compile_function("__global__ void f(int *x) { *x = 1; }", "nothing_here")
    with pytest.raises((fg.GraphError, fg.InputError)):
        ctx.compile_function("__global__ void f(int *x) { *x = 1; }", "f", "int x, int y")


@pytest.mark.parametrize(
    "image",
    [b"", b"not an image", b"\x7fELF" + bytes(60), ".version 8.0\n.target sm_90\nnonsense;", b"\0"],
    ids=["empty", "text", "elf", "ptx", "zero"],
)
def test_images_that_cannot_be_loaded(ctx, image):
    with pytest.raises((fg.GraphError, fg.InputError, fg.UnsupportedError)) as caught:
        ctx.load_function(image, "f")
    assert str(caught.value)
    assert not isinstance(caught.value, fg.ContextPoisonedError)


def test_ptx(ctx):
    """Declared types come from the entry; the driver's log from what it refuses."""
    head = ".version 8.0\n.target sm_80\n.address_size 64\n"
    good = head + ".visible .entry f(.param .u64 x, .param .f32 v, .param .u32 n) { ret; }\n"
    f = ctx.load_function(good, "f")
    assert [p.text for p in f.parameters]
    with pytest.raises(fg.GraphError, match="g"):
        ctx.load_function(good, "g")
    if conftest.FAKE is None:
        ctx.launch(f, ctx.create_buffer(1), np.float32(1), np.uint32(1))
        with pytest.raises(fg.GraphError, match=r"(?i)ptx|error") as caught:
            ctx.load_function(head + ".visible .entry f() { bogus.op; ret; }\n", "f")
        assert "bogus" in str(caught.value)


@pytest.mark.fake
def test_ptx_with_bodies(ctx, native_path, fake):
    """A kernel whose types the PTX says: numbers of Python are checked against them."""
    text = (
        f"// host: {native_path}\n.version 8.0\n.target sm_80\n.address_size 64\n"
        ".visible .entry fill(.param .u64 out, .param .f32 value, .param .u32 n) { ret; }\n"
    )
    f = ctx.load_function(text, "fill")
    x = ctx.create_buffer(8)
    ctx.launch(f, x, 3.0, 8, grid_dim=1, block_dim=8)
    assert (x.numpy() == 3).all()
    for bad in ((x, 3.0, 8.5), (x, "3", 8), (x, 3.0, -1), (x, 3.0, 1 << 40)):
        with pytest.raises(fg.InputError, match="argument"):
            ctx.launch(f, *bad)


def test_functions_are_of_one_device(ctx, kernels, host_kernel):
    with pytest.raises(fg.UnsupportedError, match="for the cpu"):
        ctx.launch(host_kernel, ctx.create_buffer(N), 1.0, N)
    for wrong in (None, 7, "fill", lambda: None, ctypes.CDLL(None).printf):
        with pytest.raises(fg.UnsupportedError):
            ctx.launch(wrong)


@pytest.fixture
def host_kernel(native_kernels):
    return native_kernels.fill


@pytest.mark.fake
def test_functions_of_another_gpu(ctx, more, fake):
    other = fg.DeviceContext("cuda:1")
    with pytest.raises(fg.InputError, match="is not on cuda:1"):
        other.launch(more.linger, 1)
    with pytest.raises(fg.InputError, match="cuda:1"):
        ctx.launch(more.add_table, other.create_buffer(4))
