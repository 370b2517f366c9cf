from fastgraph._core.types cimport fg_kernel

cdef fg_kernel isa_lookup(str name, str isa) except NULL
