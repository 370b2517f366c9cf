# cython: language_level=3
"""The cpu's executable: a flat program over a small table of base addresses.

A `HostProgram` is what a record says, made once; a `HostGraph` is one binding of it. Rebinding a
memory is one store into the table.
"""

from operator import index as as_word

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint32_t, uintptr_t
from libcpp.vector cimport vector

from fastgraph._core.buffer cimport Block
from fastgraph._core.counters cimport EXECUTABLES, PROGRAMS, counters_add
from fastgraph._core.isa cimport isa_lookup
from fastgraph._core.pool cimport Pool, now_ns, pool_forks, pool_get, pool_nap
from fastgraph._core.types cimport fg_call, host_node, host_operand
from fastgraph.errors import GraphError, InputError


cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() nogil
    # Under another name: here the exception stays set for the nogil caller to pass on.
    int raise_signals "PyErr_CheckSignals" () noexcept

# Beside a busy Python thread each look takes the GIL for up to a switch interval (5 ms).
cdef int64_t SIGNAL_INTERVAL_NS = 20_000_000
# Parts shorter than this need no clock after each; at most so many may follow one another.
cdef int64_t SHORT_NS = 1_000_000
cdef int32_t MAX_STRIDE = 8
cdef double SLOW_NS = 50_000.0
# Below this estimate a run keeps the GIL: handing it over costs more than the run.
cdef double KEEP_GIL_NS = 200_000.0
# After so many naps a thread that waits for a graph has it next.
cdef int PATIENCE = 20


cdef class HostProgram:
    """A record made ready to run: kernels looked up, operands and constants in flat tables.

    Parameters
    ----------
    record : Record
    isa : str
        The instruction set whose kernels are used.

    Raises
    ------
    KeyError
        A kernel name is unknown.
    """

    def __cinit__(self):
        self.max_parts = 1
        counters_add(PROGRAMS, 1)

    def __dealloc__(self):
        counters_add(PROGRAMS, -1)

    def __init__(self, record, str isa not None):
        if self.record is not None:
            raise TypeError("a program is made once")
        cdef host_node entry
        cdef host_operand where
        cdef vector[size_t] first_param
        self.record = record
        self.isa = isa
        for index, node in enumerate(record.nodes):
            if node.kernel is None:
                continue
            entry.run = isa_lookup(node.kernel, isa)
            entry.params = NULL
            entry.first = <uint32_t> self.operands.size()
            entry.count = <uint32_t> len(node.operands)
            entry.parts = node.parts
            entry.slow = node.cost_ns / node.parts > SLOW_NS
            for operand in node.operands:
                where.memory = operand.memory
                where.offset = operand.offset
                self.operands.push_back(where)
            first_param.push_back(self.params.size())
            for word in node.params:
                self.params.push_back(as_word(word))
            self.nodes.push_back(entry)
            self.node_ids.push_back(index)
            self.cost_ns += node.cost_ns
            self.max_parts = max(self.max_parts, entry.parts)
            self.max_operands = max(self.max_operands, entry.count)
        for i in range(<Py_ssize_t> self.nodes.size()):
            self.nodes[i].params = self.params.data() + first_param[i]


