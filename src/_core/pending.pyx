# cython: language_level=3
"""What a builder gathers before there is a record, and how the record is made of it.

Building costs a few microseconds a node, so what happens for each one is compiled.
"""

from collections.abc import Iterable

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport uintptr_t

from fastgraph._core.buffer cimport Buffer
from fastgraph._core.record cimport (
    Operand, Operand_create, Record, RecordNode)

from fastgraph.errors import GraphError, ScopeError


cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() nogil

# Estimates for one thread: a node, and a byte that it touches in memory.
cdef double NODE_NS = 10.0
cdef double BYTE_NS = 0.1


@cython.final
@cython.auto_pickle(False)
cdef class Node:
    """A node of the graph being built: what `dependencies=` takes.

    Attributes
    ----------
    id : int
        Its number, in the order of adding.
    name : str
    """

    def __init__(self, builder, Py_ssize_t id, name):
        self._builder = builder
        self.id = id
        self.name = name

    @property
    def path(self):
        """tuple of int: what `DeviceGraph.update` finds it by, also inside bodies."""
        return (*self._builder._path, self.id)

    @property
    def outputs(self):
        """tuple of Scratch or Buffer: where a child graph leaves its outputs; else empty."""
        return () if self._outputs is None else self._outputs

    def _tell_outputs(self, tuple outputs not None):
        self._outputs = outputs

    def __repr__(self):
        return f"<Node {self.id} {self.name!r}>"


@cython.final
@cython.no_gc                            # a place never leads back to what is done to it
@cython.auto_pickle(False)
cdef class Access:
    """One operand: where it lies and what is done to it; nobody said what if not `known`.

    ``place`` is a Buffer, a Scratch, a Scalar, a PointerSlot or an ndarray.
    """

    def __init__(self, place, bint reads, bint writes, bint known=True):
        self.place = place
        self.reads = reads
        self.writes = writes
        self.known = known


cdef Access Access_create(object place, bint reads, bint writes):
    cdef Access self = Access.__new__(Access)
    self.place = place
    self.reads = reads
    self.writes = writes
    self.known = True
    return self


@cython.final
@cython.auto_pickle(False)
cdef class Work:
    """What a node does. `spec` are the arguments that it was made of, for updates.

    ``bodies`` are the works of the nodes inside; a builder has those in `Pending`.
    """

    def __init__(self, name, kind, kernel, tuple accesses not None, tuple params not None=(),
                 keep=None, call=None, spec=None, tuple bodies not None=()):
        self.name = name
        self.kind = kind
        self.kernel = kernel
        self.accesses = accesses
        self.params = params
        self.keep = keep
        self.call = call
        self.spec = {} if spec is None else spec
        self.bodies = bodies

    def _replace(self, **changes):
        """Return a work with some fields changed."""
        return Work(**{**{name: getattr(self, name) for name in WORK_FIELDS}, **changes})


cdef tuple WORK_FIELDS = (
    "name", "kind", "kernel", "accesses", "params", "keep", "call", "spec", "bodies")


@cython.final
@cython.auto_pickle(False)
cdef class Pending:
    """A node as the builder holds it: `work`, what it waits for, and what is inside it."""

    def __init__(self, name, Work work not None, tuple dependencies not None,
                 tuple bodies not None=(), inlined=None):
        self.name = name
        self.work = work
        self.dependencies = dependencies
        self.bodies = bodies
        self.inlined = inlined


