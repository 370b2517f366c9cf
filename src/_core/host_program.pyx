# cython: language_level=3
"""A record as a flat program for the cpu: made once, bound to memory as often as wanted."""

from operator import index as as_word

from libc.stdint cimport int32_t, int64_t, uint32_t
from libcpp.vector cimport vector

from fastgraph._core.counters cimport PROGRAMS, counters_add
from fastgraph._core.isa cimport isa_lookup
from fastgraph._core.types cimport (
    FG_NATIVE_ARGS, FG_NATIVE_COUNT, FG_NATIVE_POINTER, FG_NATIVE_VALUE)

cdef double SLOW_NS = 50_000.0


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
        self.add_units(record.nodes, [], [], -1, first_param)
        self.first.push_back(<uint32_t> self.nodes.size())
        self.plan.finish()
        for i in range(<Py_ssize_t> self.nodes.size()):
            self.nodes[i].params = self.params.data() + <Py_ssize_t> first_param[i]
            if self.flat[i].kernel == "call_native":
                self.stream_call(i, <size_t> first_param[i])
        for i in range(<Py_ssize_t> self.nodes.size() - 1, 0, -1):
            if self.nodes[i - 1].natives:
                self.nodes[i - 1].natives += self.nodes[i].natives

    cdef int add_units(self, nodes, list last, list given, Py_ssize_t top,
                       list first_param) except -1:
        """Append the entries of record nodes, and to `plan` what each of them waits for.

        Nodes of a list that wait for nothing in it wait for the units `given`. What nobody in it
        waits for is added to `last`. A `child` is its nodes.
        """
        cdef vector[uint32_t] before
        cdef size_t at, i
        cdef bint python
        units = []
        awaited = set()
        for number, node in enumerate(nodes):
            index = number if top < 0 else top
            if top < 0:
                self.first.push_back(<uint32_t> self.nodes.size())
            wanted = {unit for d in node.dependencies for unit in units[d]} or given
            awaited.update(node.dependencies)
            at = self.nodes.size()
            if node.kind == "child":
                inner = []
                self.add_units(node.bodies[0], inner, list(wanted), index, first_param)
                units.append(inner or list(wanted))
                continue
            self.emit(node, index, first_param)
            before.clear()
            for unit in wanted:
                before.push_back(unit)
            python = False
            for i in range(at, self.nodes.size()):
                python = python or self.nodes[i].control == PYTHON
            units.append([self.plan.add(
                <uint32_t> at, <uint32_t> self.nodes.size(), python, before)])
        last.extend({unit for number, ends in enumerate(units) if number not in awaited
                     for unit in ends})
        return 0

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
        entry.parts = node.parts
        entry.natives = entry.at = 0
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
        self.has_control = self.has_control or control != CALL
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
