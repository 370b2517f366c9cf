# cython: language_level=3
"""Memory that a GPU works on: its own, pinned memory of the host, and other libraries'.

Bytes go between the host and a device in pieces, through pinned memory: the driver's own copies of
pageable memory wait inside the driver.
"""

import warnings

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uintptr_t
from libc.string cimport memcpy, memset

from fastgraph._core.buffer cimport Block, Block_borrow, Buffer, Memory
from fastgraph._core.counters cimport BLOCKS, DEVICE_BYTES, PINNED_BYTES, counters_add
from fastgraph._core.dlpack cimport DL_CPU, DL_CUDA, DL_CUDA_HOST, dlpack_capsule
from fastgraph._core.driver cimport (
    copy_async, copy_spec, driver_idle, driver_is_poisoned, event_record, host_allocate, host_free,
    memory_allocate, memory_free, pointer_kind, set_async, set_spec, stream_create, stream_destroy,
    stream_query)
from fastgraph._core.pool cimport pool_nap
from fastgraph._core.stream cimport (
    CudaDevice, CudaDevice_event, CudaDevice_give, CudaDevice_order, Stream, devices_drain,
    devices_wait)
from fastgraph._core.waiting cimport settle, wait_event

from fastgraph.errors import ContextPoisonedError, DriverError, FastGraphWarning, InputError

cdef size_t PIECE_BYTES = 1 << 20
cdef size_t LEAST_SLOT = 1 << 16
cdef int MOST_IDLE = 4
cdef int NOT_PERMITTED = 800


# ---- owners

cdef class GpuMemory(Memory):
    """What all memory that a GPU works on has in common."""

    cdef int wait(self) except -1:
        return devices_wait(self.device)

    cdef int read(self, uintptr_t src, void *dst, size_t nbytes) except -1:
        self.wait()
        if self.host_visible:
            memcpy(dst, <void *> src, nbytes)
            return 0
        return Transfer_read(self.device, src, dst, nbytes)

    cdef int write(self, uintptr_t dst, const void *src, size_t nbytes) except -1:
        self.wait()
        if self.host_visible:
            memcpy(<void *> dst, src, nbytes)
            return 0
        return Transfer_write(self.device, dst, src, nbytes)

    cdef tuple dlpack_device(self):
        if self.host_visible:
            return DL_CUDA_HOST, 0
        return DL_CUDA, self.device.ordinal

    cdef object dlpack(self, Buffer buffer, dict options):
        """What the array API standard says of ``stream``, ``max_version``, ``dl_device``, ``copy``.

        A consumer's stream waits for the work that was put on ours before; without one the host
        does.
        """
        kind, number = self.dlpack_device()
        asked = options.get("dl_device")
        stream = options.get("stream")
        version = options.get("max_version")
        if options.get("copy"):
            raise BufferError(f"{buffer!r} gives its own memory by DLPack, never a copy")
        if asked is not None and tuple(asked) != (kind, number):
            if not (self.host_visible and tuple(asked) == (DL_CPU, 0)):
                raise BufferError(
                    f"{buffer!r} is on DLPack's device {(kind, number)}, not {tuple(asked)}")
            kind = DL_CPU
        if kind != DL_CUDA:
            if stream is not None:
                raise BufferError(f"{buffer!r} is memory of the host, which has no streams")
            self.wait()
        elif stream is None:
            CudaDevice_order(self.device, 1)     # the standard: None is the legacy stream
        elif stream == 0:
            raise BufferError("stream 0 is ambiguous: 1 is the legacy stream, 2 the thread's own")
        elif stream != -1:
            CudaDevice_order(self.device, stream)
        return dlpack_capsule(buffer, kind, number, version is not None and version[0] >= 1)

    cdef dict cuda_array(self, Buffer buffer):
        if buffer.dtype.isbuiltin != 1:
            return None                  # the protocol has no name for it
        self.wait()
        return {
            "shape": buffer.shape, "typestr": buffer.dtype.str, "data": (buffer.ptr, False),
            "strides": None, "stream": None, "version": 3,
        }


@cython.final
@cython.no_gc_clear
cdef class DeviceMemory(GpuMemory):
    """Memory of a GPU; freed with the last reference, once our work that may use it is done."""

    def __dealloc__(self):
        if self.ptr:
            counters_add(BLOCKS, -1)
            counters_add(DEVICE_BYTES, -<Py_ssize_t> self.nbytes)
            release(self.device, self.ptr, False)


