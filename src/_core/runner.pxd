"""What runs a compiled graph on one device: where inputs lie, one run, where outputs are."""

from fastgraph._core.buffer cimport Block
from fastgraph._core.executable cimport Executable
from fastgraph._core.lock cimport GraphLock


cdef class Runner:
    cdef GraphLock lock
    cdef readonly Executable executable  # None as long as the graph cannot run, and once closed
    cdef readonly Block arena
    cdef readonly Block outputs          # host-visible; what offsets of outputs are relative to
    cdef readonly bint release_gil       # other threads may go on during a run
    cdef readonly unsigned int threads   # that may share a long copy of inputs or outputs
    cdef readonly bint on_device         # arrays may lie in memory of a device
    cdef readonly object own_stream      # where runs are put by default; None where there are none
    cdef list feeds                      # None where there are none
    cdef bint spoiled                    # a run that failed may have left parts in handles

    # All with the lock held. `start` comes first in each run; with `settle` nothing that was
    # enqueued earlier still reads what the host writes.
    cdef int start(self, bint settle) except -1
    # Input `i` lies at `at`: dense bytes of the host, which stay there until the run is over.
    cdef int take(self, Py_ssize_t i, const void *at) except -1
    # Where the bytes of input `i` can be written, and that they were.
    cdef void *staging(self, Py_ssize_t i) except NULL
    cdef int take_staged(self, Py_ssize_t i) except -1
    cdef int take_block(self, Py_ssize_t i, Block block, Py_ssize_t offset) except -1
    # It is a handle's: it lies there in all runs to come, and nothing the run writes overlaps it.
    cdef int take_handle(self, Py_ssize_t i, Block block, Py_ssize_t offset) except -1
    cdef int take_scalar(self, Py_ssize_t offset, const void *value, Py_ssize_t nbytes) except -1
    # Whether output `i` will be at `at` after the run; else it has to be copied from its home.
    cdef bint give(self, Py_ssize_t i, void *at) except -1
    cdef int give_block(self, Py_ssize_t i, Block block, Py_ssize_t offset) except -1
    # Where output `i` lies by default: (Block, address).
    cdef tuple output_place(self, Py_ssize_t i)
    # Let outputs lie where they are by default.
    cdef int home(self) except -1
    # Put what is enqueued by the coming run on a stream of the device's.
    cdef int use(self, object stream) except -1
    # That stream, or its own.
    cdef object stream(self)
    # Once inputs and scalars are placed: InputError where a feed's rows are not its handle's.
    cdef int check_feeds(self) except -1
    # Copy output `i` of the last run, which is over, into a handle.
    cdef int copy_output(self, Py_ssize_t i, Block block, Py_ssize_t offset) except -1
    # What of outputs runs write: by output None for all of it, else what gives (offset, bytes) of
    # each run of bytes of it. Empty: all of all.
    cdef int set_parts(self, list parts) except -1
    # Run and wait, or enqueue that.
    cdef int run(self) except -1
    cdef int enqueue(self) except -1
    cdef list run_timed(self)
    # Be one of several lanes, of which `first` is the model's own; False: one would do as well.
    # While `apart`, inputs are copied as they are taken.
    cdef bint join_lanes(self, Runner first) except -1
    cdef int set_apart(self, bint apart) except -1
    # Run, or hand that over, whichever is sooner done with: it is over when `over` says so or
    # `await_over` returns, from which comes only what handlers of signals raise. With `helping`,
    # runs that are waiting may be done meanwhile. Then `conclude` raises InputError where it met
    # bad data.
    cdef int commit(self) except -1
    cdef bint over(self) except -1
    cdef int await_over(self, bint helping) except -1
    cdef int conclude(self) except -1
    # Bind memories to blocks, all or none: a list of (memory, block).
    cdef int adopt(self, list places, bint ready) except -1
    # These are all feeds, and by input its handle or None: (Block, offset, bytes, bool: others
    # may write there). All or nothing.
    cdef int connect(self, list feeds, list handles) except -1
    # Run another executable from now on, whose first memories are bound as those of this one.
    cdef int switch(self, object executable, list places) except -1
    cdef int close(self) except -1
