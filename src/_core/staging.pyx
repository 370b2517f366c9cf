# cython: language_level=3
"""Inputs that are copied to where a run reads them, and parts of arrays that an extent leaves."""

import numpy as np

cimport numpy as cnp

from fastgraph._core.feeds cimport Growth, Growth_prepare
from fastgraph._core.pool cimport pool_copy
from fastgraph._core.runner cimport Runner

from fastgraph._core.checks import as_array
from fastgraph.errors import OutOfMemoryError

cnp.import_array()

cdef extern from "numpy/arrayobject.h":
    bint PyArray_CheckExact(object)
    bint PyArray_ISCARRAY_RO(cnp.ndarray)


cdef class Active:
    """The active parts of inputs and outputs while an extent is set.

    Parameters
    ----------
    ins : tuple of (shape, slices) or None
        By input; None for one without.
    outs : tuple of slices or None
        By output.
    """

    def __init__(self, tuple ins not None, tuple outs not None):
        self.ins = ins
        self.outs = outs


cdef cnp.ndarray staged(Runner runner, Py_ssize_t i, const input_slot *slot,
                        const Py_ssize_t *dims):
    return cnp.PyArray_SimpleNewFromData(
        slot.n_dims, <cnp.npy_intp *> dims, slot.type_num, runner.staging(i))


cdef bint is_plain(const input_slot *slot, const Py_ssize_t *dims, object value) noexcept:
    cdef cnp.ndarray array
    cdef const cnp.npy_intp *shape
    cdef int d
    cdef bint same = False
    if PyArray_CheckExact(value):
        array = <cnp.ndarray> value
        if (cnp.PyArray_TYPE(array) == slot.type_num and cnp.PyArray_NDIM(array) == slot.n_dims
                and PyArray_ISCARRAY_RO(array)):
            shape = cnp.PyArray_DIMS(array)
            same = True
            for d in range(slot.n_dims):
                same = same and shape[d] == dims[d]
    return same


cdef int stage(Runner runner, Py_ssize_t i, const input_slot *slot, const Py_ssize_t *dims,
               cnp.ndarray array) except -1:
    if PyArray_ISCARRAY_RO(array):
        # Without giving up the GIL, which PyArray_CopyInto does: see place_sequence.
        pool_copy(runner.staging(i), cnp.PyArray_DATA(array), slot.nbytes, runner.threads)
    elif cnp.PyArray_CopyInto(staged(runner, i, slot, dims), array) < 0:
        return -1
    return runner.take_staged(i)


cdef bint Active_stage(Active self, Runner runner, Py_ssize_t i, const input_slot *slot,
                       const Py_ssize_t *dims, tuple spec, value) except -1:
    if self is None or self.ins[i] is None:
        return False
    shape, part = self.ins[i]
    array = as_array(f"input {spec[0]!r}", value, shape, spec[2])
    if array.shape != shape or array.dtype != spec[2]:
        return False
    staged(runner, i, slot, dims)[part] = array
    runner.take_staged(i)
    return True


cdef bint Active_bring(Active self, Runner runner, Py_ssize_t i, const input_slot *slot,
                       const Py_ssize_t *dims, tuple spec, buffer) except -1:
    if buffer.shape == spec[1] or buffer.dtype != spec[2] or not Active_fits(self, i, buffer):
        return False
    runner.stream().synchronize()        # behind which the work is that fills it
    return Active_stage(self, runner, i, slot, dims, spec, buffer.numpy())


cdef bint Active_fits(Active self, Py_ssize_t i, array) except -1:
    return self is not None and self.ins[i] is not None and array.shape == self.ins[i][0]


cdef int Active_grow(Active self, list growing, tuple specs) except -1:
    cdef Growth growth
    cdef Py_ssize_t read
    for growth in growing:
        read = growth.rows
        if self is not None and self.ins[growth.handle] is not None:
            read = self.ins[growth.handle][0][0]
        try:
            Growth_prepare(growth, read)
        except OutOfMemoryError as error:
            raise OutOfMemoryError(
                f"handle {specs[growth.handle][0]!r} cannot grow: {error}",
                error.code, error.name, error.node) from None
    return 0


cdef tuple Active_part(Active self, Py_ssize_t i):
    return None if self is None else self.outs[i]


cdef cnp.ndarray fresh_output(Active active, Py_ssize_t i, cnp.ndarray view, const void *home,
                              Py_ssize_t nbytes, unsigned int threads):
    cdef cnp.ndarray array
    part = Active_part(active, i)
    if part is not None:
        return np.array(view[part], order="C")
    array = cnp.PyArray_EMPTY(
        cnp.PyArray_NDIM(view), cnp.PyArray_DIMS(view), cnp.PyArray_TYPE(view), 0)
    pool_copy(cnp.PyArray_DATA(array), home, nbytes, threads)
    return array


cdef int Active_copy(Active self, Py_ssize_t i, to, view) except -1:
    part = Active_part(self, i)
    if part is None:
        np.copyto(to, view, casting="no")
    else:
        np.copyto(to[part], view[part], casting="no")
    return 0


cdef int Active_fill(Active self, Py_ssize_t i, buffer, view) except -1:
    held = np.asarray(buffer) if buffer.host_visible else buffer.numpy()
    Active_copy(self, i, held, view)
    if not buffer.host_visible:
        buffer.copy_from(held)
    return 0
