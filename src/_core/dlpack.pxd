"""DLPack's structures, out of a buffer and into what a buffer can be made of."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t

from fastgraph._core.buffer cimport Buffer

cdef enum:
    DL_CPU = 1
    DL_CUDA = 2
    DL_CUDA_HOST = 3
    DL_CUDA_MANAGED = 13
    DL_READ_ONLY = 1


cdef struct DLTensor:
    void *data
    int32_t device_type
    int32_t device_id
    int32_t ndim
    uint8_t code
    uint8_t bits
    uint16_t lanes
    int64_t *shape
    int64_t *strides
    uint64_t byte_offset


cdef struct DLManaged:
    DLTensor tensor
    void *context
    void (*deleter)(DLManaged *) noexcept


cdef struct DLManagedVersioned:
    uint32_t major
    uint32_t minor
    void *context
    void (*deleter)(DLManagedVersioned *) noexcept
    uint64_t flags
    DLTensor tensor


cdef class Tensor:
    cdef DLManaged *plain
    cdef DLManagedVersioned *versioned
    cdef DLTensor *tensor

cdef object dlpack_capsule(Buffer buffer, int device_type, int device_id, bint versioned)
