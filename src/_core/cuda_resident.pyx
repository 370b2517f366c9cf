# cython: language_level=3, nonecheck=False
"""Inputs that kernels read where they lie on a GPU, and the handles that they are by default.

What a run is given for such an input is read where it lies, too, if it is on the device and nothing
forbids it; else it is copied before the run to a shadow of the input's.
"""

cimport cython
from libc.stdint cimport uintptr_t
from libc.string cimport memset
from libcpp.vector cimport vector

from fastgraph._core.buffer cimport Block
from fastgraph._core.cuda_bound cimport Bound_put, Bound_retire, Bound_return
from fastgraph._core.cuda_graph cimport CudaGraph
from fastgraph._core.driver cimport copy_async, copy_spec
from fastgraph._core.feeds cimport Feed
from fastgraph._core.stream cimport CudaDevice, LastUse_before, Stream, Stream_mark

from fastgraph._core import device_memory


@cython.final
cdef class Residents:
    """The resident inputs of one model, and what of a run goes into handles."""

    def __init__(self):
        raise TypeError("made by the runner of a model")


cdef Residents Residents_create(CudaDevice device, Py_ssize_t n_inputs):
    cdef Residents self = Residents.__new__(Residents)
    self.device = device
    self.shadows = [None] * n_inputs
    self.handles = [None] * n_inputs
    self.uploads = []
    self.kept = []
    self.located = []
    return self


cdef Block shadow_of(Residents self, Py_ssize_t i, Py_ssize_t nbytes):
    if self.shadows[i] is None:
        self.shadows[i] = device_memory.allocate(self.device, nbytes)
    return self.shadows[i]


cdef int Residents_upload(Residents self, vector[cuda_port] &ins, list blocks, Py_ssize_t i,
                          Block block, Py_ssize_t offset) except -1:
    cdef Block shadow = shadow_of(self, i, ins[i].nbytes)
    ins[i].wanted = shadow.ptr
    blocks[i] = (shadow, 0)
    self.uploads.append((i, block, offset))
    return 0


cdef int Residents_send(Residents self, vector[cuda_port] &ins, CudaGraph graph,
                        Stream stream) except -1:
    cdef copy_spec spec
    cdef Block block
    cdef Py_ssize_t i, offset
    cdef uintptr_t context = self.device.context
    LastUse_before(graph.last_use, stream)           # whose run may still read what is there
    for i, block, offset in self.uploads:
        memset(&spec, 0, sizeof(spec))
        spec.src = ins[i].staged if block is None else block.ptr + <uintptr_t> offset
        spec.dst = (<Block> self.shadows[i]).ptr
        spec.nbytes = ins[i].nbytes
        spec.src_is_host = block is None or block.memory is None or block.memory.host_visible
        spec.src_context = spec.dst_context = context
        copy_async(context, &spec, stream.handle)
        Stream_mark(stream)
        if block is not None:
            Bound_retire(graph, block)
    return 0


cdef int Residents_move(Residents self, const cuda_port *port, CudaGraph graph, Stream stream,
                        object part, Block block, Py_ssize_t offset) except -1:
    cdef copy_spec spec
    cdef uintptr_t context = self.device.context
    memset(&spec, 0, sizeof(spec))
    spec.src_is_host = True
    spec.dst_is_host = block.memory is None or block.memory.host_visible
    spec.src_context = spec.dst_context = context
    for start, nbytes in [(0, port.nbytes)] if part is None else part():
        spec.src = port.home + <uintptr_t> start
        spec.dst = block.ptr + <uintptr_t> (offset + start)
        spec.nbytes = nbytes
        if nbytes:
            copy_async(context, &spec, stream.handle)
            Stream_mark(stream)
            Bound_retire(graph, block)
    return 0


cdef bint Residents_meet_handles(Residents self, uintptr_t at, Py_ssize_t nbytes) except -1:
    cdef Block block
    cdef Py_ssize_t offset, size
    cdef uintptr_t start
    if not self.fed:
        return False
    for handle in self.handles:
        if handle is not None:
            block, offset, size, _ = handle
            start = block.ptr + <uintptr_t> offset
            if at < start + <uintptr_t> size and start < at + <uintptr_t> nbytes:
                return True
    return False


cdef bint Residents_meet(Residents self, vector[cuda_port] &ins, uintptr_t at,
                         Py_ssize_t nbytes) except -1:
    cdef size_t i
    for i in range(ins.size()):
        if (ins[i].resident and at < ins[i].wanted + <uintptr_t> ins[i].nbytes
                and ins[i].wanted < at + <uintptr_t> nbytes):
            return True
    return Residents_meet_handles(self, at, nbytes)


cdef int Residents_connect(Residents self, vector[cuda_port] &ins, CudaGraph graph, list blocks,
                           list feeds, list handles) except -1:
    cdef dict places = {}
    cdef list located = []
    cdef Feed feed
    cdef Block block
    cdef Py_ssize_t offset
    cdef size_t i
    cdef bint in_place = False
    for i in range(ins.size()):
        if ins[i].resident:
            places[ins[i].memory] = (
                (shadow_of(self, i, ins[i].nbytes), 0) if handles[i] is None else handles[i][:2])
    for number, memory in self.kept:
        places[memory] = handles[number][:2]
    places = {memory: place for memory, place in places.items() if blocks[memory] != place}
    for feed in feeds:
        in_place = in_place or feed.in_place
        if feed.scalar >= 0 or feed.input >= 0:
            located.append(feed)
    if places and graph is not None:
        Bound_return(graph)
        Bound_put(graph, places)
    for memory, place in places.items():
        blocks[memory] = place
    for i in range(ins.size()):
        if ins[i].memory in places:
            block, offset = places[ins[i].memory]
            ins[i].home = ins[i].bound = block.ptr + <uintptr_t> offset
    self.handles = handles
    self.located = located
    self.in_place = in_place
    self.fed = len(feeds) > 0
    return 0
