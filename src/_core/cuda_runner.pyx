# cython: language_level=3, nonecheck=False
"""Runs on a GPU: inputs are staged, one launch, a wait, outputs are read in memory of the host.

A run is one launch of one executable. Its first node brings the inputs to the device, from pinned
memory to which the host has copied them or from wherever they are on the device; its last ones
write the outputs to mapped memory of the host, or to the caller's own on the device. Another
address is an update of one node, and the same one as in the last run none.
"""

cimport cython
from libc.stdint cimport uint64_t, uintptr_t
from libcpp.vector cimport vector

from fastgraph._core.buffer cimport Block
from fastgraph._core.cuda_bound cimport Bound_note_care, Bound_retire
from fastgraph._core.cuda_eager cimport Eager_do
from fastgraph._core.cuda_finish cimport Finish, Finish_await, Finish_launched, Finish_next
from fastgraph._core.cuda_graph cimport CudaGraph, CudaGraph_check_stream, CudaGraph_launch
from fastgraph._core.cuda_resident cimport (
    Residents, Residents_connect, Residents_create, Residents_meet, Residents_meet_handles,
    Residents_move, Residents_send, Residents_upload, cuda_port)
from fastgraph._core.driver cimport event_record, exec_upload, stream_query
from fastgraph._core.feeds cimport Feed, Feed_locate, computed_at
from fastgraph._core.pool cimport pool_copy
from fastgraph._core.record cimport Record, RecordNode
from fastgraph._core.runner cimport Runner
from fastgraph._core.stream cimport (
    CudaDevice, CudaDevice_event, CudaDevice_give, CudaDevice_order, LastUse_before, Stream,
    Stream_mark, Stream_see, Stream_wait, keeps_gil)
from fastgraph._core.waiting cimport wait_kept

from fastgraph._core import cuda_graph
from fastgraph._core.record import flat_nodes
from fastgraph._core.stream import Event
from fastgraph.errors import InputError

# What a kernel reads or writes at once lies at a multiple of this; from and to elsewhere there are
# copies.
cdef uintptr_t ALIGNMENT = 16
# Copies of more bytes let other threads go on.
cdef Py_ssize_t LONG_COPY = 1 << 20
cdef Py_ssize_t WORD = 8
# So many executables of one model are kept, by the programs that they are of.
cdef Py_ssize_t MOST_HELD = 8


