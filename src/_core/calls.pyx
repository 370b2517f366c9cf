# cython: language_level=3
"""The short way from a call's arguments to what takes them, for the commonest of them.

Buffers and numbers whose exact type leaves nothing to decide are read here. Whatever else a caller
gives has the long way, with all its checks and messages, which gives the same for these too.
"""

import numpy as np

cimport cython
cimport numpy as cnp
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove
from libcpp.vector cimport vector

from fastgraph._core.buffer cimport Buffer
from fastgraph._core.pending cimport Access_create

from fastgraph.errors import InputError

cnp.import_array()


cdef extern from "Python.h":
    bint PyLong_CheckExact(object value)
    bint PyFloat_CheckExact(object value)
    bint PyBool_Check(object value)
    int64_t PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1

# All integers up to these are exact; all floats up to the last are finite in every type.
cdef int64_t EXACT_F4 = 1 << 24
cdef int64_t EXACT_F8 = 1 << 53
cdef double FEW = 65504.0
# From here on a copy lets other threads go on.
cdef Py_ssize_t LONG_BYTES = 1 << 16


cdef bint read_word(object value, char kind, Py_ssize_t size, int64_t *word) except -1:
    """The long way takes the same for these and more."""
    cdef int overflow = 0
    cdef int64_t number, one = 1
    cdef double real
    cdef float single
    if PyLong_CheckExact(value):
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow:
            return False
        if kind == b"i" and (size == 8 or -(one << 8 * size - 1) <= number < one << 8 * size - 1):
            word[0] = number if size == 8 else number & ((one << 8 * size) - 1)
            return True
        if kind == b"u" and number >= 0 and (size == 8 or number < one << 8 * size):
            word[0] = number
            return True
        if kind != b"f" or not -EXACT_F4 <= number <= EXACT_F4:
            return False
        real = <double> number
    elif PyFloat_CheckExact(value) and kind == b"f":
        real = value
    elif PyBool_Check(value) and kind == b"b":
        word[0] = value is True
        return True
    else:
        return False
    if size == 8:
        memcpy(word, &real, 8)
        return True
    if size == 4 and (-FEW < real < FEW or PyLong_CheckExact(value)):
        single = <float> real
        word[0] = 0
        memcpy(word, &single, 4)
        return True
    return False


cdef bint read_words(tuple specs, dict given, word *words) except -1:
    cdef PyObject *found
    cdef Py_ssize_t i, used = 0
    for i in range(len(specs)):
        name, kind, offset, value = <tuple> specs[i]
        found = PyDict_GetItemWithError(given, name)
        if found != NULL:
            value = <object> found
            used += 1
        words[i].nbytes = (<cnp.dtype> kind).itemsize
        words[i].offset = offset
        if not read_word(value, (<cnp.dtype> kind).kind, words[i].nbytes, &words[i].bytes):
            return False
    return used == len(given)


def plain_word(value, dtype):
    """Return the bytes of an exact int or float as one 64-bit word; None if that is not plain."""
    cdef int64_t word = 0
    cdef cnp.dtype kind = dtype
    return word if read_word(value, kind.kind, kind.itemsize, &word) else None


def fill(list twins not None, list arrays not None):
    """Copy arrays and buffers of the host to buffers of the host, of the same shapes and dtypes.

    Parameters
    ----------
    twins : list of Buffer
    arrays : list of ndarray or Buffer
    """
    cdef Buffer twin
    cdef Py_ssize_t i, nbytes, given
    cdef cnp.ndarray dense
    cdef void *to
    cdef const void *source
    for i in range(len(twins)):
        twin = twins[i]
        array = arrays[i]
        nbytes = twin.nbytes
        to = <void *> (twin.block.ptr + <size_t> twin.offset)
        if type(array) is Buffer and (<Buffer> array).block.memory is None:
            source = <void *> ((<Buffer> array).block.ptr + <size_t> (<Buffer> array).offset)
            given = (<Buffer> array).nbytes
        else:
            dense = np.asarray(array)
            if not cnp.PyArray_IS_C_CONTIGUOUS(dense):
                dense = np.array(dense, order="C")
            source = cnp.PyArray_DATA(dense)
            given = cnp.PyArray_NBYTES(dense)
        if given != nbytes:
            # What was checked when it was given may have been changed by code that ran since.
            raise InputError(f"{given} bytes are given where {nbytes} are copied: the array was "
                             "changed while it was given")
        if nbytes < LONG_BYTES:
            memmove(to, source, nbytes)
        else:
            with nogil:
                memmove(to, source, nbytes)


