from fastgraph._core.cuda_bound cimport Bound
from fastgraph._core.stream cimport LastUse, Stream


cdef class CudaGraph(Bound):
    cdef readonly Stream stream
    cdef readonly LastUse last_use
    cdef object __weakref__

    cdef bint is_gone(self)
    cdef int let_go(self) except -1

cdef int CudaGraph_launch(CudaGraph self, Stream stream) except -1
cdef int CudaGraph_check_stream(CudaGraph self, Stream stream) except -1
