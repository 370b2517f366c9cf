# cython: language_level=3
"""The scalars of one graph that lie in memory of a GPU.

They change on the stream of a launch, right before it, with one copy of a few bytes. What was
enqueued earlier has the values that it was enqueued with.
"""

cimport cython
from libc.stdint cimport uintptr_t
from libc.string cimport memcpy

from fastgraph._core.driver cimport copy_async, copy_spec, event_record
from fastgraph._core.stream cimport (
    CudaDevice, CudaDevice_event, CudaDevice_give, Stream, Stream_mark, keeps_gil)
from fastgraph._core.waiting cimport wait_event

from fastgraph._core.device_memory import allocate_pinned
from fastgraph.errors import GraphError

# Of one half of the ring: for so many bytes of copies one event is recorded.
cdef size_t HALF_BYTES = 1024


@cython.final
@cython.no_gc_clear
cdef class Cells:
    """Values on their way to memory, and those that are to go there next."""

    def __init__(self):
        raise TypeError("made by a CudaGraph")

    def __dealloc__(self):
        cdef int i
        for i in range(2):
            if self.events[i]:
                CudaDevice_give(self.device, self.events[i])


cdef Cells Cells_create(CudaDevice device, dict values):
    cdef Cells self = Cells.__new__(Cells)
    cdef size_t nbytes = 0
    self.device = device
    self.sizes = {}
    self.next = 0
    for key, value in values.items():
        self.memory = key[0]
        self.sizes[key] = len(value)
        nbytes = max(nbytes, <size_t> (key[1] + len(value)))
    self.image.resize(nbytes)
    for key, value in values.items():
        Cells_put(self, key, value)
    self.low, self.high = 0, nbytes
    self.half = max(HALF_BYTES, (nbytes + 7) // 8 * 8)
    self.stop = self.half
    self.ring = allocate_pinned(device, 2 * self.half)
    return self


cdef int Cells_check(Cells self, tuple key, bytes value) except -1:
    if len(value) != self.sizes[key]:
        raise GraphError(
            f"the scalar at {key} has {self.sizes[key]} bytes, not {len(value)}")
    return 0


cdef int Cells_put(Cells self, tuple key, bytes value) except -1:
    cdef size_t start = key[1]
    cdef size_t stop = start + <size_t> len(value)
    memcpy(&self.image[start], <const char *> value, <size_t> len(value))
    if self.low == self.high:
        self.low, self.high = start, stop
    else:
        self.low, self.high = min(self.low, start), max(self.high, stop)
    return 0


cdef int Cells_moved(Cells self) except -1:
    self.low, self.high = 0, self.image.size()
    return 0


cdef int Cells_send(Cells self, uintptr_t base, Stream stream) except -1:
    cdef size_t nbytes = self.high - self.low
    cdef copy_spec spec
    if self.next + nbytes > self.stop:
        Cells_turn(self, stream)
    spec.src = self.ring.ptr + self.next
    spec.dst = base + self.low
    spec.nbytes = nbytes
    spec.src_is_host, spec.dst_is_host = True, False
    spec.src_context = spec.dst_context = self.device.context
    memcpy(<void *> spec.src, &self.image[self.low], nbytes)
    if keeps_gil(stream):
        copy_async(self.device.context, &spec, stream.handle)
    else:
        with nogil:
            copy_async(self.device.context, &spec, stream.handle)
    Stream_mark(stream)
    self.next += (nbytes + 7) // 8 * 8
    self.low = self.high = 0
    return 0


cdef int Cells_turn(Cells self, Stream stream) except -1:
    """Go on in the other half, once what was copied from there is done."""
    cdef int full = self.stop > self.half
    cdef int other = 1 - full
    if not self.events[full]:
        self.events[full] = CudaDevice_event(self.device)
    event_record(self.device.context, self.events[full], stream.handle)
    self.pending[full] = True
    if self.pending[other]:
        wait_event(self.device.context, self.events[other], False)
        self.pending[other] = False
    self.next = self.half * <size_t> other
    self.stop = self.next + self.half
    return 0