@cython.final
@cython.no_gc_clear
cdef class CudaRunner(Runner):
    """An executable over an arena of its own, and the memory through which arrays come and go."""

    cdef CudaGraph graph                 # None before all parameters are set
    cdef readonly object owner           # the program that it is one of
    cdef dict held                       # by id, the last used at the end: (program, graph)
    cdef CudaDevice device
    cdef Stream own
    cdef Stream on                       # where the coming run is put
    cdef Record record
    cdef object helpers
    cdef readonly list blocks            # by memory: (Block, offset), None for parameters not set
    cdef Block staged
    cdef uint64_t *fault
    cdef Block fault_block
    cdef vector[cuda_port] ins
    cdef vector[cuda_port] outs
    cdef list in_blocks                  # of inputs on the device in the coming run, else None
    cdef list out_blocks
    cdef bint lends                      # the executable keeps arrays of the caller's
    cdef list late                       # outputs to be copied after it: (index, Block, offset)
    cdef list parts                      # what of outputs is copied, see `set_parts`
    cdef dict scalars                    # (memory, offset) → bytes, of the coming run
    cdef Py_ssize_t scalar_memory
    cdef Residents residents
    cdef bint pending                    # a run was enqueued and is not known to be done
    cdef bint joins                      # work on other streams of ours may fill what it reads
    cdef Finish finish                   # None: runs are waited for by events alone
    cdef object policy                   # of the GIL: "auto", True or False
    cdef bint expect_long

    cdef int start(self, bint settle) except -1:
        cdef size_t i
        self.on = self.own
        self.joins = False
        if self.residents.uploads:
            self.residents.uploads.clear()           # of a run that was not begun
        for i in range(self.outs.size()):
            self.outs[i].wanted = self.outs[i].home
        if settle and self.pending:
            settle_runs(self)
        return check_earlier(self)

    cdef int take(self, Py_ssize_t i, const void *at) except -1:
        cdef cuda_port *port = &self.ins[i]
        cdef void *home = <void *> port.staged
        cdef unsigned int threads = self.threads
        cdef Py_ssize_t nbytes = port.nbytes
        if self.pending:
            settle_runs(self)
        if nbytes > LONG_COPY and self.release_gil:
            with nogil:
                pool_copy(home, at, nbytes, threads)
        else:
            pool_copy(home, at, nbytes, threads)
        return self.take_staged(i)

    cdef void *staging(self, Py_ssize_t i) except NULL:
        if self.pending:
            settle_runs(self)
        return <void *> self.ins[i].staged

    cdef int take_staged(self, Py_ssize_t i) except -1:
        self.ins[i].on_host = True
        if self.ins[i].resident:
            return Residents_upload(self.residents, self.ins, self.in_blocks, i, None, 0)
        self.ins[i].wanted = self.ins[i].home
        return 0

    cdef int take_block(self, Py_ssize_t i, Block block, Py_ssize_t offset) except -1:
        cdef uintptr_t at = block.ptr + <uintptr_t> offset
        self.joins = True
        self.ins[i].on_host = False
        if self.ins[i].resident and (
                at % ALIGNMENT
                or Residents_meet_handles(self.residents, at, self.ins[i].nbytes)):
            return Residents_upload(self.residents, self.ins, self.in_blocks, i, block, offset)
        self.ins[i].wanted = at
        self.in_blocks[i] = (block, offset)
        return 0

    cdef int take_handle(self, Py_ssize_t i, Block block, Py_ssize_t offset) except -1:
        if not self.ins[i].resident:
            return self.take_block(i, block, offset)
        self.ins[i].on_host = False
        self.ins[i].wanted = self.ins[i].home
        self.joins = self.joins or (<tuple> self.residents.handles[i])[3]
        return 0

    cdef int take_scalar(self, Py_ssize_t offset, const void *value, Py_ssize_t nbytes) except -1:
        cdef bytes word = (<const char *> value)[:nbytes]
        self.scalars[self.scalar_memory, offset] = word.ljust(WORD, b"\0")
        return 0

    cdef bint give(self, Py_ssize_t i, void *at) except -1:
        return False

    cdef int give_block(self, Py_ssize_t i, Block block, Py_ssize_t offset) except -1:
        cdef uintptr_t at = block.ptr + <uintptr_t> offset
        self.joins = True
        if self.residents.in_place and computed_at(self.feeds, i) == at:
            # That is where it is, and what moves outputs leaves it there.
            self.outs[i].wanted = at
            self.out_blocks[i] = (block, offset)
        # What kernels may still read is written by a copy after them.
        elif at % ALIGNMENT or Residents_meet(self.residents, self.ins, at, self.outs[i].nbytes):
            self.late.append((i, block, offset))
        else:
            self.outs[i].wanted = at
            self.out_blocks[i] = (block, offset)
        return 0

    cdef tuple output_place(self, Py_ssize_t i):
        return self.outputs, self.outs[i].home

    cdef int set_parts(self, list parts) except -1:
        self.parts = parts
        return 0

    cdef int check_feeds(self) except -1:
        cdef Feed feed
        cdef bytes word
        for feed in self.residents.located:
            if feed.scalar >= 0:
                word = self.scalars[self.scalar_memory, feed.scalar]
                Feed_locate(feed, <const char *> word)
            elif self.ins[feed.input].on_host:
                Feed_locate(feed, <const void *> self.ins[feed.input].staged)
        return 0

    cdef int connect(self, list feeds, list handles) except -1:
        Residents_connect(self.residents, self.ins, self.graph, self.blocks, feeds, handles)
        self.feeds = feeds if feeds else None
        return 0

    cdef int copy_output(self, Py_ssize_t i, Block block, Py_ssize_t offset) except -1:
        copy_out(self, i, block, offset)
        wait_for(self, self.on)
        return 0

    cdef int home(self) except -1:
        cdef size_t i
        for i in range(self.outs.size()):
            self.outs[i].wanted = self.outs[i].home
        return 0

    cdef int use(self, object stream) except -1:
        self.on = stream
        return 0

    cdef object stream(self):
        return self.on

    cdef int run(self) except -1:
        cdef uint64_t number = 0
        # Copies behind the launch are told of by events alone.
        if self.finish is not None and not self.pending and not self.late:
            number = Finish_next(self.finish)
        self.enqueue()
        if number and Finish_await(self.finish, number, self.on):
            return conclude(self)
        return finish(self)

    cdef int enqueue(self) except -1:
        cdef CudaGraph graph = self.graph
        cdef Stream on = self.on
        try:
            bind_ports(self, self.ins, self.in_blocks)
            bind_ports(self, self.outs, self.out_blocks)
            if self.scalars:
                graph.set_scalars(self.scalars, held=True)
            if self.joins and on is self.own:
                CudaDevice_order(self.device, on.handle)
            if on is not self.own:
                CudaGraph_check_stream(graph, on)
            if self.residents.uploads:
                Residents_send(self.residents, self.ins, graph, on)
            CudaGraph_launch(graph, on)
            self.pending = True
            for i, block, offset in self.late:
                copy_out(self, i, block, offset)
        finally:
            if self.scalars:
                self.scalars.clear()
            if self.late:
                self.late.clear()
            if self.residents.uploads:
                self.residents.uploads.clear()
        return 0

    cdef list run_timed(self):
        return time_nodes(self)

    cdef int commit(self) except -1:
        return self.enqueue()

    cdef bint over(self) except -1:
        cdef Stream stream = self.graph.used
        cdef uint64_t marks
        if not self.pending:
            return True
        marks = stream.marks
        if not stream_query(self.device.context, stream.handle):
            return False
        Stream_see(stream, marks)
        return True

    cdef int await_over(self, bint helping) except -1:
        # Asking is much sooner done than waiting for an event behind what is over.
        return 0 if self.over() else wait_for(self, self.graph.used)

    cdef int conclude(self) except -1:
        return conclude(self)

    cdef int adopt(self, list places, bint ready) except -1:
        return adopt_blocks(self, places, ready)

    cdef int close(self) except -1:
        # The last reference waits for the last run.
        self.graph = None
        self.executable = None
        self.held = {}
        return 0

    def retake(self, owner, Record record not None, list blocks not None, Block arena not None,
               list residents not None, list kept not None, bint ready):
        """Run another record with the same memories and some more; the lock is held.

        Executables of the last programs are kept: nodes that differ are updated.

        Parameters
        ----------
        owner : object
            The program that the record is one of. Those of one have the same memories and nodes.
        record, blocks, arena, ready
            As `cuda_runner` has them.
        residents : list of bool
            For each input whether kernels read it where it lies on the device.
        kept : list of (int, int)
            Inputs, and memories that lie in their handles.

        Raises
        ------
        DriverError
            The executable cannot be made. Everything is as it was.
        """
        cdef CudaGraph graph = None
        cdef size_t i
        if self.pending:
            settle_runs(self)
        found = self.held.pop(id(owner), None) if ready else None
        if found is not None:
            graph = found[1]
            self.held[id(owner)] = found
            graph.take(*Finish_launched(self.finish, record, blocks), held=True)
        elif ready:
            graph = make_graph(self, record, blocks)
            hold(self, owner, graph)
        # No Python code runs from here on.
        self.owner = owner
        self.record = record
        self.blocks = blocks
        self.arena = arena
        self.graph = graph
        self.executable = graph
        self.residents.kept = kept
        for i in range(self.ins.size()):
            self.ins[i].resident = residents[i]
        set_homes(self)