@cython.no_gc_clear
cdef class HostGraph:
    """One binding of a `HostProgram`: base addresses, an error word, a lock.

    Made by `instantiate`.
    """

    def __cinit__(self):
        self.program = HostProgram.__new__(HostProgram)
        self.owners = []
        counters_add(EXECUTABLES, 1)

    def __init__(self):
        raise TypeError("host graphs are made by instantiate")

    def __dealloc__(self):
        counters_add(EXECUTABLES, -1)

    def bind(self, Py_ssize_t memory, Block block not None, Py_ssize_t offset=0):
        """Put `memory` at byte `offset` of `block`, which is kept alive; waits for a run.

        Raises
        ------
        GraphError
            No such memory, or the block is too small for it. The binding stays as it was.
        """
        records = self.program.record.memories
        if not 0 <= memory < len(records):
            raise GraphError(f"no memory has number {memory}; there are {len(records)}")
        spec = records[memory]
        if offset < 0 or offset + spec.nbytes > block.nbytes:
            raise GraphError(
                f"{spec.kind} {spec.name!r} needs {spec.nbytes} bytes; the block has "
                f"{block.nbytes - offset} from byte {offset} on")
        HostGraph_lock(self)
        self.bases[memory] = <void *> (block.ptr + <uintptr_t> offset)
        self.owners[memory] = block
        HostGraph_unlock(self)

    def bound(self, Py_ssize_t memory):
        """Return the block that `memory` is bound to, or None."""
        if not 0 <= memory < len(self.owners):
            raise GraphError(f"no memory has number {memory}; there are {len(self.owners)}")
        return self.owners[memory]

    def run(self, collect=None):
        """Run every node once, wait, and return ``collect()``, called before any other run.

        Raises
        ------
        InputError
            A node met bad data; it is named. The outputs of this run are not to be used.
        GraphError
            A memory has no address yet.
        KeyboardInterrupt
            Raised between two parts; counts as a run.
        """
        HostGraph_lock(self)
        try:
            HostGraph_check_bound(self)
            HostGraph_run(self)
            HostGraph_check_fault(self)
            return None if collect is None else collect()
        finally:
            HostGraph_unlock(self)

    def run_subset(self, nodes):
        """Run the nodes with these record ids, in that order, and wait; raises as `run` does."""
        cdef vector[uint32_t] chosen
        cdef dict index_of = {
            self.program.node_ids[i]: i for i in range(<Py_ssize_t> self.program.nodes.size())}
        records = self.program.record.nodes
        memories = set()
        for node in nodes:
            if not 0 <= node < len(records):
                raise GraphError(f"there is no node {node}; there are {len(records)}")
            memories.update([operand.memory for operand in records[node].operands])
            if node in index_of:
                chosen.push_back(index_of[node])
        HostGraph_lock(self)
        try:
            for memory in memories:
                HostGraph_check_memory(self, memory)
            self.fault = 0
            start_watch(self)
            with nogil:
                walk(self, chosen.data(), chosen.size(), NULL)
            HostGraph_check_fault(self)
        finally:
            HostGraph_unlock(self)

    def run_timed(self):
        """Run every node once; return for each node of the record its time in nanoseconds."""
        HostGraph_lock(self)
        try:
            HostGraph_check_bound(self)
            return HostGraph_run_timed(self)
        finally:
            HostGraph_unlock(self)

    def functions(self):
        """Return (record id, address of the compiled function) of every node that does work."""
        return [(self.program.node_ids[i], <uintptr_t> self.program.nodes[i].run)
                for i in range(<Py_ssize_t> self.program.nodes.size())]


def instantiate(HostProgram program not None, dict bindings not None, uint32_t threads=1,
                release_gil="auto"):
    """Resolve a program against memory: one executable, independent of every other one.

    Parameters
    ----------
    program : HostProgram
    bindings : dict of int to Block or (Block, int)
        Memory number to a block, or to a block and a byte offset; the rest stays unbound.
    threads : int, default 1
        How many threads may share the work.
    release_gil : bool or "auto"
        "auto" keeps the GIL for work estimated under 200 microseconds.

    Returns
    -------
    HostGraph

    Raises
    ------
    GraphError
        As `HostGraph.bind`.
    """
    cdef HostGraph self = HostGraph.__new__(HostGraph)
    if threads < 1:
        raise GraphError(f"{threads} threads; at least 1 is needed")
    if not (release_gil == "auto" or isinstance(release_gil, bool)):
        raise InputError(f"release_gil is {release_gil!r}; 'auto', True and False are possible")
    self.program = program
    self.threads = threads
    self.release_gil = (
        program.cost_ns / threads >= KEEP_GIL_NS if release_gil == "auto" else release_gil)
    self.bases.resize(len(program.record.memories), NULL)
    self.args.resize(program.max_operands + 1, NULL)
    self.owners = [None] * len(program.record.memories)
    for memory, place in bindings.items():
        block, offset = place if isinstance(place, tuple) else (place, 0)
        self.bind(memory, block, offset)
    return self


cdef int HostGraph_lock(HostGraph self) except -1:
    """Take the graph for this thread. The GIL is held on entry and exit, not while waiting."""
    cdef unsigned long me = PyThread_get_thread_ident()
    cdef int polls = 0
    if (self.busy or self.reserved) and self.busy_forks != pool_forks():
        self.busy = False                # the threads that had it or wanted it are the parent's
        self.reserved = 0
    while self.busy or (self.reserved and self.reserved != me):
        if self.busy and self.owner_thread == me:
            raise GraphError("this graph is running in this very thread (from a signal handler?)")
        if polls >= PATIENCE and not self.reserved:
            self.reserved = me           # else threads that run in a loop keep it for ever
        try:
            pool_nap()
            polls += 1
            if polls % PATIENCE == 0:
                PyErr_CheckSignals()
        except BaseException:
            if self.reserved == me:
                self.reserved = 0
            raise
    self.reserved = 0
    self.busy = True
    self.busy_forks = pool_forks()
    self.owner_thread = me
    return 0


cdef void HostGraph_unlock(HostGraph self) noexcept:
    self.busy = False


cdef int HostGraph_check_bound(HostGraph self) except -1:
    for i in range(self.bases.size()):
        HostGraph_check_memory(self, i)
    return 0


cdef int HostGraph_check_memory(HostGraph self, size_t memory) except -1:
    if self.bases[memory] == NULL:
        spec = self.program.record.memories[memory]
        raise GraphError(f"{spec.kind} {spec.name!r} has no address yet")
    return 0


