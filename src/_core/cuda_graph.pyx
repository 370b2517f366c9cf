# cython: language_level=3
"""The executable of a GPU: one driver graph, launched with one call.

What a node becomes is in `cuda_nodes`, how they become a graph and are updated in `cuda_build`,
what changes it in `cuda_bound`; here is what runs, when, and what has to stay alive for it.
"""

import warnings

cimport cython

from fastgraph._core.buffer cimport Block
from fastgraph._core.cuda_bound cimport (
    Bound, Bound_lend, Bound_maker, Bound_note_care, Bound_put, Bound_return, Bound_store,
    Bound_store_one, Bound_take, Bound_try_return)
from fastgraph._core.cuda_build cimport DriverGraph_create
from fastgraph._core.cuda_cells cimport Cells, Cells_send
from fastgraph._core.cuda_host cimport (
    HostFaults_create, HostFaults_raise, host_inside, host_refuse)
from fastgraph._core.cuda_nodes cimport Maker, Places_create, blame
from fastgraph._core.cuda_retired cimport Retired_add, Retired_clear, Retired_create
from fastgraph._core.cuda_values cimport Values_create, Values_spend, Values_wait
from fastgraph._core.driver cimport (
    LAST_BUILTIN, driver_check, driver_idle, driver_trouble, exec_launch, exec_launched,
    exec_launcher, exec_upload, stream_capturing)
from fastgraph._core.executable cimport (
    adopt, graph_launcher, is_clear, is_free, launch_at_once, launch_line)
from fastgraph._core.lock cimport (
    GraphLock, GraphLock_give, GraphLock_is_mine, GraphLock_take)
from fastgraph._core.record cimport Record
from fastgraph._core.stream cimport (
    MANY_UNOBSERVED, CudaDevice, LastUse, LastUse_before, Stream, Stream_mark, Stream_wait,
    host_functions, keeps_gil)

from fastgraph.errors import (
    ContextPoisonedError, FastGraphError, FastGraphWarning, GraphError, UnsupportedError)

cdef extern from "Python.h":
    void PyErr_SetInterrupt()

# Graphs that were dropped inside a host function, where the driver cannot be called.
POSTPONED = []
# What a driver takes for an executable and for each of its nodes: it does not tell, and keeps
# what destroyed ones took, so its free memory does not tell either.
cdef size_t EXECUTABLE_BYTES = 112 << 10
cdef size_t NODE_BYTES = 6 << 10