cdef class Gatherer:
    """The part of a builder that every call of it goes through."""

    def __cinit__(self):
        self._nodes = []
        self._pending = []
        self._open = True
        self._thread = PyThread_get_thread_ident()

    def _check_open(self):
        """Raise ScopeError unless nodes can be added now, by this thread."""
        if not self._open:
            raise ScopeError("this builder's callback has returned; build a new graph instead")
        if self._thread != PyThread_get_thread_ident():
            raise ScopeError("a builder belongs to the thread of its build callback")
        if self._busy:
            raise ScopeError("a body is being built; use the builder that it was given")

    def _place(self, value, bint written=False):
        """Return a place of this graph for what a caller gave; InputError for what is none."""
        if type(value) is Buffer and (<Buffer> value).device == self._device:
            return value
        return self._checked_place(value, written)

    def _has(self, Node node not None):
        """Tell whether `node` is one of this builder's."""
        return has(self, node)

    def _ids(self, dependencies):
        """Return the ids of nodes to wait for, each once."""
        return ids(self, dependencies)

    def _add(self, name, Work work not None, dependencies, tuple bodies=(), inlined=None):
        """Add a node of checked work; return it."""
        cdef Access access
        cdef Node node
        cdef tuple wanted
        if name is not None and not isinstance(name, str):
            raise GraphError(f"the name of a node is a string, not {name!r}")
        for access in work.accesses:
            if type(access.place) is not Buffer:
                self._check_scalar(access.place)
        wanted = ids(self, dependencies)
        if self._region is not None:
            wanted = tuple(dict.fromkeys((*wanted, *self._region._last)))
        node = Node.__new__(Node)
        node._builder = self
        node.id = len(self._nodes)
        node.name = work.name if name is None else name
        self._pending.append(Pending(node.name, work, wanted, bodies, inlined))
        self._nodes.append(node)
        if self._region is not None:
            self._region._last = (node.id,)
        return node


cdef bint has(Gatherer self, Node node):
    return (node._builder is self and 0 <= node.id < len(self._nodes)
            and self._nodes[node.id] is node)


cdef tuple ids(Gatherer self, dependencies):
    cdef Node node
    cdef list wanted = []
    if isinstance(dependencies, Node):
        dependencies = (dependencies,)
    elif not (type(dependencies) is list or type(dependencies) is tuple
              or isinstance(dependencies, Iterable)):
        raise GraphError(f"dependencies are nodes, not {type(dependencies).__name__}")
    for given in dependencies:
        if not isinstance(given, Node):
            raise GraphError(f"dependencies are nodes, not {type(given).__name__}")
        node = given
        if not has(self, node):
            other = node._builder
            if other is not self and other._shared is self._shared:
                raise ScopeError(f"{node!r} can be named only in the body that it is of")
            raise GraphError(f"{node!r} belongs to another graph")
        wanted.append(node.id)
    return tuple(wanted if len(wanted) < 2 else dict.fromkeys(wanted))


def places_of(list pendings not None):
    """Return every place that nodes and the nodes inside them touch, each once, in their order."""
    cdef dict found = {}
    cdef Pending pending
    for pending in pendings:
        gather_places(pending, found)
    return list(found.values())


def note_touches(list pendings not None, dict touched not None):
    """Add the number of each node to the lists in `touched` of the places that it touches.

    A place is found there by its `id`; those that are not there do not count.
    """
    cdef dict found = {}
    cdef Py_ssize_t number
    for number in range(len(pendings)):
        gather_places(pendings[number], found)
        for key in found:
            numbers = touched.get(key)
            if numbers is not None:
                (<list?> numbers).append(number)
        found.clear()


cdef int gather_places(Pending pending, dict found) except -1:
    cdef Access access
    for access in pending.work.accesses:
        gather_place(access.place, found)
    for body in pending.bodies:
        for inner in body:
            gather_places(inner, found)
    if pending.inlined is not None:
        for place in pending.inlined.places():
            gather_place(place, found)
    return 0


cdef inline int gather_place(object place, dict found) except -1:
    found[<uintptr_t> <PyObject *> place] = place
    if type(place) is not Buffer:
        base = getattr(place, "_base", None)
        if base is not None:                 # a range of scratch is planned as the whole
            found[<uintptr_t> <PyObject *> base] = base
    return 0


