"""Inputs that kernels read where they lie on a GPU, and the handles that they are by default."""

from libc.stdint cimport uintptr_t
from libcpp.vector cimport vector

from fastgraph._core.buffer cimport Block
from fastgraph._core.cuda_graph cimport CudaGraph
from fastgraph._core.stream cimport CudaDevice, Stream


cdef struct cuda_port:
    size_t memory
    Py_ssize_t nbytes
    uintptr_t home                       # where it lies by default: for a resident input its handle
    uintptr_t staged                     # staging of an input
    bint resident                        # kernels read the input where it lies on the device
    bint on_host                         # in the coming run its bytes are staged
    uintptr_t wanted                     # where it lies in the coming run
    uintptr_t bound                      # where the executable has it; 0 where that is unknown


cdef class Residents:
    cdef CudaDevice device
    cdef list shadows                    # by input: a Block for what a run is given
    cdef list uploads                    # before the coming run: (input, Block or None, offset)
    cdef list kept                       # (input, memory) that lies in its handle
    cdef list handles                    # by input: (Block, offset, bytes, bool: lent) or None
    cdef list located                    # feeds at rows that a run tells
    cdef bint fed
    cdef bint in_place                   # a run computes outputs where handles lie

cdef Residents Residents_create(CudaDevice device, Py_ssize_t n_inputs)
# Let an input be copied before the run: from a block, or from staging if that is None.
cdef int Residents_upload(Residents self, vector[cuda_port] &ins, list blocks, Py_ssize_t i,
                          Block block, Py_ssize_t offset) except -1
# Enqueue those copies.
cdef int Residents_send(Residents self, vector[cuda_port] &ins, CudaGraph graph,
                        Stream stream) except -1
# Copy an output, or the parts of it that `part` gives, from memory of the host to a block.
cdef int Residents_move(Residents self, const cuda_port *port, CudaGraph graph, Stream stream,
                        object part, Block block, Py_ssize_t offset) except -1
# Whether these bytes are a handle's, in which the run may write.
cdef bint Residents_meet_handles(Residents self, uintptr_t at, Py_ssize_t nbytes) except -1
# The same, or those of a resident input of the coming run.
cdef bint Residents_meet(Residents self, vector[cuda_port] &ins, uintptr_t at,
                         Py_ssize_t nbytes) except -1
# Let resident inputs be these handles, and outputs go into them: `graph` (or None) and `blocks`.
cdef int Residents_connect(Residents self, vector[cuda_port] &ins, CudaGraph graph, list blocks,
                           list feeds, list handles) except -1
