"""C types that more than one module shares; the kernel ABI of `kernels/fg_kernel.h`."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t


cdef extern from "kernels/fg_kernel.h" nogil:
    ctypedef struct fg_call:
        void *const *args
        const int64_t *params
        int32_t part
        int32_t nparts
        uint64_t *fault
        uint64_t node
    ctypedef void (*fg_kernel)(const fg_call *call)


# What an entry of a host program does: call its kernel, go to `target` (if the uint32 that is its
# operand is 0; always; at the entry that `params` names for it), or call Python.
cdef enum host_control:
    CALL
    BRANCH_ZERO
    JUMP
    SWITCH
    PYTHON


# One entry of a host program: its operands lie at `operands[first : first + count]`.
cdef struct host_node:
    fg_kernel run
    const int64_t *params
    uint32_t first
    uint32_t count
    uint32_t parts
    host_control control
    int32_t target
    bint slow                            # a part is long enough to look for signals after it


# Where an operand lies: `bases[memory] + offset`.
cdef struct host_operand:
    uint32_t memory
    uint64_t offset