# ---- a run

cdef int bind_ports(CudaRunner self, vector[cuda_port] &ports, list blocks) except -1:
    """Let the executable name where inputs or outputs lie in the coming run."""
    cdef size_t i
    for i in range(ports.size()):
        if ports[i].wanted != ports[i].home:
            self.lends = True
            block, offset = blocks[i]
            if ports[i].wanted == ports[i].bound:
                lend(self.graph, ports[i].memory, block, offset, self.pending)
                continue
        elif ports[i].bound != ports[i].home:
            block, offset = self.blocks[ports[i].memory]
        else:
            continue
        ports[i].bound = 0
        self.graph.rebind(ports[i].memory, block, offset, held=True)
        ports[i].bound = ports[i].wanted
    return 0


cdef int lend(CudaGraph graph, size_t memory, Block block, Py_ssize_t offset,
              bint retire) except -1:
    """Keep `block` alive for a memory that the executable has at that address already.

    What was there is kept too where a launch may still need it: `retire`.
    """
    cdef tuple had = graph.places.blocks[memory]
    if had is None or had[0] is not block:
        graph.places.blocks[memory] = (block, offset)
        if retire:
            Bound_retire(graph, had)
    return 0


cdef int let_go(CudaRunner self, vector[cuda_port] &ports, list blocks) except -1:
    """Keep no array of the caller's: the run is over, and the next one says where its own lie.

    The executable goes on naming their addresses, which cost an update again if they come back.
    """
    cdef size_t i
    for i in range(ports.size()):
        blocks[i] = None
        if ports[i].bound != ports[i].home:
            block, offset = self.blocks[ports[i].memory]
            lend(self.graph, ports[i].memory, block, offset, False)
    return 0


