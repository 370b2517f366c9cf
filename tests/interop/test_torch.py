"""PyTorch: on the host where it is installed, on a GPU where there is one."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import fastgraph as fg

N = 1 << 12
# Other libraries may warn; we may not.
QUIET = pytest.mark.filterwarnings("ignore", "error::fastgraph.errors.FastGraphWarning")
gpu = pytest.mark.gpu
pytestmark = [QUIET, pytest.mark.timeout(300)]


def passed_on(b, *inputs):
    for x in inputs:
        y = b.create_buffer(x.shape, x.dtype)
        b.add_copy(y, x)
        b.add_output(y)


# ---- on the host


def test_tensors_of_the_host(ctx, torch):
    x = torch.arange(6.0).reshape(2, 3)
    graph = fg.DeviceGraph.create(ctx, passed_on, x, x.to(torch.int32))
    a, b = graph.run(x.T.reshape(2, 3) + 1, torch.full((2, 3), 7, dtype=torch.int32))
    assert np.array_equal(a, x.T.reshape(2, 3).numpy() + 1)
    assert (b == 7).all()
    strided = torch.arange(12.0).reshape(2, 6)[:, ::2]
    out = torch.zeros(2, 3), np.zeros((2, 3), "i4")
    found = graph.run(strided, torch.zeros(2, 3, dtype=torch.int32), out=out)
    assert found[0] is out[0]
    assert torch.equal(out[0], strided)
    weight = torch.nn.Parameter(torch.ones(2, 3))
    assert (graph.run(weight, found[1])[0] == 1).all()
    for wrong in (x.double(), x.T, x.to_sparse(), torch.zeros(2, 3, device="meta")):
        with pytest.raises(fg.InputError, match="input 0"):
            graph.replay(wrong, found[1])


def test_bfloat16_of_the_host(ctx, torch):
    pytest.importorskip("ml_dtypes")
    x = torch.arange(8, dtype=torch.bfloat16)
    (y,) = fg.DeviceGraph.create(ctx, passed_on, x).run(x)
    assert str(y.dtype) == "bfloat16"
    assert (y.astype("f4") == np.arange(8)).all()


def test_work_is_recorded_on_a_gpu_alone(torch):
    host = fg.DeviceContext("cpu")
    with pytest.raises(fg.UnsupportedError, match=r"interop\.torch\.capture"):
        fg.DeviceGraph.create(
            host, lambda b: fg.interop.torch.capture(b, torch.relu, torch.zeros(3))
        )
    x = host.create_buffer(3)
    fg.interop.torch.as_tensor(x).fill_(2)
    assert (x.numpy() == 2).all()
    with pytest.raises(fg.InputError, match="as_tensor takes a Buffer, not int"):
        fg.interop.torch.as_tensor(3)


# ---- tensors on a GPU


@gpu
def test_live_inputs_and_outputs(cuda, torch):
    x = torch.randn(N, device="cuda")
    graph = fg.DeviceGraph.create(cuda, passed_on, x, x)
    out = torch.zeros(N, device="cuda"), cuda.create_buffer(N)
    side = torch.cuda.Stream()
    for i in range(20):
        with torch.cuda.stream(side if i % 2 else torch.cuda.current_stream()):
            big = torch.randn(1 << 22, device="cuda").sort().values  # so that the copy has to wait
            a = big[:N] * 0 + i
            b = torch.full((N,), float(-i), device="cuda")
            graph.replay(a, b)
            a.add_(100)  # comes after the copy
            del b  # its memory is given to the next tensor
            torch.full((N,), 1e9, device="cuda")
        cuda.synchronize()
        (first, second) = graph._state.twins
        assert (first.numpy() == i).all()
        assert (second.numpy() == -i).all()
    found = graph.run(x, x + 1, out=out)
    assert found[0] is out[0]
    assert torch.equal(out[0], x)
    assert np.array_equal(out[1].numpy(), (x + 1).cpu().numpy())
    graph.replay(x, x, stream=torch.cuda.current_stream())
    torch.cuda.synchronize()


@gpu
def test_where_a_tensor_cannot_go(cuda, torch, cuda_kernels):
    x = torch.zeros(4, 4, device="cuda")
    graph = fg.DeviceGraph.create(cuda, passed_on, x)
    for wrong, words in (
        (torch.arange(16.0, device="cuda").reshape(4, 4).T, "contiguous|dense"),
        (x.double(), "recorded with float32"),
        (x.to_sparse(), "input 0"),
    ):
        with pytest.raises(fg.InputError, match=words):
            graph.replay(wrong)
    assert (graph.run(torch.ones(4, 4))[0] == 1).all()  # of the host
    assert (graph.run(torch.ones(4, 4).pin_memory())[0] == 1).all()
    with pytest.raises(fg.InputError, match="not a host array"):
        cuda.launch(cuda_kernels.inc, x.cpu(), 1.0, 16, block_dim=16)


@gpu
def test_nodes_and_calls(cuda, torch, cuda_kernels):
    x = torch.zeros(N, device="cuda")

    def build(b, here):
        n = b.add_function(cuda_kernels.inc, here, 1.0, N, grid_dim=N // 256, block_dim=256)
        n = b.add_function(
            cuda_kernels.inc, x, 2.0, N, grid_dim=N // 256, block_dim=256, dependencies=[n]
        )
        b.add_output(x)

    graph = fg.DeviceGraph.create(cuda, build, fg.InPlace(x))
    assert (graph.run()[0] == 3).all()
    graph.replay(stream=torch.cuda.current_stream())
    assert (x.cpu() == 6).all()
    cuda.launch(cuda_kernels.inc, x, 1.0, N, grid_dim=N // 256, block_dim=256)
    assert (x.cpu() == 7).all()  # torch's stream has waited
    cuda.memset(x, 9.0)
    assert (x.cpu() == 9).all()
    y = cuda.to_device(x * 2)
    cuda.copy(x, y)
    assert (x.cpu() == 18).all()


@gpu
@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float8_e4m3fn", "int64"])
def test_buffers_for_torch(cuda, torch, name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    x = cuda.to_device(np.arange(8).astype(dtype))
    t = torch.from_dlpack(x)
    assert t.dtype == getattr(torch, name)
    assert t.data_ptr() == x.ptr
    assert t.float().tolist() == list(range(8))
    t.view(torch.uint8).zero_()
    torch.cuda.synchronize()
    assert not x.numpy().astype("f4").any()
    del x
    gc.collect()
    assert t.float().sum() == 0
    assert fg.InPlace(t).buffer.dtype == dtype


# ---- recorded work


@gpu
def test_recorded_work(cuda, torch):
    x = torch.randn(128, 128, device="cuda")
    w = torch.randn(128, 128, device="cuda")
    torch.relu(x @ w + 1)  # its libraries allocate when first used
    torch.cuda.synchronize()
    before = cuda.create_buffer((128, 128))
    after = cuda.create_buffer((128, 128))

    def build(b):
        n = b.add_memset(before, 2.0)
        done = fg.interop.torch.capture(
            b, lambda x, y: torch.relu(x @ w + 1) + y, x, before, dependencies=[n]
        )
        b.add_copy(after, done.outputs, dependencies=[done.node])

    graph = fg.DeviceGraph.create(cuda, build)
    assert [node.name for node in graph.nodes] == ["memset", "torch", "copy"]
    stream = torch.cuda.current_stream()
    for _ in range(3):
        x.normal_()
        graph.replay(stream=stream)
        torch.cuda.synchronize()
        wanted = (torch.relu(x @ w + 1) + 2).cpu().numpy()
        np.testing.assert_allclose(after.numpy(), wanted, rtol=1e-3, atol=1e-3)
    twin = graph.clone()
    after.copy_from(np.zeros((128, 128), "f4"))
    twin.replay(stream=stream)
    torch.cuda.synchronize()
    np.testing.assert_allclose(after.numpy(), wanted, rtol=1e-3, atol=1e-3)
    with pytest.raises(fg.UnsupportedError, match="verify"):
        fg.DeviceGraph.create(cuda, build, verify=1)


@gpu
def test_temporaries_stay_the_graphs_own(cuda, torch):
    size = 1 << 20
    x = torch.ones(size, device="cuda")

    def work(x):
        y = x * 2
        z = y + 1
        return (y * z).sum()

    out = cuda.create_buffer(())
    work(x)

    def build(b):
        done = fg.interop.torch.capture(b, work, x)
        b.add_copy(out, done.outputs, dependencies=[done.node])

    graph = fg.DeviceGraph.create(cuda, build)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    others = [torch.full((size,), float(i), device="cuda") for i in range(24)]
    torch.cuda.synchronize()
    for _ in range(3):
        graph.replay()
        cuda.synchronize()
        assert out.numpy() == 6 * size
    for i, other in enumerate(others):
        assert (other == i).all()


@gpu
def test_work_that_cannot_be_recorded(cuda, torch):
    x = torch.ones(N, device="cuda")
    stream = torch.cuda.current_stream()

    def build(b, work):
        try:
            fg.interop.torch.capture(b, work, x)
        finally:
            assert b.num_nodes == 0

    def looks(x):
        return x.sum().item()

    def fails(x):
        torch.relu(x)
        raise LookupError("mine")

    for work, error, words in (
        (looks, fg.GraphError, "PyTorch could not record .*looks"),
        (fails, LookupError, "mine"),
    ):
        with pytest.raises(error, match=words):
            fg.DeviceGraph.create(cuda, lambda b, work=work: build(b, work))
        # PyTorch is as it was.
        assert torch.cuda.current_stream() == stream
        assert not torch.cuda.is_current_stream_capturing()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        assert torch.randn(N, device="cuda").std() > 0.5
        assert (x.cpu() == 1).all()
    graph = fg.DeviceGraph.create(cuda, lambda b: fg.interop.torch.capture(b, x.add_, 1))
    graph.replay(stream=stream)
    assert (x.cpu() == 2).all()
    with pytest.raises(fg.InputError, match="tensor 0 is on cpu"):
        fg.DeviceGraph.create(cuda, lambda b: fg.interop.torch.capture(b, torch.relu, x.cpu()))


@gpu
def test_graphs_of_torch_as_children(cuda, torch):
    x = torch.zeros(N, device="cuda")
    x.add_(1)
    theirs = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(theirs, capture_error_mode="relaxed"):
        x.add_(1)
    graph = fg.DeviceGraph.create(cuda, lambda b: b.add_child_graph(theirs))
    torch.cuda.synchronize()
    for wanted in (2, 3):
        graph.replay(stream=torch.cuda.current_stream())
        assert (x.cpu() == wanted).all()
    with pytest.raises(fg.UnsupportedError, match="second time"):
        graph.clone()
    with pytest.raises(fg.GraphError, match="keep_graph=True"):
        fg.DeviceGraph.create(cuda, lambda b: b.add_child_graph(torch.cuda.CUDAGraph()))
