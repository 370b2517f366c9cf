"""Arrays of other libraries wherever a buffer is taken, on both devices."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import fastgraph as fg
from tests.conftest import FAKE
from tests.interop.arrays import Dlpack, Interface, Ndarray, Tensor

N = 64


class Host:
    """An array of the host with DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


@pytest.fixture
def foreign(ctx):
    """Makes an array of another library with the elements of an ndarray, and a view of it."""

    def make(array):
        x = ctx.to_device(array)
        return (Dlpack(x) if ctx.api == "cuda" else Host(np.asarray(x))), x

    return make


def passed_on(b, x):
    y = b.create_buffer(x.shape, x.dtype)
    b.add_copy(y, x)
    b.add_output(y)


@pytest.mark.parametrize("dtype", ["f4", "i2", "u1", "f8"])
def test_live_inputs(ctx, foreign, dtype):
    x, _ = foreign(np.zeros((2, 3), dtype))
    graph = fg.DeviceGraph.create(ctx, passed_on, x)
    assert graph.inputs == [f"{np.dtype(dtype)}[2, 3]"]
    for value in (1, 2):
        given, _ = foreign(np.full((2, 3), value, dtype))
        assert (graph.run(given)[0] == value).all()
    assert (graph.run(np.full((2, 3), 3, dtype))[0] == 3).all()
    for wrong in (np.zeros((3, 2), dtype), np.zeros((2, 3), "i8")):
        with pytest.raises(fg.InputError, match=r"input 0: the graph was recorded with .*\[2, 3\]"):
            graph.replay(foreign(wrong)[0])
    assert (graph.run(given)[0] == 2).all()


def test_the_key_is_that_of_a_buffer(ctx, foreign):
    cache = fg.DeviceGraphCache()
    for x in (np.zeros(4, "f4"), ctx.create_buffer(4), foreign(np.ones(4, "f4"))[0]):
        fg.DeviceGraph.create(ctx, passed_on, x, cache=cache)
    assert cache.stats.builds == 1


def test_inputs_of_ones_own_give_foreign_arrays(ctx, foreign):
    class Pair(fg.DeviceGraphInput):
        def __init__(self, *arrays):
            self.arrays = arrays

        def write_graph_key(self, writer):
            writer.write_int(len(self.arrays))

        def allocate_stable(self, builder):
            return Pair(*[builder.create_input_buffer(3, "f4") for _ in self.arrays])

        def live_buffers(self):
            return self.arrays

    def build(b, pair):
        for x in pair.arrays:
            b.add_output(x)

    a, b = (foreign(np.full(3, v, "f4"))[0] for v in (1, 2))
    graph = fg.DeviceGraph.create(ctx, build, Pair(a, b))
    assert [out[0] for out in graph.run(Pair(b, a))] == [2, 1]
    with pytest.raises(fg.InputError, match="recorded with float32"):
        graph.run(Pair(a, foreign(np.zeros(4, "f4"))[0]))


def test_in_place(ctx, foreign, kernels):
    x, view = foreign(np.zeros(N, "f4"))
    other, _ = foreign(np.zeros(N, "f4"))

    def build(b, x):
        b.add_function(kernels.inc, x, 1.5, N, grid_dim=1, block_dim=N)

    graph = fg.DeviceGraph.create(ctx, build, fg.InPlace(x))
    graph.replay()
    graph.replay(fg.InPlace(x))
    ctx.synchronize()
    assert (view.numpy() == 3).all()
    with pytest.raises(fg.InputError, match="InPlace"):
        graph.replay(fg.InPlace(other))


