# cython: language_level=3
"""The record of a graph: nodes, edges and memories; no addresses, nothing that runs.

A record names every operand as (memory, byte offset). `instantiate` of a device module resolves it
against bindings; the same record can be bound as often as wanted.
"""

from typing import NamedTuple

cimport cython
from libc.stdint cimport int32_t, int64_t
from libcpp.vector cimport vector

from fastgraph._core.order cimport Order

from fastgraph.errors import GraphError, HazardError


class Memory(NamedTuple):
    """A place that operands name.

    ``kind`` is one of ``arena``, ``input``, ``output``, ``param``, ``constant``, ``scalars``,
    ``staging``, ``buffer``, ``faults``; ``nbytes`` is its size in bytes.
    """

    kind: str
    name: str
    nbytes: int


@cython.final
@cython.no_gc
@cython.auto_pickle(False)
cdef class Operand:
    """``nbytes`` bytes from ``offset`` on in memory number ``memory``, read, written or both."""

    def __init__(self, memory, offset, nbytes, bint reads, bint writes):
        self.memory = memory
        self.offset = offset
        self.nbytes = nbytes
        self.reads = reads
        self.writes = writes

    def __eq__(self, other):
        return type(other) is Operand and operand_fields(self) == operand_fields(other)

    def __hash__(self):
        return hash(tuple(operand_fields(self).values()))

    def _replace(self, **changes):
        """Return an operand with some fields changed."""
        return Operand(**{**operand_fields(self), **changes})

    def __repr__(self):
        return described(self, operand_fields(self))


cdef dict operand_fields(Operand self):
    return {"memory": self.memory, "offset": self.offset, "nbytes": self.nbytes,
            "reads": self.reads, "writes": self.writes}


cdef str described(self, dict fields):
    inside = ", ".join([f"{name}={value!r}" for name, value in fields.items()])
    return f"{type(self).__name__}({inside})"


cdef Operand Operand_create(object memory, object offset, object nbytes, bint reads, bint writes):
    cdef Operand self = Operand.__new__(Operand)
    self.memory = memory
    self.offset = offset
    self.nbytes = nbytes
    self.reads = reads
    self.writes = writes
    return self


@cython.final
@cython.auto_pickle(False)
cdef class RecordNode:
    """One node: the host kernel's name (None where there is none), operands and constants.

    ``kind`` is ``function``, ``copy``, ``memset``, ``empty``, ``host``, ``child``, ``if``,
    ``while`` or ``switch``; ``parts`` is into how many slices the work may be cut; ``cost_ns`` is
    an estimate for one thread; ``label`` names the operator. A ``child`` has one body, done once;
    an ``if`` one or two, chosen by the uint32 that is its operand; a ``while`` one, done as long
    as that is not 0; a ``switch`` any number, the one of that number is done. ``call`` is what a
    node without a kernel name does: a `PythonCall`, a `Launch` or a `Foreign`. What is switched
    off (``enabled``) is passed over.
    """

    def __init__(self, name, kind, kernel, operands, params, parts, cost_ns, dependencies, label,
                 keep, bodies=(), call=None, enabled=True):
        self.name = name
        self.kind = kind
        self.kernel = kernel
        self.operands = operands
        self.params = params
        self.parts = parts
        self.cost_ns = cost_ns
        self.dependencies = dependencies
        self.label = label
        self.keep = keep
        self.bodies = bodies
        self.call = call
        self.enabled = enabled

    def __eq__(self, other):
        return type(other) is RecordNode and node_fields(self) == node_fields(other)

    def __hash__(self):
        return hash(tuple(node_fields(self).values()))

    def _replace(self, **changes):
        """Return a node with some fields changed."""
        return RecordNode(**{**node_fields(self), **changes})

    def __repr__(self):
        return described(self, node_fields(self))


cdef dict node_fields(RecordNode self):
    return {name: getattr(self, name) for name in NODE_FIELDS}

cdef tuple NODE_FIELDS = (
    "name", "kind", "kernel", "operands", "params", "parts", "cost_ns", "dependencies", "label",
    "keep", "bodies", "call", "enabled")


class PythonCall(NamedTuple):
    """A Python callable and its arguments.

    Each argument is ``("value", object)``, ``("array", operand, shape, dtype)`` or
    ``("scalar", operand, dtype)``, where ``operand`` counts the node's operands.
    """

    function: object
    arguments: tuple


class Launch(NamedTuple):
    """A kernel of a GPU and how it is launched.

    ``function`` has the driver's ``handle``. Sizes are triples; ``cluster`` is None without one,
    ``priority`` None without one. Each argument is ``("value", bytes)``, ``("pointer", operand)``
    or ``("scalar", operand, nbytes)``, where ``operand`` counts the node's operands.
    ``programmatic`` says that every path of the kernel waits for the kernels before it.
    """

    function: object
    grid: tuple
    block: tuple
    arguments: tuple
    shared_bytes: int = 0
    cluster: object = None
    cooperative: bool = False
    priority: object = None
    programmatic: bool = False


