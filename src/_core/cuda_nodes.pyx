# cython: language_level=3
"""One node of a record as one node of a driver graph.

Executables have no getters, so of each node of the driver there is a shadow: its parameters, the
bytes that they point to, and where in them operands lie. What a node becomes is worked out before
the driver is asked, the same way for a new graph and for an update, which compares.
"""

cimport cython
from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.string cimport memcmp, memcpy, memset

from fastgraph._core.buffer cimport Block, Memory
from fastgraph._core.cuda_host cimport HostCall, HostCall_create, host_entry
from fastgraph._core.device_memory cimport memory_context
from fastgraph._core.driver cimport (
    UPDATE_REFUSED, UPDATE_TAKEN, copy_spec, edges, exec_set_child, exec_set_copy, exec_set_kernel,
    exec_set_set, graph_add_child, graph_add_copy, graph_add_empty, graph_add_host,
    graph_add_kernel, graph_add_set, graph_contents, launch_spec, set_spec)
from fastgraph._core.record cimport Operand, RecordNode

from fastgraph._core.record import Foreign, Launch, PythonCall
from fastgraph.errors import DriverError, GraphError, UnsupportedError

# Any type of C++ that a kernel can take by value is aligned in this.
cdef size_t ARGUMENT_ALIGNMENT = 16
cdef uint32_t FILL_THREADS = 256
cdef uint32_t FILL_BLOCKS = 1024


cdef class Places:
    """Where the memories of a record lie."""


cdef Places Places_create(list memories, object blocks, uintptr_t context):
    """Look at each (block, offset) of `blocks`; GraphError where one is too small."""
    cdef Places self = Places.__new__(Places)
    cdef Py_ssize_t i
    self.context = context
    self.blocks = [given if given is None or isinstance(given, tuple) else (given, 0)
                   for given in blocks]
    if len(self.blocks) != len(memories):
        raise GraphError(f"{len(self.blocks)} blocks for {len(memories)} memories")
    self.at.resize(len(memories))
    for i, given in enumerate(self.blocks):
        if given is None:
            self.at[i].is_bound = False
        else:
            self.at[i] = look(memories[i], given[0], given[1])
    return self


cdef place look(object memory, Block block, Py_ssize_t offset) except *:
    """What kind of memory a block is, and where."""
    cdef place found
    cdef Memory kind
    if block is None:
        raise GraphError(f"{memory.kind} {memory.name!r} is bound to nothing")
    if offset < 0 or offset + <Py_ssize_t> memory.nbytes > block.nbytes:
        raise GraphError(
            f"{memory.kind} {memory.name!r} needs {memory.nbytes} bytes; the block has "
            f"{block.nbytes - offset} from byte {offset} on")
    kind = block.memory
    found.base = block.ptr + <uintptr_t> offset
    found.is_bound = True
    found.is_pageable = kind is None
    found.is_host = kind is None or kind.host_visible
    found.context = 0 if found.is_host else memory_context(kind)
    return found


@cython.final
cdef class Shadow:
    """A node of a driver graph; what the driver would not tell again."""

    def __init__(self):
        raise TypeError("made by a graph")


cdef Shadow Shadow_create(node_kind kind, RecordNode source, Py_ssize_t top, bint in_body):
    cdef Shadow self = Shadow.__new__(Shadow)
    self.kind = kind
    self.node = 0
    memset(&self.spec, 0, sizeof(node_spec))
    self.source = source
    self.top = top
    self.in_body = in_body
    self.enabled = True
    self.programmatic = False
    self.is_dirty = False
    return self


cdef class Maker:
    """What all nodes of one graph are made with."""


