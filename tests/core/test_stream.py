"""Streams, events and waiting for them."""

from __future__ import annotations

import gc
import signal
import threading
import time

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import buffer, counters

pytestmark = pytest.mark.timeout(600)  # the first test waits for the fake's compiler


class Foreign:
    """A stream of another library."""

    def __init__(self, handle, as_property=False):
        self.handle = handle
        if as_property:
            self.__cuda_stream__ = (0, handle)

    def __cuda_stream__(self):
        return 0, self.handle


class Torch:
    """A stream as torch's are."""

    def __init__(self, handle):
        self.cuda_stream = handle


def fill(stream, block, value):
    """Enqueue a memset from elsewhere."""
    binding = pytest.importorskip("cuda.bindings.driver")
    binding.cuMemsetD8Async(block.ptr, value, block.nbytes, stream.handle)
    stream.mark()


def test_streams_are_made_and_go(gpu, streams):
    before = counters.snapshot()
    stream = streams.Stream(gpu)
    assert stream.device is gpu
    assert stream.handle
    assert not stream.borrowed
    assert stream.__cuda_stream__() == (0, stream.handle)
    assert counters.snapshot()["streams"] == before["streams"] + 1
    stream.synchronize()
    assert stream.query()
    del stream
    assert counters.snapshot() == before


def test_devices_are_one_object_each(gpu, streams):
    assert streams.cuda_device(0) is gpu
    assert repr(gpu) == "cuda:0"
    assert gpu.name
    assert 0 < gpu.memory_info[0] <= gpu.memory_info[1]
    with pytest.raises(TypeError):
        streams.CudaDevice()


def test_priorities(gpu, streams):
    streams.Stream(gpu, -1).synchronize()
    with pytest.raises(fg.InputError, match=r"have priorities from .* not 99"):
        streams.Stream(gpu, 99)


def test_foreign_streams(gpu, streams):
    own = streams.Stream(gpu)
    assert streams.as_stream(own, gpu) is own
    for foreign in (Foreign(own.handle), Torch(own.handle)):
        stream = streams.as_stream(foreign, gpu)
        assert stream.borrowed
        assert stream.handle == own.handle
        assert gc.is_tracked(stream)
        stream.synchronize()
    assert streams.Stream.borrow(own.handle, own).device is gpu
    assert streams.Stream.borrow(1, own, gpu).handle == 1


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (7, "does not keep it alive"),
        ("x", "is no stream"),
        (None, "is no stream"),
        (type("Odd", (), {"__cuda_stream__": (1, 7)})(), r"gives \(1, 7\); \(0, handle\) is known"),
    ],
)
def test_no_streams(gpu, streams, bad, words):
    with pytest.raises(fg.InputError, match=words):
        streams.as_stream(bad, gpu)


@pytest.mark.parametrize(
    "answer",
    [
        5,
        None,
        (),
        (0,),
        (1, 8),
        (0, "a"),
        (0, -1),
        (0, 2**64),
        (0, 1.5),
        (0, True),
        ("0", 8),
        [0, 8],
    ],
)
def test_answers_that_name_no_stream(gpu, streams, answer):
    bad = type("Bad", (), {"__cuda_stream__": lambda self: answer})()
    with pytest.raises(fg.InputError, match=r"__cuda_stream__ of .* gives"):
        streams.as_stream(bad, gpu)


@pytest.mark.parametrize("handle", [None, "a", -1, 2**64, 1.5, True])
def test_handles_that_are_none(gpu, streams, handle):
    with pytest.raises(fg.InputError, match="number of a CUstream"):
        streams.Stream.borrow(handle, gpu, gpu)


@pytest.mark.parametrize("priority", [10**30, -(10**30), 1.5, "a", None, True])
def test_priorities_that_are_none(gpu, streams, priority):
    with pytest.raises(fg.InputError, match="have priorities from"):
        streams.Stream(gpu, priority)


def test_the_stream_of_a_thread_is_not_borrowed(gpu, streams):
    for give in (
        lambda: streams.Stream.borrow(2, gpu, gpu),
        lambda: streams.Stream.borrow(2, gpu),
        lambda: streams.as_stream(Torch(2), gpu),
        lambda: streams.as_stream(Foreign(2), gpu),
    ):
        with pytest.raises(fg.InputError, match=r"stream 2 is cudaStreamPerThread, .* of your own"):
            give()
    assert streams.as_stream(Torch(1), gpu).handle == 1


def test_borrowing_needs_an_owner_and_a_device(gpu, streams):
    stream = streams.Stream(gpu)
    with pytest.raises(fg.InputError, match="needs an owner"):
        streams.Stream.borrow(stream.handle, None)
    with pytest.raises(fg.InputError, match="name the device"):
        streams.Stream.borrow(0, stream)


def test_streams_of_another_device(fake, gpu, streams):
    other = streams.cuda_device(1)
    stream = streams.Stream(other)
    with pytest.raises(fg.InputError, match="is not of cuda:0"):
        streams.as_stream(stream, gpu)
    with pytest.raises(fg.InputError, match="of another device than cuda:0"):
        streams.as_stream(Torch(stream.handle), gpu)
    with pytest.raises(fg.InputError, match="is not of cuda:1"):
        streams.Event(other).record(streams.Stream(gpu))


