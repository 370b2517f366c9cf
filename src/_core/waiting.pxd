from libc.stdint cimport uintptr_t

# Wait until an event is there; what is expected to take long leaves the GIL at once.
cdef int wait_event(uintptr_t context, uintptr_t event, bint expect_long) except -1
# The same without looking for signals: for what must be over before anything else happens.
cdef int settle(uintptr_t context, uintptr_t event) except -1
# The same with the GIL kept all the time; only where no work that is waited for can want it.
cdef int wait_kept(uintptr_t context, uintptr_t event) except -1