cdef Shadow Maker_leaf(Maker self, RecordNode node, Py_ssize_t top, bint in_body):
    """The shadow of a node without bodies."""
    cdef Shadow shadow
    call = node.call
    if call is not None:
        if isinstance(call, Launch):
            shadow = launch_shadow(self, node, call, top, in_body)
        elif isinstance(call, Foreign):
            shadow = foreign_shadow(self, node, call, top, in_body)
        elif isinstance(call, PythonCall):
            shadow = host_shadow(self, node, call, top, in_body)
        else:
            raise GraphError(f"a {type(call).__name__} is nothing that a cuda graph can do")
    elif node.kernel == "copy_bytes":
        shadow = copy_shadow(self, node, top, in_body)
    elif node.kernel == "set_bytes":
        shadow = set_shadow(self, node, top, in_body)
    elif node.kernel is None and node.kind == "empty":
        shadow = Shadow_create(EMPTY_NODE, node, top, in_body)
    else:
        raise GraphError(f"{node.kernel or node.kind!r} is nothing that a cuda graph can do")
    if not node.enabled:
        if not Shadow_can_switch(shadow):
            raise UnsupportedError(f"a node of kind {node.kind!r} cannot be switched off on cuda")
        shadow.enabled = False
    return shadow


cdef inline int add_site(Maker self, Shadow shadow, Operand operand, size_t where,
                         size_t nbytes) except -1:
    """Note where an operand goes, and check that it has an address."""
    cdef site found
    found.where = <uint32_t> where
    found.nbytes = <uint32_t> nbytes
    found.memory = operand.memory
    found.offset = operand.offset
    shadow.sites.push_back(found)
    return 0


cdef inline uintptr_t address(Maker self, const site *at) except? 0:
    cdef place found = self.places.at[at.memory]
    if not found.is_bound:
        raise GraphError(f"memory {at.memory} has no address yet")
    return found.base + at.offset


cdef Shadow launch_shadow(Maker self, RecordNode node, object call, Py_ssize_t top, bint in_body):
    cdef Shadow shadow = Shadow_create(KERNEL_NODE, node, top, in_body)
    cdef launch_spec *launch = &shadow.spec.launch
    cdef size_t at = 0, size
    cdef int i
    cdef vector[size_t] starts
    cdef const unsigned char *given
    cdef tuple operands = node.operands
    for argument in call.arguments:
        kind = argument[0]
        size = (sizeof(void *) if kind == "pointer" else
                argument[2] if kind == "scalar" else len(argument[1]))
        starts.push_back(at)
        at += (size + ARGUMENT_ALIGNMENT - 1) // ARGUMENT_ALIGNMENT * ARGUMENT_ALIGNMENT
    shadow.storage.resize(at)
    for i, argument in enumerate(call.arguments):
        kind = argument[0]
        shadow.args.push_back(shadow.storage.data() + starts[i])
        if kind == "value":
            given = argument[1]
            memcpy(shadow.args[i], given, len(argument[1]))
        elif kind == "pointer":
            add_site(self, shadow, operands[argument[1]], starts[i], 0)
        else:
            add_site(self, shadow, operands[argument[1]], starts[i], argument[2])
    launch.function = call.function.handle
    for i in range(3):
        launch.grid[i] = call.grid[i]
        launch.block[i] = call.block[i]
        launch.cluster[i] = 0 if call.cluster is None else call.cluster[i]
    launch.shared_bytes = call.shared_bytes
    launch.cooperative = call.cooperative
    if call.priority is not None:
        launch.has_priority = True
        launch.priority = call.priority
    launch.args = shadow.args.data()
    shadow.programmatic = call.programmatic
    shadow.owner = call.function
    resolve(self, shadow)
    return shadow


cdef Shadow helper_shadow(Maker self, str name, RecordNode node, Py_ssize_t top, bint in_body,
                          const uint64_t *words, size_t count):
    """A launch of a kernel of the package's own that takes 64-bit words."""
    cdef Shadow shadow = Shadow_create(KERNEL_NODE, node, top, in_body)
    cdef launch_spec *launch = &shadow.spec.launch
    cdef size_t i
    shadow.owner = getattr(self.helpers, name)
    shadow.storage.resize(count * sizeof(uint64_t))
    memcpy(shadow.storage.data(), words, count * sizeof(uint64_t))
    for i in range(count):
        shadow.args.push_back(shadow.storage.data() + i * sizeof(uint64_t))
    launch.function = shadow.owner.handle
    for i in range(3):
        launch.grid[i] = launch.block[i] = 1
    launch.args = shadow.args.data()
    return shadow


