# cython: language_level=3
"""GPUs, their streams and events, and what is known of the work on them."""

import warnings

cimport cython
from libc.stdint cimport int64_t, uint64_t, uintptr_t

from fastgraph._core.counters cimport EVENTS, STREAMS, counters_add
from fastgraph._core.driver cimport (
    LAST_BUILTIN, context_memory, context_priorities, context_retain, device_attributes,
    device_name, driver_check, driver_idle, driver_is_poisoned, driver_start, event_create,
    event_destroy, event_elapsed, event_query, event_record, peer_enable, peer_possible,
    stream_capturing, stream_context, stream_create, stream_destroy, stream_query,
    stream_wait_event)
from fastgraph._core.waiting cimport settle, wait_event

from fastgraph._core.checks import check_handle, handle_of
from fastgraph.errors import (
    ContextPoisonedError, FastGraphWarning, GraphError, InputError, UnsupportedError)

cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() nogil

# Of an event that was recorded in a capture.
cdef uint64_t CAPTURED = 0xffffffffffffffff

cdef dict _devices = {}
cdef Py_ssize_t _host_functions = 0


# ---- devices

@cython.final
cdef class CudaDevice:
    """A GPU. There is one object for each; `cuda_device` gives it.

    Attributes
    ----------
    ordinal : int
    context : int
        Address of the driver's primary context.
    """

    def __cinit__(self):
        self.first = NULL
        self.numbers = None

    def __init__(self):
        raise TypeError("devices are given by fastgraph._core.stream.cuda_device")

    @property
    def name(self):
        """str: the product's name."""
        return device_name(self.ordinal)

    @property
    def poisoned(self):
        """bool: the device was lost to a fault; nothing works on it any more."""
        return driver_is_poisoned(self.context)

    @property
    def compute_capability(self):
        """tuple of int: (major, minor)."""
        return (self.attribute("compute_capability_major"),
                self.attribute("compute_capability_minor"))

    @property
    def attributes(self):
        """dict of str to int: the device in numbers, by the driver's names in lower case.

        Sizes are bytes, clock rates kHz, the width of the bus bits.
        """
        return dict(CudaDevice_numbers(self))

    def attribute(self, str name not None):
        """Return one of `attributes`; InputError where there is none of that name."""
        cdef dict numbers = CudaDevice_numbers(self)
        if name not in numbers:
            raise InputError(f"there is no attribute {name!r}; there are {', '.join(numbers)}")
        return numbers[name]

    @property
    def memory_info(self):
        """tuple of int: (available, total) bytes."""
        cdef size_t available = 0
        cdef size_t total = 0
        context_memory(self.context, &available, &total)
        return available, total

    def enable_peer_access(self, CudaDevice other not None):
        """Let work of this device reach memory of `other`.

        Raises
        ------
        InputError
            `other` is this device.
        UnsupportedError
            There is no way between the two.
        """
        if other is self:
            raise InputError(f"{self!r} reaches its own memory anyway")
        if not peer_possible(self.ordinal, other.ordinal):
            raise UnsupportedError(f"{self!r} cannot reach the memory of {other!r}")
        peer_enable(self.context, other.context)

    def synchronize(self):
        """Wait for all work that was put on streams of this device from here.

        Raises
        ------
        ContextPoisonedError
            The work has lost the device.
        """
        CudaDevice_wait(self)

    @property
    def has_unobserved_work(self):
        """bool: work was put on a stream, and nobody has seen it done."""
        return bool(CudaDevice_pending(self)) or not self.left.empty()

    def __repr__(self):
        return f"cuda:{self.ordinal}"


cpdef CudaDevice cuda_device(int ordinal):
    """Return the GPU of a number.

    Raises
    ------
    InputError
        There is no device of that number.
    UnsupportedError
        There is no driver or device, or it is too old.
    """
    cdef CudaDevice self
    if ordinal not in _devices:
        driver_start()
        self = CudaDevice.__new__(CudaDevice)
        self.ordinal = ordinal
        self.context = context_retain(ordinal)
        _devices.setdefault(ordinal, self)
    return _devices[ordinal]


cdef dict CudaDevice_numbers(CudaDevice self):
    if self.numbers is None:
        self.numbers = device_attributes(self.ordinal)
    return self.numbers


cdef uintptr_t CudaDevice_event(CudaDevice self) except 0:
    cdef uintptr_t event
    if self.idle.empty():
        return event_create(self.context, False)
    event = self.idle.back()
    self.idle.pop_back()
    return event


cdef int CudaDevice_give(CudaDevice self, uintptr_t event) except -1:
    self.idle.push_back(event)
    return 0


