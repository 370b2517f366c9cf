# cython: language_level=3
"""A driver graph made from a record, its executable, and their updates.

The driver graph is kept as long as its executable: updates name its nodes. A record node may be
no node of the driver (an empty child), one, or many (a child, a conditional); what comes after it
waits for its exits.
"""

from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint64_t, uintptr_t
from libc.string cimport memcpy
from libcpp.vector cimport vector

from fastgraph._core.cuda_nodes cimport (
    CHILD_NODE, CONDITION_NODE, EMPTY_NODE, HOST_NODE, KERNEL_NODE, Maker, Maker_leaf, Maker_moved,
    Maker_setter, Shadow, Shadow_add, Shadow_condition, Shadow_create, Shadow_equals, Shadow_fixed,
    Shadow_push, blame, check_value, site)
from fastgraph._core.driver cimport (
    CONDITION_IF, CONDITION_SWITCH, CONDITION_WHILE, UPDATE_REFUSED, condition_create,
    condition_kind, edges, exec_create, exec_destroy, exec_set_enabled, graph_add_condition,
    graph_count_nodes, graph_create, graph_destroy)

from fastgraph._core.record cimport Record, RecordNode

from fastgraph.errors import DriverError, UnsupportedError

# So many exits of a child meet in an empty node: else m nodes that wait for n make m·n edges.
cdef Py_ssize_t WIDE = 16


class Rebuild(Exception):
    """A change that no update can make; ``args`` are why, the record node and its number."""


cdef class DriverGraph:
    """A driver graph and its one executable."""

    def __cinit__(self):
        self.context = 0
        self.graph = 0
        self.executable = 0
        self.n_nodes = 0
        self.has_priority = False

    def __init__(self):
        raise TypeError("made by a CudaGraph")

    def __dealloc__(self):
        # What its nodes point to lives until the last launch is done: the CudaGraph sees to that.
        if self.executable:
            exec_destroy(self.executable)
        if self.graph:
            graph_destroy(self.graph)


cdef DriverGraph DriverGraph_create(Record record, Maker maker):
    """Build and instantiate; when that fails nothing is left, and the error names the node."""
    cdef DriverGraph self = DriverGraph.__new__(DriverGraph)
    cdef Shadow shadow
    self.context = maker.places.context
    self.shadows = []
    self.graph = graph_create()
    add_nodes(self, maker, self.graph, record.nodes, [], -1, False)
    self.first.push_back(len(self.shadows))
    try:
        self.executable = exec_create(self.context, self.graph, self.has_priority)
    except BaseException as error:
        error.add_note(f"while a graph of {len(record.nodes)} nodes was instantiated")
        raise
    for shadow in self.shadows:
        if not shadow.enabled and shadow.kind != EMPTY_NODE:
            try:
                if exec_set_enabled(self.executable, shadow.node, False) == UPDATE_REFUSED:
                    raise DriverError("the driver refused to switch a node off")
            except BaseException as error:
                blame(error, shadow.source, shadow.top)
                raise
    index_scalars(self)
    index_foreigns(self)
    return self


cdef list add_nodes(DriverGraph self, Maker maker, uintptr_t graph, object nodes, list entry,
                    Py_ssize_t top, bint in_body):
    """Add the nodes of one list behind `entry`; return the exits of those that none waits for.

    `top` is -1 for the record's own list, else the number of the node that the list belongs to.
    """
    cdef list exits = [], before
    cdef Py_ssize_t number, d
    cdef bint is_top = top < 0
    cdef RecordNode node
    cdef tuple dependencies
    waited = bytearray(len(nodes))
    for number, node in enumerate(nodes):
        if is_top:
            top = number
            self.first.push_back(len(self.shadows))
        before = entry
        dependencies = node.dependencies
        if len(dependencies) == 1:
            d = dependencies[0]
            before = exits[d]
            waited[d] = 1
        elif dependencies:
            # An edge given twice is refused, and children hand on what others wait for as well.
            unique = {}
            for d in dependencies:
                unique.update(dict.fromkeys(<list> exits[d]))
                waited[d] = 1
            before = list(unique)
        exits.append(add_node(self, maker, graph, node, before, top, in_body))
    if not nodes:
        return entry
    leaves = {}
    for number in range(len(exits)):
        if not waited[number]:
            leaves.update(dict.fromkeys(<list> exits[number]))
    return list(leaves)


