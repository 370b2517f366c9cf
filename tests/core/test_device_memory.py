"""Memory of GPUs, pinned memory, and arrays of other libraries."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import buffer, counters, dlpack
from fastgraph.device.foreign import as_buffer

pytestmark = pytest.mark.timeout(600)  # the first test waits for the fake's compiler

PIECE = 1 << 20


def on_gpu(memory, gpu, array):
    """A buffer of the GPU with the elements of `array`."""
    block = memory.allocate(gpu, array.nbytes)
    x = buffer.view(block, 0, array.shape, array.dtype, repr(gpu))
    x.copy_from(array)
    return x


def fill(stream, x, value):
    """Enqueue a memset from elsewhere."""
    binding = pytest.importorskip("cuda.bindings.driver")
    binding.cuMemsetD8Async(x.ptr, value, x.nbytes, stream.handle)
    stream.mark()


# ---- bytes of the device


@pytest.mark.parametrize("size", [0, 1, 100, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 7])
def test_bytes_there_and_back(gpu, memory, size):
    data = np.random.default_rng(size).integers(0, 256, size).astype("u1")
    x = on_gpu(memory, gpu, data)
    assert np.array_equal(x.numpy(), data)
    assert not x.host_visible
    assert x.block.memory.device is gpu


def test_new_memory_is_zero_and_counted(gpu, memory):
    before = counters.snapshot()
    block = memory.allocate(gpu, 3 * PIECE)
    assert counters.snapshot()["device_bytes"] == before["device_bytes"] + 3 * PIECE
    assert not buffer.view(block, 0, (3 * PIECE,), "u1", "cuda:0").numpy().any()
    assert block.ptr % 256 == 0
    pinned = memory.allocate_pinned(gpu, 1000)
    assert counters.snapshot()["pinned_bytes"] == before["pinned_bytes"] + 1000
    assert not np.asarray(buffer.view(pinned, 0, (1000,), "u1", "cuda:0")).any()
    del block, pinned
    assert counters.snapshot() == before


def test_strided_sources_and_slices(gpu, memory):
    data = np.arange(24, dtype="f4").reshape(4, 6)
    x = on_gpu(memory, gpu, np.zeros((6, 4), "f4"))
    x.copy_from(data.T)
    assert np.array_equal(x.numpy(), data.T)
    x[1:3].copy_from(np.ones((2, 4), "f4"))
    assert x.numpy()[1:3].sum() == 8
    assert x.numpy()[[0, 3, 4, 5]].sum() == data.T[[0, 3, 4, 5]].sum()


def test_a_gpus_memory_is_no_array(gpu, memory):
    x = on_gpu(memory, gpu, np.arange(3.0))
    with pytest.raises(TypeError, match=r"use \.numpy\(\)"):
        np.asarray(x)
    with pytest.raises(BufferError):
        memoryview(x)


def test_reading_and_writing_wait_for_our_work(fake, gpu, memory, streams):
    x = on_gpu(memory, gpu, np.zeros(64, "u1"))
    stream = streams.Stream(gpu)
    for access in (lambda: x.numpy().max() == 7, lambda: x.copy_from(np.full(64, 9, "u1"))):
        fake.hold(True)
        fill(stream, x, 7)
        threading.Timer(0.03, fake.hold, (False,)).start()
        assert access() in (True, None)
    assert x.numpy().min() == 9


def test_pinned_memory(gpu, memory, streams):
    block = memory.allocate_pinned(gpu, 64)
    x = buffer.view(block, 0, (64,), "u1", "cuda:0")
    assert x.host_visible
    np.asarray(x)[:] = 3
    assert (x.numpy() == 3).all()
    stream = streams.Stream(gpu)
    fill(stream, x, 4)  # the device reaches it at the same address
    assert (x.numpy() == 4).all()
    x.copy_from(np.full(64, 5, "u1"))
    assert np.asarray(x).min() == 5


def test_too_little_memory(fake, gpu, memory):
    before = counters.snapshot()
    fake.memory_total(1 << 20)
    with pytest.raises(fg.OutOfMemoryError, match=r"were asked of cuda:0; \d+ of its") as caught:
        memory.allocate(gpu, 1 << 30)
    assert caught.value.asked == 1 << 30
    assert caught.value.code == 2
    assert isinstance(caught.value, MemoryError)
    assert counters.snapshot() == before
    fake.reset()
    memory.allocate(gpu, 100)


def test_a_copy_that_fails_leaves_all_usable(fake, gpu, memory):
    x = on_gpu(memory, gpu, np.arange(10, dtype="u1"))
    fake.fail("cuMemcpyDtoHAsync", 304)
    with pytest.raises(fg.DriverError, match="enqueuing a copy on cuda:0"):
        x.numpy()
    assert np.array_equal(x.numpy(), np.arange(10))
    fake.fail("cuMemsetD8Async", 304)
    before = counters.snapshot()
    with pytest.raises(fg.DriverError):
        memory.allocate(gpu, 10)
    assert counters.snapshot() == before


def test_memory_outlives_the_work_on_it(fake, gpu, memory, streams):
    stream = streams.Stream(gpu)
    x = on_gpu(memory, gpu, np.zeros(1000, "u1"))
    fake.hold(True)
    fill(stream, x, 1)
    threading.Timer(0.03, fake.hold, (False,)).start()
    del x  # the fake frees at once: work on freed memory would lose the device
    stream.synchronize()
    assert not gpu.poisoned


def test_memory_dropped_where_the_driver_may_not_be_called(fake, gpu, memory):
    live = fake.settled()["allocations"]
    block = memory.allocate(gpu, 100)
    fake.fail("cuMemFree", 800)  # as in a graph's host function
    del block
    assert fake.live()["allocations"] == live + 1
    memory.allocate(gpu, 1)
    assert fake.live()["allocations"] == live


def test_a_failure_to_free_is_a_warning(fake, gpu, memory):
    block = memory.allocate(gpu, 100)
    fake.fail("cuMemFree", 304)
    with pytest.warns(fg.FastGraphWarning, match="memory was not freed"):
        del block


def test_many_threads_copy(gpu, memory):
    failures = []

    def work(seed):
        data = np.random.default_rng(seed).integers(0, 256, 3 * PIECE // 2).astype("u1")
        x = on_gpu(memory, gpu, data)
        for _ in range(3):
            x.copy_from(data)
            if not np.array_equal(x.numpy(), data):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_staging_is_made(gpu, memory):
    before = counters.snapshot()
    staging = memory.Staging(gpu)
    assert staging.device is gpu
    del staging
    assert counters.snapshot() == before


# ---- bytes of others


def test_borrowed_memory(gpu, memory):
    x = on_gpu(memory, gpu, np.arange(100, dtype="f4"))
    block = memory.borrow(gpu, x.ptr + 40, 40, x)
    y = buffer.view(block, 0, (10,), "f4", "cuda:0")
    del x
    gc.collect()
    assert np.array_equal(y.numpy(), np.arange(10, 20))
    assert not y.host_visible


def test_what_cannot_be_borrowed(fake, gpu, memory, streams):
    host = np.zeros(10)
    with pytest.raises(fg.InputError, match="neither memory of a GPU nor pinned"):
        memory.borrow(gpu, host.ctypes.data, 80, host)
    with pytest.raises(fg.InputError, match="needs an owner"):
        memory.borrow(gpu, 1, 1, None)
    other = memory.allocate(streams.cuda_device(1), 8)
    with pytest.raises(fg.InputError, match="is memory of cuda:1, not of cuda:0"):
        memory.borrow(gpu, other.ptr, 8, other)


# ---- DLPack and the CUDA array interface


class Producer:
    """An array of another library on a GPU."""

    def __init__(self, x, versions=True):
        self.x, self.versions, self.streams = x, versions, []

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()

    def __dlpack__(self, *, stream=None, **options):
        if options and not self.versions:
            raise TypeError("max_version")
        self.streams.append(stream)
        return self.x.__dlpack__(stream=stream, **options)


class Interface:
    def __init__(self, x, **changes):
        self.__cuda_array_interface__ = {**x.__cuda_array_interface__, **changes}
        self.x = x


def test_cuda_array_interface(gpu, memory):
    x = on_gpu(memory, gpu, np.arange(6, dtype="i2").reshape(2, 3))
    assert x[1:].__cuda_array_interface__ == {
        "shape": (1, 3),
        "typestr": "<i2",
        "data": (x.ptr + 6, False),
        "strides": None,
        "stream": None,
        "version": 3,
    }


@pytest.mark.parametrize("name", ["int8", "uint64", "float16", "float64", "bool", "complex64"])
@pytest.mark.parametrize("versions", [False, True])
def test_dlpack_round_trip(gpu, memory, name, versions):
    data = np.arange(6).reshape(2, 3).astype(name)
    x = on_gpu(memory, gpu, data)
    assert x.__dlpack_device__() == (2, 0)
    y = as_buffer(Producer(x, versions), "cuda:0")
    assert (y.ptr, y.shape, y.dtype, y.device) == (x.ptr, x.shape, x.dtype, "cuda:0")
    del x
    gc.collect()
    assert np.array_equal(y.numpy(), data)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_dlpack_of_small_floats(gpu, memory, name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = on_gpu(memory, gpu, np.arange(4).astype(getattr(ml_dtypes, name)))
    y = as_buffer(Producer(x), "cuda:0")
    assert y.dtype == x.dtype
    assert np.array_equal(y.numpy().astype("f4"), np.arange(4))
    assert not hasattr(x, "__cuda_array_interface__")


def test_capsules(gpu, memory):
    before = counters.snapshot()
    x = on_gpu(memory, gpu, np.arange(4, dtype="f4"))
    capsule = x.__dlpack__(max_version=(1, 1))
    assert "dltensor_versioned" in repr(capsule)
    tensor = dlpack.Tensor(capsule)
    assert (tensor.ptr, tensor.shape, tensor.dtype) == (x.ptr, (4,), "float32")
    assert (tensor.device, tensor.readonly, tensor.is_dense()) == ((2, 0), False, True)
    with pytest.raises(fg.InputError, match="used already"):
        dlpack.Tensor(capsule)
    with pytest.raises(fg.InputError, match="no capsule"):
        dlpack.Tensor(3)
    unused = x.__dlpack__()
    del x, capsule
    assert counters.snapshot() != before
    del tensor, unused
    assert counters.snapshot() == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stream": 0}, "ambiguous"),
        ({"copy": True}, "never a copy"),
        ({"dl_device": (1, 0)}, r"is on DLPack's device \(2, 0\)"),
    ],
)
def test_what_dlpack_refuses(gpu, memory, options, words):
    x = on_gpu(memory, gpu, np.arange(4, dtype="f4"))
    with pytest.raises(BufferError, match=words):
        x.__dlpack__(**options)


def test_a_consumers_stream_waits_for_ours(fake, gpu, memory, streams):
    x = on_gpu(memory, gpu, np.zeros(64, "u1"))
    ours, theirs = streams.Stream(gpu), streams.Stream(gpu)
    with fake.held():
        fill(ours, x, 1)
        capsule = x.__dlpack__(stream=theirs.handle)
        fill(theirs, x, 2)
    theirs.synchronize()
    assert x.numpy().max() == 2
    del capsule
    ours.mark()
    fake.forget_calls()
    x.__dlpack__(stream=-1)
    assert fake.calls("cuStreamWaitEvent") == 0
    x.__dlpack__()  # for the legacy stream
    assert fake.calls("cuStreamWaitEvent") == 1
    ours.synchronize()


def test_our_stream_waits_for_the_producers(fake, gpu, memory, streams):
    x = on_gpu(memory, gpu, np.zeros(64, "u1"))
    theirs, ours = streams.Stream(gpu), streams.Stream(gpu)
    producer = Producer(x)
    fake.hold(True)
    fill(theirs, x, 3)
    y = as_buffer(producer, "cuda:0", ours)
    assert producer.streams == [ours.handle]
    fill(ours, y, 4)
    fake.hold(False)
    assert y.numpy().min() == 4
    fake.hold(True)
    fill(theirs, x, 5)
    threading.Timer(0.03, fake.hold, (False,)).start()
    z = as_buffer(Interface(x, stream=theirs.handle), "cuda:0")
    assert theirs.query()
    assert (z.numpy() == 5).all()


def test_array_interfaces(gpu, memory, streams):
    x = on_gpu(memory, gpu, np.arange(6, dtype="f4").reshape(2, 3))
    for changes in ({}, {"version": 2}, {"strides": (12, 4)}, {"stream": 1}):
        y = as_buffer(Interface(x, **changes), "cuda:0")
        assert (y.ptr, y.shape) == (x.ptr, (2, 3))
    ordered = as_buffer(Interface(x, stream=1), "cuda:0", streams.Stream(gpu))
    assert np.array_equal(ordered.numpy(), x.numpy())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"strides": (4, 8)}, "is not dense"),
        ({"mask": 1}, "masked"),
        ({"stream": 0}, "ambiguous"),
        ({"data": (1, True)}, "may not be written"),
    ],
)
def test_array_interfaces_that_are_refused(gpu, memory, changes, words):
    x = on_gpu(memory, gpu, np.arange(6, dtype="f4").reshape(2, 3))
    with pytest.raises(fg.InputError, match=words):
        as_buffer(Interface(x, **changes), "cuda:0")


def test_arrays_of_another_device(fake, gpu, memory, streams):
    x = on_gpu(memory, streams.cuda_device(1), np.arange(3.0))
    for foreign in (Producer(x), Interface(x), x):
        with pytest.raises(fg.InputError, match="cuda:1"):
            as_buffer(foreign, "cuda:0")
        with pytest.raises(fg.InputError, match=r"not on cpu|is not on"):
            as_buffer(foreign, "cpu")


def test_pinned_arrays_of_others(gpu, memory):
    x = buffer.view(memory.allocate_pinned(gpu, 16), 0, (4,), "f4", "cuda:0")
    y = as_buffer(Producer(x), "cuda:0")
    assert y.host_visible
    assert y.ptr == x.ptr
    assert isinstance(as_buffer(Producer(x), "cpu"), np.ndarray)
    assert x.__dlpack_device__() == (3, 0)
    assert dlpack.Tensor(x.__dlpack__(dl_device=(1, 0))).device == (1, 0)
    with pytest.raises(BufferError, match="no streams"):
        x.__dlpack__(stream=1)


class HostProducer:
    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


def test_arrays_of_the_host():
    data = np.arange(12, dtype="f4").reshape(3, 4)
    y = as_buffer(HostProducer(data[:, ::2]), "cpu")
    assert y.ctypes.data == data.ctypes.data
    assert np.array_equal(y, data[:, ::2])
    data.flags.writeable = False
    with pytest.raises(fg.InputError, match="may not be written"):
        as_buffer(data, "cpu")
    assert as_buffer(data, "cpu", readonly=True) is data
    with pytest.raises(fg.InputError, match="a list is no array"):
        as_buffer([1], "cpu")
