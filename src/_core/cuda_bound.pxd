from libc.stdint cimport uintptr_t

from fastgraph._core.cuda_build cimport DriverGraph
from fastgraph._core.cuda_host cimport HostFaults
from fastgraph._core.cuda_nodes cimport Maker, Places
from fastgraph._core.cuda_retired cimport Retired
from fastgraph._core.cuda_values cimport Values
from fastgraph._core.executable cimport Executable
from fastgraph._core.record cimport Record
from fastgraph._core.stream cimport CudaDevice, Stream


cdef class Bound(Executable):
    cdef uintptr_t context
    cdef uintptr_t executable                # 0: closed
    cdef DriverGraph built
    cdef Stream used                         # of the last launch; None before
    cdef readonly CudaDevice device
    cdef readonly Record record
    cdef list nodes                          # as they were when it took the record
    cdef readonly int rebuilds
    cdef Places places
    cdef dict away                           # memories that are to go back, and to where
    cdef object helpers
    cdef HostFaults faults
    cdef Values values                       # of scalars
    cdef Retired retired
    cdef dict singles                        # number of a record node → a graph of it alone

# All with the lock held. What makes a driver graph of the record, as things are:
cdef Maker Bound_maker(Bound self)
# Hand values of scalars on; those set for a launch that has been go back.
cdef int Bound_store(Bound self, dict values, bint once) except -1
# Put memories elsewhere, by number to (Block, offset), all or none; returns where they were.
cdef dict Bound_put(Bound self, dict places)
# Note where memories that are elsewhere belong, and put them back, now or with the next launch.
cdef int Bound_lend(Bound self, dict before) except -1
cdef int Bound_return(Bound self) except -1
# The same amid an error, which is the one to tell.
cdef int Bound_try_return(Bound self) except -1
# Become another record over other memory.
cdef int Bound_take(Bound self, Record record, object blocks) except -1
# Keep `what` until no launch that is under way can need it.
cdef int Bound_retire(Bound self, object what) except -1
# The same with one scalar; False: it takes the long way, and nothing has happened.
cdef bint Bound_store_one(Bound self, tuple where, bytes value, bint once) except -1
# What is launched, or whether a launch has more to do, may have changed.
cdef int Bound_note_care(Bound self) except -1
