"""C types that more than one module shares; the kernel ABI of `kernels/fg_kernel.h`."""

from libc.stdint cimport int32_t, int64_t, uint64_t


cdef extern from "kernels/fg_kernel.h" nogil:
    ctypedef struct fg_call:
        void *const *args
        const int64_t *params
        int32_t part
        int32_t nparts
        uint64_t *fault
        uint64_t node
    ctypedef void (*fg_kernel)(const fg_call *call)

    # Where the params of kernel `call_native` say what, and what may stand for an argument.
    enum:
        FG_NATIVE_POINTER
        FG_NATIVE_VALUE
        FG_NATIVE_COUNT
        FG_NATIVE_ARGS
