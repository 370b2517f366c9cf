from libc.stdint cimport int32_t
from libcpp.vector cimport vector


cdef class Order:
    cdef readonly Py_ssize_t n_nodes
    cdef readonly bint total
    cdef vector[int32_t] position            # of a node in one topological order
    cdef vector[int32_t] chain               # the chain that a node lies on
    cdef vector[int32_t] chain_position
    # For each node the last position on each chain that comes before it: sorted by chain.
    cdef vector[vector[int32_t]] before_chain
    cdef vector[vector[int32_t]] before_position

    cdef bint comes_before(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil
    cdef void take_reach(self, Py_ssize_t node, vector[int32_t] &reach,
                         vector[int32_t] &reached) noexcept nogil
