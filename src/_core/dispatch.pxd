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
    cdef Runner target                        # what a run is placed on: `runner`, or a lane
    # Lanes, or None before there are any. Before `handles`: as these go, runs are waited for that
    # may read there.
    cdef object lanes
    cdef bint ahead                           # runs were handed in, of whose end nobody was told
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


# Take the graph, and nothing else: runs that were handed in go on.
cdef int Engine_lock(Engine self) except -1
cdef int Engine_check_ready(Engine self) except -1
cdef int Engine_settle(Engine self) except -1
cdef int Engine_begin(Engine self) except -1
cdef int Engine_finish(Engine self, bint wait) except -1
# What is known of feeds and handles before a run: positions, and memory that they need.
cdef int Engine_check(Engine self) except -1
cdef int Engine_place_handle(Engine self, Py_ssize_t i) except -1
cdef int Engine_place_scalars(Engine self, dict given) except -1
# Say where the inputs and scalars of a run by name lie.
cdef int Engine_place(Engine self, object inputs, dict scalars) except -1
# The arrays of a mapping, None where a handle stands in.
cdef list Engine_by_position(Engine self, object inputs)
# Whether an input is an ndarray whose bytes can be read as they are.
cdef bint Engine_is_plain(Engine self, Py_ssize_t i, object value) except -1
# Copies of the outputs, which lie so many bytes from where they do by default.
cdef list Engine_fresh(Engine self, Py_ssize_t shift)
cdef void Engine_end(Engine self) noexcept
