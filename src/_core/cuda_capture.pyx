# cython: language_level=3
"""Work of other libraries as a graph: recorded while they enqueue it on a stream of ours.

CUDA spoils a capture when any thread of the process waits for the whole device meanwhile, so one
is under way at a time, the collector is off (a destructor may wait), and a spoilt one is tried
again where the work can be called again.
"""

import gc
import threading

from libc.stdint cimport uintptr_t

from fastgraph._core.cuda_host cimport host_refuse
from fastgraph._core.driver cimport (
    capture_begin, capture_end, graph_contents, graph_count_nodes, graph_destroy)
from fastgraph._core.stream cimport CudaDevice, Stream, Stream_borrow, Stream_create

from fastgraph._core.record import Foreign
from fastgraph.errors import GraphError

cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() nogil

ATTEMPTS = 3
SPOILT = (
    "the capture was spoilt: while it was under way, some thread of this process waited for the "
    "whole device (cuCtxSynchronize, cudaDeviceSynchronize, torch.cuda.synchronize, cudaFree), or "
    "the captured work itself did what cannot be captured. Let the other threads pause, or warm "
    "the work up before so that it allocates nothing")

_turn = threading.Lock()
_owner = None                            # the thread whose turn it is
_collecting = False                      # whether the collector was on before


cdef class CapturedGraph:
    """A driver graph that was captured, and all that has to live as long as it."""

    cdef uintptr_t graph
    cdef object keep

    def __cinit__(self):
        self.graph = 0

    def __init__(self):
        raise TypeError("made by a capture")

    def __dealloc__(self):
        if self.graph:
            graph_destroy(self.graph)

    @property
    def node_count(self):
        """int: nodes of the driver."""
        cdef size_t count = 0
        graph_count_nodes(self.graph, &count)
        return count


cdef class Capture:
    """A capture as a context manager: work enqueued on `stream` inside it becomes `foreign`.

    Parameters
    ----------
    device : CudaDevice
    keep : object, optional
        Kept alive as long as the graph: what the work names without our knowledge.
    again : callable, optional
        Makes the work anew for other addresses; see `Foreign`.

    Raises
    ------
    GraphError
        On exit: the capture was spoilt. In this form it cannot be tried again. On entry: this
        thread has a capture under way.
    """

    cdef readonly CudaDevice device
    cdef readonly Stream stream              # None outside
    cdef readonly object foreign             # None before the end
    cdef object keep
    cdef object again

    def __init__(self, CudaDevice device not None, keep=None, again=None):
        self.device = device
        self.keep = keep
        self.again = again

    @property
    def node_count(self):
        """int: how many nodes the work became."""
        if self.foreign is None:
            raise GraphError("the capture has not ended")
        return (<CapturedGraph> self.foreign.owner).node_count

    def __enter__(self):
        cdef Stream stream
        if self.stream is not None or self.foreign is not None:
            raise GraphError("a capture is done once")
        host_refuse()
        take_turn()
        try:
            stream = Stream_create(self.device, 0)
            # As a stream of another library, for it does what no other of ours does: it captures.
            self.stream = Stream_borrow(self.device, stream.handle, stream)
            self.stream.recorder = PyThread_get_thread_ident()
            capture_begin(self.device.context, self.stream.handle)
        except BaseException:
            self.stream = None
            give_turn()
            raise
        return self

    def __exit__(self, kind, error, trace):
        try:
            graph = self.end()
        except BaseException:
            # What the work raised tells more than that its capture could not be ended.
            if error is None:
                raise
            return
        if error is not None:
            return
        if graph is None:
            raise GraphError(SPOILT)
        self.foreign = Foreign((<CapturedGraph> graph).graph, graph, self.again)

    def end(self):
        """End the capture; return its graph, or None where it was spoilt."""
        cdef CapturedGraph graph = CapturedGraph.__new__(CapturedGraph)
        cdef uintptr_t made = 0
        try:
            capture_end(self.device.context, self.stream.handle, &made)
        finally:
            self.stream.recorder = 0
            self.stream = None
            give_turn()
        if not made:
            return None
        graph.graph = made
        graph.keep = self.keep
        return graph


def capture_call(CudaDevice device not None, f, keep=None, again=None):
    """Capture what ``f(stream)`` enqueues on the stream that it is given.

    A spoilt capture is tried again up to three times, so `f` may be called more than once.

    Parameters
    ----------
    device, keep, again
        As for `Capture`.
    f : callable

    Returns
    -------
    Foreign
        Its owner has ``node_count``.

    Raises
    ------
    GraphError
        The capture was spoilt each time.
    Exception
        What `f` raises while the capture is sound.
    """
    cdef Capture capture
    failure = None
    for _ in range(1 + ATTEMPTS):
        capture = Capture(device, keep, again)
        capture.__enter__()
        failure = None
        try:
            f(capture.stream)
        except Exception as error:
            failure = error
        except BaseException as error:
            capture.__exit__(type(error), error, None)
            raise
        try:
            graph = capture.end()
        except BaseException:
            if failure is None:
                raise
            raise failure
        if graph is None:
            continue                     # also if `f` raised: it ran into the spoilt capture
        if failure is not None:
            raise failure
        return Foreign((<CapturedGraph> graph).graph, graph, again)
    raise GraphError(f"{SPOILT} (tried {1 + ATTEMPTS} times)") from failure


def contents(uintptr_t graph):
    """Look through a driver graph and those inside it.

    Parameters
    ----------
    graph : int
        The driver's handle.

    Returns
    -------
    (bool, bool)
        Whether it holds what CUDA forbids in the body of a conditional, and whether it holds a
        conditional, which cannot be in a child at all.
    """
    cdef bint forbidden = False, conditional = False
    graph_contents(graph, &forbidden, &conditional)
    return bool(forbidden), bool(conditional)


class Turn:
    """The turn to capture, for who captures by another library's means; a context manager.

    Raises
    ------
    GraphError
        On entry: this thread has a capture under way.
    """

    def __enter__(self):
        host_refuse()
        take_turn()

    def __exit__(self, kind, error, trace):
        give_turn()


cdef int take_turn() except -1:
    global _owner, _collecting
    cdef object me = threading.get_ident()
    if _owner == me:
        raise GraphError("this thread has a capture under way; captures do not nest")
    _turn.acquire()
    _owner = me
    _collecting = gc.isenabled()
    gc.disable()
    return 0


cdef int give_turn() except -1:
    global _owner
    _owner = None
    if _collecting:
        gc.enable()
    _turn.release()
    return 0
