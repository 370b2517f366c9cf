# cython: language_level=3
"""The cpu's executable: one binding of a program.

Rebinding a memory is one store into a table of base addresses; the next run works out the
operands' addresses from it.
"""

import numpy as np

cimport cython
from libc.stdint cimport int64_t, uint32_t, uintptr_t
from libc.string cimport memcpy
from libcpp.vector cimport vector

from fastgraph._core.buffer cimport Block, Block_borrow
from fastgraph._core.executable cimport Executable, adopt
from fastgraph._core.host_program cimport HostProgram, host_operand
from fastgraph._core.lock cimport (
    GraphLock, GraphLock_give, GraphLock_is_mine, GraphLock_take)
from fastgraph._core.pool cimport Pool, pool_get

from fastgraph._core.buffer import view
from fastgraph._core.record import accesses_of
from fastgraph.errors import GraphError, InputError


cdef extern from "Python.h":
    # Under another name: here the exception stays set for the nogil caller to pass on.
    int raise_signals "PyErr_CheckSignals" () noexcept

# Below this estimate a run keeps the GIL: handing it over costs more than the run.
cdef double KEEP_GIL_NS = 200_000.0


@cython.no_gc_clear
cdef class HostGraph(Executable):
    """One binding of a `HostProgram`: base addresses, an error word, a lock.

    Made by `instantiate`.
    """

    def __cinit__(self):
        self.program = HostProgram.__new__(HostProgram)
        self.owners = []
        self.moved = True
        self.tables.fault = &self.fault
        self.tables.graph = <void *> self
        self.tables.python = call_python
        self.tables.signals = signals_raised

    cdef int replay(self) except -1:
        GraphLock_take(self.lock)
        self.active = True
        try:
            HostGraph_settle(self)
            walk_all(self)
            return HostGraph_check_fault(self)
        finally:
            self.active = False
            GraphLock_give(self.lock)

    cdef int replay_values(self, dict values) except -1:
        GraphLock_take(self.lock)
        self.active = True
        try:
            HostGraph_settle(self)
            write_values(self, values)
            try:
                walk_all(self)
            finally:
                write_lasting(self, values)
            return HostGraph_check_fault(self)
        finally:
            self.active = False
            GraphLock_give(self.lock)

    def set_scalars(self, dict values not None):
        """Give scalars other values.

        Parameters
        ----------
        values : dict of (int, int) to bytes
            Memory and offset of each, and its bytes.

        Raises
        ------
        GraphError
            There is no such scalar, or it has another size. Everything is as it was.
        """
        check_values(self, values)
        HostGraph_lock(self)
        try:
            write_values(self, values)
            self.scalars.update(values)
        finally:
            HostGraph_unlock(self)

    def set_values(self, dict places not None, dict scalars not None, state, dict changes not None):
        """Put memories elsewhere, give scalars other values and let `state` know: all or nothing.

        For work of `locked`.

        Parameters
        ----------
        places : dict of int to (Block, int)
            By memory: a block, which is kept alive, and a byte offset.
        scalars : dict of (int, int) to bytes
            As `set_scalars` has them.
        state : object
        changes : dict
            Attributes of `state` from then on.

        Raises
        ------
        GraphError
            As `bind` and `set_scalars`.
        """
        self.check_held()
        check_values(self, scalars)
        check_places(self, places)
        put_places(self, places)
        write_values(self, scalars)
        self.scalars.update(scalars)
        adopt(state, changes)

    def run_with(self, dict places not None, dict scalars not None, work, *args):
        """Return ``work(*args)``, called while memories and scalars are what is given here.

        For work of `locked`. They go back whatever is raised, and no signal comes between.

        Parameters
        ----------
        places, scalars
            As `set_values` has them.
        work : callable
        *args

        Raises
        ------
        GraphError
            As `set_values`; `work` was not called.
        """
        cdef dict before = {}
        self.check_held()
        check_values(self, scalars)
        check_places(self, places)
        for memory in places:
            before[memory] = (self.owners[memory], <uintptr_t> self.bases[<size_t> memory])
        self.active = True
        try:
            put_places(self, places)
            write_values(self, scalars)
            return work(*args)
        finally:
            self.active = False
            for memory, (owner, base) in before.items():
                self.bases[<size_t> memory] = <void *> <uintptr_t> base
                self.owners[memory] = owner
            self.moved = self.moved or len(before) > 0
            write_lasting(self, scalars)

    def scalar_values(self):
        """Return the lasting values of scalars, by memory and offset."""
        return dict(self.scalars)

    @property
    def parallel(self):
        """bool: as the last runs went, the next one's branches run at once."""
        return self.branches.parallel()

    def bind(self, Py_ssize_t memory, Block block not None, Py_ssize_t offset=0, bint held=False):
        """Put `memory` at byte `offset` of `block`, which is kept alive; waits for a run.

        ``held=True`` is for work of `locked`, here as elsewhere.

        Raises
        ------
        GraphError
            No such memory, or the block is too small for it. The binding stays as it was.
        """
        cdef dict places = {memory: (block, offset)}
        check_places(self, places)
        HostGraph_enter(self, held)
        put_places(self, places)
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
            HostGraph_resolve(self)
            walk_ranges(self, ranges, NULL)
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
                release_gil="auto", GraphLock lock=None, dict scalars=None):
    """Resolve a program against memory: one executable, independent of every other one.

    Parameters
    ----------
    program : HostProgram
    bindings : dict of int to Block or (Block, int)
        Memory number to a block, or to a block and a byte offset; the rest stays unbound.
    threads : int, default 1
        How many threads may share the work.
    release_gil : bool or "auto"
        "auto" keeps the GIL for work estimated under 200 microseconds. With the GIL released,
        branches of a program whose nodes all have one part run at once where the first runs show
        that it pays.
    lock : GraphLock, optional
        Shared by executables of which one may run at a time; else it has its own.
    scalars : dict of (int, int) to bytes, optional
        Values of scalars, by memory and offset. Kept, so that executables over the same memory
        can have them in common.

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
    cost_ns = program.cost_ns / (threads if program.max_parts > 1 else 1)
    self.release_gil = cost_ns >= KEEP_GIL_NS if release_gil == "auto" else release_gil
    self.kept = not self.release_gil and not program.has_control
    self.bases.resize(len(program.record.memories), NULL)
    self.args.resize(program.operands.size(), NULL)
    self.stream = program.stream
    self.tables.nodes = program.nodes.data()
    self.tables.args = self.args.data()
    self.tables.stream = self.stream.data()
    if program.max_parts == 1 and not self.kept:
        self.branches.set(&program.plan, <uint32_t> program.nodes.size(), threads)
    self.owners = [None] * len(program.record.memories)
    for memory, place in bindings.items():
        block, offset = place if isinstance(place, tuple) else (place, 0)
        self.bind(memory, block, offset)
    self.scalars = {} if scalars is None else scalars
    write_values(self, self.scalars)
    if lock is not None:
        self.lock = lock                 # only now: a run may hold it
    return self


cdef inline int HostGraph_settle(HostGraph self) except -1:
    """Work out the operands' addresses if a memory has moved."""
    if self.moved:
        HostGraph_check_bound(self)
        HostGraph_resolve(self)
        self.moved = False
    return 0


