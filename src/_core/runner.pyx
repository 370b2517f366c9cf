# cython: language_level=3, nonecheck=False
"""What runs a compiled graph on one device; `HostRunner` and `CudaRunner` are the kinds.

The run methods check and decide nothing about devices: they say where inputs lie and where outputs
are to go, and a runner does that.
"""

from fastgraph._core.buffer cimport Block
from fastgraph._core.lock cimport GraphLock

from fastgraph.errors import GraphError


cdef class Runner:
    """A runner that has nothing to run: what is left of one that was closed."""

    def __cinit__(self):
        self.lock = GraphLock.__new__(GraphLock)
        self.release_gil = False
        self.on_device = False
        self.spoiled = False

    def __init__(self):
        raise TypeError("runners are made by the functions of their modules")

    cdef int start(self, bint settle) except -1:
        raise GraphError("this model is closed")

    cdef int take(self, Py_ssize_t i, const void *at) except -1:
        raise NotImplementedError

    cdef void *staging(self, Py_ssize_t i) except NULL:
        raise NotImplementedError

    cdef int take_staged(self, Py_ssize_t i) except -1:
        raise NotImplementedError

    cdef int take_block(self, Py_ssize_t i, Block block, Py_ssize_t offset) except -1:
        raise NotImplementedError

    cdef int take_handle(self, Py_ssize_t i, Block block, Py_ssize_t offset) except -1:
        raise NotImplementedError

    cdef int take_scalar(self, Py_ssize_t offset, const void *value, Py_ssize_t nbytes) except -1:
        raise NotImplementedError

    cdef bint give(self, Py_ssize_t i, void *at) except -1:
        raise NotImplementedError

    cdef int give_block(self, Py_ssize_t i, Block block, Py_ssize_t offset) except -1:
        raise NotImplementedError

    cdef tuple output_place(self, Py_ssize_t i):
        raise NotImplementedError

    cdef int home(self) except -1:
        return 0

    cdef int use(self, object stream) except -1:
        raise NotImplementedError

    cdef object stream(self):
        return None

    cdef int check_feeds(self) except -1:
        raise NotImplementedError

    cdef int copy_output(self, Py_ssize_t i, Block block, Py_ssize_t offset) except -1:
        raise NotImplementedError

    cdef int set_parts(self, list parts) except -1:
        return 0

    cdef int run(self) except -1:
        raise NotImplementedError

    cdef int enqueue(self) except -1:
        raise NotImplementedError

    cdef list run_timed(self):
        raise NotImplementedError

    cdef bint join_lanes(self, Runner first) except -1:
        return True

    cdef int set_apart(self, bint apart) except -1:
        return 0

    cdef int commit(self) except -1:
        raise NotImplementedError

    cdef bint over(self) except -1:
        return True

    cdef int await_over(self, bint helping) except -1:
        return 0

    cdef int conclude(self) except -1:
        raise NotImplementedError

    cdef int adopt(self, list places, bint ready) except -1:
        raise NotImplementedError

    cdef int connect(self, list feeds, list handles) except -1:
        raise NotImplementedError

    cdef int switch(self, object executable, list places) except -1:
        raise NotImplementedError

    cdef int close(self) except -1:
        return 0
