from libc.stdint cimport uint64_t

from fastgraph._core.buffer cimport Block
from fastgraph._core.record cimport Record
from fastgraph._core.stream cimport Stream


cdef class Finish:
    cdef object extend                   # a record with one more node and memory
    cdef Block block                     # that memory
    cdef uint64_t number                 # of the latest run that is told of

# The number of a run that is about to be launched, while no other is under way.
cdef uint64_t Finish_next(Finish self) noexcept
# Whether that run, the last thing on its stream, is over: looks as long as a wait may keep the GIL.
cdef bint Finish_await(Finish self, uint64_t number, Stream on) except -1
# What is launched for a record, and where its memories lie; both as they are without a `Finish`.
cdef tuple Finish_launched(Finish self, Record record, list blocks)