cdef int CudaDevice_forget(CudaDevice self, uintptr_t event) except -1:
    """Drop an event that was left behind and has been seen, unless another thread did."""
    cdef size_t i
    for i in range(self.left.size()):
        if self.left[i] == event:
            self.left.erase(self.left.begin() + <int64_t> i)
            return CudaDevice_give(self, event)
    return 0


cdef list CudaDevice_pending(CudaDevice self):
    """The streams with unobserved work, kept alive.

    What another thread records is nothing that this one could wait for.
    """
    cdef list streams = []
    cdef void *at = self.first
    cdef unsigned long recorder
    while at != NULL:
        recorder = (<Stream> at).recorder
        if ((<Stream> at).unobserved
                and (recorder == 0 or recorder == PyThread_get_thread_ident())):
            streams.append(<Stream> at)
        at = (<Stream> at).after
    return streams


cdef int CudaDevice_wait(CudaDevice self) except -1:
    cdef list streams = CudaDevice_pending(self)
    cdef vector[uintptr_t] events = self.left
    cdef list marks = []
    cdef Stream stream
    cdef size_t n_left = events.size()
    cdef size_t i
    driver_check(self.context)
    try:
        # All are recorded before the first is waited for: what others add meanwhile is not waited
        # for.
        for stream in streams:
            marks.append(stream.marks)
            events.push_back(Stream_record(stream))
        for i in range(events.size()):
            wait_event(self.context, events[i], False)
            if i < n_left:
                CudaDevice_forget(self, events[i])
            else:
                Stream_see(streams[i - n_left], marks[i - n_left])
    finally:
        for i in range(n_left, events.size()):
            CudaDevice_give(self, events[i])
    return 0


cdef int devices_wait(CudaDevice self) except -1:
    cdef CudaDevice other
    CudaDevice_wait(self)
    # Another device may have copied to this one, or from it.
    for other in list(_devices.values()):
        if other is not self and CudaDevice_pending(other) and not other.poisoned:
            CudaDevice_wait(other)
    return 0


cdef int devices_drain(CudaDevice self) except -1:
    cdef CudaDevice other
    for other in list(_devices.values()):
        if other is self or (CudaDevice_pending(other) and not other.poisoned):
            try:
                CudaDevice_drain(other)
            except ContextPoisonedError:
                pass                     # nothing runs there any more; the next caller is told
    return 0


cdef int CudaDevice_drain(CudaDevice self) except -1:
    cdef vector[uintptr_t] events = self.left
    cdef size_t n_left = events.size()
    cdef size_t i
    cdef Stream stream
    for stream in CudaDevice_pending(self):
        if not stream_capturing(self.context, stream.handle):
            events.push_back(Stream_record(stream))
    for i in range(events.size()):
        settle(self.context, events[i])
        if i >= n_left:
            CudaDevice_give(self, events[i])
    return 0


cdef int CudaDevice_order(CudaDevice self, uintptr_t handle) except -1:
    cdef Stream stream
    cdef uintptr_t event
    cdef size_t i
    for i in range(self.left.size()):
        stream_wait_event(self.context, handle, self.left[i])
    for stream in CudaDevice_pending(self):
        if stream.handle != handle:
            event = Stream_record(stream)
            try:
                stream_wait_event(self.context, handle, event)
            finally:
                CudaDevice_give(self, event)
    return 0


# ---- streams

