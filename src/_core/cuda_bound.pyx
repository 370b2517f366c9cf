# cython: language_level=3
"""What of a GPU's executable can change: where memories lie, values of scalars, nodes.

Whatever is asked for happens as a whole or not at all. What can fail, or runs Python code, in
which a signal may be raised, comes before the driver is told of anything.
"""

import logging

cimport cython
from libcpp.vector cimport vector

from fastgraph._core.buffer cimport Block
from fastgraph._core.cuda_build cimport (
    DriverGraph, DriverGraph_create, DriverGraph_diff, DriverGraph_know, DriverGraph_move,
    DriverGraph_push)
from fastgraph._core.cuda_nodes cimport (
    CHILD_NODE, Maker, Places, Places_create, Shadow, look, place)
from fastgraph._core.cuda_retired cimport Retired_add
from fastgraph._core.cuda_values cimport (
    Values_are_due, Values_moved, Values_store, Values_store_one)
from fastgraph._core.executable cimport Executable, launch_line
from fastgraph._core.record cimport Record

from fastgraph._core.cuda_build import Rebuild
from fastgraph.errors import GraphError

LOGGER = logging.getLogger("fastgraph")


@cython.no_gc_clear
cdef class Bound(Executable):
    """A record bound to memory of a GPU, in a driver graph of its own; `CudaGraph` launches it.

    ``rebuilds`` is how often a change needed another executable.
    """

    def __cinit__(self):
        self.context = 0
        self.executable = 0
        self.line = new launch_line()
        self.rebuilds = 0

    def __dealloc__(self):
        del self.line

    def _rebuild(self, str reason):
        Bound_rebuild(self, self.record, {}, reason)


cdef int Bound_note_care(Bound self) except -1:
    # Most launches follow one of the same executable on the stream of its own.
    self.line.exec_ = <void *> self.executable
    self.line.care = (Values_are_due(self.values) or len(self.away) > 0 or not self.executable
                      or self.line.launch == NULL or <void *> self.used != self.line.home)
    return 0


cdef int Bound_moved(Bound self, place before, size_t memory) except -1:
    """Where a memory was; scalars that lie there have to be sent again."""
    if self.places.at[memory].base != before.base:
        Values_moved(self.values, memory)
        Bound_note_care(self)
    return 0


cdef dict Bound_put(Bound self, dict places):
    """Put memories elsewhere, all or none; return where they were."""
    cdef Block block
    cdef Py_ssize_t memory
    cdef dict before = {}, changes = {}
    cdef list moved = []
    cdef vector[place] at
    cdef list blocks
    cdef place after
    for memory, (block, offset) in places.items():
        if not 0 <= memory < <Py_ssize_t> self.places.at.size():
            raise GraphError(f"no memory has number {memory}; there are {self.places.at.size()}")
        after = look(self.record.memories[memory], block, offset)
        before[memory] = self.places.blocks[memory]
        at.push_back(after)
        if (after.base != self.places.at[memory].base
                or after.is_host != self.places.at[memory].is_host):
            moved.append(memory)
    if before:
        Bound_retire(self, list(before.values()))
    blocks = list(places.values())
    swap_places(self, before, at, blocks)
    try:
        if moved:
            DriverGraph_move(self.built, Bound_maker(self), moved, changes)
            Bound_change(self, changes, self.record)
    except BaseException:
        swap_places(self, before, at, blocks)
        raise
    for memory in moved:
        Values_moved(self.values, memory)
    Bound_note_care(self)
    return before


cdef int swap_places(Bound self, dict memories, vector[place] &at, list blocks) except -1:
    """Exchange where memories are with what is given."""
    cdef size_t i = 0
    cdef Py_ssize_t memory
    cdef place there
    for memory in memories:
        there = self.places.at[memory]
        self.places.at[memory] = at[i]
        at[i] = there
        held = self.places.blocks[memory]
        self.places.blocks[memory] = blocks[i]
        blocks[i] = held
        i += 1
    return 0


cdef int Bound_lend(Bound self, dict before) except -1:
    """Note where memories that are elsewhere belong: no later launch may find them there."""
    self.away = before
    self.line.care = True
    return 0