def test_nodes(ctx, foreign, kernels):
    x, seen = foreign(np.arange(N, dtype="f4"))
    y, written = foreign(np.zeros(N, "f4"))
    kept = [weakref.ref(x), weakref.ref(y)]

    def build(b, y=y, x=x):
        n = b.add_memset(y, 1.0)
        n = b.add_function(kernels.add, y, x, y, N, grid_dim=1, block_dim=N, dependencies=[n])
        b.add_copy(seen, y, dependencies=[n])
        b.add_output(y)

    graph = fg.DeviceGraph.create(ctx, build)
    del x, y, build
    gc.collect()
    assert all(ref() is not None for ref in kept) or ctx.api == "cpu"
    (out,) = graph.run()
    assert (out == np.arange(N) + 1).all()
    assert (seen.numpy() == out).all()
    assert (written.numpy() == out).all()


def test_hazards_are_seen_through_other_arrays(ctx, foreign):
    x, view = foreign(np.zeros(N, "f4"))

    def build(b):
        b.add_memset(x, 1.0)
        b.add_memset(view, 2.0)

    with pytest.raises(fg.HazardError):
        fg.DeviceGraph.create(ctx, build)


def test_pointers_and_updates(ctx, foreign):
    x, _ = foreign(np.full(N, 1, "f4"))
    y, _ = foreign(np.full(N, 2, "f4"))
    out = ctx.create_buffer(N)

    def build(b):
        b.add_copy(out, b.pointer("p", x), name="copy")

    graph = fg.DeviceGraph.create(ctx, build)
    for given, wanted in (({}, 1), ({"p": y}, 2), ({}, 1)):
        graph.replay(**given)
        assert (out.numpy() == wanted).all()
    graph.set(p=y)
    graph.replay()
    assert (out.numpy() == 2).all()
    graph.update("copy", src=foreign(np.full(N, 3, "f4"))[0])
    graph.replay()
    assert (out.numpy() == 3).all()


def test_eager_calls(ctx, foreign, kernels):
    x, view = foreign(np.zeros(N, "f4"))
    y, _ = foreign(np.arange(N, dtype="f4"))
    ctx.copy(x, y)
    ctx.launch(kernels.inc, x, 1.0, N, grid_dim=1, block_dim=N)
    assert (view.numpy() == np.arange(N) + 1).all()
    host = np.zeros(N, "f4")
    ctx.copy(host, x)
    assert (host == view.numpy()).all()
    ctx.memset(x, 4.0)
    made = ctx.to_device(x)
    assert (made.numpy() == 4).all()
    assert made.ptr != view.ptr
    assert (ctx.to_device(made).numpy() == 4).all()


def test_outputs_where_the_caller_wants_them(ctx, foreign):
    def build(b, x):
        b.add_output(x)
        y = b.create_buffer(x.shape)
        b.add_copy(y, x)
        b.add_output(y)
        b.add_output(y)

    x = np.arange(N, dtype="f4")
    graph = fg.DeviceGraph.create(ctx, build, x)
    a, seen = foreign(np.zeros(N, "f4"))
    b, c = ctx.create_buffer(N), np.zeros(N, "f4")
    found = graph.run(x, out=[a, b, c])
    assert [found[0] is a, found[1] is b, found[2] is c] == [True] * 3
    for array in (seen.numpy(), b.numpy(), c):
        assert (array == x).all()
    graph.run(x + 1, out=(b, a, ctx.create_host_buffer(N)))
    assert (seen.numpy() == x + 1).all()
    for out, words in (
        ([a, b], "out has 2 arrays; the graph has 3"),
        ([a, b, seen], "the same bytes"),
        ([a, b, foreign(np.zeros(3, "f4"))[0]], r"output '2' is float32\[64\], not float32\[3\]"),
        ([a, b, 3], "output '2': a int is no array"),
        ({}, "not a mapping"),
    ):
        with pytest.raises(fg.InputError, match=words):
            graph.run(x, out=out)


