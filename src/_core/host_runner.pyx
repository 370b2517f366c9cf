# cython: language_level=3, nonecheck=False
"""Runs on the cpu: inputs are read where the caller has them, outputs lie in the arena."""

cimport cython
from libc.stdint cimport UINTPTR_MAX, uintptr_t
from libc.string cimport memcpy, memmove
from libcpp.vector cimport vector

from fastgraph._core.buffer cimport Block, Block_create
from fastgraph._core.feeds cimport Feed, Feed_copy, Feed_locate
from fastgraph._core.host_graph cimport (
    HostGraph, HostGraph_check_fault, HostGraph_run, HostGraph_run_timed)
from fastgraph._core.host_worker cimport (
    HostWorker, HostWorker_post, host_post, post_lost, post_over, post_settle, post_wait)
from fastgraph._core.runner cimport Runner

from fastgraph.errors import GraphError

# A run estimated shorter than this is done by who hands it in: it would wait as long for its end.
cdef double WORTH_NS = 40_000.0


cdef struct host_port:
    size_t memory
    Py_ssize_t nbytes
    void *home                           # staging of an input; where an output lies by default
    void *arena                          # of an output: its place there
    Py_ssize_t handle                    # of an output: the input whose handle it lies in, or -1


cdef struct host_span:
    uintptr_t start
    uintptr_t stop


# Copies of more bytes let other threads go on.
cdef Py_ssize_t LONG_COPY = 1 << 20


@cython.final
@cython.no_gc_clear
cdef class HostRunner(Runner):
    """A `HostGraph`, its arena, and what is copied before a run."""

    cdef HostGraph graph
    cdef Block staged
    cdef Block scalars
    cdef vector[host_port] ins
    cdef vector[host_port] outs
    cdef uintptr_t arena_start           # what overlaps this is copied before a run
    cdef uintptr_t arena_stop
    cdef vector[host_span] written       # handles in which outputs are computed
    cdef vector[host_span] held          # all handles
    cdef list places                     # by output: the Block that it lies in by default
    cdef list copied                     # the feeds that copy
    cdef list located                    # those at rows that a run tells
    cdef size_t shared                   # memories that all executables have in common
    cdef HostWorker worker               # None: runs that are handed in are done at once
    cdef host_post post                  # the last one that was

    def __cinit__(self):
        self.post.worker = NULL

    def __dealloc__(self):
        post_settle(&self.post)

    cdef int start(self, bint settle) except -1:
        return 0

    cdef int take(self, Py_ssize_t i, const void *at) except -1:
        cdef host_port *port = &self.ins[i]
        if ((<uintptr_t> at < self.arena_stop and <uintptr_t> at + port.nbytes > self.arena_start)
                or (self.written.size() and meets(self.written, <uintptr_t> at, port.nbytes))):
            # One of the model's own views, or memory of a handle: the run would overwrite it.
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

    cdef int take_handle(self, Py_ssize_t i, Block block, Py_ssize_t offset) except -1:
        self.graph.bases[self.ins[i].memory] = <void *> (block.ptr + <uintptr_t> offset)
        return 0

    cdef int take_scalar(self, Py_ssize_t offset, const void *value, Py_ssize_t nbytes) except -1:
        memcpy(<char *> self.scalars.ptr + offset, value, nbytes)
        return 0

    cdef bint give(self, Py_ssize_t i, void *at) except -1:
        if self.held.size() and (self.outs[i].handle >= 0 or meets(
                self.held, <uintptr_t> at, self.outs[i].nbytes)):
            return False                 # the run may read there, or writes it into a handle
        self.graph.bases[self.outs[i].memory] = at
        return True

    cdef tuple output_place(self, Py_ssize_t i):
        return self.places[i], <uintptr_t> self.outs[i].home

    cdef int home(self) except -1:
        cdef size_t i
        for i in range(self.outs.size()):
            self.graph.bases[self.outs[i].memory] = self.outs[i].home
        return 0

    cdef int check_feeds(self) except -1:
        cdef Feed feed
        for feed in self.located:
            if feed.scalar >= 0:
                Feed_locate(feed, <const char *> self.scalars.ptr + feed.scalar)
            else:
                Feed_locate(feed, self.graph.bases[self.ins[feed.input].memory])
        return 0

    cdef int run(self) except -1:
        self.spoiled = self.written.size() > 0
        HostGraph_run(self.graph)
        HostGraph_check_fault(self.graph)
        self.spoiled = False
        return 0 if self.feeds is None else feed_all(self)

    cdef list run_timed(self):
        self.spoiled = self.written.size() > 0
        times = HostGraph_run_timed(self.graph)
        self.spoiled = False
        if self.feeds is not None:
            feed_all(self)
        return times

    cdef bint join_lanes(self, Runner first) except -1:
        cdef double cost_ns = self.graph.program.cost_ns
        if self.graph.program.max_parts > 1:
            cost_ns /= self.graph.threads
        if self is not first:
            self.worker = (<HostRunner> first).worker
        elif cost_ns >= WORTH_NS and not self.graph.program.has_python:
            self.worker = HostWorker()
        return self.worker is not None

    cdef int set_apart(self, bint apart) except -1:
        self.arena_start = 0 if apart else self.arena.ptr
        self.arena_stop = UINTPTR_MAX if apart else self.arena.ptr + <uintptr_t> self.arena.nbytes
        return 0

    cdef int commit(self) except -1:
        if self.worker is None or not HostWorker_post(self.worker, self.graph, &self.post):
            self.post.worker = NULL
            HostGraph_run(self.graph)
        return 0

    cdef bint over(self) except -1:
        return post_over(&self.post)

    cdef int await_over(self, bint helping) except -1:
        return post_wait(&self.post, helping)

    cdef int conclude(self) except -1:
        cdef bint lost = post_lost(&self.post)
        self.post.worker = NULL
        if lost:
            raise GraphError("a fork cut this run off in the child; run it again")
        return HostGraph_check_fault(self.graph)

    cdef int copy_output(self, Py_ssize_t i, Block block, Py_ssize_t offset) except -1:
        memmove(<void *> (block.ptr + <uintptr_t> offset), self.outs[i].home, self.outs[i].nbytes)
        return 0

    cdef int connect(self, list feeds, list handles) except -1:
        # No Python code runs here that could see half of it.
        cdef Feed feed
        cdef Block block
        cdef Py_ssize_t i, offset, nbytes
        cdef host_span span
        cdef list places = [self.arena] * len(self.places), copied = [], located = []
        self.written.clear()
        self.held.clear()
        for handle in handles:
            if handle is None:
                continue
            block, offset, nbytes, _ = handle
            span.start = block.ptr + <uintptr_t> offset
            span.stop = span.start + <uintptr_t> nbytes
            self.held.push_back(span)
        for i in range(<Py_ssize_t> self.outs.size()):
            self.outs[i].home = self.outs[i].arena
            self.outs[i].handle = -1
        for feed in feeds:
            if feed.in_place:
                span.start = feed.block.ptr + <uintptr_t> feed.offset
                span.stop = span.start + <uintptr_t> feed.nbytes
                self.written.push_back(span)
                self.outs[feed.output].home = <void *> span.start
                self.outs[feed.output].handle = feed.handle
                places[feed.output] = feed.block
            else:
                copied.append(feed)
            if feed.scalar >= 0 or feed.input >= 0:
                located.append(feed)
        self.places = places
        self.copied = copied
        self.located = located
        self.feeds = feeds if feeds else None
        return self.home()

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

    cdef int switch(self, object executable, list places) except -1:
        cdef HostGraph other = executable
        cdef Block block
        cdef size_t i, memory
        cdef list owners = list(other.owners)
        # All but the arena, which each has of its own.
        for i in range(1, self.shared):
            other.bases[i] = self.graph.bases[i]
            owners[<Py_ssize_t> i] = self.graph.owners[<Py_ssize_t> i]
        for memory, block in places:
            other.bases[memory] = <void *> block.ptr
            owners[<Py_ssize_t> memory] = block
        other.owners = owners
        other.lock = self.lock           # nobody else has run it yet, or it is this one already
        self.graph = other
        self.executable = other
        self.release_gil = other.release_gil
        return 0


