from libc.stdint cimport uintptr_t

from fastgraph._core.key cimport Described

cdef enum:
    MAX_NDIM = 32


cdef class Memory:
    cdef readonly bint host_visible

    cdef int wait(self) except -1
    cdef int read(self, uintptr_t src, void *dst, size_t nbytes) except -1
    cdef int write(self, uintptr_t dst, const void *src, size_t nbytes) except -1
    cdef tuple dlpack_device(self)
    cdef object dlpack(self, Buffer buffer, dict options)
    cdef dict cuda_array(self, Buffer buffer)


cdef class Block:
    cdef readonly uintptr_t ptr
    cdef readonly Py_ssize_t nbytes
    cdef bint mapped
    cdef bint owned                      # freed by this object; not cleared by the collector
    cdef object owner
    cdef readonly Memory memory          # None: plain host memory


cdef class Bytes:
    cdef Block block
    cdef uintptr_t at
    cdef Py_ssize_t nbytes
    cdef bint writable


cdef class Buffer(Described):
    cdef readonly Block block
    cdef readonly Py_ssize_t offset
    cdef readonly Py_ssize_t nbytes
    cdef readonly str device
    cdef Py_ssize_t[32] c_shape
    cdef Py_ssize_t[32] c_strides
    cdef bytes format
    cdef bint counted
    cdef object __weakref__

cdef Block Block_create(Py_ssize_t nbytes, bint zero)
cdef Block Block_borrow(uintptr_t ptr, Py_ssize_t nbytes, object owner)
cdef Bytes Bytes_create(Block block, uintptr_t at, Py_ssize_t nbytes, bint readonly)
