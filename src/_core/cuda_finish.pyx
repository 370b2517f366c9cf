# cython: language_level=3, nonecheck=False
"""How a short run on a GPU says that it is over: in a word of memory that the host looks at.

An event behind a run costs a call, and comes after the launch is retired; a store of the last node
comes as soon as all is written. Before the launch the host leaves a number beside the word, which
that node puts there. A run that does not come to its end in time is waited for as all others are,
so that what went wrong is told by the driver.
"""

from libc.stdint cimport int64_t, uint64_t

from fastgraph._core.buffer cimport Block
from fastgraph._core.pool cimport now_ns
from fastgraph._core.record cimport Record
from fastgraph._core.stream cimport Stream, Stream_see

cdef extern from * nogil:
    """
    static inline void finish_put(unsigned long *at, unsigned long value) {
      __atomic_store_n(at, value, __ATOMIC_RELEASE);
    }
    static inline int finish_is(const unsigned long *at, unsigned long value) {
      for (int i = 0; i < 64; i++) {
        if (__atomic_load_n(at, __ATOMIC_ACQUIRE) == value) return 1;
    #if defined(__x86_64__)
        __builtin_ia32_pause();
    #elif defined(__aarch64__)
        __asm__ volatile("yield");
    #endif
      }
      return 0;
    }
    """
    void finish_put(uint64_t *at, uint64_t value)
    bint finish_is(const uint64_t *at, uint64_t value)

# Words between what the host writes and what the device does, each in a cache line of its own.
cdef Py_ssize_t APART = 8
cdef int64_t PATIENCE_NS = 50_000

FINISH_BYTES = 2 * 8 * APART


cdef class Finish:
    """The word of one runner.

    Parameters
    ----------
    extend : callable
        Gives a record with a last memory of `FINISH_BYTES`, whose first eight bytes a last node
        copies to the middle when all others are done.
    block : Block
        That memory, pinned and full of zeros.
    """

    def __init__(self, extend not None, Block block not None):
        self.extend = extend
        self.block = block


cdef uint64_t Finish_next(Finish self) noexcept:
    self.number += 1
    finish_put(<uint64_t *> self.block.ptr, self.number)
    return self.number


cdef bint Finish_await(Finish self, uint64_t number, Stream on) except -1:
    cdef const uint64_t *done = <const uint64_t *> self.block.ptr + APART
    cdef uint64_t marks = on.marks
    cdef int64_t until = now_ns() + PATIENCE_NS
    while not finish_is(done, number):
        if now_ns() >= until:
            return False
    Stream_see(on, marks)
    return True


cdef tuple Finish_launched(Finish self, Record record, list blocks):
    if self is None:
        return record, blocks
    return self.extend(record), [*blocks, (self.block, 0)]