@cython.no_gc_clear
cdef class CudaGraph(Bound):
    """A record bound to memory of a GPU, in a driver graph of its own.

    Made by `instantiate`. ``stream`` is where `replay` launches.
    """

    def __del__(self):
        # A finalizer, because the collector runs these before it empties the lists in which the
        # nodes are: until the last launch is done, the driver may call functions and read memory
        # that this object keeps. No lock: nobody else has it, but a pool's lock may be taken.
        cdef bint interrupted = False
        problem = None
        if not self.executable:
            return
        if host_inside():
            POSTPONED.append(self)       # here the driver cannot be called
            return
        while True:
            try:
                CudaGraph_settle(self)
                break
            except KeyboardInterrupt:
                interrupted = True       # freeing what runs would be worse than a late Ctrl-C
            except BaseException as error:
                problem = error
                break
        self.let_go()
        if interrupted:
            PyErr_SetInterrupt()
        if problem is not None:
            warnings.warn(f"a graph could not be waited for: {problem}", FastGraphWarning,
                          stacklevel=1)

    cdef bint is_gone(self):
        return driver_idle(self.context)

    @property
    def closed(self):
        """bool: `close` was called."""
        return self.executable == 0

    @property
    def handle(self):
        """int: the driver's graph, to look at."""
        CudaGraph_check_open(self)
        return self.built.graph

    @property
    def executable_handle(self):
        """int: the driver's executable, to be launched by benchmarks beside `replay`."""
        CudaGraph_check_open(self)
        return self.executable

    @property
    def idle(self):
        """bool: no run is under way that is not known to be done."""
        return self.used is None or CudaGraph_is_idle(self)

    @property
    def node_count(self):
        """int: nodes of the driver, those in bodies and in foreign graphs included."""
        CudaGraph_check_open(self)
        return self.built.n_nodes

    @property
    def nbytes_estimate(self):
        """int: about how many bytes the driver takes for the graph and its executable."""
        CudaGraph_check_open(self)
        return EXECUTABLE_BYTES + NODE_BYTES * self.built.n_nodes

    # ---- launches

    cdef int replay(self) except -1:
        CudaGraph_check_stream(self, self.stream)
        return CudaGraph_replay(self, self.stream)

    cdef int launched(self, int result) except -1:
        return exec_launched(self.context, result)

    cdef int replay_value(self, tuple where, bytes value) except -1:
        cdef int rebuilds = self.rebuilds
        # A replay at once but for values: those that an earlier launch has left are changed here.
        if (self.line.launch == NULL or not self.executable or self.used is not self.stream
                or not is_free(self.line) or self.away or Values_wait(self.values)):
            return self.replay_values({where: value})
        GraphLock_take(self.lock)
        try:
            if Bound_store_one(self, where, value, True):
                Values_spend(self.values)        # for this launch, whatever becomes of it
                if self.rebuilds == rebuilds:
                    return exec_launched(self.context, launch_at_once(self.line))
                # Who was told of that has run code.
                return CudaGraph_launch_with(self, self.stream)
        finally:
            GraphLock_give(self.lock)
        return self.replay_values({where: value})

    cdef int store_value(self, tuple where, bytes value) except -1:
        CudaGraph_enter(self, False)
        try:
            if not Bound_store_one(self, where, value, False):
                Bound_store(self, {where: value}, False)
        finally:
            CudaGraph_leave(self, False)
        return 0

    cdef int replay_values(self, dict values) except -1:
        CudaGraph_enter(self, False)
        try:
            CudaGraph_check_stream(self, self.stream)
            HostFaults_raise(self.faults)
            Bound_return(self)
            Bound_store(self, values, True)
            try:
                return CudaGraph_launch(self, self.stream)
            except BaseException:
                Values_spend(self.values)    # they were for this launch, whatever became of it
                raise
        finally:
            CudaGraph_leave(self, False)

    def replay_on(self, Stream stream not None):
        """Enqueue one run on `stream`, behind the last one wherever that was.

        Raises
        ------
        GraphError
            The graph is closed, or the stream is being captured.
        Exception
            What a host function of an earlier run raised; nothing is enqueued then.
        """
        CudaGraph_check_stream(self, stream)
        CudaGraph_replay(self, stream)

    cdef int check_thread(self) except -1:
        return host_refuse()             # who holds the lock may wait for the host function

    def begin(self, Stream stream not None):
        """Let what is put on `stream` next come behind the last run, or raise as `replay_on`.

        For work of `locked`.
        """
        self.check_held()
        CudaGraph_check_stream(self, stream)
        LastUse_before(self.last_use, stream)

    def launch_held(self, Stream stream not None):
        """`replay_on` for work of `locked`, once it has begun."""
        self.check_held()
        CudaGraph_launch(self, stream)

    def upload(self, Stream stream=None):
        """Bring what the executable needs to the device, so that the first launch need not."""
        if stream is None:
            stream = self.stream
        CudaGraph_enter(self, False)
        try:
            CudaGraph_check_stream(self, stream)
            LastUse_before(self.last_use, stream)
            exec_upload(self.context, self.executable, stream.handle)
            Stream_mark(stream)
            self.used = stream
            Bound_note_care(self)
        finally:
            CudaGraph_leave(self, False)

    def wait(self, Stream stream=None):
        """Wait until the last run is done; raises what a host function of it raised.

        With `stream`, which has the last run, all that was put on it since then is waited for too.
        """
        if stream is None:
            stream = self.used
        if stream is not None:
            Stream_wait(stream, False)
        HostFaults_raise(self.faults)

    def keep(self, what):
        """Keep `what` alive until the runs that are enqueued are done; for work of `locked`."""
        self.check_held()
        if self.used is not None:
            Retired_add(self.retired, what, self.used)

    def close(self):
        """Wait for the last run and free the executable; again and again."""
        if not self.executable:
            return
        host_refuse()
        GraphLock_take(self.lock)
        try:
            CudaGraph_settle(self)
            self.let_go()
        finally:
            GraphLock_give(self.lock)

    cdef int let_go(self) except -1:
        for single in (self.singles or {}).values():
            single.close()
        self.singles = {}
        self.executable = 0
        self.line.care = True
        self.built = None
        Retired_clear(self.retired)
        self.places = None
        self.record = None
        self.nodes = None
        self.used = None
        self.values = Values_create(self.device, None, ())
        return 0

    # ---- values and addresses

    def set_scalars(self, dict values not None, bint once=False, bint held=False):
        """Give scalars other values; does not wait for anything.

        Those in memory change on the stream of the next launch, right before it.

        Parameters
        ----------
        values : dict of (int, int) to bytes
            Memory and offset of the operand that stands for the scalar, and its bytes. What it
            is already costs nothing.
        once : bool, default False
            For the next launch alone: before the one after that it becomes what it was.

        Raises
        ------
        GraphError
            A value has another size. Everything is as it was.
        """
        CudaGraph_enter(self, held)
        try:
            Bound_store(self, values, once)
        finally:
            CudaGraph_leave(self, held)

    def set_values(self, dict places not None, dict scalars not None, state, dict changes not None):
        """Put memories elsewhere, give scalars other values and let `state` know: all or nothing.

        For work of `locked`; does not wait.

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
        GraphError, UnsupportedError, DriverError
            As `rebind` and `set_scalars`.
        """
        cdef dict before
        CudaGraph_enter(self, True)
        Bound_return(self)
        before = Bound_put(self, places)
        try:
            Bound_store(self, scalars, False)
        except BaseException:
            Bound_lend(self, before)
            Bound_try_return(self)
            raise
        adopt(state, changes)

    def run_with(self, dict places not None, dict scalars not None, work, *args):
        """Return ``work(*args)``, called while memories and scalars are what is given here.

        For work of `locked`. They go back whatever is raised, and no signal comes between: scalars
        with the next launch, memories now, or with it where the driver refuses.

        Parameters
        ----------
        places, scalars
            As `set_values` has them.
        work : callable
        *args

        Raises
        ------
        GraphError, UnsupportedError, DriverError
            As `set_values`; `work` was not called.
        """
        cdef dict before
        CudaGraph_enter(self, True)
        Bound_return(self)
        before = Bound_put(self, places)
        self.active = True
        try:
            # Also where none is given: what the last run was given goes back.
            Bound_store(self, scalars, True)
            return work(*args)
        finally:
            self.active = False
            if scalars:
                Values_spend(self.values)
            if before:
                Bound_lend(self, before)
                Bound_return(self)

    def scalar_values(self, bint now=False):
        """Return the values of scalars, by memory and offset: the lasting ones.

        With `now` those for the next launch alone are among them.
        """
        return dict(self.values.now) if now else self.values.now | self.values.once

    def rebind(self, Py_ssize_t memory, Block block not None, Py_ssize_t offset=0,
               bint held=False):
        """Put `memory` at byte `offset` of `block`, which is kept alive; does not wait.

        Raises
        ------
        GraphError
            No such memory, or the block is too small for it.
        UnsupportedError
            A foreign graph names it and cannot be made for another address.
        """
        CudaGraph_enter(self, held)
        try:
            Bound_return(self)
            Bound_put(self, {memory: (block, offset)})
        finally:
            CudaGraph_leave(self, held)

    def bound(self, Py_ssize_t memory):
        """Return the (block, offset) that `memory` is bound to, or None."""
        CudaGraph_check_open(self)
        if not 0 <= memory < <Py_ssize_t> self.places.at.size():
            raise GraphError(f"no memory has number {memory}; there are {self.places.at.size()}")
        return self.places.blocks[memory]

    # ---- changes of nodes

    def take(self, Record record not None, object blocks not None, bint held=False, state=None,
             dict changes=None):
        """Become what `record` and `blocks` say; does not wait.

        The driver changes parameters in place where it can; where it cannot, another executable
        is made, which is counted in ``rebuilds`` and logged. `changes` are attributes of `state`
        from then on.

        Raises
        ------
        GraphError, UnsupportedError, DriverError
            A node cannot be made; it is named. Everything is as it was.
        """
        CudaGraph_enter(self, held)
        try:
            Bound_take(self, record, blocks)
            if state is not None:
                adopt(state, changes)
        finally:
            CudaGraph_leave(self, held)

    def set_enabled(self, Py_ssize_t node, bint enabled, bint held=False):
        """Switch record node `node` on or off.

        Raises
        ------
        UnsupportedError
            CUDA cannot switch off what the node is.
        """
        CudaGraph_enter(self, held)
        try:
            nodes = self.nodes
            if not 0 <= node < len(nodes):
                raise GraphError(f"there is no node {node}; there are {len(nodes)}")
            if nodes[node].kind not in ("function", "copy", "memset"):
                error = UnsupportedError(
                    f"a node of kind {nodes[node].kind!r} cannot be switched off on cuda")
                blame(error, nodes[node], node)
                raise error
            if nodes[node].enabled != enabled:
                Bound_return(self)
                record = self.record.copy()
                record.replace_node(node, nodes[node]._replace(enabled=enabled))
                Bound_take(self, record, self.places.blocks)
        finally:
            CudaGraph_leave(self, held)

    def run_subset(self, nodes, bint held=False):
        """Run the nodes with these record ids one after another, waiting for each.

        Errors name the node.
        """
        cdef CudaGraph single
        CudaGraph_enter(self, held)
        try:
            Bound_return(self)
            LastUse_before(self.last_use, self.stream)
            CudaGraph_send(self, self.stream)
            for number in nodes:
                if not 0 <= number < len(self.nodes):
                    raise GraphError(
                        f"there is no node {number}; there are {len(self.nodes)}")
                single = CudaGraph_single(self, number)
                try:
                    single.set_scalars(self.values.now)
                    CudaGraph_launch(single, self.stream)
                    single.wait()
                except BaseException as error:
                    blame(error, self.nodes[number], number)
                    raise
            Values_spend(self.values)
        finally:
            CudaGraph_leave(self, held)