def test_read_only_arrays(ctx):
    host = np.zeros(N, "f4")
    host.flags.writeable = False
    with pytest.raises(fg.InputError, match="may not be written"):
        fg.DeviceGraph.create(ctx, lambda b: b.add_copy(Host(host), host.copy()))
    with pytest.raises(fg.InputError, match="may not be written"):
        fg.InPlace(Host(host))
    fg.DeviceGraph.create(ctx, lambda b: b.add_copy(ctx.create_buffer(N), Host(host)))
    assert not ctx.to_device(Host(host)).numpy().any()


@pytest.mark.cuda
def test_host_arrays_are_no_kernel_arguments(cuda, cuda_kernels):
    x = Host(np.zeros(N, "f4"))
    with pytest.raises(fg.InputError, match="not a host array"):
        cuda.launch(cuda_kernels.inc, x, 1.0, N, grid_dim=1, block_dim=N)
    with pytest.raises(fg.InputError, match="memset writes to a buffer"):
        cuda.memset(x, 1.0)


# ---- the order of streams, on the fake driver


def fill(stream, x, value):
    binding = pytest.importorskip("cuda.bindings.driver")
    binding.cuMemsetD8Async(x.ptr, value, x.nbytes, stream.handle)


def made(kind, x, stream, stand_ins):
    stand_ins["torch"].handle = stand_ins["cupy"].handle = stream.handle
    if kind is Interface:
        return Interface(x, stream=stream.handle)
    array = kind(x)
    array.producer = stream
    return array


@pytest.mark.fake
@pytest.mark.parametrize("kind", [Interface, Tensor, Ndarray])
def test_a_replay_comes_between_what_the_library_does(cuda, stand_ins, kind):
    live = cuda.to_device(np.zeros(N, "u1"))
    theirs = cuda.create_stream()
    graph = fg.DeviceGraph.create(cuda, passed_on, np.zeros(N, "u1"))
    out = cuda.create_buffer(N, "u1")
    graph.run(live, out=[out])
    with FAKE.held():
        fill(theirs, live, 1)
        given = made(kind, live, theirs, stand_ins)
        graph.replay(given)
        if kind is not Interface:  # of others nothing is known but when they are filled
            fill(theirs, live, 2)
    cuda.synchronize()
    theirs.synchronize()
    twin = graph._state.twins[0]
    assert (twin.numpy() == 1).all()
    if kind is not Interface:
        assert (live.numpy() == 2).all()


@pytest.mark.fake
@pytest.mark.parametrize("kind", [Interface, Tensor, Ndarray])
def test_outputs_come_after_what_the_library_did(cuda, stand_ins, kind):
    target = cuda.to_device(np.zeros(N, "u1"))
    theirs = cuda.create_stream()
    graph = fg.DeviceGraph.create(cuda, passed_on, np.zeros(N, "u1"))
    fill(theirs, target, 7)
    given = made(kind, target, theirs, stand_ins)
    (found,) = graph.run(np.full(N, 3, "u1"), out=[given])
    assert found is given
    theirs.synchronize()
    assert (target.numpy() == 3).all()


@pytest.mark.fake
@pytest.mark.parametrize("kind", [Interface, Tensor, Ndarray])
def test_copies_of_a_context_come_between_too(cuda, stand_ins, kind):
    x, y = cuda.to_device(np.zeros(N, "u1")), cuda.create_buffer(N, "u1")
    theirs = cuda.create_stream()
    if kind is Interface:
        fill(theirs, x, 1)
        cuda.copy(y, made(kind, x, theirs, stand_ins))  # which waits
        fill(theirs, x, 2)
    else:
        with FAKE.held():
            fill(theirs, x, 1)
            cuda.copy(y, made(kind, x, theirs, stand_ins))
            fill(theirs, x, 2)
    theirs.synchronize()
    assert (y.numpy() == 1).all()


