from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libcpp.vector cimport vector

from fastgraph._core.record cimport RecordNode
from fastgraph._core.sizes cimport SizeTable
from fastgraph._core.types cimport fg_kernel


cdef extern from "host_walk.hpp" namespace "fastgraph" nogil:
    cdef enum host_control:
        CALL
        BRANCH_ZERO
        JUMP
        SWITCH
        PYTHON

    ctypedef struct host_node:
        fg_kernel run
        const int64_t *params
        uint32_t first
        uint32_t parts
        host_control control
        int32_t target
        uint32_t natives
        uint32_t at
        bint slow

    ctypedef struct host_operand:
        uint32_t memory
        uint64_t offset

    ctypedef struct host_patch:
        uint32_t word
        uint32_t operand


cdef extern from "branches.hpp" namespace "fastgraph" nogil:
    cdef cppclass BranchPlan:
        uint32_t add(uint32_t first, uint32_t last, bint python, const vector[uint32_t] &before)
        void finish()
        uint32_t width()


# What of a program follows the extents: a word of `params`, an operand's offset, a node's parts.
cdef enum sized_what:
    WORD
    OFFSET
    PARTS


cdef struct sized:
    sized_what what
    size_t at
    int64_t number                       # of the step of the table that computes it


cdef class HostProgram:
    cdef vector[host_node] nodes
    cdef vector[host_operand] operands       # of all entries, one after another
    cdef vector[int64_t] params
    cdef vector[size_t] first_param          # of each entry, in `params`
    cdef object kernel                       # looked up last, and what was found
    cdef fg_kernel found
    cdef vector[int64_t] stream              # the native calls, all but their addresses
    cdef vector[host_patch] patches
    cdef vector[int64_t] node_ids            # top-level record id of each entry of `nodes`
    cdef vector[uint32_t] first              # first entry of each top-level node, and the end
    cdef list flat                           # the record node of each entry
    cdef bint has_control                    # jumps or Python: only a `Walker` knows them
    cdef bint has_python
    cdef BranchPlan plan
    cdef SizeTable sizes                 # None where nothing follows extents
    cdef vector[sized] follows

    cdef int emit(self, RecordNode node, Py_ssize_t top) except -1
    cdef Py_ssize_t append(self, RecordNode node, Py_ssize_t top, host_control control) except -1
    cdef int stream_call(self, size_t entry, size_t param) except -1
    cdef int follow(self, sized_what what, size_t at, size) except -1
    cdef int follow_parts(self, RecordNode node, size_t entry) except -1
    cdef int add_units(self, nodes, list last, list given, Py_ssize_t top) except -1

    cdef readonly object record
    cdef readonly str isa
    cdef readonly double cost_ns
    cdef readonly uint32_t max_parts