@cython.final
@cython.no_gc_clear
cdef class Stream:
    """Work of a GPU that is done in the order in which it was put there.

    ``Stream(device, priority)`` makes one that no other stream waits for; `Stream.borrow` stands
    for one of another library. Dropping a stream cuts no work off.

    Parameters
    ----------
    device : CudaDevice
    priority : int, default 0
        A smaller number comes first; the device has few.

    Attributes
    ----------
    device : CudaDevice
    handle : int
        The driver's CUstream.
    unobserved : int
        How many launches from here nobody has seen done.

    Raises
    ------
    InputError
        The device has no such priority.
    """

    def __cinit__(self):
        self.handle = 0
        self.recorder = 0
        self.before = self.after = NULL

    def __init__(self, CudaDevice device not None, priority=0):
        cdef int lowest = 0
        cdef int highest = 0
        if self.device is not None:
            raise TypeError("a stream is made once")
        context_priorities(device.context, &lowest, &highest)
        if (not isinstance(priority, int) or isinstance(priority, bool)
                or not highest <= int.__pos__(priority) <= lowest):
            raise InputError(
                f"streams of {device!r} have priorities from {highest} (first) to {lowest}, "
                f"not {priority!r}")
        Stream_open(self, device, stream_create(device.context, int.__pos__(priority)), None)

    def __dealloc__(self):
        cdef uintptr_t context, handle
        if self.device is None:
            return
        counters_add(STREAMS, -1)
        context, handle = self.device.context, self.handle
        Stream_unlink(self)
        try:
            if self.unobserved:
                Stream_leave(self)
            if self.owner is None:
                # Another thread may be inside the driver, and what it waits for may want the GIL.
                with nogil:
                    stream_destroy(context, handle)
        except ContextPoisonedError:
            pass                         # the next caller is told
        except Exception as error:
            warnings.warn(f"a stream was not destroyed: {error}", FastGraphWarning, stacklevel=1)

    @staticmethod
    def borrow(handle, owner, CudaDevice device=None):
        """Return a stream that stands for one of another library.

        Parameters
        ----------
        handle : int
            Its CUstream. 0 and 1 are the legacy stream, which takes no two copies at once. Not 2,
            the per-thread stream: it is another one in each thread.
        owner : object
            Kept alive as long as this one; what keeps the handle good.
        device : CudaDevice, optional
            By default the one that the driver names; needed for the driver's own streams, 0 to 2.

        Raises
        ------
        InputError
            There is no owner, the stream is not of the device, or `handle` is none.
        """
        cdef uintptr_t number = check_handle(handle)
        if owner is None:
            raise InputError("a borrowed stream needs an owner to keep its handle good")
        if device is None:
            if number <= LAST_BUILTIN:
                raise InputError(f"stream {number} is there on each device: name the device")
            driver_start()
            context = stream_context(0, number)
            known = [found for found in _devices.values()
                     if (<CudaDevice> found).context == context]
            if not known:
                raise InputError("the stream is of no device that was opened here")
            device = known[0]
        elif number > LAST_BUILTIN and stream_context(device.context, number) != device.context:
            raise InputError(f"the stream is of another device than {device!r}, or of a context "
                             "that is not the device's primary one")
        return Stream_borrow(device, number, owner)

    @property
    def borrowed(self):
        """bool: another library's."""
        return self.owner is not None

    def __cuda_stream__(self):
        return 0, self.handle

    def synchronize(self, bint expect_long=False):
        """Wait until all that is on the stream is done.

        Parameters
        ----------
        expect_long : bool, default False
            Let other Python threads go on at once, not after a first look.

        Raises
        ------
        ContextPoisonedError
            The work has lost the device.
        GraphError
            The stream is being captured.
        """
        Stream_wait(self, expect_long)

    def mark(self):
        """Note that work was put on the stream from elsewhere: buffers are read once it is done."""
        Stream_mark(self)

    def query(self):
        """Return whether all that is on the stream is done."""
        cdef uint64_t marks = self.marks
        Stream_refuse_capture(self)
        if not stream_query(self.device.context, self.handle):
            return False
        Stream_see(self, marks)
        return True

    def wait_for(self, other):
        """Let what is put on this stream from now on wait for what is on another one, or an event.

        Parameters
        ----------
        other : Stream or Event

        Raises
        ------
        GraphError
            The event was never recorded.
        InputError
            `other` is neither.
        """
        if isinstance(other, Event):
            if (<Event> other).stream is None:
                raise GraphError("the event was never recorded: there is nothing to wait for")
            Stream_enqueue(self, (<Event> other).handle, False)
        elif isinstance(other, Stream):
            Stream_order(self, <Stream> other)
        else:
            raise InputError(f"a stream waits for a Stream or an Event, not for {other!r}")

    def follow(self, uintptr_t handle):
        """Let what is put here from now on wait for what is on another library's CUstream.

        Parameters
        ----------
        handle : int
            Of this device, alive during the call.

        Raises
        ------
        GraphError
            That stream is being captured: what is on it will not be done.
        """
        Stream_follow(self, handle)

    def precede(self, uintptr_t handle):
        """Let what is put on another library's CUstream from now on wait for what is here now.

        Parameters and errors are those of `follow`.
        """
        Stream_precede(self, handle)

    def __repr__(self):
        kind = "borrowed stream" if self.owner is not None else "stream"
        return f"<{kind} {self.handle:#x} of {self.device!r}>"


cdef int Stream_open(Stream self, CudaDevice device, uintptr_t handle, object owner) except -1:
    self.handle = handle
    self.device = device
    self.owner = owner
    Stream_link(self)
    counters_add(STREAMS, 1)
    return 0


