from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from fastgraph._core.key cimport Key

cdef enum:
    INLINE_BYTES = 320                   # longer keys move to the heap
    INLINE_KEPT = 16                     # of a search's objects; more are in a list
    MAX_FUNCTIONS = 64                   # followed for one key; farther ones count by identity


cdef struct Mark:                        # where a writer stood
    Py_ssize_t size
    Py_ssize_t n_kept
    Py_ssize_t n_functions
    Py_ssize_t n_written


cdef class KeyWriter:
    cdef unsigned char *data
    cdef Py_ssize_t size
    cdef Py_ssize_t room
    cdef bint taken
    # In a search the first objects that count by identity, and all functions, are references of
    # these arrays: no list is made. It ends before anybody else can have the writer.
    cdef bint searching
    cdef Py_ssize_t n_held
    cdef PyObject *held[INLINE_KEPT]
    cdef list kept                       # all, or those after `held`; None where there are none
    cdef Py_ssize_t n_found
    cdef PyObject *found[MAX_FUNCTIONS]
    cdef list functions                  # met so far, but in a search; numbers are places
    cdef Py_ssize_t n_written            # of the functions
    cdef unsigned char[INLINE_BYTES] inline_bytes

    cdef Key key(self)
    cdef int check_open(self) except -1
    cdef Py_ssize_t n_functions(self) except -1
    cdef Mark mark(self)
    cdef int roll_back(self, Mark mark) except -1
    cdef int reserve(self, Py_ssize_t nbytes) except -1
    cdef int grow(self, Py_ssize_t nbytes) except -1
    cdef int put_tag(self, char tag) except -1
    cdef int put_word(self, char tag, uint64_t word) except -1
    cdef int put_raw(self, char tag, const void *source, Py_ssize_t nbytes) except -1
    cdef int put_bytes(self, char tag, bytes value) except -1
    cdef int put_str(self, str value) except -1
    cdef int put_int(self, object value) except -1
    cdef int put_shape(self, tuple shape) except -1
    cdef int put_dtype(self, object dtype) except -1
    cdef int put_identity(self, object value) except -1
    cdef int put_value(self, object value, int depth) except -1
    cdef int put_tuple(self, tuple values, int depth) except -1
    cdef int put_set(self, frozenset values, int depth) except -1
    cdef int put_mapping(self, dict items, frozenset left_out, int depth) except -1
    cdef int put_builtin(self, object function, int depth) except -1
    cdef int put_callable(self, object function, int depth) except -1
    cdef int put_function(self, object function) except -1
    cdef int put_functions(self) except -1
    cdef int put_parts(self, object function) except -1
    cdef int put_optional(self, PyObject *value) except -1
    cdef int put_inputs(self, tuple inputs, frozenset arrays, object convert) except -1
    cdef int put_array(self, object array) except -1
    cdef int put_build(self, object function) except -1

# Drop what the arrays of a search hold beyond these numbers.
cdef int let_go(KeyWriter self, Py_ssize_t n_held, Py_ssize_t n_found) except -1
# The hash of what was written so far: the key's.
cdef Py_hash_t written_hash(KeyWriter writer) noexcept
