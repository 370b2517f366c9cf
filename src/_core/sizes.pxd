from libc.stdint cimport int64_t, uint32_t
from libcpp.vector cimport vector


cdef enum size_op:
    GIVEN
    CONSTANT
    ADD
    MULTIPLY
    DIVIDE
    LEAST


cdef struct size_step:
    size_op op
    int64_t a                            # a constant, else the number of an earlier step
    int64_t b


cdef class SizeTable:
    cdef vector[size_step] steps
    cdef vector[int64_t] values          # of each step
    cdef dict numbers                    # what is computed → its step
    cdef readonly tuple dims

    cdef int64_t add(self, size_op op, int64_t a, int64_t b) except -1
    cdef int64_t add_form(self, tuple form) except -1
    cdef int64_t add_atom(self, tuple atom) except -1
    cdef int evaluate(self, tuple actual) except -1