def test_events(gpu, streams):
    stream = streams.Stream(gpu)
    start, end = streams.Event(gpu, stream), streams.Event(gpu)
    with pytest.raises(fg.GraphError, match="never recorded"):
        start.query()
    with pytest.raises(fg.GraphError, match="never recorded"):
        stream.wait_for(start)
    with pytest.raises(fg.InputError, match="made without a stream"):
        end.record()
    start.record()
    end.record(stream)
    end.synchronize()
    assert start.query()
    assert end.elapsed_ms(start) >= 0


def test_a_wait_sees_the_work_done(gpu, streams):
    stream = streams.Stream(gpu)
    for wait in (stream.synchronize, stream.query, gpu.synchronize):
        stream.mark()
        stream.mark()
        assert stream.unobserved == 2
        assert gpu.has_unobserved_work
        while wait() is False:
            time.sleep(0.001)
        assert stream.unobserved == 0
        assert not gpu.has_unobserved_work
    event = streams.Event(gpu, stream)
    stream.mark()
    event.record()
    stream.mark()
    event.synchronize()
    assert stream.unobserved == 1
    stream.synchronize()


def test_nothing_is_seen_before_it_is_done(fake, gpu, streams):
    stream = streams.Stream(gpu)
    event = streams.Event(gpu, stream)
    with fake.held():
        stream.mark()
        event.record()
        assert not stream.query()
        assert not event.query()
        assert stream.unobserved == 1
    gpu.synchronize()
    assert event.query()


def test_wait_for(fake, gpu, streams, memory):
    first, second = streams.Stream(gpu), streams.Stream(gpu)
    block = memory.allocate(gpu, 64)
    with fake.held():
        fill(first, block, 1)
        second.wait_for(first)
        fill(second, block, 2)
        fake.step(2)
    second.synchronize()
    assert (buffer.view(block, 0, (64,), "u1", "cuda:0").numpy() == 2).all()
    with pytest.raises(fg.InputError, match="waits for a Stream or an Event"):
        first.wait_for(3)


def test_last_use_orders_streams(fake, gpu, streams):
    first, second = streams.Stream(gpu), streams.Stream(gpu)
    use = streams.LastUse()
    use.before(first)
    first.mark()
    use.before(first)
    assert fake.calls("cuStreamWaitEvent") == 0
    use.before(second)
    assert fake.calls("cuStreamWaitEvent") == 1
    first.synchronize()
    use.before(first)  # nothing on the second that nobody has seen
    assert fake.calls("cuStreamWaitEvent") == 1


def test_work_of_a_stream_that_is_gone_is_waited_for(fake, gpu, streams, memory):
    block = memory.allocate(gpu, 64)
    x = buffer.view(block, 0, (64,), "u1", "cuda:0")
    stream = streams.Stream(gpu)
    fake.hold(True)
    fill(stream, block, 5)
    del stream
    assert gpu.has_unobserved_work
    threading.Timer(0.05, fake.hold, (False,)).start()
    assert (x.numpy() == 5).all()
    assert not gpu.has_unobserved_work


def test_streams_that_go_one_after_the_other_leave_little(fake, gpu, streams):
    gpu.synchronize()
    for _ in range(100):
        stream = streams.Stream(gpu)
        stream.mark()
        stream.synchronize()
        stream.mark()
        del stream
    gpu.synchronize()
    before = fake.settled()["events"]
    for _ in range(100):
        stream = streams.Stream(gpu)
        stream.mark()
        del stream
        time.sleep(0.0002)
    gpu.synchronize()
    assert fake.live()["events"] < before + 100


@pytest.mark.parametrize("expect_long", [False, True])
def test_other_threads_go_on_while_one_waits(fake, gpu, streams, expect_long):
    stream = streams.Stream(gpu)
    fake.hold(True)
    stream.mark()
    threading.Timer(0.05, fake.hold, (False,)).start()  # needs the GIL to end the wait
    stream.synchronize(expect_long)
    assert stream.unobserved == 0


@pytest.mark.parametrize("what", ["stream", "event", "device", "read"])
def test_a_wait_can_be_interrupted(fake, gpu, streams, memory, what):
    stream = streams.Stream(gpu)
    event = streams.Event(gpu, stream)
    x = buffer.view(memory.allocate(gpu, 64), 0, (64,), "u1", "cuda:0")
    waits = {
        "stream": stream.synchronize,
        "event": event.synchronize,
        "device": gpu.synchronize,
        "read": x.numpy,
    }

    def handler(*_):
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, handler)
    try:
        with fake.held():
            stream.mark()
            event.record()
            signal.setitimer(signal.ITIMER_REAL, 0.03)
            with pytest.raises(KeyboardInterrupt):
                waits[what]()
            assert stream.unobserved == 1
        waits[what]()
        assert stream.unobserved == 0
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert not np.any(x.numpy())


def test_a_captured_stream_is_not_waited_for(gpu, streams):
    binding = pytest.importorskip("cuda.bindings.driver")
    stream = streams.Stream(gpu)
    relaxed = binding.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    binding.cuStreamBeginCapture(stream.handle, relaxed)
    for wait in (stream.synchronize, stream.query):
        with pytest.raises(fg.GraphError, match="is being captured"):
            wait()
    code, graph = binding.cuStreamEndCapture(stream.handle)
    assert code == 0
    binding.cuGraphDestroy(graph)
    stream.synchronize()


def test_many_threads_wait_for_one_stream(gpu, streams):
    stream = streams.Stream(gpu)
    failures = []

    def work():
        try:
            for _ in range(50):
                stream.mark()
                stream.synchronize()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stream.synchronize()
    assert failures == []
    assert stream.unobserved == 0
