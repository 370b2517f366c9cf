from libc.stdint cimport int64_t, uint32_t

from fastgraph._core.types cimport fg_call, fg_kernel

ctypedef int (*pool_pause)(void *state) noexcept nogil


cdef extern from "pool.hpp" namespace "fastgraph" nogil:
    cdef cppclass Pool:
        bint acquire(uint32_t threads)
        void release()
        bint run(fg_kernel kernel, const fg_call& call, uint32_t parts, pool_pause pause,
                 void *state)
        void set_spin_ns(int64_t spin)
        int64_t spin_ns()
        uint32_t started()
        bint orphaned()
    int64_t now_ns()

cdef Pool *pool_get() noexcept nogil
# As memcpy; a long copy is done by up to so many of the threads, if no run has them.
cdef void pool_copy(void *to, const void *source, size_t nbytes, uint32_t threads) noexcept nogil
cdef uint32_t pool_forks() noexcept nogil
cdef int pool_nap() except -1
