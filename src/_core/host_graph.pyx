# cython: language_level=3
"""The cpu's executable: a flat program over a small table of base addresses.

A `HostProgram` is what a record says, made once; a `HostGraph` is one binding of it. Rebinding a
memory is one store into the table.
"""

from operator import index as as_word

import numpy as np

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t, uintptr_t
from libcpp.vector cimport vector

from fastgraph._core.buffer cimport Block, Block_borrow
from fastgraph._core.counters cimport PROGRAMS, counters_add
from fastgraph._core.executable cimport Executable
from fastgraph._core.isa cimport isa_lookup
from fastgraph._core.lock cimport (
    GraphLock, GraphLock_give, GraphLock_is_mine, GraphLock_take)
from fastgraph._core.pool cimport Pool, now_ns, pool_get
from fastgraph._core.types cimport (
    BRANCH_ZERO, CALL, JUMP, PYTHON, SWITCH, fg_call, host_control, host_node, host_operand)

from fastgraph._core.buffer import view
from fastgraph._core.record import accesses_of
from fastgraph.errors import GraphError, InputError


cdef extern from "Python.h":
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
        self.record = record
        self.isa = isa
        self.flat = []
        first_param = []
        for index, node in enumerate(record.nodes):
            self.first.push_back(<uint32_t> self.nodes.size())
            self.emit(node, index, first_param)
        self.first.push_back(<uint32_t> self.nodes.size())
        for i in range(<Py_ssize_t> self.nodes.size()):
            self.nodes[i].params = self.params.data() + <Py_ssize_t> first_param[i]

    cdef int emit(self, node, Py_ssize_t top, list first_param) except -1:
        """Append the entries of one record node, those of its bodies included."""
        cdef Py_ssize_t at, end
        if node.kind == "child":
            for inner in node.bodies[0]:
                self.emit(inner, top, first_param)
        elif node.kind == "if":
            at = self.append(node, top, first_param, BRANCH_ZERO)
            for inner in node.bodies[0]:
                self.emit(inner, top, first_param)
            if len(node.bodies) > 1:
                end = self.append(node, top, first_param, JUMP)
                self.nodes[at].target = <int32_t> self.nodes.size()
                for inner in node.bodies[1]:
                    self.emit(inner, top, first_param)
                at = end
            self.nodes[at].target = <int32_t> self.nodes.size()
        elif node.kind == "while":
            at = self.append(node, top, first_param, BRANCH_ZERO)
            for inner in node.bodies[0]:
                self.emit(inner, top, first_param)
            end = self.append(node, top, first_param, JUMP)
            self.nodes[end].target = <int32_t> at
            self.nodes[at].target = <int32_t> self.nodes.size()
        elif node.kind == "switch":
            at = self.append(node, top, first_param, SWITCH)
            table = self.params.size()
            self.params.push_back(len(node.bodies))
            for _ in node.bodies:
                self.params.push_back(0)
            jumps = []
            for number, body in enumerate(node.bodies):
                self.params[table + 1 + <size_t> number] = <int64_t> self.nodes.size()
                for inner in body:
                    self.emit(inner, top, first_param)
                jumps.append(self.append(node, top, first_param, JUMP))
            for jump in (at, *jumps):
                self.nodes[<Py_ssize_t> jump].target = <int32_t> self.nodes.size()
        elif not node.enabled:
            pass
        elif node.call is not None:
            self.append(node, top, first_param, PYTHON)
        elif node.kernel is not None:
            self.append(node, top, first_param, CALL)
        return 0

    cdef Py_ssize_t append(self, node, Py_ssize_t top, list first_param,
                           host_control control) except -1:
        cdef host_node entry
        cdef host_operand where
        entry.control = control
        entry.target = 0
        entry.run = isa_lookup(node.kernel, self.isa) if control == CALL else NULL
        entry.params = NULL
        entry.first = <uint32_t> self.operands.size()
        entry.count = <uint32_t> len(node.operands)
        entry.parts = node.parts
        entry.slow = node.cost_ns / node.parts > SLOW_NS
        for operand in node.operands:
            where.memory = operand.memory
            where.offset = operand.offset
            self.operands.push_back(where)
        first_param.append(self.params.size())
        for word in node.params:
            self.params.push_back(as_word(word))
        self.nodes.push_back(entry)
        self.node_ids.push_back(top)
        self.flat.append(node)
        self.cost_ns += node.cost_ns
        self.max_parts = max(self.max_parts, entry.parts)
        self.max_operands = max(self.max_operands, entry.count)
        self.has_control = self.has_control or control != CALL
        return <Py_ssize_t> self.nodes.size() - 1


