cimport numpy as cnp

from fastgraph._core.runner cimport Runner


cdef struct input_slot:
    int type_num
    int n_dims
    Py_ssize_t nbytes
    size_t first_dim             # in Engine.dims


cdef class Active:
    cdef tuple ins                       # by input: (shape, slices) of its active part, or None
    cdef tuple outs                      # by output: the slices, or None

# Whether an input is an ndarray of its shape and dtype whose bytes can be read as they are.
cdef bint is_plain(const input_slot *slot, const Py_ssize_t *dims, object value) noexcept
# Copy a whole input to where it is staged.
cdef int stage(Runner runner, Py_ssize_t i, const input_slot *slot, const Py_ssize_t *dims,
               cnp.ndarray array) except -1
# Do so with an array of an input's active part alone; whether it is one.
cdef bint Active_stage(Active self, Runner runner, Py_ssize_t i, const input_slot *slot,
                       const Py_ssize_t *dims, tuple spec, value) except -1
# The same with one on a device, which comes by way of the host: it ends where kernels may read on.
cdef bint Active_bring(Active self, Runner runner, Py_ssize_t i, const input_slot *slot,
                       const Py_ssize_t *dims, tuple spec, buffer) except -1
# Whether an array has the shape of the active part of input `i`.
cdef bint Active_fits(Active self, Py_ssize_t i, array) except -1
# Before a run: see to it that handles that grow have memory for what it reads and is fed.
cdef int Active_grow(Active self, list growing, tuple specs) except -1
# What a run writes of output `i`, of arrays of its shape; None for all.
cdef tuple Active_part(Active self, Py_ssize_t i)
# An array of the caller's own with that; the whole output lies at `home`, from where up to
# `threads` threads copy it.
cdef cnp.ndarray fresh_output(Active active, Py_ssize_t i, cnp.ndarray view, const void *home,
                              Py_ssize_t nbytes, unsigned int threads)
# Copy that.
cdef int Active_copy(Active self, Py_ssize_t i, to, view) except -1
# Do so to a buffer; one on a device is copied as a whole, there and back.
cdef int Active_fill(Active self, Py_ssize_t i, buffer, view) except -1
