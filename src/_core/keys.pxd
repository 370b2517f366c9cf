from fastgraph._core.key cimport Key


cdef Key Key_compose(object build, tuple inputs, tuple settings, frozenset arrays, object convert)