class Foreign(NamedTuple):
    """A driver graph that others made: ``handle``, and what keeps it alive.

    ``again`` is called with the addresses of the node's operands, as a tuple, and makes the same
    work anew for those, as a `Foreign`; without it the node cannot be bound a second time. Where
    ``handle`` is 0 there is no graph before the node is bound. ``enqueue(stream, addresses)`` does
    the work outside of graphs, where that is known.
    """

    handle: int
    owner: object
    again: object = None
    enqueue: object = None

    @property
    def arguments(self):
        """Tuple: nothing; it takes addresses alone."""
        return ()


KINDS = frozenset(
    ("arena", "input", "output", "param", "constant", "scalars", "staging", "buffer", "faults",
     "tap", "handle"))


def accesses_of(node):
    """Return the operands of `node` and of all nodes in its bodies."""
    found = list(node.operands)
    for body in node.bodies:
        for inner in body:
            found += accesses_of(inner)
    return found


def flat_nodes(nodes):
    """Return nodes and those in their bodies, what holds bodies before what is in them."""
    found = []
    for node in nodes:
        found.append(node)
        for body in node.bodies:
            found += flat_nodes(body)
    return found


cdef struct Span:
    int64_t start
    int64_t stop
    int32_t node


cdef class Spans:
    """Accesses of one memory, sorted by start, stop and node."""

    cdef vector[Span] spans
    cdef int64_t longest

    cdef size_t place_of(self, int64_t start, int64_t stop, int32_t node) noexcept nogil:
        """Where such an access lies, or would lie."""
        cdef size_t low = 0, high = self.spans.size(), middle
        cdef Span *span
        while low < high:
            middle = (low + high) // 2
            span = &self.spans[middle]
            if (span.start < start or span.start == start and (
                    span.stop < stop or span.stop == stop and span.node < node)):
                low = middle + 1
            else:
                high = middle
        return low

    cdef void add(self, int64_t start, int64_t stop, int32_t node) noexcept nogil:
        cdef Span span
        span.start, span.stop, span.node = start, stop, node
        self.spans.insert(self.spans.begin() + self.place_of(start, stop, node), span)
        self.longest = max(self.longest, stop - start)


@cython.final
cdef class Record:
    """A graph of nodes over memories. Grows by `add_memory` and `add_node`, then stays.

    Examples
    --------
    >>> from fastgraph._core.record import Operand, Record
    >>> record = Record()
    >>> x = record.add_memory("buffer", "x", 64)
    >>> record.add_node("set", "memset", "set_bytes", [Operand(x, 0, 64, False, True)], (64, 1, 7))
    0
    >>> record.edges()
    []
    """

    def __cinit__(self):
        self.memories = []
        self.nodes = []

    def add_memory(self, kind, name, nbytes):
        """Add a memory and return its number."""
        if kind not in KINDS:
            raise GraphError(f"{kind!r} is not a kind of memory; those are {sorted(KINDS)}")
        self.memories.append(Memory(kind, name, nbytes))
        return len(self.memories) - 1

    def add_node(self, name, kind, kernel, operands, params=(), parts=1, cost_ns=0.0,
                 dependencies=(), label="", keep=None, bodies=(), call=None):
        """Add a node and return its id.

        Parameters
        ----------
        name, kind, kernel, params, parts, cost_ns, label
            As `RecordNode` has them.
        operands : iterable of Operand
        dependencies : iterable of int
            Ids of earlier nodes; a node named twice counts once.
        keep : object
            Kept alive as long as the record.
        bodies : iterable of Record
            Made by `body`; their nodes.
        call : PythonCall, Launch or Foreign, optional

        Returns
        -------
        int

        Raises
        ------
        GraphError
            An operand lies outside its memory, or a dependency is not an earlier node. Nothing
            was added.
        """
        if not 1 <= parts <= 0xffff:
            # The other checks come first: which of several errors is told stays the same.
            check(self, name, tuple(operands), ids(dependencies))
            raise GraphError(f"node {name!r}: {parts} parts; 1 to 65535 are possible")
        return self.add(RecordNode(
            name, kind, kernel, tuple(operands), tuple(params), parts, cost_ns, ids(dependencies),
            label, keep, tuple([tuple((<Record?> body).nodes) for body in bodies]), call))

    cdef int add(self, RecordNode node) except -1:
        """Add a node whose dependencies name nobody twice; return its id."""
        check(self, node.name, node.operands, node.dependencies)
        self.nodes.append(node)
        return <int> len(self.nodes) - 1

    cpdef Record body(self):
        """Return an empty record over the same memories, for the body of a node of this one."""
        cdef Record inner = Record.__new__(Record)
        inner.memories = self.memories
        return inner

    def replace_node(self, index, node):
        """Put `node` in the place of node `index`; its dependencies and bodies must be the same."""
        self.nodes[index] = node

    def copy(self):
        """Return a record with lists of its own over the same nodes and memories."""
        cdef Record twin = Record.__new__(Record)
        twin.memories = list(self.memories)
        twin.nodes = list(self.nodes)
        return twin

    def dependencies(self):
        """Return for each node the ids that it waits for."""
        return [node.dependencies for node in self.nodes]

    def edges(self):
        """Return all edges as (earlier, later) pairs of ids, in order of the later one."""
        return [(d, i) for i, node in enumerate(self.nodes) for d in node.dependencies]

    def check_hazards(self):
        """Raise HazardError if unordered nodes touch the same bytes and one of them writes.

        Raises
        ------
        HazardError
            Names both nodes and the memory.
        """
        check_list(self, self.nodes)


