from libc.stdint cimport uint64_t, uintptr_t
from libcpp.vector cimport vector

from fastgraph._core.buffer cimport Block
from fastgraph._core.runner cimport Runner
from fastgraph._core.staging cimport Active, input_slot


cdef struct output_slot:
    Py_ssize_t nbytes
    void *home


cdef class Engine:
    cdef Runner runner
    cdef readonly tuple input_specs           # (name, shape, dtype)
    cdef readonly tuple output_specs          # (name, shape, dtype)
    cdef readonly tuple scalar_specs          # (name, dtype, byte offset, default or None)
    cdef tuple offsets
    cdef tuple views
    cdef list held                            # the arrays of the run under way
    cdef list handles                         # by input: its handle's Buffer, or None
    cdef set spoiled                          # inputs whose handles a failed run has left so
    cdef list growing                         # handles that grow; None where none does
    cdef bint dirty                           # handles or feeds have changed since `_settle`
    cdef list unset                           # names of parameters without a value
    cdef vector[input_slot] slots
    cdef vector[output_slot] results
    cdef vector[Py_ssize_t] dims
    cdef Py_ssize_t n_inputs
    cdef Py_ssize_t n_scalars
    cdef Active active                        # None where no extent is set
    cdef bint ready
    cdef readonly bint closed
    cdef uint64_t generation
    cdef object __weakref__


cdef int Engine_begin(Engine self) except -1
cdef int Engine_finish(Engine self, bint wait) except -1
cdef int Engine_place_handle(Engine self, Py_ssize_t i) except -1
cdef int Engine_place_scalars(Engine self, dict given) except -1
cdef void Engine_end(Engine self) noexcept