cdef int Bound_return(Bound self) except -1:
    """Put memories back that are elsewhere, or leave them noted where that fails."""
    if self.away:
        Bound_put(self, self.away)
        self.away = {}
        Bound_note_care(self)
    return 0


cdef int Bound_try_return(Bound self) except -1:
    """The same amid an error, which is the one to tell."""
    try:
        Bound_return(self)
    except Exception:
        pass                             # the next launch tries again
    return 0


cdef Maker Bound_maker(Bound self):
    cdef Maker maker = Maker.__new__(Maker)
    maker.places = self.places
    maker.scalars = self.values.now
    maker.helpers = self.helpers
    maker.faults = self.faults
    maker.known = {} if self.built is None else self.built.foreigns
    maker.again = False
    return maker


cdef int Bound_store(Bound self, dict values, bint once) except -1:
    """Hand values of scalars on; those set for a launch that has been go back."""
    Values_store(self.values, self.built, values, once, self)
    Bound_note_care(self)
    return 0


cdef bint Bound_store_one(Bound self, tuple where, bytes value, bint once) except -1:
    if not Values_store_one(self.values, self.built, where, value, once, self):
        return False
    Bound_note_care(self)
    return True


cdef int Bound_take(Bound self, Record record, object blocks) except -1:
    cdef dict changes = {}
    cdef Maker maker
    cdef Places places = Places_create(record.memories, blocks, self.context)
    cdef Places had = self.places
    cdef Py_ssize_t number
    cdef str reason = None
    cdef list moved = [number for number in range(<Py_ssize_t> min(places.at.size(), had.at.size()))
                       if places.at[number].base != had.at[number].base
                       or places.at[number].is_host != had.at[number].is_host]
    nodes, wanted = self.nodes, record.nodes
    maker = Bound_maker(self)
    maker.places = places
    try:
        if len(nodes) != len(wanted):
            raise Rebuild("another number of nodes", None, 0)
        for number in range(len(nodes)):
            if nodes[number] is not wanted[number]:
                DriverGraph_diff(self.built, maker, nodes[number], wanted[number], number, changes)
        if moved:
            DriverGraph_move(self.built, maker, moved, changes)
    except Rebuild as told:
        reason, node, number = told.args
        if node is not None:
            reason = f"node {number} {node.name!r}: {reason}"
    # What can fail comes before the driver is told.
    kept = list(record.nodes)
    Bound_retire(self, (had, self.record))
    self.places = places
    try:
        if reason is not None:
            Bound_rebuild(self, record, changes, reason)
        else:
            Bound_change(self, changes, record)
    except BaseException:
        self.places = had
        raise
    self.record = record
    self.nodes = kept
    self.away = {}
    for number in moved:
        Bound_moved(self, had.at[number], number)
    Bound_note_care(self)
    return 0


cdef int Bound_change(Bound self, dict changes, Record record) except -1:
    """Push changes, or rebuild with what `record` and `self.places` say."""
    before = [self.built.shadows[number] for number in changes]
    if before:
        Bound_retire(self, before)
    refused = DriverGraph_push(self.built, changes)
    if refused is not None:
        Bound_rebuild(self, record, changes, refused)
    return 0


cdef int Bound_rebuild(Bound self, Record record, dict changes, str reason) except -1:
    """Make another executable for `self.places` and put it in the place of this one."""
    cdef Maker maker = Bound_maker(self)
    cdef DriverGraph fresh
    cdef Shadow shadow
    maker.known = {key: dict(made) for key, made in maker.known.items()}
    for shadow in changes.values():
        if shadow.kind == CHILD_NODE:
            DriverGraph_know(maker.known, shadow)
    fresh = DriverGraph_create(record, maker)
    Bound_retire(self, self.built)
    # Told before it is done: a handler is Python code, in which an interrupt may be raised.
    LOGGER.warning("a graph of %d nodes is built anew: %s", len(record.nodes), reason)
    self.built = fresh
    self.executable = fresh.executable
    self.rebuilds += 1
    return Bound_note_care(self)


cdef int Bound_retire(Bound self, object what) except -1:
    """Keep `what` until no launch that is under way can need it."""
    self.singles = {}
    return 0 if self.used is None else Retired_add(self.retired, what, self.used)