def instantiate(Record record not None, object blocks not None, CudaDevice device not None,
                Stream stream not None, object helpers=None, GraphLock lock=None,
                LastUse last_use=None, dict scalars=None, object cells=(), bint again=False):
    """Make the executable of a record over memory.

    Parameters
    ----------
    record : Record
    blocks : sequence of (Block, int), Block or None
        For each memory where it lies; None for one that no node names.
    device : CudaDevice
    stream : Stream
        Where `CudaGraph.replay` launches.
    helpers : object, optional
        With attributes ``set_condition`` and ``fill8``, the package's own kernels; they are looked
        at when a node needs one.
    lock : GraphLock, optional
        Shared by executables of which one may be enqueued at a time; else it has its own.
    last_use : LastUse, optional
        Shared by executables that use the same scratch; else it has its own.
    scalars : dict of (int, int) to bytes, optional
        The first values of scalars; those by value that have none are zero.
    cells : set of (int, int), optional
        Those that lie in memory, one and the same.
    again : bool, default False
        The record is bound a second time: foreign graphs are made anew for its addresses.

    Returns
    -------
    CudaGraph

    Raises
    ------
    GraphError, UnsupportedError, DriverError
        A node cannot be made; it is named, and nothing is left.
    """
    cdef CudaGraph self = CudaGraph.__new__(CudaGraph)
    cdef Maker maker
    host_refuse()
    close_postponed()
    self.context = device.context
    self.device = device
    self.stream = stream
    self.helpers = helpers
    self.last_use = LastUse() if last_use is None else last_use
    self.record = record
    self.nodes = list(record.nodes)
    self.faults = HostFaults_create(device.ordinal)
    self.values = Values_create(device, scalars, cells)
    self.retired = Retired_create()
    self.singles = {}
    self.away = {}
    self.places = Places_create(record.memories, blocks, device.context)
    maker = Bound_maker(self)
    maker.again = again
    self.built = DriverGraph_create(record, maker)
    self.executable = self.built.executable
    Bound_note_care(self)
    if lock is not None:
        self.lock = lock                 # only now: a run may hold it
    CudaGraph_draw(self)
    return self