cdef int HostGraph_check_fault(HostGraph self) except -1:
    if self.fault:
        node = self.program.record.nodes[self.program.node_ids[<Py_ssize_t> self.fault - 1]]
        raise InputError(
            f"node {node.name!r} ({node.label or node.kind}) met an index out of range in this "
            "run's data; the run's outputs are not handed out")
    return 0


cdef list HostGraph_run_timed(HostGraph self):
    cdef vector[int64_t] times
    times.resize(self.program.nodes.size())
    self.fault = 0
    start_watch(self)
    with nogil:
        walk(self, NULL, self.program.nodes.size(), times.data())
    HostGraph_check_fault(self)
    result = [0] * len(self.program.record.nodes)
    for i in range(<Py_ssize_t> times.size()):
        result[self.program.node_ids[i]] = times[i]
    return result


cdef int signals_raised() noexcept with gil:
    return raise_signals() != 0


cdef inline void start_watch(HostGraph self) noexcept nogil:
    self.watch.looked_ns = self.watch.last_ns = now_ns()
    self.watch.stride = self.watch.left = 1


cdef int look_for_signals(void *state) noexcept nogil:
    """Between parts, GIL released: 1, with the exception set, when a signal handler raised.

    Reading the clock costs as much as several small nodes, so while parts are short only every
    eighth reads it; one that is known to be long is followed by a look of its own.
    """
    cdef signal_watch *watch = <signal_watch *> state
    cdef int64_t now
    watch.left -= 1
    if watch.left > 0:
        return 0
    now = now_ns()
    watch.stride = min(watch.stride * 2, MAX_STRIDE) if now - watch.last_ns < SHORT_NS else 1
    watch.left = watch.stride
    watch.last_ns = now
    if now - watch.looked_ns < SIGNAL_INTERVAL_NS:
        return 0
    watch.looked_ns = now
    return signals_raised()


cdef int never(void *state) noexcept nogil:
    return 0


cdef int HostGraph_run(HostGraph self) except -1:
    """Run every node once. The lock is held; the GIL is kept or released as the graph says."""
    self.fault = 0
    if not self.release_gil:
        return walk_kept(self)
    start_watch(self)
    with nogil:
        walk(self, NULL, self.program.nodes.size(), NULL)
    return 0


cdef inline void resolve(HostGraph self, const host_node *node, void **args) noexcept nogil:
    cdef const host_operand *operand = self.program.operands.data() + node.first
    cdef uint32_t i
    for i in range(node.count):
        args[i] = <char *> self.bases[operand[i].memory] + operand[i].offset


cdef inline int walk_kept(HostGraph self) except -1:
    cdef size_t n = self.program.nodes.size(), i
    cdef void **args = self.args.data()
    cdef const host_node *node = self.program.nodes.data()
    cdef fg_call call
    cdef Pool *pool = NULL
    call.args = args
    call.fault = &self.fault
    if self.threads > 1 and self.program.max_parts > 1 and pool_get().acquire(self.threads):
        pool = pool_get()
    for i in range(n):
        resolve(self, node, args)
        call.params = node.params
        call.node = i
        call.nparts = <int32_t> node.parts
        if node.parts > 1 and pool != NULL:
            pool.run(node.run, call, node.parts, never, NULL)
        else:
            call.part = 0
            while call.part < call.nparts:
                node.run(&call)
                call.part += 1
        node += 1
    if pool != NULL:
        pool.release()
    return 0


cdef int walk(HostGraph self, const uint32_t *subset, size_t n, int64_t *times) except -1 nogil:
    """`walk_kept` with the GIL released: all nodes or a subset, timed or not, interruptible."""
    cdef size_t i, index
    cdef void **args = self.args.data()
    cdef const host_node *node
    cdef fg_call call
    cdef Pool *pool = NULL
    cdef int64_t start = 0
    cdef bint stopped = False
    call.args = args
    call.fault = &self.fault
    if self.threads > 1 and self.program.max_parts > 1 and pool_get().acquire(self.threads):
        pool = pool_get()
    for i in range(n):
        index = subset[i] if subset != NULL else i
        node = self.program.nodes.data() + index
        resolve(self, node, args)
        call.params = node.params
        call.node = index
        call.nparts = <int32_t> node.parts
        if node.slow:
            self.watch.left = 1
        if times != NULL:
            start = now_ns()
        if node.parts > 1 and pool != NULL:
            stopped = not pool.run(node.run, call, node.parts, look_for_signals, &self.watch)
        else:
            call.part = 0
            while call.part < call.nparts and not stopped:
                node.run(&call)
                call.part += 1
                stopped = look_for_signals(&self.watch) != 0
        if stopped:
            break
        if times != NULL:
            times[index] = now_ns() - start
    if pool != NULL:
        pool.release()
    return -1 if stopped else 0