cdef Shadow Maker_setter(Maker self, RecordNode node, Py_ssize_t top, bint in_body,
                         uint64_t condition):
    """The kernel that hands a conditional's uint32 to the driver."""
    cdef uint64_t[2] words
    cdef Shadow shadow
    if not node.enabled:
        raise UnsupportedError(f"a node of kind {node.kind!r} cannot be switched off on cuda")
    words[0], words[1] = condition, 0
    shadow = helper_shadow(self, "set_condition", node, top, in_body, words, 2)
    add_site(self, shadow, node.operands[0], sizeof(uint64_t), 0)
    resolve(self, shadow)
    return shadow


cdef uint64_t Shadow_condition(Shadow setter) noexcept:
    """The handle that a setter sets."""
    return (<uint64_t *> setter.args[0])[0]


cdef Shadow copy_shadow(Maker self, RecordNode node, Py_ssize_t top, bint in_body):
    cdef Shadow shadow
    cdef size_t nbytes = node.params[0]
    # The driver refuses empty copies and sets.
    shadow = Shadow_create(COPY_NODE if nbytes else EMPTY_NODE, node, top, in_body)
    if nbytes:
        add_site(self, shadow, node.operands[0], 0, 0)
        add_site(self, shadow, node.operands[1], 1, 0)
        shadow.spec.copy.nbytes = nbytes
        resolve(self, shadow)
    return shadow