cdef list add_node(DriverGraph self, Maker maker, uintptr_t graph, RecordNode node, list before,
                   Py_ssize_t top, bint in_body):
    """Add one node of the record; return its exits."""
    cdef Shadow shadow
    if node.kind == "child" and node.bodies:
        return add_child(self, maker, graph, node, before, top, in_body)
    if node.bodies or node.kind in ("if", "while", "switch"):
        return add_conditional(self, maker, graph, node, before, top, in_body)
    try:
        shadow = Maker_leaf(maker, node, top, in_body)
        put(self, shadow, graph, before)
    except BaseException as error:
        blame(error, node, top)
        raise
    self.shadows.append(shadow)
    return [shadow]


cdef list add_child(DriverGraph self, Maker maker, uintptr_t graph, RecordNode node, list before,
                    Py_ssize_t top, bint in_body):
    """Put the nodes of a child in its parent's graph."""
    cdef list leaves
    cdef Py_ssize_t roots = 0
    if not node.enabled:
        error = UnsupportedError("a child graph cannot be switched off on cuda")
        blame(error, node, top)
        raise error
    if len(before) > WIDE:
        for inner in node.bodies[0]:
            roots += not inner.dependencies
        if roots > 1:
            before = join(self, graph, before, node, top, in_body)
    leaves = add_nodes(self, maker, graph, node.bodies[0], before, top, in_body)
    return join(self, graph, leaves, node, top, in_body) if len(leaves) > WIDE else leaves


cdef list join(DriverGraph self, uintptr_t graph, list before, RecordNode node, Py_ssize_t top,
               bint in_body):
    """An empty node that waits for all."""
    cdef Shadow shadow = Shadow_create(EMPTY_NODE, node, top, in_body)
    try:
        put(self, shadow, graph, before)
    except BaseException as error:
        blame(error, node, top)
        raise
    return [shadow]


cdef list add_conditional(DriverGraph self, Maker maker, uintptr_t graph, RecordNode node,
                          list before, Py_ssize_t top, bint in_body):
    """A kernel that sets the condition, the conditional node, and its bodies."""
    cdef Shadow setter, again, shadow
    cdef uint64_t condition
    cdef condition_kind kind = (CONDITION_IF if node.kind == "if" else
                                CONDITION_WHILE if node.kind == "while" else CONDITION_SWITCH)
    cdef vector[uintptr_t] bodies
    cdef edges behind
    cdef list leaves
    cdef Py_ssize_t i
    bodies.resize(len(node.bodies))
    try:
        condition = condition_create(self.context, graph)
        setter = Maker_setter(maker, node, top, in_body, condition)
        put(self, setter, graph, before)
        shadow = Shadow_create(CONDITION_NODE, node, top, in_body)
        behind.nodes = &setter.node
        behind.programmatic = NULL
        behind.count = 1
        shadow.node = graph_add_condition(
            self.context, graph, &behind, condition, kind, <unsigned int> bodies.size(),
            bodies.data())
        self.n_nodes += 1
    except BaseException as error:
        blame(error, node, top)
        raise
    self.shadows.append(setter)
    for i, body in enumerate(node.bodies):
        leaves = add_nodes(self, maker, bodies[i], body, [], top, True)
    if node.kind == "while":
        try:
            again = Maker_setter(maker, node, top, True, condition)
            put(self, again, bodies[0], leaves)
        except BaseException as error:
            blame(error, node, top)
            raise
        self.shadows.append(again)
    return [shadow]


cdef int put(DriverGraph self, Shadow shadow, uintptr_t graph, list before) except -1:
    """Add one node of the driver, with its edges."""
    cdef vector[uintptr_t] nodes
    cdef vector[uint8_t] programmatic
    cdef edges behind
    cdef Shadow other
    cdef bint any_programmatic = False, is_programmatic
    cdef size_t inner = 1
    for other in before:
        nodes.push_back(other.node)
        # A programmatic edge says that the later kernel waits by itself; both must be kernels.
        is_programmatic = shadow.programmatic and other.kind == KERNEL_NODE
        any_programmatic = any_programmatic or is_programmatic
        programmatic.push_back(is_programmatic)
    behind.nodes = nodes.data()
    behind.programmatic = programmatic.data() if any_programmatic else NULL
    behind.count = nodes.size()
    Shadow_add(shadow, self.context, graph, &behind)
    if shadow.kind == CHILD_NODE:
        graph_count_nodes(<uintptr_t> shadow.owner.handle, &inner)
        inner += 1
    elif shadow.kind == KERNEL_NODE and shadow.spec.launch.has_priority:
        self.has_priority = True
    self.n_nodes += inner
    return 0


cdef int index_scalars(DriverGraph self) except -1:
    cdef Shadow shadow
    cdef Py_ssize_t number
    cdef size_t i
    self.scalar_sites = {}
    for number, shadow in enumerate(self.shadows):
        for i in range(shadow.sites.size()):
            if shadow.sites[i].nbytes:
                key = (shadow.sites[i].memory, shadow.sites[i].offset)
                numbers = self.scalar_sites.setdefault(key, [])
                if not numbers or numbers[-1] != number:
                    numbers.append(number)
    return 0


