"""Numbers whose exact type leaves nothing to decide, as the bytes of an element."""

from libc.stdint cimport int64_t

# Put the bytes of a number into `word`, zero-padded; False where it has the long way.
cdef bint read_word(object value, char kind, Py_ssize_t size, int64_t *word) except -1
