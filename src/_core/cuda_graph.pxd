from libc.stdint cimport uintptr_t

from fastgraph._core.cuda_build cimport DriverGraph
from fastgraph._core.cuda_host cimport HostFaults
from fastgraph._core.cuda_nodes cimport Places
from fastgraph._core.cuda_retired cimport Retired
from fastgraph._core.cuda_values cimport Values
from fastgraph._core.executable cimport Executable
from fastgraph._core.record cimport Record
from fastgraph._core.stream cimport CudaDevice, LastUse, Stream


cdef class CudaGraph(Executable):
    cdef uintptr_t context                   # these two before all: what a launch needs
    cdef uintptr_t executable                # 0: closed
    cdef bint needs_care                     # a launch has more to do than to launch
    cdef readonly Stream stream
    cdef readonly LastUse last_use
    cdef DriverGraph built
    cdef Stream used                         # of the last launch; None before
    cdef readonly CudaDevice device
    cdef readonly Record record
    cdef list nodes                          # as they were when it took the record
    cdef readonly int rebuilds
    cdef Places places
    cdef object helpers
    cdef HostFaults faults
    cdef Values values                       # of scalars
    cdef Retired retired
    cdef dict singles                        # number of a record node → a graph of it alone
    cdef object __weakref__

    cdef bint is_gone(self)
    cdef int let_go(self) except -1

cdef int CudaGraph_launch(CudaGraph self, Stream stream) except -1
cdef int CudaGraph_check_stream(CudaGraph self, Stream stream) except -1
# Keep `what` until no launch that is under way can need it.
cdef int CudaGraph_retire(CudaGraph self, object what) except -1