cdef int index_foreigns(DriverGraph self) except -1:
    cdef Shadow shadow
    self.foreigns = {}
    for shadow in self.shadows:
        if shadow.kind == CHILD_NODE:
            DriverGraph_know(self.foreigns, shadow)
    return 0


cdef int DriverGraph_know(dict known, Shadow shadow) except -1:
    """Note for which addresses a foreign graph was made."""
    known.setdefault(id(shadow.source.call), {})[shadow.addresses] = shadow.owner
    return 0


cdef int index_memories(DriverGraph self) except -1:
    cdef Shadow shadow
    cdef Py_ssize_t number
    cdef size_t i
    self.memory_sites = {}
    for number, shadow in enumerate(self.shadows):
        for i in range(shadow.sites.size()):
            if not shadow.sites[i].nbytes:
                numbers = self.memory_sites.setdefault(shadow.sites[i].memory, [])
                if not numbers or numbers[-1] != number:
                    numbers.append(number)
    return 0


# ---- changes

cdef int DriverGraph_diff(DriverGraph self, Maker maker, RecordNode old, RecordNode new,
                          Py_ssize_t top, dict changes) except -1:
    """Gather what becomes of the nodes of record node `top`; raises Rebuild where none can."""
    cdef Py_ssize_t cursor = self.first[top]
    compare(self, maker, old, new, top, False, &cursor, changes)
    return 0


cdef int compare(DriverGraph self, Maker maker, RecordNode old, RecordNode new, Py_ssize_t top,
                 bint in_body, Py_ssize_t *cursor, dict changes) except -1:
    cdef bint inside
    if old.dependencies != new.dependencies:
        raise Rebuild("other dependencies", new, top)
    if (old.kind != new.kind and (old.bodies or new.bodies)) or len(old.bodies) != len(new.bodies):
        raise Rebuild("another kind of node", new, top)
    if not new.bodies and new.kind not in ("if", "while", "switch"):
        return compare_shadow(self, maker, new, top, in_body, cursor, changes, False)
    inside = in_body or new.kind != "child"
    if new.kind != "child":
        compare_shadow(self, maker, new, top, in_body, cursor, changes, True)
    elif new.enabled != old.enabled:
        raise Rebuild("switched on or off", new, top)
    for mine, theirs in zip(old.bodies, new.bodies):
        if len(mine) != len(theirs):
            raise Rebuild("another number of nodes", new, top)
        for a, b in zip(mine, theirs):
            compare(self, maker, a, b, top, inside, cursor, changes)
    if new.kind == "while":
        compare_shadow(self, maker, new, top, True, cursor, changes, True)
    return 0


cdef int compare_shadow(DriverGraph self, Maker maker, RecordNode new, Py_ssize_t top, bint in_body,
                        Py_ssize_t *cursor, dict changes, bint is_setter) except -1:
    cdef Shadow had = self.shadows[cursor[0]], fresh
    try:
        if is_setter:
            fresh = Maker_setter(maker, new, top, in_body, Shadow_condition(had))
        else:
            fresh = Maker_leaf(maker, new, top, in_body)
    except BaseException as error:
        blame(error, new, top)
        raise
    reason = Shadow_fixed(had, fresh)
    if reason is not None:
        raise Rebuild(reason, new, top)
    if had.kind == HOST_NODE:
        fresh.owner = had.owner          # the driver has its address
    changes[cursor[0]] = fresh
    cursor[0] += 1
    return 0


cdef int DriverGraph_move(DriverGraph self, Maker maker, object memories, dict changes) except -1:
    """Gather what becomes of the nodes that name these memories."""
    cdef Shadow had
    if self.memory_sites is None:
        index_memories(self)
    for memory in memories:
        for number in self.memory_sites.get(memory, ()):
            if number not in changes:
                had = self.shadows[number]
                try:
                    changes[number] = Maker_moved(maker, had)
                except BaseException as error:
                    blame(error, had.source, had.top)
                    raise
    return 0


cdef str DriverGraph_push(DriverGraph self, dict changes):
    """Hand all changes to the executable, or none."""
    cdef Shadow had, fresh
    cdef list done = []
    cdef bint same_sites = True, any_foreign = False
    cdef str refused = None
    try:
        for number, fresh in changes.items():
            had = self.shadows[number]
            same_sites = same_sites and equal_sites(had, fresh)
            if Shadow_equals(had, fresh) and had.enabled == fresh.enabled:
                continue
            done.append((had, fresh))
            refused = push(self, had, fresh)
            if refused is not None:
                break
    except BaseException:
        put_back(self, done)
        raise
    if refused is not None:
        put_back(self, done)
        return refused
    for number, fresh in changes.items():
        fresh.node = (<Shadow> self.shadows[number]).node
        self.shadows[number] = fresh
        any_foreign = any_foreign or fresh.kind == CHILD_NODE
    if any_foreign:
        index_foreigns(self)
    if not same_sites:
        self.memory_sites = None
        index_scalars(self)
    return None


