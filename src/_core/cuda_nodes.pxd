"""One node of a record as one node of a driver graph, with all that its parameters need."""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libcpp.vector cimport vector

from fastgraph._core.buffer cimport Block
from fastgraph._core.cuda_host cimport HostFaults
from fastgraph._core.driver cimport copy_spec, edges, launch_spec, set_spec
from fastgraph._core.record cimport RecordNode


# Where a memory of a record lies.
cdef struct place:
    uintptr_t base
    uintptr_t context                        # of device memory
    bint is_bound
    bint is_host
    bint is_pageable


cdef class Places:
    cdef vector[place] at
    cdef list blocks                         # (Block, offset) or None of each memory
    cdef uintptr_t context

cdef Places Places_create(list memories, object blocks, uintptr_t context)
# What kind of memory a block is, and where; GraphError where it is too small for `memory`.
cdef place look(object memory, Block block, Py_ssize_t offset) except *


cdef enum node_kind:
    EMPTY_NODE
    KERNEL_NODE
    COPY_NODE
    SET_NODE
    HOST_NODE
    CHILD_NODE
    CONDITION_NODE


# An operand in a node's parameters: in which bytes of a kernel's arguments; destination (0) or
# source (1) of a copy.
cdef struct site:
    uint32_t where
    uint32_t nbytes                          # of a value; 0 where it is an address
    uint32_t memory
    size_t offset


cdef union node_spec:
    launch_spec launch
    copy_spec copy
    set_spec set


cdef class Shadow:
    cdef node_kind kind
    cdef uintptr_t node                      # the driver's; 0 before it is added
    cdef node_spec spec
    cdef vector[unsigned char] storage       # a kernel's arguments
    cdef vector[void *] args
    cdef vector[site] sites
    cdef object owner                        # function, HostCall or Foreign
    cdef tuple addresses                     # of a foreign graph: those that it was made for
    cdef RecordNode source
    cdef Py_ssize_t top                      # and the number of that, or of the one it is inside
    cdef bint in_body
    cdef bint enabled
    cdef bint programmatic
    cdef bint is_dirty                       # for whoever gathers shadows

# What a node becomes: everything but the driver's node. Calls no driver but for captured work.
cdef class Maker:
    cdef Places places
    cdef dict scalars
    cdef object helpers
    cdef HostFaults faults
    cdef dict known                          # id of a Foreign → {addresses: the one made for them}
    cdef bint again                          # of those not known: they stand for other addresses

cdef Shadow Shadow_create(node_kind kind, RecordNode source, Py_ssize_t top, bint in_body)
cdef Shadow Maker_leaf(Maker self, RecordNode node, Py_ssize_t top, bint in_body)
cdef Shadow Maker_setter(Maker self, RecordNode node, Py_ssize_t top, bint in_body,
                         uint64_t condition)
# The same node where its memories lie now.
cdef Shadow Maker_moved(Maker self, Shadow old)
cdef uint64_t Shadow_condition(Shadow setter) noexcept

cdef int Shadow_add(Shadow self, uintptr_t context, uintptr_t graph,
                    const edges *before) except -1
# UPDATE_TAKEN or UPDATE_REFUSED; the parameters go to node `node` of the executable.
cdef int Shadow_push(Shadow self, uintptr_t context, uintptr_t executable,
                     uintptr_t node) except -1
cdef bint Shadow_equals(Shadow self, Shadow other) noexcept
# What no update can change, in words; None where that is the same in both.
cdef str Shadow_fixed(Shadow self, Shadow other)
cdef bint Shadow_can_switch(Shadow self) noexcept
cdef int check_value(const site *at, object value) except -1
cdef int blame(object error, RecordNode node, Py_ssize_t top) except -1
