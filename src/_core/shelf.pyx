# cython: language_level=3
"""What a cache of graphs holds, by key, and the way of `DeviceGraph.create` to it."""

from collections import OrderedDict

cimport cython
from cpython.object cimport PyCallable_Check
from cpython.ref cimport PyObject

from fastgraph._core.executable cimport Handle
from fastgraph._core.key cimport Key
from fastgraph._core.keys cimport Key_compose

from fastgraph.errors import InputError


cdef extern from "Python.h":
    PyObject *PyDict_GetItemWithError(object mapping, object key) except? NULL


@cython.auto_pickle(False)
cdef class Shelf:
    """The states of graphs by key, the one used last at the end, and counts of searches.

    Finding takes no lock but the GIL: keys are hashed and compared in C, so no other thread comes
    between.
    """

    def __cinit__(self):
        self._held = OrderedDict()

    def _find(self, key):
        """Return the state of a key, now the one used last, or None; count that."""
        if type(key) is not Key:
            raise InputError(f"a key is made by make_key, not a {type(key).__name__}")
        state = find(self, key)
        if state is None:
            self._misses += 1
        return state


cdef object find(Shelf self, Key key):
    cdef PyObject *found = PyDict_GetItemWithError(self._held, key)
    if found == NULL:
        return None
    state = <object> found
    self._hits += 1
    self._held.move_to_end(key)
    return state


def hit(type kind not None, shelf, context, str device not None, build, tuple inputs not None,
        key, check, verify, frozenset arrays not None, convert):
    """Return a handle of the graph that `create` is asked for, its key, or None.

    Parameters
    ----------
    kind : type
        Of the handle.
    shelf : Shelf
    context : DeviceContext
        With its `device`.
    build, inputs, key, check, verify
        As `DeviceGraph.create` has them.
    arrays, convert
        As `fastgraph._core.keys.compose` has them.

    Returns
    -------
    Handle, Key or None
        The key where no graph is held under it, which is not counted; None where one of the
        arguments wants a closer look.
    """
    if (not isinstance(shelf, Shelf) or not PyCallable_Check(build)
            or not (check is False or type(check) is str and check == "known")
            or type(verify) is not int or verify < 0):
        return None
    cdef Key found = Key_compose(build, inputs, (device, key, check, verify), arrays, convert)
    cdef Handle handle
    state = find(shelf, found)
    if state is None:
        return found
    handle = Handle.__new__(kind)
    handle._context = context
    handle._state = state
    handle.cell = state.cell
    return handle