cdef int CudaGraph_draw(CudaGraph self) except -1:
    """Gather what `replay` looks at."""
    cdef launch_line *line = self.line
    cdef Stream stream = self.stream
    line.stream = <void *> stream.handle
    line.home = <void *> stream
    line.last_use = &self.last_use.at
    line.busy = &self.lock.busy
    line.reserved = &self.lock.reserved
    line.marks = &stream.marks
    line.unobserved = &stream.unobserved
    line.most_unobserved = MANY_UNOBSERVED
    line.host_functions = host_functions()
    line.trouble = driver_trouble()
    # Another library's may be in a capture, and the driver's own are those of the current context.
    if stream.owner is None and stream.handle > LAST_BUILTIN:
        line.launch = <graph_launcher> exec_launcher()
    return Bound_note_care(self)


cdef int CudaGraph_settle(CudaGraph self) except -1:
    """Wait for the last launch, if anybody can.

    The driver would let the executable live on until then, but not the memory that its nodes
    name, nor the functions that they call. The GIL is given up meanwhile: a host function may be
    what is waited for.
    """
    if self.used is None or self.is_gone():
        return 0
    try:
        Stream_wait(self.used, False)
    except ContextPoisonedError:
        pass                             # nothing runs there any more
    return 0


cdef int close_postponed() except -1:
    """Close what was dropped inside host functions."""
    while POSTPONED:
        (<CudaGraph> POSTPONED.pop()).close()
    return 0


