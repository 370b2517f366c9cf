# cython: language_level=3
"""The values of one graph's scalars, those in nodes and those in memory."""

cimport cython
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject

from fastgraph._core.cuda_build cimport DriverGraph, DriverGraph_store, DriverGraph_store_one
from fastgraph._core.cuda_cells cimport (
    Cells, Cells_check, Cells_create, Cells_moved, Cells_put)
from fastgraph._core.stream cimport CudaDevice


@cython.final
cdef class Values:
    """What the next launch has; what was set for one launch goes back before the one after it."""

    def __init__(self):
        raise TypeError("made by a CudaGraph")


cdef Values Values_create(CudaDevice device, dict scalars, object cells):
    cdef Values self = Values.__new__(Values)
    self.now = {} if scalars is None else dict(scalars)
    self.once = {}
    self.once_used = False
    if cells:
        self.cells = Cells_create(device, {key: self.now[key] for key in cells})
    return self


cdef int Values_store(Values self, DriverGraph built, dict values, bint once,
                      object graph) except -1:
    cdef dict in_nodes = {}, in_cells = {}, defaults = {}
    cdef Cells cells = self.cells
    if self.once_used:
        for key, value in self.once.items():
            if key not in values and self.now.get(key) != value:
                (in_nodes if cells is None or key not in cells.sizes else in_cells)[key] = value
    for key, value in values.items():
        before = self.now.get(key)
        if cells is not None and key in cells.sizes:
            Cells_check(cells, key, value)
            if before != value:
                in_cells[key] = value
        elif before != value:
            in_nodes[key] = value
        if once:
            defaults[key] = self.once[key] if key in self.once else before
    if in_nodes:
        store_nodes(self, built, in_nodes, graph)
    if in_cells:
        for key, value in in_cells.items():
            Cells_put(cells, key, value)
        self.now.update(in_cells)
    if self.once_used:
        self.once = defaults
        self.once_used = False
    elif once:
        self.once.update(defaults)
    elif self.once:
        for key in values:
            self.once.pop(key, None)
    return 0


cdef bint Values_store_one(Values self, DriverGraph built, tuple where, bytes value, bint once,
                           object graph) except -1:
    cdef PyObject *before = PyDict_GetItemWithError(self.now, where)
    cdef bytes had
    cdef str refused
    if before == NULL or (self.cells is not None and where in self.cells.sizes):
        return False
    if self.once and (not self.once_used or len(self.once) > 1 or where not in self.once):
        return False
    had = <bytes> before
    if had != value:
        refused = DriverGraph_store_one(built, where, value, had)
        if refused is None:
            self.now[where] = value
        elif not refused:
            return False
        else:
            build_anew(self, {where: value}, graph, refused)
    if not once:
        self.once.clear()
    elif not self.once:
        self.once[where] = had
    self.once_used = False
    return True


cdef int store_nodes(Values self, DriverGraph built, dict values, object graph) except -1:
    cdef str refused = DriverGraph_store(built, values, self.now)
    if refused is None:
        self.now.update(values)
        return 0
    return build_anew(self, values, graph, refused)


cdef int build_anew(Values self, dict values, object graph, str refused) except -1:
    """Have `graph` made anew with these values, or raise and leave all as it was."""
    cdef dict before = {key: self.now.get(key) for key in values}
    self.now.update(values)
    try:
        graph._rebuild(refused)
    except BaseException:
        self.now.update(before)
        raise
    return 0


cdef int Values_spend(Values self) except -1:
    if self.once:
        self.once_used = True
    return 0


cdef int Values_moved(Values self, size_t memory) except -1:
    if self.cells is not None and self.cells.memory == memory:
        Cells_moved(self.cells)
    return 0
