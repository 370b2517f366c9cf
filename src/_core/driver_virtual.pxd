"""Virtual memory of a GPU as verbs that raise, as those of `driver_base`."""

from libc.stdint cimport uintptr_t

# Addresses without memory, and memory behind some of them: whole granules, given back piece by
# piece as they were put there.
cdef size_t granule_bytes(uintptr_t context, int ordinal) except 0 nogil
cdef uintptr_t address_reserve(uintptr_t context, size_t nbytes) except 0 nogil
cdef int address_free(uintptr_t context, uintptr_t ptr, size_t nbytes) except -1 nogil
cdef int granules_map(uintptr_t context, int ordinal, uintptr_t ptr,
                      size_t nbytes) except -1 nogil
cdef int granules_unmap(uintptr_t context, uintptr_t ptr, size_t nbytes) except -1 nogil