def works_of(list pendings not None):
    """Return what each node was made of, with the works of the nodes inside it."""
    cdef Pending pending
    cdef list works = []
    for pending in pendings:
        if pending.inlined is not None:
            works.append(pending.work._replace(bodies=(pending.inlined.all_works(),)))
        elif pending.bodies:
            works.append(pending.work._replace(
                bodies=tuple([tuple(works_of(body)) for body in pending.bodies])))
        else:
            works.append(pending.work)
    return works


cpdef tuple where_of(object place, dict located):
    """Return memory and offset of a place; `located` has those that are no range of others."""
    where = located.get(<uintptr_t> <PyObject *> place)
    if where is None:
        where = located[<uintptr_t> <PyObject *> place._base]
        return where[0], where[1] + place.offset
    return where


cpdef tuple operands_of(tuple accesses, dict located, bint unknown):
    """Return the operands of a node; of what is not known nothing is claimed unless `unknown`.

    Parameters
    ----------
    accesses : tuple of Access
    located : dict
        Memory and offset of each place, by its `id`.
    unknown : bool
        Whether accesses of which nothing is known count as read and write.
    """
    cdef Access access
    cdef bint known
    cdef list operands = []
    for access in accesses:
        place = access.place
        where = where_of(place, located)
        nbytes = (<Buffer> place).nbytes if type(place) is Buffer else place.nbytes
        known = access.known or unknown
        operands.append(Operand_create(
            where[0], where[1], nbytes, access.reads and known, access.writes and known))
    return tuple(operands)


def add_nodes(Record record not None, list pendings not None, dict located not None, bint unknown):
    """Add a node to `record` for each of `pendings`; the rest is as `operands_of` has it."""
    cdef Pending pending
    cdef RecordNode node
    cdef Operand operand
    cdef double nbytes
    for pending in pendings:
        node = RecordNode.__new__(RecordNode)
        node.name = pending.name
        node.kind = pending.work.kind
        node.kernel = pending.work.kernel
        node.operands = operands_of(pending.work.accesses, located, unknown)
        node.params = pending.work.params
        node.parts = 1
        nbytes = 0.0
        for operand in node.operands:
            nbytes += <double> operand.nbytes
        node.cost_ns = NODE_NS + BYTE_NS * nbytes
        node.dependencies = pending.dependencies
        node.label = ""
        node.keep = pending.work.keep
        node.bodies = ()
        if pending.bodies or pending.inlined is not None:
            node.bodies = bodies_of(record, pending, located, unknown)
        node.call = pending.work.call
        node.enabled = True
        record.add(node)


cdef tuple bodies_of(Record record, Pending pending, dict located, bint unknown):
    cdef Record inner
    cdef list bodies = []
    for body in pending.bodies:
        inner = record.body()
        add_nodes(inner, body, located, unknown)
        bodies.append(tuple(inner.nodes))
    if pending.inlined is not None:
        inner = record.body()
        add_nodes(inner, pending.inlined.copies, located, unknown)
        count = len(inner.nodes)
        for node in moved(pending.inlined.nodes, pending.inlined, located):
            if count:                        # each input is filled before anything else is done
                before = tuple([number + count for number in node.dependencies])
                node = node._replace(dependencies=before or tuple(range(count)))
            inner.nodes.append(node)
        bodies.append(tuple(inner.nodes))
    return tuple(bodies)


cdef tuple moved(tuple nodes, inlined, dict located):
    """The nodes of a child graph over the memories of its parent."""
    cdef list found = []
    for node in nodes:
        operands = []
        for operand in node.operands:
            place, at = inlined.find(operand.memory, operand.offset, operand.nbytes)
            number, start = where_of(place, located)
            operands.append(operand._replace(memory=number, offset=start + at))
        bodies = tuple([moved(body, inlined, located) for body in node.bodies])
        found.append(node._replace(operands=tuple(operands), bodies=bodies))
    return tuple(found)