@pytest.mark.fake
def test_tensors_cost_one_event_each_way_and_no_capsule(cuda, stand_ins, monkeypatch):
    def build(b, *inputs):
        b.add_output(inputs[0])

    zeros = np.zeros(N, "f4")
    graph = fg.DeviceGraph.create(cuda, build, zeros, zeros)
    theirs = cuda.create_stream()
    tensors = [made(Tensor, cuda.create_buffer(N), theirs, stand_ins) for _ in range(2)]
    graph.replay(*tensors)  # the first of a type is looked at
    monkeypatch.setattr(Tensor, "__dlpack__", None)
    FAKE.forget_calls()
    graph.replay(*tensors)
    assert FAKE.calls("cuStreamWaitEvent") == 2
    assert FAKE.calls("cuEventRecord") == 2
    stand_ins["torch"].handle = cuda.stream.handle
    FAKE.forget_calls()
    graph.replay(*tensors)
    assert FAKE.calls("cuStreamWaitEvent") == 0
    cuda.synchronize()


@pytest.mark.fake
def test_what_a_copy_reads_is_kept(cuda):
    live = cuda.to_device(np.ones(N, "u1"))
    graph = fg.DeviceGraph.create(cuda, passed_on, live)
    graph.run(live)
    given = Interface(live, stream=None)
    gone = weakref.ref(given)
    gc.collect()
    with FAKE.held():
        graph.replay(given)
        del given  # and no collection: what it finds may wait for ever
        assert gone() is not None
    graph.run(live)
    graph.close()
    gc.collect()
    assert gone() is None


@pytest.mark.fake
def test_arrays_that_cannot_be_taken(cuda, stand_ins):
    other = fg.DeviceContext("cuda:1").create_buffer(N)
    here = cuda.create_buffer(N)
    graph = fg.DeviceGraph.create(cuda, passed_on, here)
    for given, words in (
        (Dlpack(other), "is on cuda:1, not on cuda:0"),
        (Interface(other), "is memory of cuda:1"),
        (Tensor(other), "is on cuda:1, not on cuda:0"),
        (Ndarray(other), "is on cuda:1, not on cuda:0"),
        (Tensor(here, contiguous=False), "not contiguous"),
        (Interface(here, strides=(8,)), "is not dense"),
    ):
        with pytest.raises(fg.InputError, match=words):
            graph.replay(given)
        with pytest.raises(fg.InputError, match=words):
            fg.DeviceGraph.create(cuda, lambda b, x=given: b.add_memset(x, 1.0))
        with pytest.raises(fg.InputError, match=words):
            cuda.copy(given, here)
    with pytest.raises(fg.InputError, match="may not be written"):
        cuda.memset(Interface(here, data=(here.ptr, True)), 1.0)
    host = fg.DeviceContext("cpu")
    with pytest.raises(fg.InputError, match="is on"):
        fg.DeviceGraph.create(host, lambda b: b.add_memset(Dlpack(here), 1.0))
    assert fg.InPlace(Interface(other)).buffer.device == "cuda:1"


class Odd:
    """An object whose ``__cuda_array_interface__`` is what is given."""

    def __init__(self, interface):
        self.interface = interface

    @property
    def __cuda_array_interface__(self):
        if self.interface in (RuntimeError, KeyError):
            raise self.interface("no")
        return self.interface


@pytest.mark.fake
@pytest.mark.parametrize(
    "changes",
    [
        *({"typestr": x} for x in ("zz", None, 5, "|O", ">f4", "<U1", "|V4")),
        *({"shape": x} for x in ((2**62, 4), (-1,), 5, ("a",), (1.5,), None)),
        *({"data": x} for x in (None, 5, ("a", False), (-1, False), (2**64, False), (1,))),
        *({"strides": x} for x in (5, (1, 2, 3), ("a",))),
        *({"version": x} for x in (None, "3")),
        *({"stream": x} for x in (0, -1, "a", 2**64, 1.5)),
        {"mask": 1},
    ],
    ids=str,
)
def test_interfaces_that_tell_nonsense(cuda, changes):
    x = cuda.create_buffer(4)
    told = {**x.__cuda_array_interface__, "version": 3, **changes}
    refuse(cuda, x, Odd(told))