cdef int CudaGraph_check_open(CudaGraph self) except -1:
    if not self.executable:
        raise GraphError("the graph is closed")
    return 0


cdef int CudaGraph_check_stream(CudaGraph self, Stream stream) except -1:
    """A launch into a capture would destroy it, and one on another device fails."""
    if stream.device is not self.device:
        raise GraphError(f"the stream is of cuda:{stream.device.ordinal}, "
                         f"the graph of cuda:{self.device.ordinal}")
    # What is not the graph's own may be anything; asking costs little beside the change of streams.
    if ((stream is not self.stream or stream.owner is not None)
            and stream_capturing(self.context, stream.handle)):
        raise GraphError("the stream is being captured; a graph cannot be launched into a capture: "
                         "add it to the other graph as a child")
    return 0


cdef int CudaGraph_enter(CudaGraph self, bint held) except -1:
    """Take the lock, or check that this thread has it."""
    host_refuse()
    driver_check(self.context)           # not every change asks the driver at once
    if not held:
        GraphLock_take(self.lock)
    elif not GraphLock_is_mine(self.lock):
        raise GraphError("held=True is for work of `locked`")
    if not self.executable:
        CudaGraph_leave(self, held)
        raise GraphError("the graph is closed")
    return 0


cdef inline void CudaGraph_leave(CudaGraph self, bint held) noexcept:
    if not held:
        GraphLock_give(self.lock)


cdef inline int CudaGraph_replay(CudaGraph self, Stream stream) except -1:
    cdef GraphLock lock = self.lock
    if stream is self.stream and is_clear(self.line):
        return exec_launched(self.context, launch_at_once(self.line))
    host_refuse()
    GraphLock_take(lock)
    try:
        return CudaGraph_launch(self, stream)
    finally:
        GraphLock_give(lock)


cdef int CudaGraph_launch(CudaGraph self, Stream stream) except -1:
    """Launch with the lock held."""
    host_refuse()
    CudaGraph_check_open(self)
    HostFaults_raise(self.faults)
    Bound_return(self)
    if self.values.once_used:
        Bound_store(self, {}, False)
    return CudaGraph_launch_with(self, stream)


cdef int CudaGraph_launch_with(CudaGraph self, Stream stream) except -1:
    """Launch with values as they are."""
    LastUse_before(self.last_use, stream)
    CudaGraph_send(self, stream)
    if keeps_gil(stream):
        exec_launch(self.context, self.executable, stream.handle)
    else:
        # The call may block until something is done that waits for the GIL.
        with nogil:
            exec_launch(self.context, self.executable, stream.handle)
    Stream_mark(stream)
    self.used = stream
    Values_spend(self.values)
    return Bound_note_care(self)


cdef inline int CudaGraph_send(CudaGraph self, Stream stream) except -1:
    """Let scalars in memory be what they are to be, for what is enqueued on `stream` next."""
    cdef Cells cells = self.values.cells
    if cells is not None and cells.low < cells.high:
        Cells_send(cells, self.places.at[cells.memory].base, stream)
        Bound_note_care(self)
    return 0


cdef bint CudaGraph_is_idle(CudaGraph self) except *:
    try:
        return self.used.query()
    except FastGraphError:
        return False                     # whoever waits is told


cdef CudaGraph CudaGraph_single(CudaGraph self, Py_ssize_t number):
    """An executable of one record node alone, over the same memory."""
    cdef Record record
    if number not in self.singles:
        record = Record.__new__(Record)
        record.memories = self.record.memories
        record.nodes = [self.nodes[number]._replace(dependencies=())]
        try:
            self.singles[number] = instantiate(
                record, self.places.blocks, self.device, self.stream, self.helpers,
                last_use=self.last_use, scalars=self.values.now)
        except BaseException as error:
            error.add_note(f"which is node {number} of its graph")
            raise
    return self.singles[number]