cdef Stream Stream_create(CudaDevice device, int priority):
    cdef Stream self = Stream.__new__(Stream)
    Stream_open(self, device, stream_create(device.context, priority), None)
    return self


cdef Stream Stream_borrow(CudaDevice device, uintptr_t handle, object owner):
    cdef Stream self = Stream.__new__(Stream)
    Stream_open(self, device, handle, owner)
    return self


def as_stream(stream, CudaDevice device not None):
    """Return what a caller gives as a stream of `device`.

    Parameters
    ----------
    stream : Stream or object
        Another library's has ``__cuda_stream__`` or, as torch's, ``cuda_stream``.

    Raises
    ------
    InputError
        It is of another device, or no stream.
    """
    if isinstance(stream, Stream):
        if (<Stream> stream).device is not device:
            raise InputError(f"{stream!r} is not of {device!r}")
        return stream
    return Stream.borrow(handle_of(stream), stream, device)


cdef int Stream_follow(Stream self, uintptr_t handle) except -1:
    return 0 if handle == self.handle else order_raw(self.device, handle, self.handle, handle)


cdef int Stream_precede(Stream self, uintptr_t handle) except -1:
    return 0 if handle == self.handle else order_raw(self.device, self.handle, handle, handle)


cdef int Stream_link(Stream self) except -1:
    """Be among the streams of the device."""
    cdef CudaDevice device = self.device
    self.before = NULL
    self.after = device.first
    if device.first != NULL:
        (<Stream> device.first).before = <void *> self
    device.first = <void *> self
    return 0


cdef int Stream_unlink(Stream self) except -1:
    if self.before != NULL:
        (<Stream> self.before).after = self.after
    else:
        self.device.first = self.after
    if self.after != NULL:
        (<Stream> self.after).before = self.before
    self.before = self.after = NULL
    return 0


cdef int Stream_see(Stream self, uint64_t marks) except -1:
    """Note that the first `marks` launches are done."""
    if marks > self.seen:
        self.seen = marks
        self.unobserved = <Py_ssize_t> (self.marks - marks)
    return 0


cdef int Stream_leave(Stream self) except -1:
    """Leave an event behind the work of a stream that goes, for who waits for the device."""
    cdef CudaDevice device = self.device
    cdef uintptr_t event
    cdef size_t i = 0
    # In a capture an event would be recorded, not put there: nobody could ever wait for it.
    if driver_idle(device.context) or stream_capturing(device.context, self.handle):
        return 0
    # What is done meanwhile is let go, so that the list stays short.
    while i < device.left.size():
        event = device.left[i]
        if event_query(device.context, event):
            CudaDevice_forget(device, event)
        else:
            i += 1
    event = CudaDevice_event(device)
    Stream_enqueue(self, event, True)
    device.left.push_back(event)
    return 0


cdef int Stream_refuse_capture(Stream self) except -1:
    if stream_capturing(self.device.context, self.handle):
        raise GraphError(f"{self!r} is being captured: its work is not done but recorded, and "
                         "cannot be waited for")
    return 0


cdef int Stream_enqueue(Stream self, uintptr_t event, bint record) except -1:
    """Put an event on the stream, or let the stream wait for it."""
    cdef uintptr_t context = self.device.context
    cdef uintptr_t handle = self.handle
    if keeps_gil(self):
        return (event_record(context, event, handle) if record
                else stream_wait_event(context, handle, event))
    with nogil:
        if record:
            event_record(context, event, handle)
        else:
            stream_wait_event(context, handle, event)
    return 0


cdef uintptr_t Stream_record(Stream self) except 0:
    """An event behind all that is on the stream now."""
    cdef uintptr_t event
    Stream_refuse_capture(self)
    event = CudaDevice_event(self.device)
    try:
        Stream_enqueue(self, event, True)
    except BaseException:
        CudaDevice_give(self.device, event)
        raise
    return event


cdef int Stream_wait(Stream self, bint expect_long) except -1:
    cdef uint64_t marks = self.marks
    cdef uintptr_t event = Stream_record(self)
    try:
        wait_event(self.device.context, event, expect_long)
    finally:
        CudaDevice_give(self.device, event)
    return Stream_see(self, marks)


cdef int Stream_order(Stream self, Stream other) except -1:
    """Let later work on `self` wait for what is on `other` now."""
    cdef uintptr_t event
    if self.handle == other.handle and self.device is other.device:
        return 0
    event = Stream_record(other)
    try:
        Stream_enqueue(self, event, False)
    finally:
        CudaDevice_give(other.device, event)
    return 0