cdef int finish(CudaRunner self) except -1:
    """Wait for the last run; raises InputError where it met bad data."""
    wait_for(self, self.graph.used)
    return conclude(self)


cdef int conclude(CudaRunner self) except -1:
    """Take note that the last run is over."""
    cdef uint64_t number
    self.pending = False
    if self.lends:
        let_go(self, self.ins, self.in_blocks)
        let_go(self, self.outs, self.out_blocks)
        self.lends = False
    number = self.fault[0]
    if number:
        self.fault[0] = 0
        raise_fault(self, number, "this run's data; the run's outputs are not handed out")
    return 0


cdef int settle_runs(CudaRunner self) except -1:
    """Wait for the runs that were enqueued; raises InputError where one met bad data."""
    wait_for(self, self.graph.used)
    self.pending = False
    return check_earlier(self)


cdef int check_earlier(CudaRunner self) except -1:
    """Raise InputError where a run that nobody waited for met bad data."""
    cdef uint64_t number = self.fault[0]
    if number:
        self.fault[0] = 0
        raise_fault(self, number, "the data of a run that was enqueued before and not waited for; "
                                  "this call has run nothing")
    return 0


cdef int raise_fault(CudaRunner self, uint64_t number, str where) except -1:
    self.spoiled = self.residents.in_place
    cdef RecordNode node = flat_nodes(self.record.nodes)[number - 1]
    raise InputError(
        f"node {node.name!r} ({node.label or node.kind}) met an index out of range in {where}")


cdef int wait_for(CudaRunner self, Stream stream) except -1:
    """Wait for what is on a stream, with the GIL as the session says."""
    cdef CudaDevice device = self.device
    cdef uint64_t marks
    cdef uintptr_t event
    if self.policy is not False or not keeps_gil(stream):
        return Stream_wait(stream, self.expect_long)
    marks = stream.marks
    event = CudaDevice_event(device)
    try:
        event_record(device.context, event, stream.handle)
        wait_kept(device.context, event)
    finally:
        CudaDevice_give(device, event)
    return Stream_see(stream, marks)


cdef int copy_out(CudaRunner self, Py_ssize_t i, Block block, Py_ssize_t offset) except -1:
    """Copy an output to where kernels cannot write it as wide as they do."""
    part = self.parts[i] if self.parts else None
    return Residents_move(self.residents, &self.outs[i], self.graph, self.on, part, block, offset)


cdef list time_nodes(CudaRunner self):
    """Run the nodes one after another; the time of each in nanoseconds."""
    cdef CudaGraph graph = self.graph
    cdef Stream stream = self.on
    bind_ports(self, self.ins, self.in_blocks)
    bind_ports(self, self.outs, self.out_blocks)
    if self.scalars:
        graph.set_scalars(self.scalars, held=True)
        self.scalars.clear()
    CudaDevice_order(self.device, stream.handle)
    if self.residents.uploads:
        Residents_send(self.residents, self.ins, graph, stream)
        self.residents.uploads.clear()
    values = graph.scalar_values()
    events = [Event(self.device, stream) for _ in range(len(self.record.nodes) + 1)]
    LastUse_before(graph.last_use, stream)
    graph.used = stream                  # that is where the graph's work is, for who waits
    Bound_note_care(graph)
    self.pending = True
    events[0].record()
    for node, event in zip(self.record.nodes, events[1:]):
        Eager_do(graph, stream, node, values)
        event.record()
    finish(self)
    return [int(1e6 * after.elapsed_ms(before)) for before, after in zip(events, events[1:])]


# ---- parameters

cdef int adopt_blocks(CudaRunner self, list places, bint ready) except -1:
    cdef list blocks = list(self.blocks)
    cdef CudaGraph graph
    for memory, block in places:
        blocks[memory] = (block, 0)
    if self.pending:
        # What it met, if anything, is told by the next run.
        wait_for(self, self.graph.used)
        self.pending = False
    if self.graph is None or 2 * len(places) > len(blocks):
        # One that is made for its addresses runs better than one of which most were changed.
        graph = None
        if ready:
            graph = make_graph(self, self.record, blocks)
        self.graph = graph
        self.executable = graph
    else:
        self.graph.take(*Finish_launched(self.finish, self.record, blocks), held=True)
    # The others would keep what the parameters were.
    self.held = {}
    if self.graph is not None:
        hold(self, self.owner, self.graph)
    self.blocks = blocks
    return set_homes(self)


