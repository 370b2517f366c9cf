# cython: language_level=3, nonecheck=False
"""Runs on the cpu: inputs are read where the caller has them, outputs lie in the arena."""

cimport cython
from libc.stdint cimport uintptr_t
from libc.string cimport memcpy
from libcpp.vector cimport vector

from fastgraph._core.buffer cimport Block, Block_create
from fastgraph._core.host_graph cimport (
    HostGraph, HostGraph_check_fault, HostGraph_run, HostGraph_run_timed)
from fastgraph._core.runner cimport Runner


cdef struct host_port:
    size_t memory
    Py_ssize_t nbytes
    void *home                           # staging of an input; where an output lies in the arena


@cython.final
@cython.no_gc_clear
cdef class HostRunner(Runner):
    """A `HostGraph`, its arena, and what is copied before a run."""

    cdef HostGraph graph
    cdef Block staged
    cdef Block scalars
    cdef vector[host_port] ins
    cdef vector[host_port] outs
    cdef uintptr_t arena_start
    cdef uintptr_t arena_stop

    cdef int start(self, bint settle) except -1:
        return 0

    cdef int take(self, Py_ssize_t i, const void *at) except -1:
        cdef host_port *port = &self.ins[i]
        if <uintptr_t> at < self.arena_stop and <uintptr_t> at + port.nbytes > self.arena_start:
            # One of the model's own views: the run would overwrite it.
            memcpy(port.home, at, port.nbytes)
            self.graph.bases[port.memory] = port.home
        else:
            self.graph.bases[port.memory] = <void *> at
        return 0

    cdef void *staging(self, Py_ssize_t i) except NULL:
        return self.ins[i].home

    cdef int take_staged(self, Py_ssize_t i) except -1:
        self.graph.bases[self.ins[i].memory] = self.ins[i].home
        return 0

    cdef int take_scalar(self, Py_ssize_t offset, const void *value, Py_ssize_t nbytes) except -1:
        memcpy(<char *> self.scalars.ptr + offset, value, nbytes)
        return 0

    cdef bint give(self, Py_ssize_t i, void *at) except -1:
        self.graph.bases[self.outs[i].memory] = at
        return True

    cdef int home(self) except -1:
        cdef size_t i
        for i in range(self.outs.size()):
            self.graph.bases[self.outs[i].memory] = self.outs[i].home
        return 0

    cdef int run(self) except -1:
        HostGraph_run(self.graph)
        return HostGraph_check_fault(self.graph)

    cdef list run_timed(self):
        return HostGraph_run_timed(self.graph)

    cdef int adopt(self, list places, bint ready) except -1:
        # No Python code runs here, so neither a signal nor another thread sees half of it.
        cdef Block block
        cdef size_t memory
        cdef list owners = list(self.graph.owners)
        for memory, block in places:
            self.graph.bases[memory] = <void *> block.ptr
            owners[memory] = block
        self.graph.owners = owners
        return 0


def host_runner(HostGraph graph not None, Block arena not None, list inputs not None,
                list outputs not None, Py_ssize_t scalar_bytes, Py_ssize_t scalar_memory):
    """Return the runner of an executable.

    Parameters
    ----------
    graph : HostGraph
    arena : Block
    inputs : list of (int, int)
        Bytes and memory of each.
    outputs : list of (int, int, int)
        Bytes, memory, and byte offset in the arena of each.
    scalar_bytes, scalar_memory : int
        The size of the scalars' block, and its memory or -1.
    """
    cdef HostRunner self = HostRunner.__new__(HostRunner)
    cdef host_port port
    cdef Py_ssize_t staged = 0
    self.graph = graph
    self.executable = graph
    self.lock = graph.lock
    self.arena = self.outputs = arena
    self.arena_start = arena.ptr
    self.arena_stop = arena.ptr + <uintptr_t> arena.nbytes
    self.release_gil = graph.release_gil
    # Untouched pages of a large block cost nothing, so inputs that never need staging do not.
    for nbytes, _ in inputs:
        staged += (nbytes + 63) // 64 * 64
    self.staged = Block_create(staged, False)
    staged = 0
    for port.nbytes, port.memory in inputs:
        port.home = <char *> self.staged.ptr + staged
        staged += (port.nbytes + 63) // 64 * 64
        self.ins.push_back(port)
    for port.nbytes, port.memory, offset in outputs:
        port.home = <char *> arena.ptr + <Py_ssize_t> offset
        self.outs.push_back(port)
    self.scalars = Block_create(scalar_bytes, True)
    if scalar_memory >= 0:
        graph.bind(scalar_memory, self.scalars, 0)
    return self
