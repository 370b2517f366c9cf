"""The values of one graph's scalars: what they are, and what they go back to."""

from fastgraph._core.cuda_build cimport DriverGraph
from fastgraph._core.cuda_cells cimport Cells
from fastgraph._core.stream cimport CudaDevice


cdef class Values:
    cdef dict now                            # (memory, offset) → the value of the next launch
    cdef dict once                           # of those set for one launch: the value to go back to
    cdef bint once_used                      # that launch has been
    cdef Cells cells                         # those that lie in memory; None where there are none

# `cells` names those of `scalars` that lie in memory.
cdef Values Values_create(CudaDevice device, dict scalars, object cells)
# Hand values on, for the next launch alone with `once`; those set for a launch that has been go
# back. Where the driver refuses one, `graph._rebuild` is told why. When it raises, all is as it
# was.
cdef int Values_store(Values self, DriverGraph built, dict values, bint once,
                      object graph) except -1
# The same with the value of one in a node, where nothing else has to change: True. Else False, and
# all is as it was.
cdef bint Values_store_one(Values self, DriverGraph built, tuple where, bytes value, bint once,
                           object graph) except -1
# That launch has been, or is not to be.
cdef int Values_spend(Values self) except -1
# The memory of a number is somewhere else now.
cdef int Values_moved(Values self, size_t memory) except -1


cdef inline bint Values_wait(Values self) except -1:
    """Whether some are not in memory yet."""
    return self.cells is not None and self.cells.low < self.cells.high


cdef inline bint Values_are_due(Values self) except -1:
    """Whether a launch has to look at them: something goes back, or is not in memory yet."""
    return bool(self.once) or Values_wait(self)