@cython.no_gc_clear
cdef class HostGraph(Executable):
    """One binding of a `HostProgram`: base addresses, an error word, a lock.

    Made by `instantiate`.
    """

    def __cinit__(self):
        self.program = HostProgram.__new__(HostProgram)
        self.owners = []

    cdef int replay(self) except -1:
        HostGraph_lock(self)
        self.active = True
        try:
            HostGraph_check_bound(self)
            HostGraph_run(self)
            return HostGraph_check_fault(self)
        finally:
            self.active = False
            HostGraph_unlock(self)

    def bind(self, Py_ssize_t memory, Block block not None, Py_ssize_t offset=0, bint held=False):
        """Put `memory` at byte `offset` of `block`, which is kept alive; waits for a run.

        ``held=True`` is for work of `locked`, here as elsewhere.

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
        HostGraph_enter(self, held)
        self.bases[memory] = <void *> (block.ptr + <uintptr_t> offset)
        self.owners[memory] = block
        HostGraph_leave(self, held)

    def bound(self, Py_ssize_t memory):
        """Return the block that `memory` is bound to, or None."""
        if not 0 <= memory < len(self.owners):
            raise GraphError(f"no memory has number {memory}; there are {len(self.owners)}")
        return self.owners[memory]

    def run(self, collect=None, bint held=False):
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
        HostGraph_enter(self, held)
        try:
            HostGraph_check_bound(self)
            HostGraph_run(self)
            HostGraph_check_fault(self)
            return None if collect is None else collect()
        finally:
            HostGraph_leave(self, held)

    def run_subset(self, nodes, bint held=False):
        """Run the nodes with these record ids, in that order, and wait; raises as `run` does."""
        cdef vector[uint32_t] ranges
        records = self.program.record.nodes
        memories = set()
        for node in nodes:
            if not 0 <= node < len(records):
                raise GraphError(f"there is no node {node}; there are {len(records)}")
            memories.update([operand.memory for operand in accesses_of(records[node])])
            ranges.push_back(self.program.first[<Py_ssize_t> node])
            ranges.push_back(self.program.first[<Py_ssize_t> node + 1])
        HostGraph_enter(self, held)
        try:
            for memory in memories:
                HostGraph_check_memory(self, memory)
            self.fault = 0
            start_watch(self)
            with nogil:
                walk(self, ranges.data(), ranges.size(), NULL)
            HostGraph_check_fault(self)
        finally:
            HostGraph_leave(self, held)

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
                release_gil="auto", GraphLock lock=None):
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
    lock : GraphLock, optional
        Shared by executables of which one may run at a time; else it has its own.

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
    if lock is not None:
        self.lock = lock                 # only now: a run may hold it
    return self


cdef int HostGraph_lock(HostGraph self) except -1:
    """Take the graph for this thread, and all graphs that share its lock."""
    return GraphLock_take(self.lock)


cdef int HostGraph_enter(HostGraph self, bint held) except -1:
    """Take the lock, or check that this thread has it."""
    if not held:
        return HostGraph_lock(self)
    if not GraphLock_is_mine(self.lock):
        raise GraphError("held=True is for work of `locked`")
    return 0


cdef inline void HostGraph_leave(HostGraph self, bint held) noexcept:
    if not held:
        HostGraph_unlock(self)


cdef void HostGraph_unlock(HostGraph self) noexcept:
    GraphLock_give(self.lock)


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
        node = self.program.flat[<Py_ssize_t> self.fault - 1]
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
        walk_whole(self, times.data())
    HostGraph_check_fault(self)
    result = [0] * len(self.program.record.nodes)
    for i in range(<Py_ssize_t> times.size()):
        result[self.program.node_ids[i]] += times[i]
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
    if not self.release_gil and not self.program.has_control:
        return walk_kept(self)
    start_watch(self)
    with nogil:
        walk_whole(self, NULL)
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


cdef int walk_whole(HostGraph self, int64_t *times) except -1 nogil:
    cdef uint32_t[2] whole
    whole[0] = 0
    whole[1] = <uint32_t> self.program.nodes.size()
    return walk(self, whole, 2, times)


cdef int walk(HostGraph self, const uint32_t *ranges, size_t n, int64_t *times) except -1 nogil:
    """`walk_kept` for everything else: ranges of entries, jumps, Python; timed, interruptible.

    The GIL is released on entry; Python nodes take it.
    """
    cdef Pool *pool = NULL
    cdef size_t at
    cdef int stopped = 0
    if self.threads > 1 and self.program.max_parts > 1 and pool_get().acquire(self.threads):
        pool = pool_get()
    try:
        for at in range(0, n, 2):
            stopped = walk_range(self, pool, ranges[at], ranges[at + 1], times)
            if stopped:
                return -1
    finally:
        if pool != NULL:
            pool.release()
    return 0


cdef int walk_range(HostGraph self, Pool *pool, size_t index, size_t end,
                    int64_t *times) except -1 nogil:
    """Do the entries from `index` to before `end`; 1, with the exception set, when stopped."""
    cdef void **args = self.args.data()
    cdef const host_node *node
    cdef fg_call call
    cdef int64_t start = 0
    cdef int stopped = 0
    call.args = args
    call.fault = &self.fault
    while index < end and not stopped:
        node = self.program.nodes.data() + index
        if node.control == PYTHON:
            call_python(self, index)
            index += 1
            continue
        resolve(self, node, args)
        if node.control != CALL:
            stopped = look_for_signals(&self.watch)
            index = next_index(node, index, args)
            continue
        call.params = node.params
        call.node = index
        call.nparts = <int32_t> node.parts
        if node.slow:
            self.watch.left = 1
        if times != NULL:
            start = now_ns()
        if node.parts > 1 and pool != NULL:
            stopped = not pool.run(node.run, call, node.parts, look_for_signals, &self.watch)
            if pool.orphaned():
                raise_cut_off()
        else:
            call.part = 0
            while call.part < call.nparts and not stopped:
                node.run(&call)
                call.part += 1
                stopped = look_for_signals(&self.watch)
        if times != NULL:
            times[index] += now_ns() - start
        index += 1
    return stopped


cdef int raise_cut_off() except -1 with gil:
    raise GraphError("a fork in a signal handler cut this run off in the child; run it again")


cdef inline size_t next_index(const host_node *node, size_t index, void **args) noexcept nogil:
    """Where the run goes on after a control entry."""
    cdef uint32_t condition = 0
    if node.control != JUMP:
        condition = (<uint32_t *> args[0])[0]
    if node.control == BRANCH_ZERO and condition != 0:
        return index + 1
    if node.control == SWITCH and condition < node.params[0]:
        return <size_t> node.params[1 + <int64_t> condition]
    return <size_t> node.target


cdef int call_python(HostGraph self, size_t index) except -1 with gil:
    """Call the Python function of an entry with its arguments as arrays and numbers."""
    cdef const host_node *node = self.program.nodes.data() + index
    cdef const host_operand *operand = self.program.operands.data() + node.first
    cdef Block block
    record_node = self.program.flat[<Py_ssize_t> index]
    arguments = []
    for argument in record_node.call.arguments:
        if argument[0] == "value":
            arguments.append(argument[1])
            continue
        number = argument[1]
        memory = operand[<size_t> number].memory
        block = Block_borrow(
            <uintptr_t> self.bases[memory] + operand[<size_t> number].offset,
            record_node.operands[number].nbytes, self.owners[memory])
        if argument[0] == "array":
            arguments.append(np.asarray(view(block, 0, argument[2], argument[3], "cpu")))
        else:
            arguments.append(np.asarray(view(block, 0, (), argument[2], "cpu"))[()])
    record_node.call.function(*arguments)
    return 0
