# cython: language_level=3, binding=False
"""The key of a graph: bytes that are compared in full, and what they name kept alive."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcmp


cdef class Described:
    """What has a shape and a dtype, read here without a look-up of attributes."""


@cython.final
@cython.auto_pickle(False)
cdef class Key:
    """What a graph is found by in a cache: opaque, hashable, immutable. Made by a `KeyWriter`.

    Notes
    -----
    Keys are compared in full, never by their hash alone. A key keeps alive every object that
    counts by identity; it means nothing in another process and cannot be pickled.

    Examples
    --------
    >>> from fastgraph._core.keys import KeyWriter
    >>> def key(*numbers):
    ...     writer = KeyWriter()
    ...     for number in numbers:
    ...         writer.write_int(number)
    ...     return writer.take_key()
    >>> key(1, 23) == key(1, 23), key(1, 23) == key(12, 3)
    (True, False)
    """

    def __init__(self):
        raise TypeError("keys are made by KeyWriter.take_key")

    def __hash__(self):
        return self.hash

    def __eq__(self, other):
        cdef Key a = self
        cdef Key b
        if type(other) is not Key:
            return NotImplemented
        b = other
        if a is b:
            return True
        return (a.hash == b.hash and PyBytes_GET_SIZE(a.data) == PyBytes_GET_SIZE(b.data)
                and memcmp(PyBytes_AS_STRING(a.data), PyBytes_AS_STRING(b.data),
                           PyBytes_GET_SIZE(a.data)) == 0)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        raise TypeError("a key names objects of this process and cannot be pickled")

    def __repr__(self):
        return f"<Key {<uint64_t> self.hash:016x}, {len(self.data)} bytes>"


def key_bytes(Key key not None):
    """Return the tokens of `key`, for tests and dumps."""
    return key.data