cdef int check_values(HostGraph self, dict values) except -1:
    for where, value in values.items():
        if len(self.scalars.get(where, b"")) != len(value):
            raise GraphError(f"there is no scalar of {len(value)} bytes at {where}")
    return 0


cdef int check_places(HostGraph self, dict places) except -1:
    cdef Block block
    records = self.program.record.memories
    for memory, (block, offset) in places.items():
        if not 0 <= memory < len(records):
            raise GraphError(f"no memory has number {memory}; there are {len(records)}")
        spec = records[memory]
        if offset < 0 or offset + spec.nbytes > block.nbytes:
            raise GraphError(
                f"{spec.kind} {spec.name!r} needs {spec.nbytes} bytes; the block has "
                f"{block.nbytes - offset} from byte {offset} on")
    return 0


cdef int put_places(HostGraph self, dict places) except -1:
    """Bind memories as checked. The lock is held."""
    cdef Block block
    for memory, (block, offset) in places.items():
        self.bases[<size_t> memory] = <void *> (block.ptr + <uintptr_t> offset)
        self.owners[memory] = block
        self.moved = True
    return 0


cdef int write_values(HostGraph self, dict values) except -1:
    """Store values of scalars where they are read. The lock is held."""
    for where, value in values.items():
        write_value(self, where, value)
    return 0


cdef int write_lasting(HostGraph self, dict values) except -1:
    """Let these scalars be what they last are."""
    for where in values:
        write_value(self, where, self.scalars[where])
    return 0