@cython.final
@cython.no_gc_clear
cdef class PinnedMemory(GpuMemory):
    """Memory of the host at an address that GPUs reach too; freed as a device's."""

    def __dealloc__(self):
        if self.ptr:
            counters_add(BLOCKS, -1)
            counters_add(PINNED_BYTES, -<Py_ssize_t> self.nbytes)
            release(self.device, self.ptr, True)


@cython.final
cdef class ForeignMemory(GpuMemory):
    """Memory that another object holds, and that is kept alive by it."""


cdef uintptr_t memory_context(Memory memory) noexcept:
    return (<GpuMemory> memory).device.context if isinstance(memory, GpuMemory) else 0


cdef list _unfreed = []                  # (device, address, pinned)


cdef int release(CudaDevice device, uintptr_t ptr, bint pinned) noexcept:
    """Free memory from a destructor."""
    cdef uintptr_t context = device.context
    try:
        if driver_idle(context):
            return 0
        # Without the GIL, here and in the driver: it waits for work under way, and a Python
        # function that this work calls would wait for the GIL for ever.
        devices_drain(device)
        with nogil:
            if pinned:
                host_free(context, ptr)
            else:
                memory_free(context, ptr)
    except DriverError as error:
        if error.code == NOT_PERMITTED:
            _unfreed.append((device, ptr, pinned))   # the collector ran in a graph's host function
        else:
            warnings.warn(f"memory was not freed: {error}", FastGraphWarning, stacklevel=1)
    except Exception as error:
        warnings.warn(f"memory was not freed: {error}", FastGraphWarning, stacklevel=1)
    return 0


cdef int release_rest() except -1:
    """Free what could not be freed when its owner went."""
    cdef list waiting
    if _unfreed:
        waiting = _unfreed[:]
        _unfreed.clear()
        for device, ptr, pinned in waiting:
            release(device, ptr, pinned)
    return 0


def allocate(CudaDevice device not None, size_t nbytes):
    """Return a `Block` of zero-filled memory of a GPU.

    Raises
    ------
    OutOfMemoryError
        The device has too little; nothing is held.
    """
    cdef DeviceMemory memory = DeviceMemory.__new__(DeviceMemory)
    cdef uintptr_t context = device.context
    cdef size_t size = max(nbytes, 1)    # the driver gives no empty memory
    cdef uintptr_t ptr
    release_rest()
    memory.device = device
    with nogil:
        ptr = memory_allocate(context, size)
    memory.ptr = ptr
    memory.nbytes = nbytes
    counters_add(BLOCKS, 1)
    counters_add(DEVICE_BYTES, nbytes)
    Transfer_clear(device, memory.ptr, nbytes)
    return Block_borrow(memory.ptr, nbytes, memory)


def allocate_pinned(CudaDevice device not None, size_t nbytes):
    """Return a `Block` of zero-filled memory of the host that GPUs reach at the same address.

    Raises
    ------
    OutOfMemoryError
        The host has too little; nothing is held.
    """
    cdef PinnedMemory memory = PinnedMemory.__new__(PinnedMemory)
    cdef uintptr_t context = device.context
    cdef size_t size = max(nbytes, 1)
    cdef uintptr_t ptr
    release_rest()
    memory.device = device
    memory.host_visible = True
    with nogil:
        ptr = host_allocate(context, size)
        memset(<void *> ptr, 0, size)
    memory.ptr = ptr
    memory.nbytes = nbytes
    counters_add(BLOCKS, 1)
    counters_add(PINNED_BYTES, nbytes)
    return Block_borrow(memory.ptr, nbytes, memory)