cdef int order_raw(CudaDevice device, uintptr_t first, uintptr_t then, uintptr_t other) except -1:
    """Let later work on one CUstream wait for what is on another now; `other` is not ours."""
    cdef uintptr_t context = device.context
    cdef uintptr_t event
    if stream_capturing(context, other):
        raise GraphError(f"stream {other:#x} of another library is being captured: its work is not "
                         "done but recorded, and cannot be waited for")
    event = CudaDevice_event(device)
    try:
        # Without the GIL: the other library's stream may be full of work that wants it.
        with nogil:
            event_record(context, event, first)
            stream_wait_event(context, then, event)
    finally:
        CudaDevice_give(device, event)
    return 0


cdef bint keeps_gil(Stream self) noexcept:
    return _host_functions == 0 and self.unobserved < MANY_UNOBSERVED


cdef const Py_ssize_t *host_functions() noexcept:
    return &_host_functions


cdef int host_functions_add(Py_ssize_t amount) except -1:
    """Count the Python functions that work on a GPU may call."""
    global _host_functions
    _host_functions += amount
    return 0


# ---- events

@cython.final
@cython.no_gc_clear
cdef class Event:
    """A point in the work of a stream; takes the time.

    Parameters
    ----------
    device : CudaDevice
    stream : Stream, optional
        Where `record` records by default.

    Attributes
    ----------
    device : CudaDevice
    handle : int
        The driver's CUevent.
    """

    def __cinit__(self, CudaDevice device not None, Stream stream=None):
        self.handle = event_create(device.context, True)
        self.device = device
        self.home = stream
        counters_add(EVENTS, 1)

    def __dealloc__(self):
        cdef uintptr_t context
        if self.device is None:
            return
        counters_add(EVENTS, -1)
        context = self.device.context
        try:
            with nogil:
                event_destroy(context, self.handle)
        except Exception as error:
            warnings.warn(f"an event was not destroyed: {error}", FastGraphWarning, stacklevel=1)

    def record(self, stream=None):
        """Put the event behind what is on the stream now, and off where it was.

        Parameters
        ----------
        stream : Stream or object with __cuda_stream__, optional
            By default the one that the event was made with.

        Raises
        ------
        InputError
            There is no stream, or it is of another device.
        """
        cdef Stream on = self.home if stream is None else as_stream(stream, self.device)
        if on is None:
            raise InputError("the event was made without a stream: record(stream) needs one")
        # Looking at an event of a capture would spoil that; only other streams can wait for it.
        captured = on.owner is not None and stream_capturing(on.device.context, on.handle)
        Stream_enqueue(on, self.handle, True)
        self.stream = on
        self.marks = CAPTURED if captured else on.marks

    def query(self):
        """Return whether the event is there; GraphError where it was never recorded."""
        Event_check(self)
        if not event_query(self.device.context, self.handle):
            return False
        Stream_see(self.stream, self.marks)
        return True

    def synchronize(self, bint expect_long=False):
        """Wait until the event is there.

        Parameters
        ----------
        expect_long : bool, default False
            Let other Python threads go on at once, not after a first look.

        Raises
        ------
        GraphError
            The event was never recorded.
        """
        cdef uint64_t marks = self.marks
        cdef Stream stream = self.stream
        Event_check(self)
        wait_event(self.device.context, self.handle, expect_long)
        Stream_see(stream, marks)

    def elapsed_ms(self, Event start not None):
        """Wait for both events and return the time between them.

        Parameters
        ----------
        start : Event

        Returns
        -------
        float
            Milliseconds from `start` to this one.
        """
        cdef float milliseconds = 0
        if start.device is not self.device:
            raise InputError(f"the events are of {start.device!r} and {self.device!r}")
        start.synchronize()
        self.synchronize()
        event_elapsed(self.device.context, start.handle, self.handle, &milliseconds)
        return milliseconds


cdef int Event_check(Event self) except -1:
    if self.stream is None:
        raise GraphError("the event was never recorded")
    if self.marks == CAPTURED:
        raise GraphError(f"the event was recorded while {self.stream!r} was being captured: there "
                         "is nothing to wait for")
    return 0


# ---- order between executables

@cython.final
cdef class LastUse:
    """Which stream the last work went to of all executables that share memory.

    They run on many streams, one at a time: each waits for the last one's if that is another.
    """

    def before(self, Stream now not None):
        """Let what is put on `now` next wait for the last use, and be that."""
        LastUse_before(self, now)


cdef int LastUse_before(LastUse self, Stream now) except -1:
    if self.stream is not now:
        if self.stream is not None and self.stream.unobserved:
            Stream_order(now, self.stream)
        self.stream = now
        self.at = <void *> now
    return 0
