"""What goes from an output into a handle after a run, and at which rows."""

from libc.stdint cimport uintptr_t

from fastgraph._core.buffer cimport Block
from fastgraph._core.reserve cimport Reservation


cdef class Feed:
    cdef readonly Py_ssize_t handle          # the input that the handle stands in for
    cdef readonly Py_ssize_t output
    cdef readonly bint in_place              # the run computes the output where the handle lies
    cdef readonly Block block                # of the handle
    cdef readonly Py_ssize_t offset
    cdef readonly Py_ssize_t nbytes          # of the output
    cdef readonly Py_ssize_t rows            # of the handle
    cdef readonly Py_ssize_t n_rows          # of the output
    cdef readonly bint ring
    cdef readonly Py_ssize_t scalar          # byte offset of the scalar that tells the row, or -1
    cdef readonly Py_ssize_t input           # the input that does, or -1
    cdef readonly int width                  # bytes of either; less than 0: it has no sign
    cdef readonly Py_ssize_t first           # the row of the coming run
    cdef tuple names                         # of handle, output and position

cdef class Growth:
    cdef readonly Py_ssize_t handle          # the input that the handle stands in for
    cdef readonly Reservation reserved
    cdef readonly Py_ssize_t row_nbytes
    cdef readonly Py_ssize_t rows            # of the input
    cdef readonly Py_ssize_t filled          # that were given, or fed
    cdef readonly Feed feed                  # None where nothing is fed

# Before a run that reads so many rows: see to it that all that it touches has memory.
cdef int Growth_prepare(Growth self, Py_ssize_t read) except -1
# After a run: of all of these.
cdef int note_growth(list growing) except -1

# Read the position of the coming run; InputError where its rows are not those of the handle.
cdef int Feed_locate(Feed self, const void *position) except -1
# The place in a handle where a run computes an output, or 0.
cdef uintptr_t computed_at(list feeds, Py_ssize_t output) except? 0
# Copy the output to its rows; both lie in memory of the host.
cdef void Feed_copy(Feed self, const void *source) noexcept nogil
