"""The way to a graph in a cache: what is written is compared with the keys that are held."""

from fastgraph._core.keys cimport KeyWriter

# Everything that tells a graph apart, in a writer that is to be given back with `search_end`.
cdef KeyWriter search_begin(object build, tuple inputs, object device, object key, object check,
                            object verify, frozenset arrays, object convert)
cdef int search_end(KeyWriter writer) except -1