cdef Shadow set_shadow(Maker self, RecordNode node, Py_ssize_t top, bint in_body):
    cdef Shadow shadow
    cdef set_spec *spec
    cdef uint64_t[3] words
    cdef uint32_t blocks
    nbytes, itemsize, word = node.params
    cdef size_t count = nbytes // itemsize
    cdef uint64_t value = word & 0xffffffffffffffff
    if not nbytes:
        return Shadow_create(EMPTY_NODE, node, top, in_body)
    if itemsize == 8 and (value >> 32) != (value & 0xffffffff):
        words[0], words[1], words[2] = 0, value, count
        shadow = helper_shadow(self, "fill8", node, top, in_body, words, 3)
        blocks = <uint32_t> min((count + FILL_THREADS - 1) // FILL_THREADS, <size_t> FILL_BLOCKS)
        shadow.spec.launch.grid[0] = blocks
        shadow.spec.launch.block[0] = FILL_THREADS
    else:
        shadow = Shadow_create(SET_NODE, node, top, in_body)
        spec = &shadow.spec.set
        spec.element = 4 if itemsize == 8 else itemsize
        spec.count = nbytes // spec.element
        spec.value = <uint32_t> (value & ((<uint64_t> 1 << (8 * spec.element)) - 1))
    add_site(self, shadow, node.operands[0], 0, 0)
    resolve(self, shadow)
    return shadow


cdef Shadow host_shadow(Maker self, RecordNode node, object call, Py_ssize_t top, bint in_body):
    cdef Shadow shadow = Shadow_create(HOST_NODE, node, top, in_body)
    if call.arguments:
        raise GraphError("a Python kernel runs on the cpu device only; on cuda a host function "
                         "takes no arguments")
    if in_body:
        raise GraphError("a host function cannot lie in a body: CUDA forbids it")
    shadow.owner = HostCall_create(node, self.faults)
    return shadow


cdef Shadow foreign_shadow(Maker self, RecordNode node, object call, Py_ssize_t top, bint in_body):
    cdef Shadow shadow = Shadow_create(CHILD_NODE, node, top, in_body)
    for operand in node.operands:
        add_site(self, shadow, operand, 0, 0)
    find_foreign(self, shadow, call)
    return shadow


cdef int find_foreign(Maker self, Shadow shadow, object call) except -1:
    """The driver graph that does the work of `call` at the addresses of the operands."""
    cdef bint forbidden = False, conditional = False
    cdef size_t i
    shadow.addresses = tuple(
        [address(self, &shadow.sites[i]) for i in range(shadow.sites.size())])
    made = self.known.get(id(call))
    shadow.owner = (made.get(shadow.addresses) if made else
                    None if self.again or not call.handle else call)
    if shadow.owner is None:
        if call.again is None:
            raise UnsupportedError(
                "the foreign graph hides its addresses, and nothing says how to make it for "
                "others; so it cannot be bound a second time (clone, verify, another address)")
        shadow.owner = call.again(shadow.addresses)
    graph_contents(<uintptr_t> shadow.owner.handle, &forbidden, &conditional)
    if conditional:
        raise UnsupportedError("the foreign graph holds a conditional node, and CUDA takes no such "
                               "graph as a child; record what it does as nodes of this graph")
    if shadow.in_body and forbidden:
        raise GraphError("the foreign graph holds a node that CUDA forbids in a body: a host "
                         "function, an event, an allocation, or a copy of pageable memory")
    return 0


cdef int resolve(Maker self, Shadow shadow) except -1:
    """Put addresses, and values of scalars, into the parameters."""
    cdef copy_spec *copy = &shadow.spec.copy
    cdef place found
    cdef const site *at
    cdef size_t i
    cdef uintptr_t where
    cdef const unsigned char *given
    for i in range(shadow.sites.size()):
        at = &shadow.sites[i]
        if at.nbytes:
            value = self.scalars.get((at.memory, at.offset))
            if value is None:
                continue                 # no default: zeros
            check_value(at, value)
            given = value
            memcpy(shadow.storage.data() + at.where, given, at.nbytes)
            continue
        where = address(self, at)
        if shadow.kind == KERNEL_NODE:
            (<uintptr_t *> (shadow.storage.data() + at.where))[0] = where
        elif shadow.kind == SET_NODE:
            shadow.spec.set.dst = where
        elif shadow.kind == COPY_NODE:
            found = self.places.at[at.memory]
            if shadow.in_body and found.is_pageable:
                raise GraphError(
                    "a copy in a body cannot touch pageable memory: CUDA forbids it; use memory "
                    "of create_host_buffer")
            if at.where == 0:
                copy.dst, copy.dst_is_host, copy.dst_context = where, found.is_host, found.context
            else:
                copy.src, copy.src_is_host, copy.src_context = where, found.is_host, found.context
    return 0


cdef int check_value(const site *at, object value) except -1:
    if len(value) != at.nbytes:
        raise GraphError(f"the scalar at ({at.memory}, {at.offset}) has {at.nbytes} bytes, "
                         f"not {len(value)}")
    return 0


cdef Shadow Maker_moved(Maker self, Shadow old):
    """The shadow of the same node where its memories lie now."""
    cdef Shadow shadow = Shadow_create(old.kind, old.source, old.top, old.in_body)
    cdef size_t i
    shadow.enabled = old.enabled
    shadow.programmatic = old.programmatic
    shadow.owner = old.owner
    shadow.sites = old.sites
    shadow.spec = old.spec
    shadow.storage = old.storage
    if old.kind == KERNEL_NODE:
        for i in range(old.args.size()):
            shadow.args.push_back(
                shadow.storage.data() + (<char *> old.args[i] - <char *> old.storage.data()))
        shadow.spec.launch.args = shadow.args.data()
    if old.kind == CHILD_NODE:
        find_foreign(self, shadow, old.source.call)
    else:
        resolve(self, shadow)
    return shadow


cdef int Shadow_add(Shadow self, uintptr_t context, uintptr_t graph,
                    const edges *before) except -1:
    """Add the driver's node; a condition's is added by who makes its bodies."""
    if self.kind == KERNEL_NODE:
        self.node = graph_add_kernel(context, graph, before, &self.spec.launch)
    elif self.kind == COPY_NODE:
        self.node = graph_add_copy(context, graph, before, &self.spec.copy)
    elif self.kind == SET_NODE:
        self.node = graph_add_set(context, graph, before, &self.spec.set)
    elif self.kind == HOST_NODE:
        self.node = graph_add_host(graph, before, host_entry, <void *> self.owner)
    elif self.kind == CHILD_NODE:
        self.node = graph_add_child(graph, before, <uintptr_t> self.owner.handle)
    else:
        self.node = graph_add_empty(graph, before)
    return 0


cdef int Shadow_push(Shadow self, uintptr_t context, uintptr_t executable,
                     uintptr_t node) except -1:
    """Give a node of an executable these parameters."""
    if self.kind == KERNEL_NODE:
        return exec_set_kernel(context, executable, node, &self.spec.launch)
    if self.kind == COPY_NODE:
        return exec_set_copy(context, executable, node, &self.spec.copy)
    if self.kind == SET_NODE:
        return exec_set_set(context, executable, node, &self.spec.set)
    if self.kind == CHILD_NODE:
        return exec_set_child(context, executable, node, <uintptr_t> self.owner.handle)
    return UPDATE_TAKEN if self.kind == EMPTY_NODE else UPDATE_REFUSED


cdef bint Shadow_equals(Shadow self, Shadow other) noexcept:
    """Whether an update from one to the other has nothing to do."""
    cdef const launch_spec *mine = &self.spec.launch
    cdef const launch_spec *theirs = &other.spec.launch
    if self.kind != other.kind:
        return False
    if self.kind == KERNEL_NODE:
        return (mine.function == theirs.function and mine.shared_bytes == theirs.shared_bytes
                and not memcmp(mine.grid, theirs.grid, sizeof(mine.grid))
                and not memcmp(mine.block, theirs.block, sizeof(mine.block))
                and self.storage == other.storage and self.args.size() == other.args.size())
    if self.kind == COPY_NODE:
        return not memcmp(&self.spec.copy, &other.spec.copy, sizeof(copy_spec))
    if self.kind == SET_NODE:
        return not memcmp(&self.spec.set, &other.spec.set, sizeof(set_spec))
    if self.kind == HOST_NODE:
        return (<HostCall> self.owner).function is (<HostCall> other.owner).function
    return self.kind != CHILD_NODE or self.owner is other.owner


cdef str Shadow_fixed(Shadow self, Shadow other):
    """What differs that no update can change."""
    cdef const launch_spec *mine = &self.spec.launch
    cdef const launch_spec *theirs = &other.spec.launch
    if self.kind != other.kind:
        return "another kind of node"
    if self.kind == HOST_NODE and not Shadow_equals(self, other):
        return "another host function"
    if self.kind == KERNEL_NODE:
        if memcmp(mine.cluster, theirs.cluster, sizeof(mine.cluster)):
            return "another cluster"
        if mine.cooperative != theirs.cooperative:
            return "cooperative or not"
        if (mine.has_priority, mine.priority) != (theirs.has_priority, theirs.priority):
            return "another priority"
        if self.programmatic != other.programmatic:
            return "programmatic edges or plain ones"
    return None


cdef bint Shadow_can_switch(Shadow self) noexcept:
    """Whether the driver can switch it off; an empty copy or set does nothing either way."""
    return (self.kind in (KERNEL_NODE, COPY_NODE, SET_NODE)
            or (self.kind == EMPTY_NODE and self.source.kind != "empty"))


cdef int blame(object error, RecordNode node, Py_ssize_t top) except -1:
    """Let an error name the node that it came from, once."""
    if isinstance(error, DriverError):
        error.node = node.name
    error.add_note(f"in node {top} {node.name!r} ({node.kind})")
    return 0