def borrow(CudaDevice device not None, uintptr_t ptr, Py_ssize_t nbytes, owner):
    """Return a `Block` over bytes that `owner` holds: the device's, or pinned ones of the host.

    Raises
    ------
    InputError
        There is no owner, or the driver knows the address as another device's or not at all.
    """
    cdef ForeignMemory memory = ForeignMemory.__new__(ForeignMemory)
    cdef bint is_device = False
    cdef bint is_pinned = False
    cdef int ordinal = -1
    cdef Block block
    if owner is None:
        raise InputError("borrowed memory needs an owner to keep it alive")
    if nbytes < 0:
        raise InputError(f"a block of {nbytes} bytes cannot be")
    if nbytes:
        pointer_kind(ptr, &is_device, &is_pinned, &ordinal)
        if not (is_device or is_pinned):
            raise InputError(f"address {ptr:#x} is neither memory of a GPU nor pinned memory")
        if is_device and ordinal != device.ordinal:
            raise InputError(f"address {ptr:#x} is memory of cuda:{ordinal}, not of {device!r}")
    memory.device = device
    memory.owner = owner
    memory.host_visible = is_pinned
    block = Block_borrow(ptr, nbytes, memory)
    return block


def device_of(uintptr_t ptr):
    """Return the number of the GPU that an address is memory of; None for what is no GPU's."""
    cdef bint is_device = False
    cdef bint is_pinned = False
    cdef int ordinal = -1
    pointer_kind(ptr, &is_device, &is_pinned, &ordinal)
    return ordinal if is_device else None


# ---- staging

@cython.final
@cython.no_gc_clear
cdef class Staging:
    """Slots of pinned memory through which host arrays go to a device.

    They belong to the device as its streams' queues do, and are not counted as anyone's memory.
    """

    def __cinit__(self, CudaDevice device not None):
        memset(self.slots, 0, sizeof(self.slots))
        self.last = 0
        self.device = device

    def __dealloc__(self):
        cdef int i
        if self.device is None:
            return
        for i in range(STAGING_SLOTS):
            if self.slots[i].ptr:
                try:
                    if self.slots[i].pending and not driver_idle(self.device.context):
                        settle(self.device.context, self.slots[i].event)
                except ContextPoisonedError:
                    pass                 # the next caller is told
                except Exception as error:
                    warnings.warn(f"staging: {error}", FastGraphWarning, stacklevel=1)
                release(self.device, self.slots[i].ptr, True)
            if self.slots[i].event:
                CudaDevice_give(self.device, self.slots[i].event)


@cython.final
@cython.no_gc_clear
cdef class Slot:
    """One slot of a `Staging`, for who has taken it."""

    def __dealloc__(self):
        if self.staging is not None:
            self.staging.slots[self.index].taken = False


cdef Slot Staging_take(Staging self, size_t nbytes):
    cdef Slot slot = Slot.__new__(Slot)
    cdef slot_state *state
    cdef int tries = 0
    # The one that was taken longest ago first: its use is done before that of the others.
    cdef int i = (self.last + 1) % STAGING_SLOTS
    while self.slots[i].taken:
        i = (i + 1) % STAGING_SLOTS
        tries += 1
        if tries % STAGING_SLOTS == 0:
            pool_nap()
            PyErr_CheckSignals()
    state = &self.slots[i]
    state.taken = True
    self.last = i
    slot.staging = self
    slot.index = i
    if state.pending:
        wait_event(self.device.context, state.event, False)
        state.pending = False
    if state.nbytes < nbytes:
        Staging_grow(self, state, nbytes)
    slot.ptr = state.ptr
    slot.nbytes = state.nbytes
    return slot


cdef int Staging_grow(Staging self, slot_state *state, size_t nbytes) except -1:
    cdef uintptr_t context = self.device.context
    cdef uintptr_t ptr = state.ptr
    cdef size_t size = LEAST_SLOT
    while size < nbytes:
        size *= 2
    state.ptr = state.nbytes = 0
    if ptr:
        with nogil:
            host_free(context, ptr)
    with nogil:
        ptr = host_allocate(context, size)
    state.ptr = ptr
    state.nbytes = size
    if not state.event:
        state.event = CudaDevice_event(self.device)
    return 0


cdef int Slot_sent(Slot slot, uintptr_t stream) except -1:
    cdef slot_state *state = &slot.staging.slots[slot.index]
    event_record(slot.staging.device.context, state.event, stream)
    state.pending = True
    return 0


cdef int Staging_sent(Staging self, Slot slot, Stream stream) except -1:
    return Slot_sent(slot, stream.handle)


# ---- bytes between the host and a device

