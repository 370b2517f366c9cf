"""Numbers whose exact type leaves nothing to decide, as the bytes of an element."""

from libc.stdint cimport int64_t

# Put the bytes of a number into `word`, zero-padded; False where it has the long way.
cdef bint read_word(object value, char kind, Py_ssize_t size, int64_t *word) except -1


# A scalar of a run: its bytes, how many, and where they go.
cdef struct word:
    int64_t bytes
    Py_ssize_t nbytes
    Py_ssize_t offset


# The same for each of (name, dtype, byte offset, default), given or not; False where one of them,
# or a name, has the long way.
cdef bint read_words(tuple specs, dict given, word *words) except -1
