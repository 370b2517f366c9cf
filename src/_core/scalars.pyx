# cython: language_level=3
"""The scalars of a graph by name: from what a caller gives to the bytes that kernels take."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from fastgraph._core.calls cimport read_word

from fastgraph.errors import InputError


@cython.final
cdef class Entry:
    """One scalar: where its value goes, and what it is an element of."""

    cdef tuple where
    cdef object dtype
    cdef char kind
    cdef Py_ssize_t size


@cython.final
cdef class ScalarTable:
    """What tells how the values of a graph's scalars are read.

    Parameters
    ----------
    scalars : dict of str to ((int, int), numpy.dtype)
        Memory and offset of each, and its dtype.
    pattern : callable
        Given a value and a dtype, returns it as a 0-d array or raises InputError; for all but
        Python numbers that fit as they are.
    """

    def __init__(self, dict scalars not None, pattern not None):
        cdef Entry entry
        self.pattern = pattern
        self.entries = {}
        for name, (where, dtype) in scalars.items():
            entry = Entry.__new__(Entry)
            entry.where = where
            entry.dtype = dtype
            entry.kind = ord(dtype.kind)
            entry.size = dtype.itemsize
            self.entries[name] = entry

    def read(self, dict given not None):
        """Return the bytes of values given by name.

        Parameters
        ----------
        given : dict of str to object

        Returns
        -------
        dict of (int, int) to bytes, or None
            By memory and offset; None where a name is no scalar's.

        Raises
        ------
        InputError
            A value does not fit its scalar, which is named.
        """
        return ScalarTable_read(self, given)


cdef bytes ScalarTable_one(ScalarTable self, object name, object value, PyObject **where):
    cdef int64_t word = 0
    cdef PyObject *found = PyDict_GetItemWithError(self.entries, name)
    cdef Entry entry
    if found == NULL:
        return None
    entry = <Entry> found
    where[0] = <PyObject *> entry.where  # kept by the entry, and that by the table
    if not read_word(value, entry.kind, entry.size, &word):
        return None
    return PyBytes_FromStringAndSize(<char *> &word, entry.size)


cdef dict ScalarTable_read(ScalarTable self, dict given):
    cdef dict found = {}
    cdef Entry entry
    cdef int64_t word = 0
    for name, value in given.items():
        entry = <Entry> self.entries.get(name)
        if entry is None:
            return None
        if read_word(value, entry.kind, entry.size, &word):
            found[entry.where] = PyBytes_FromStringAndSize(<char *> &word, entry.size)
        else:
            found[entry.where] = read_slowly(self, name, value, entry.dtype)
    return found


cdef bytes read_slowly(ScalarTable self, str name, object value, object dtype):
    try:
        return self.pattern(value, dtype).tobytes()
    except InputError as error:
        raise InputError(f"scalar {name!r}: {error}") from None
