# cython: language_level=3
"""A record as a flat program for the cpu: made once, bound to memory as often as wanted."""

from operator import index as as_word

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libcpp.vector cimport vector

from fastgraph._core.counters cimport PROGRAMS, counters_add
from fastgraph._core.isa cimport isa_lookup
from fastgraph._core.record cimport Operand, RecordNode
from fastgraph._core.sizes cimport SizeTable
from fastgraph._core.types cimport (
    FG_NATIVE_ARGS, FG_NATIVE_COUNT, FG_NATIVE_POINTER, FG_NATIVE_VALUE)

from fastgraph._core.sizes import ActiveSize, form_of

cdef double SLOW_NS = 50_000.0


cdef class HostProgram:
    """A record made ready to run: kernels looked up, operands and constants in flat tables.

    Parameters
    ----------
    record : Record
    isa : str
        The instruction set whose kernels are used.
    dims : tuple of (str, int), optional
        Name and upper bound of each dimension that sizes in the record follow.

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

    def __init__(self, record, str isa not None, tuple dims=None):
        if self.record is not None:
            raise TypeError("a program is made once")
        self.record = record
        self.isa = isa
        self.sizes = None if dims is None else SizeTable(dims)
        self.flat = []
        self.add_units(record.nodes, None, [], -1)
        self.first.push_back(<uint32_t> self.nodes.size())
        self.plan.finish()
        for i in range(<Py_ssize_t> self.nodes.size()):
            self.nodes[i].params = self.params.data() + self.first_param[i]
            if (<RecordNode> self.flat[i]).kernel == "call_native":
                self.stream_call(i, self.first_param[i])
        for i in range(<Py_ssize_t> self.nodes.size() - 1, 0, -1):
            if self.nodes[i - 1].natives:
                self.nodes[i - 1].natives += self.nodes[i].natives

    def set_extents(self, tuple actual not None):
        """Let sizes follow these extents, one for each of `dims`; no run is under way."""
        cdef size_t i
        cdef int64_t value
        cdef sized place
        self.sizes.evaluate(actual)
        for i in range(self.follows.size()):
            place = self.follows[i]
            value = self.sizes.values[place.number]
            if place.what == WORD:
                self.params[place.at] = value
            elif place.what == OFFSET:
                self.operands[place.at].offset = <uint64_t> value
            else:
                self.nodes[place.at].parts = <uint32_t> value

    cdef int follow(self, sized_what what, size_t at, size) except -1:
        """Note what of the program follows extents."""
        cdef sized place
        if self.sizes is None:
            return 0
        place.what = what
        place.at = at
        place.number = self.sizes.add_form(form_of(size))
        self.follows.push_back(place)
        return 0

    cdef int follow_parts(self, RecordNode node, size_t entry) except -1:
        """A call that gives less has fewer parts, and none where it gives nothing."""
        cdef Operand operand
        if self.sizes is None:
            return 0
        for operand in node.operands:
            if operand.writes:
                if isinstance(operand.nbytes, ActiveSize) and int(operand.nbytes):
                    self.follow(PARTS, entry, -(-node.parts * operand.nbytes
                                                // int(operand.nbytes)))
                return 0
        return 0

    cdef int add_units(self, nodes, list last, list given, Py_ssize_t top) except -1:
        """Append the entries of record nodes, and to `plan` what each of them waits for.

        Nodes of a list that wait for nothing in it wait for the units `given`. What nobody in it
        waits for is added to `last`, if that is not None. A `child` is its nodes.
        """
        cdef vector[uint32_t] before
        cdef vector[char] awaited
        cdef size_t at, i
        cdef Py_ssize_t number, index
        cdef bint python
        cdef RecordNode node
        cdef list units = []
        awaited.resize(len(nodes))
        for number in range(len(nodes)):
            node = nodes[number]
            index = number if top < 0 else top
            if top < 0:
                self.first.push_back(<uint32_t> self.nodes.size())
            if len(node.dependencies) == 1:
                wanted = units[node.dependencies[0]] or given
            else:
                wanted = {unit for d in node.dependencies for unit in units[d]} or given
            for d in node.dependencies:
                awaited[d] = 1
            at = self.nodes.size()
            if node.kind == "child":
                inner = []
                self.add_units(node.bodies[0], inner, list(wanted), index)
                units.append(inner or list(wanted))
                continue
            self.emit(node, index)
            before.clear()
            for unit in wanted:
                before.push_back(unit)
            python = False
            for i in range(at, self.nodes.size()):
                python = python or self.nodes[i].control == PYTHON
            units.append([self.plan.add(
                <uint32_t> at, <uint32_t> self.nodes.size(), python, before)])
        if last is not None:
            last.extend({unit for number in range(len(units)) if not awaited[number]
                         for unit in units[number]})
        return 0

    cdef int emit(self, RecordNode node, Py_ssize_t top) except -1:
        """Append the entries of one record node, those of its bodies included."""
        cdef Py_ssize_t at, end
        if node.kind == "child":
            for inner in node.bodies[0]:
                self.emit(inner, top)
        elif node.kind == "if":
            at = self.append(node, top, BRANCH_ZERO)
            for inner in node.bodies[0]:
                self.emit(inner, top)
            if len(node.bodies) > 1:
                end = self.append(node, top, JUMP)
                self.nodes[at].target = <int32_t> self.nodes.size()
                for inner in node.bodies[1]:
                    self.emit(inner, top)
                at = end
            self.nodes[at].target = <int32_t> self.nodes.size()
        elif node.kind == "while":
            at = self.append(node, top, BRANCH_ZERO)
            for inner in node.bodies[0]:
                self.emit(inner, top)
            end = self.append(node, top, JUMP)
            self.nodes[end].target = <int32_t> at
            self.nodes[at].target = <int32_t> self.nodes.size()
        elif node.kind == "switch":
            at = self.append(node, top, SWITCH)
            table = self.params.size()
            self.params.push_back(len(node.bodies))
            for _ in node.bodies:
                self.params.push_back(0)
            jumps = []
            for number, body in enumerate(node.bodies):
                self.params[table + 1 + <size_t> number] = <int64_t> self.nodes.size()
                for inner in body:
                    self.emit(inner, top)
                jumps.append(self.append(node, top, JUMP))
            for jump in (at, *jumps):
                self.nodes[<Py_ssize_t> jump].target = <int32_t> self.nodes.size()
        elif not node.enabled:
            pass
        elif node.call is not None:
            self.append(node, top, PYTHON)
        elif node.kernel is not None:
            self.append(node, top, CALL)
        return 0

    cdef Py_ssize_t append(self, RecordNode node, Py_ssize_t top, host_control control) except -1:
        cdef host_node entry
        cdef host_operand where
        cdef Operand operand
        entry.control = control
        entry.target = 0
        if control == CALL and self.kernel is not node.kernel:
            self.found = isa_lookup(node.kernel, self.isa)
            self.kernel = node.kernel
        entry.run = self.found if control == CALL else NULL
        entry.params = NULL
        entry.first = <uint32_t> self.operands.size()
        entry.parts = node.parts
        entry.natives = entry.at = 0
        entry.slow = node.cost_ns / node.parts > SLOW_NS
        for operand in node.operands:
            where.memory = operand.memory
            where.offset = operand.offset
            if type(operand.offset) is not int and isinstance(operand.offset, ActiveSize):
                self.follow(OFFSET, self.operands.size(), operand.offset)
            self.operands.push_back(where)
        self.first_param.push_back(self.params.size())
        for word in node.params:
            if type(word) is not int and isinstance(word, ActiveSize):
                self.follow(WORD, self.params.size(), word)
            self.params.push_back(word if type(word) is int else as_word(word))
        if control == CALL:
            self.follow_parts(node, self.nodes.size())
        self.nodes.push_back(entry)
        self.node_ids.push_back(top)
        self.flat.append(node)
        self.cost_ns += node.cost_ns
        self.max_parts = max(self.max_parts, entry.parts)
        self.has_control = self.has_control or control != CALL
        self.has_python = self.has_python or control == PYTHON
        return <Py_ssize_t> self.nodes.size() - 1

    cdef int stream_call(self, size_t entry, size_t param) except -1:
        """Put a call of a native kernel into the stream, unless its values lie in memory."""
        cdef size_t count, i, word
        cdef int64_t given
        cdef host_patch patch
        count = <size_t> self.params[param + FG_NATIVE_COUNT]
        for i in range(count):
            if self.params[param + FG_NATIVE_ARGS + i] == FG_NATIVE_VALUE:
                return 0
        if self.nodes[entry].slow or self.nodes[entry].parts > 1:
            return 0
        self.nodes[entry].natives = 1
        self.nodes[entry].at = <uint32_t> self.stream.size()
        patch.operand = self.nodes[entry].first
        for i in range(<size_t> FG_NATIVE_ARGS + count):
            given = self.params[param + i]
            if i >= <size_t> FG_NATIVE_ARGS:
                word = <size_t> given
                if given == FG_NATIVE_POINTER:
                    patch.word = <uint32_t> self.stream.size()
                    self.patches.push_back(patch)
                    patch.operand += 1
                    given = 0
                else:
                    given = self.params[param + word]
            self.stream.push_back(given)
        return 0