cdef bint equal_sites(Shadow a, Shadow b) noexcept:
    cdef size_t i
    if a.sites.size() != b.sites.size():
        return False
    for i in range(a.sites.size()):
        if (a.sites[i].where != b.sites[i].where or a.sites[i].nbytes != b.sites[i].nbytes
                or a.sites[i].memory != b.sites[i].memory
                or a.sites[i].offset != b.sites[i].offset):
            return False
    return True


cdef str push(DriverGraph self, Shadow had, Shadow fresh):
    """Give the node of `had` the parameters of `fresh`; None, or the node that refused them."""
    try:
        if not Shadow_equals(had, fresh):
            if Shadow_push(fresh, self.context, self.executable, had.node) == UPDATE_REFUSED:
                return f"the driver refused the change of node {fresh.top} {fresh.source.name!r}"
        if had.enabled != fresh.enabled and had.kind != EMPTY_NODE:
            if exec_set_enabled(self.executable, had.node, fresh.enabled) == UPDATE_REFUSED:
                return f"the driver refused to switch node {fresh.top} {fresh.source.name!r}"
    except BaseException as error:
        blame(error, fresh.source, fresh.top)
        raise
    return None


cdef int put_back(DriverGraph self, list done) except -1:
    """Undo what was pushed, the last first; the error that led here is the one to tell."""
    cdef Shadow had, fresh
    for had, fresh in reversed(done):
        try:
            push(self, fresh_with_node(fresh, had), had)
        except Exception:
            pass
    return 0


cdef Shadow fresh_with_node(Shadow fresh, Shadow had):
    fresh.node = had.node
    return fresh


cdef str DriverGraph_store(DriverGraph self, dict values, dict before):
    """Give the kernels new values of scalars, all or none."""
    cdef list dirty = []
    cdef Shadow shadow
    cdef str refused = None
    try:
        for key, value in values.items():
            for number in self.scalar_sites.get(key, ()):
                shadow = self.shadows[number]
                if not shadow.is_dirty:
                    shadow.is_dirty = True
                    dirty.append(shadow)
                patch(shadow, key, value)
        for shadow in dirty:
            if Shadow_push(shadow, self.context, self.executable, shadow.node) == UPDATE_REFUSED:
                refused = refusal(shadow)
                break
    except BaseException:
        unstore(self, dirty, values, before)
        raise
    if refused is not None:
        unstore(self, dirty, values, before)
    for shadow in dirty:
        shadow.is_dirty = False
    return refused


cdef str DriverGraph_store_one(DriverGraph self, tuple key, bytes value, bytes before):
    cdef PyObject *numbers = PyDict_GetItemWithError(self.scalar_sites, key)
    cdef Shadow shadow
    if numbers == NULL:
        return None                      # nothing reads it
    if len(<list> numbers) > 1:
        return ""
    shadow = self.shadows[<Py_ssize_t> (<list> numbers)[0]]
    try:
        patch(shadow, key, value)
        if Shadow_push(shadow, self.context, self.executable, shadow.node) != UPDATE_REFUSED:
            return None
    except BaseException:
        unstore(self, [shadow], {key: value}, {key: before})
        raise
    unstore(self, [shadow], {key: value}, {key: before})
    return refusal(shadow)


cdef str refusal(Shadow shadow):
    return f"the driver refused a value of node {shadow.top} {shadow.source.name!r}"


cdef int unstore(DriverGraph self, list dirty, dict values, dict before) except -1:
    cdef Shadow shadow
    for shadow in dirty:
        shadow.is_dirty = False
        for key in values:
            patch(shadow, key, before.get(key))
        try:
            Shadow_push(shadow, self.context, self.executable, shadow.node)
        except Exception:
            pass
    return 0


cdef int patch(Shadow shadow, tuple key, object value) except -1:
    """Write a value to every argument that is this scalar; zeros for None."""
    cdef size_t i, offset = key[1]
    cdef unsigned int memory = key[0]
    cdef const unsigned char *given
    cdef site *at
    for i in range(shadow.sites.size()):
        at = &shadow.sites[i]
        if at.nbytes and at.memory == memory and at.offset == offset:
            if value is None:
                value = bytes(at.nbytes)
            check_value(at, value)
            given = value
            memcpy(shadow.storage.data() + at.where, given, at.nbytes)
    return 0