cdef bint meets(const vector[host_span] &spans, uintptr_t at, Py_ssize_t nbytes) noexcept:
    cdef size_t i
    for i in range(spans.size()):
        if at < spans[i].stop and at + <uintptr_t> nbytes > spans[i].start:
            return True
    return False


cdef int feed_all(HostRunner self) except -1:
    """Copy outputs of the run that is over into handles."""
    cdef Feed feed
    cdef const void *source
    for feed in self.copied:
        source = self.graph.bases[self.outs[feed.output].memory]
        if feed.nbytes > LONG_COPY and self.release_gil:
            copy_released(feed, source)
        else:
            Feed_copy(feed, source)
    return 0


cdef int copy_released(Feed feed, const void *source) except -1:
    with nogil:
        Feed_copy(feed, source)
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
    self.shared = graph.bases.size()
    self.arena = self.outputs = arena
    self.set_apart(False)
    self.release_gil = graph.release_gil
    # Untouched pages of a large block cost nothing, so inputs that never need staging do not.
    for nbytes, _ in inputs:
        staged += (nbytes + 63) // 64 * 64
    self.staged = Block_create(staged, False)
    staged = 0
    port.arena = NULL
    port.handle = -1
    for port.nbytes, port.memory in inputs:
        port.home = <char *> self.staged.ptr + staged
        staged += (port.nbytes + 63) // 64 * 64
        self.ins.push_back(port)
    for port.nbytes, port.memory, offset in outputs:
        port.home = port.arena = <char *> arena.ptr + <Py_ssize_t> offset
        self.outs.push_back(port)
    self.places = [arena] * len(outputs)
    self.copied = self.located = []
    self.scalars = Block_create(scalar_bytes, True)
    if scalar_memory >= 0:
        graph.bind(scalar_memory, self.scalars, 0)
    return self
