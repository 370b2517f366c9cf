from fastgraph._core.dispatch cimport Engine
from fastgraph._core.runner cimport Runner


cdef class Ticket:
    cdef Py_ssize_t lane                 # -1: it is settled
    cdef bint wanted                     # its outputs are to be copied out, its error kept here
    cdef readonly tuple outputs
    cdef readonly BaseException error    # what it met, or None


cdef class Lanes:
    cdef list runners                    # the first is the model's own
    cdef list tickets                    # by lane: the run in it, or None
    cdef Py_ssize_t next                 # the lane of the next run
    cdef Py_ssize_t latest               # where the outputs of the latest run are
    cdef public bint ordered             # runs have memory in common that they write
    cdef Py_ssize_t n_memories           # of the model's own program
    cdef bint useful                     # several lanes do more than one
    cdef list failed                     # what runs met of which nobody will ask