cdef int hold(CudaRunner self, object owner, CudaGraph graph) except -1:
    """Keep an executable for when its program runs again."""
    self.held[id(owner)] = (owner, graph)
    while len(self.held) > MOST_HELD:
        del self.held[next(iter(self.held))]
    return 0


cdef int set_homes(CudaRunner self) except -1:
    """The executable names the places of `blocks`."""
    cdef size_t i
    cdef Block block
    cdef Py_ssize_t offset
    for i in range(self.ins.size()):
        block, offset = self.blocks[self.ins[i].memory]
        self.ins[i].home = self.ins[i].bound = block.ptr + <uintptr_t> offset
        self.in_blocks[i] = None
    for i in range(self.outs.size()):
        self.outs[i].bound = self.outs[i].home
        self.out_blocks[i] = None
    return 0


cdef CudaGraph make_graph(CudaRunner self, Record record, list blocks):
    cdef CudaGraph graph
    cdef dict values = {}
    for node in flat_nodes(record.nodes):
        for argument in () if node.call is None else node.call.arguments:
            if argument[0] == "scalar":
                operand = node.operands[argument[1]]
                values[operand.memory, operand.offset] = bytes(WORD)
    record, blocks = Finish_launched(self.finish, record, blocks)
    graph = cuda_graph.instantiate(
        record, blocks, self.device, self.own, self.helpers, lock=self.lock, scalars=values)
    exec_upload(self.device.context, graph.executable, self.own.handle)
    Stream_mark(self.own)
    LastUse_before(graph.last_use, self.own)     # so that runs elsewhere come behind that
    return graph


def cuda_runner(CudaDevice device not None, Stream stream not None, owner,
                Record record not None, list blocks not None, Block arena not None,
                Block staged not None,
                Block outputs not None, Block fault not None, list inputs not None,
                list results not None, Py_ssize_t scalar_memory, bint ready, helpers,
                policy="auto", bint expect_long=False, Finish finish=None, unsigned int threads=1):
    """Return the runner of a record on a GPU.

    Parameters
    ----------
    device : CudaDevice
    stream : Stream
        The model's own.
    owner : object
        The program that the record is one of.
    record : Record
    blocks : list of (Block, int) or None
        For each memory where it lies; None for parameters without a value.
    arena, staged, outputs, fault : Block
        Memory of the device, and pinned memory for inputs, outputs and the error word.
    inputs, results : list of (int, int, int)
        For each input and output its bytes, its memory, and where it lies in `staged` or `outputs`.
    scalar_memory : int
        The memory that scalars are operands of, or -1.
    ready : bool
        All parameters have values.
    helpers : object
        The package's own kernels, as `cuda_graph.instantiate` takes them.
    policy : "auto" or bool
        Whether a wait lets other threads go on.
    expect_long : bool
        A run is expected to take so long that a wait lets them go on at once.
    finish : Finish, optional
        How a short run says that it is over.
    threads : int, default 1
        How many may share a long copy to pinned memory, or from there.

    Raises
    ------
    DriverError
        The executable cannot be made; nothing is left.
    """
    cdef CudaRunner self = CudaRunner.__new__(CudaRunner)
    cdef cuda_port port
    self.device = device
    self.own = self.on = self.own_stream = stream
    self.owner = owner
    self.held = {}
    self.record = record
    self.helpers = helpers
    self.blocks = blocks
    self.arena = arena
    self.staged = staged
    self.outputs = outputs
    self.fault_block = fault
    self.fault = <uint64_t *> fault.ptr
    self.on_device = True
    self.scalar_memory = scalar_memory
    self.scalars = {}
    self.late = []
    self.parts = []
    self.residents = Residents_create(device, len(inputs))
    self.finish = finish
    self.policy = policy
    self.threads = threads
    self.expect_long = policy is True or (expect_long and policy is not False)
    self.release_gil = self.expect_long
    port.resident = port.on_host = False
    for port.nbytes, port.memory, offset in inputs:
        port.staged = port.home = port.wanted = port.bound = staged.ptr + <uintptr_t> offset
        self.ins.push_back(port)
    for port.nbytes, port.memory, offset in results:
        port.home = port.wanted = port.bound = outputs.ptr + <uintptr_t> offset
        self.outs.push_back(port)
    self.in_blocks = [None] * len(inputs)
    self.out_blocks = [None] * len(results)
    if ready:
        adopt_blocks(self, [], True)
    return self