@cython.final
@cython.no_gc_clear
cdef class Transfer:
    """A stream of its own and the slots to copy through. One thread has it for one copy."""

    cdef CudaDevice device
    cdef uintptr_t stream
    cdef Staging staging

    def __dealloc__(self):
        cdef uintptr_t context
        if self.stream:
            context = self.device.context
            try:
                with nogil:
                    stream_destroy(context, self.stream)
            except Exception as error:
                warnings.warn(f"copies: {error}", FastGraphWarning, stacklevel=1)


cdef dict _idle = {}                     # by device: transfers that nobody has


cdef Transfer Transfer_get(CudaDevice device):
    cdef Transfer self
    cdef list idle = _idle.setdefault(device.ordinal, [])
    if idle:
        return idle.pop()
    self = Transfer.__new__(Transfer)
    self.device = device
    self.staging = Staging(device)
    self.stream = stream_create(device.context, 0)
    return self


cdef int Transfer_put(Transfer self) except -1:
    cdef list idle = _idle[self.device.ordinal]
    if len(idle) < MOST_IDLE:
        idle.append(self)
    return 0


cdef copy_spec spec_of(CudaDevice device, uintptr_t dst, uintptr_t src, size_t nbytes,
                       bint reads) noexcept:
    cdef copy_spec spec
    spec.dst, spec.src, spec.nbytes = dst, src, nbytes
    spec.dst_is_host, spec.src_is_host = reads, not reads
    spec.dst_context = spec.src_context = device.context
    return spec


cdef int Transfer_read(CudaDevice device, uintptr_t src, void *dst, size_t nbytes) except -1:
    """Copy to the host; one piece is on its way while the last one is taken out of its slot."""
    cdef Transfer self = Transfer_get(device)
    cdef Slot slot, last = None
    cdef size_t at = 0, done = 0, size
    cdef copy_spec spec
    try:
        while done < nbytes:
            slot = None
            if at < nbytes:
                size = min(PIECE_BYTES, nbytes - at)
                slot = Staging_take(self.staging, size)
                spec = spec_of(device, slot.ptr, src + at, size, True)
                copy_async(device.context, &spec, self.stream)
                Slot_sent(slot, self.stream)
                at += size
            if last is not None:
                size = min(PIECE_BYTES, nbytes - done)
                settle(device.context, self.staging.slots[last.index].event)
                memcpy(<char *> dst + done, <void *> last.ptr, size)
                done += size
                PyErr_CheckSignals()
            last = slot
    finally:
        Transfer_end(self)
    return 0


cdef int Transfer_write(CudaDevice device, uintptr_t dst, const void *src,
                        size_t nbytes) except -1:
    """Copy from the host; returns when the bytes are there."""
    cdef Transfer self = Transfer_get(device)
    cdef Slot slot
    cdef size_t at = 0, size
    cdef copy_spec spec
    try:
        while at < nbytes:
            size = min(PIECE_BYTES, nbytes - at)
            slot = Staging_take(self.staging, size)
            memcpy(<void *> slot.ptr, <const char *> src + at, size)
            spec = spec_of(device, dst + at, slot.ptr, size, False)
            copy_async(device.context, &spec, self.stream)
            Slot_sent(slot, self.stream)
            at += size
            PyErr_CheckSignals()
    finally:
        Transfer_end(self)
    return 0


cdef int Transfer_clear(CudaDevice device, uintptr_t ptr, size_t nbytes) except -1:
    """Set bytes of a device to zero; returns when they are."""
    cdef Transfer self = Transfer_get(device)
    cdef set_spec spec
    spec.dst, spec.value, spec.element, spec.count = ptr, 0, 1, nbytes
    try:
        set_async(device.context, &spec, self.stream)
    finally:
        Transfer_end(self)
    return 0


cdef int Transfer_end(Transfer self) except -1:
    """Wait for what is under way, whatever happened: who asked for it may free the memory next."""
    cdef CudaDevice device = self.device
    cdef uintptr_t event
    if driver_is_poisoned(device.context):
        return 0                         # the error that told it is on its way
    try:
        event = CudaDevice_event(device)
        try:
            event_record(device.context, event, self.stream)
            settle(device.context, event)
        finally:
            CudaDevice_give(device, event)
    except DriverError as error:
        if error.code != NOT_PERMITTED:  # in a host function nothing of it was enqueued
            while not stream_query(device.context, self.stream):
                pool_nap()
        Transfer_put(self)
        raise
    return Transfer_put(self)