@pytest.mark.fake
@pytest.mark.parametrize("told", [5, "text", [], {}, {"shape": (4,)}, RuntimeError, KeyError])
def test_interfaces_that_are_none(cuda, told):
    refuse(cuda, cuda.create_buffer(4), Odd(told))


def refuse(cuda, x, bad):
    graph = fg.DeviceGraph.create(cuda, passed_on, x)
    for act in (
        lambda: cuda.copy(x, bad),
        lambda: cuda.memset(bad, 1.0),
        lambda: graph.run(bad),
        lambda: fg.DeviceGraph.create(cuda, lambda b: b.add_copy(x, bad)),
        lambda: fg.InPlace(bad),
    ):
        with pytest.raises(fg.InputError):
            act()


@pytest.mark.fake
@pytest.mark.parametrize("kind", [Dlpack, Interface, Tensor, Ndarray])
def test_arrays_of_the_device_are_kernel_arguments(cuda, cuda_kernels, stand_ins, kind):
    x, y = cuda.to_device(np.arange(N, dtype="f4")), cuda.create_buffer(N)
    given, out = kind(x), kind(y)
    kept = [weakref.ref(given), weakref.ref(out)]
    options = {"grid_dim": 1, "block_dim": N}

    def build(b, given=given, out=out):
        b.add_function(cuda_kernels.add, out, given, given, N, **options, name="add")

    graph = fg.DeviceGraph.create(cuda, build)
    del given, out, build
    gc.collect()
    graph.replay()
    assert (y.numpy() == 2 * np.arange(N)).all()
    # By DLPack the array itself may go, for its bytes are its capsule's.
    assert kind is not Interface or all(ref() is not None for ref in kept)
    z = cuda.create_buffer(N)
    graph.update("add", args=(kind(y), kind(z), kind(x), N))
    graph.replay()
    assert (y.numpy() == np.arange(N)).all()
    cuda.launch(cuda_kernels.add, kind(z), kind(x), kind(y), N, **options)
    assert (z.numpy() == 2 * np.arange(N)).all()
    # Nothing is kept once the graph lets go of it.
    graph.close()
    gc.collect()
    assert all(ref() is None for ref in kept)


@pytest.mark.fake
def test_work_on_the_stream_of_this_thread_is_waited_for(cuda):
    x = cuda.create_buffer(4)
    given = Interface(x, stream=2)
    graph = fg.DeviceGraph.create(cuda, passed_on, x)
    graph.run(given)
    assert fg.InPlace(given).buffer.ptr == x.ptr
    with pytest.raises(fg.InputError, match="cudaStreamPerThread"):
        graph.replay(stream=type("Theirs", (), {"__cuda_stream__": lambda self: (0, 2)})())


@pytest.mark.fake
def test_a_captured_stream_is_not_waited_for(cuda, stand_ins):
    binding = pytest.importorskip("cuda.bindings.driver")
    live = cuda.create_buffer(N)
    graph = fg.DeviceGraph.create(cuda, passed_on, live)
    theirs = cuda.create_stream()
    given = made(Tensor, live, theirs, stand_ins)
    binding.cuStreamBeginCapture(
        theirs.handle, binding.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    )
    with pytest.raises(fg.GraphError, match="is being captured"):
        graph.replay(given)
    code, raw = binding.cuStreamEndCapture(theirs.handle)
    assert code == 0
    binding.cuGraphDestroy(raw)
    graph.replay(given)
    cuda.synchronize()


# ---- buffers for others


@pytest.mark.fake
def test_buffers_outlive_their_context_and_graph(cuda):
    x = cuda.to_device(np.arange(4, dtype="f4"))
    taken = fg.InPlace(Dlpack(x[1:3])).buffer
    del x
    gc.collect()
    assert taken.numpy().tolist() == [1, 2]