cdef int check_list(Record self, nodes) except -1:
    cdef RecordNode node
    cdef Operand operand
    cdef Order order
    cdef dict frontiers = {}
    cdef Py_ssize_t i
    for node in nodes:
        for body in node.bodies:
            check_list(self, body)
    order = Order([(<RecordNode> each).dependencies for each in nodes])
    if order.total:
        return 0
    for i in range(len(nodes)):
        node = nodes[i]
        for operand in accesses_of(node) if node.bodies else node.operands:
            # Neither read nor written is what nobody said how it is used.
            if operand.nbytes and (operand.reads or operand.writes):
                frontier = frontiers.get(operand.memory)
                if frontier is None:
                    frontier = frontiers[operand.memory] = (Spans(), Spans())
                meet(self, nodes, order, frontier, <int32_t> i, operand)
    return 0


cdef int meet(Record self, nodes, Order order, tuple frontier, int32_t node,
              Operand operand) except -1:
    """Check one access against the last ones of its memory, then let it replace some.

    Nodes come in topological order, so what `node` covers and follows needs no second look: a
    later node that conflicts with it conflicts with `node` too.
    """
    cdef Spans readers = frontier[0], writers = frontier[1]
    cdef int64_t start = operand.offset, stop = start + <int64_t> operand.nbytes
    meet_all(self, nodes, order, writers, start, stop, node, operand)
    # A read looks at no other read: many nodes may read one memory in no order.
    if operand.writes:
        meet_all(self, nodes, order, readers, start, stop, node, operand)
        writers.add(start, stop, node)
    if operand.reads:
        readers.add(start, stop, node)
    return 0


cdef int meet_all(Record self, nodes, Order order, Spans others, int64_t start, int64_t stop,
                  int32_t node, Operand operand) except -1:
    cdef size_t at = others.place_of(start - others.longest, 0, 0), kept = at
    cdef size_t end = others.place_of(stop, 0, 0)
    cdef Span span
    while at < end:
        span = others.spans[at]
        at += 1
        if span.node != node and span.stop > start:
            if not order.comes_before(span.node, node):
                memory = self.memories[operand.memory]
                raise HazardError(
                    f"nodes {span.node} {nodes[span.node].name!r} and {node} "
                    f"{nodes[node].name!r} both touch bytes {max(span.start, start)} to "
                    f"{min(span.stop, stop)} of {memory.name!r} ({memory.nbytes} bytes), one of "
                    "them writes, and no edge orders them; add a dependency")
            if operand.writes and start <= span.start and span.stop <= stop:
                continue
        others.spans[kept] = span
        kept += 1
    others.spans.erase(others.spans.begin() + kept, others.spans.begin() + end)
    return 0


cdef int check(Record self, name, tuple operands, tuple dependencies) except -1:
    cdef Py_ssize_t n_memories = len(self.memories), n_nodes = len(self.nodes)
    cdef Operand operand
    for operand in operands:
        if not is_index(operand.memory, n_memories):
            raise GraphError(f"node {name!r}: no memory has number {operand.memory}")
        memory = self.memories[operand.memory]
        if not lies_within(operand, memory.nbytes):
            raise GraphError(
                f"node {name!r}: bytes {operand.offset} to {operand.offset + operand.nbytes} "
                f"lie outside {memory.kind} {memory.name!r} of {memory.nbytes} bytes")
    for d in dependencies:
        if not is_index(d, n_nodes):
            raise GraphError(
                f"node {name!r} depends on node {d}; the nodes so far are 0 to "
                f"{n_nodes - 1}")
    return 0


cdef bint is_index(value, Py_ssize_t count) except -1:
    cdef Py_ssize_t index
    try:
        index = value
    except OverflowError:
        return False
    return 0 <= index < count


cdef bint lies_within(Operand operand, int64_t limit) except -1:
    cdef int64_t offset, nbytes
    try:
        offset, nbytes = operand.offset, operand.nbytes
    except OverflowError:
        return False
    return offset >= 0 and nbytes <= limit and offset <= limit - nbytes


cdef tuple ids(dependencies):
    """Ids of nodes, each once."""
    return tuple(dict.fromkeys([int(d) for d in dependencies]))