cdef struct parameter:
    bint pointer
    bint const
    char kind
    Py_ssize_t size


@cython.final
cdef class CallPlan:
    """The parameters of a function, ready for plain arguments.

    Parameters
    ----------
    pointer : int
        The function's address.
    parameters : sequence of Parameter
    own : frozenset of type
        What else than a Buffer stands for one and is looked at by the caller's `place`.
    """

    cdef object pointer
    cdef vector[parameter] parameters
    cdef list dtypes
    cdef frozenset own
    cdef tuple table                     # for each argument where its value lies
    cdef tuple pointers                  # ("pointer", i) for the accesses of a launch

    def __init__(self, pointer, parameters, frozenset own not None):
        cdef parameter each
        self.pointer = pointer
        self.own = own
        self.dtypes = [p.dtype for p in parameters]
        table = []
        stored = 5 + len(self.dtypes)
        for p in parameters:
            each.pointer = p.pointer
            each.const = p.const
            each.kind = b" " if p.dtype is None else ord(p.dtype.kind)
            each.size = 0 if p.dtype is None else p.dtype.itemsize
            self.parameters.push_back(each)
            table.append(-1 if p.pointer else stored)
            stored += not p.pointer
        self.table = tuple(table)
        self.pointers = tuple([("pointer", i) for i in range(table.count(-1))])

    cdef bint take(self, tuple args, str device, list words) except -1:
        """Whether all arguments are plain; the words of those that are values go to `words`."""
        cdef Py_ssize_t i, n = <Py_ssize_t> self.parameters.size()
        cdef int64_t word = 0
        cdef const parameter *p
        if len(args) != n:
            return False
        for i in range(n):
            p = &self.parameters[i]
            value = args[i]
            if p.pointer:
                if type(value) is Buffer:
                    dtype = (<Buffer> value).dtype
                    if (<Buffer> value).device != device:
                        return False
                elif type(value) in self.own:
                    dtype = value.dtype
                else:
                    return False
                if p.kind != b" " and dtype is not self.dtypes[i]:
                    return False
            elif read_word(value, p.kind, p.size, &word):
                words.append(word)
            else:
                return False
        return True

    cdef tuple accesses(self, tuple args, place):
        cdef Py_ssize_t i
        cdef const parameter *p
        cdef list found = []
        for i in range(<Py_ssize_t> self.parameters.size()):
            p = &self.parameters[i]
            if p.pointer:
                value = args[i]
                if type(value) is not Buffer:
                    value = place(value, not p.const)
                found.append(Access_create(value, True, not p.const))
        return tuple(found)

    def array_call(self, tuple args not None, str device not None, place, tuple grid not None,
                   tuple block not None):
        """Return accesses and the words of ``call_native``, or None for the long way.

        Parameters
        ----------
        args : tuple
        device : str
            Where buffers must lie.
        place : callable
            Makes a place of the graph of one of `own`, told whether it is written.
        grid, block : tuple of int
            Three sizes each.
        """
        cdef list words = []
        if not self.take(args, device, words):
            return None
        sizes = (self.pointer, len(args), pair(grid[0], grid[1]), pair(grid[2], block[0]),
                 pair(block[1], block[2]))
        return self.accesses(args, place), sizes + self.table + tuple(words)

    def launch_call(self, tuple args not None, str device not None, place):
        """Return accesses and the arguments of a `Launch`, or None for the long way.

        Parameters
        ----------
        args, device, place
            As `array_call` takes them.
        """
        cdef list words = [], arguments = []
        cdef Py_ssize_t i, n_pointers = 0, n_values = 0
        cdef int64_t word
        if not self.take(args, device, words):
            return None
        for i in range(<Py_ssize_t> self.parameters.size()):
            if self.parameters[i].pointer:
                arguments.append(self.pointers[n_pointers])
                n_pointers += 1
            else:
                word = words[n_values]
                n_values += 1
                arguments.append(
                    ("value", PyBytes_FromStringAndSize(<char *> &word, self.parameters[i].size)))
        return self.accesses(args, place), tuple(arguments)


cdef int64_t pair(int32_t low, int32_t high) noexcept:
    """Two sizes in one word, as they lie in memory."""
    return <int64_t> (<uint64_t> <uint32_t> high << 32 | <uint32_t> low)