cdef inline int write_value(HostGraph self, tuple where, bytes value) except -1:
    cdef size_t memory = where[0], offset = where[1]
    memcpy(<char *> self.bases[memory] + offset, <const char *> value, <size_t> len(value))
    return 0


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
    cdef vector[uint32_t] ranges
    times.resize(self.program.nodes.size())
    ranges.push_back(0)
    ranges.push_back(<uint32_t> self.program.nodes.size())
    HostGraph_resolve(self)
    walk_ranges(self, ranges, times.data())
    HostGraph_check_fault(self)
    result = [0] * len(self.program.record.nodes)
    for i in range(<Py_ssize_t> times.size()):
        result[self.program.node_ids[i]] += times[i]
    return result


cdef int HostGraph_run(HostGraph self) except -1:
    """Run every node once, on the addresses in `bases`. The lock is held.

    The GIL is kept or released as the graph says.
    """
    HostGraph_resolve(self)
    return walk_all(self)


cdef void HostGraph_resolve(HostGraph self) noexcept:
    """Work out the address of every operand."""
    cdef size_t i, n = self.program.operands.size()
    cdef const host_operand *operand = self.program.operands.data()
    cdef void **args = self.args.data()
    for i in range(n):
        args[i] = <char *> self.bases[operand[i].memory] + operand[i].offset
    for i in range(self.program.patches.size()):
        self.stream[self.program.patches[i].word] = (
            <int64_t> args[self.program.patches[i].operand])


cdef inline Pool *take_pool(HostGraph self) noexcept nogil:
    if self.threads > 1 and self.program.max_parts > 1 and pool_get().acquire(self.threads):
        return pool_get()
    return NULL


cdef int walk_all(HostGraph self) except -1:
    cdef uint32_t[2] whole
    cdef size_t n = self.program.nodes.size()
    cdef Pool *pool
    cdef walk_end end
    self.fault = 0
    if self.kept:
        pool = take_pool(self)
        walk_kept(self.tables, n, pool)
        if pool != NULL:
            pool.release()
        return 0
    whole[0] = 0
    whole[1] = <uint32_t> n
    self.walker.start(n)
    with nogil:
        if self.branches.possible():
            end = self.branches.run(self.walker, self.tables, pool_get())
        else:
            end = walk_some(self, whole, 2, NULL)
    return check_end(end)


cdef int walk_ranges(HostGraph self, const vector[uint32_t] &ranges, int64_t *times) except -1:
    """Do these ranges of entries one after another, with the GIL released."""
    cdef walk_end end
    self.fault = 0
    self.walker.start(self.program.nodes.size())
    with nogil:
        end = walk_some(self, ranges.data(), ranges.size(), times)
    return check_end(end)


cdef inline walk_end walk_some(HostGraph self, const uint32_t *ranges, size_t n,
                               int64_t *times) noexcept nogil:
    cdef Pool *pool = take_pool(self)
    cdef walk_end end = self.walker.walk(self.tables, pool, ranges, n, times)
    if pool != NULL:
        pool.release()
    return end


cdef inline int check_end(walk_end end) except -1:
    if end == CUT_OFF:
        raise GraphError(
            "a fork in a signal handler or callable cut this run off in the child; run it again")
    return 0 if end == WALKED else -1


cdef int signals_raised() noexcept with gil:
    return raise_signals() != 0


cdef int call_python(void *graph, size_t index) except -1 with gil:
    """Call the Python function of an entry with its arguments as arrays and numbers."""
    cdef HostGraph self = <HostGraph> graph
    cdef size_t operand, first = self.program.nodes[index].first
    cdef Block block
    record_node = self.program.flat[<Py_ssize_t> index]
    arguments = []
    for argument in record_node.call.arguments:
        if argument[0] == "value":
            arguments.append(argument[1])
            continue
        operand = <size_t> argument[1]
        block = Block_borrow(
            <uintptr_t> self.args[first + operand], record_node.operands[operand].nbytes,
            self.owners[self.program.operands[first + operand].memory])
        if argument[0] == "array":
            arguments.append(np.asarray(view(block, 0, argument[2], argument[3], "cpu")))
        else:
            arguments.append(np.asarray(view(block, 0, (), argument[2], "cpu"))[()])
    record_node.call.function(*arguments)
    return 0
