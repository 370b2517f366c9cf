"""PyTorch's work as a node of a device graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch

from fastgraph._core.buffer import Buffer
from fastgraph._core.record import Foreign
from fastgraph.device.builder import DeviceGraphBuilder
from fastgraph.device.pending import Node, Scratch
from fastgraph.errors import GraphError, InputError, UnsupportedError

__all__ = ["Captured", "as_tensor", "capture"]

# So often a recording is tried that another thread has spoilt.
ATTEMPTS = 4
SPOILT = (
    "; another thread may have waited for the whole device meanwhile (torch.cuda.synchronize), or "
    "the work forked to a stream that it did not join"
)


class Captured(NamedTuple):
    """What `capture` returns.

    Attributes
    ----------
    node : Node
        All of the work.
    outputs : object
        What the function returned: tensors whose memory each replay writes anew.
    """

    node: Node
    outputs: Any


def as_tensor(buffer: Any) -> Any:
    """Return a tensor over a buffer's memory, without a copy.

    Parameters
    ----------
    buffer : Buffer
        Of any device. Not scratch, which has no address while a graph is built.

    Returns
    -------
    torch.Tensor
        It keeps the memory alive. PyTorch's current stream waits for the work that was put on
        streams of ours before.

    Raises
    ------
    InputError
        `buffer` is no Buffer.
    """
    if isinstance(buffer, Scratch) or not isinstance(buffer, Buffer):
        raise InputError(f"as_tensor takes a Buffer, not {type(buffer).__name__}")
    return torch.from_dlpack(buffer)


def capture(
    b: DeviceGraphBuilder,
    fn: Callable[..., Any],
    *tensors: Any,
    dependencies: Iterable[Node] = (),
    name: str | None = None,
) -> Captured:
    """Add what ``fn(*tensors)`` does on PyTorch's current stream as one node.

    Parameters
    ----------
    b : DeviceGraphBuilder
        Of a cuda device.
    fn : callable
        Called while PyTorch records; nothing is executed. It must not wait for the device or read
        a value back. Work whose libraries allocate when first used (matrix products,
        convolutions) should have run once before, in this thread.
    *tensors : torch.Tensor or Buffer
        What `fn` is called with, a `Buffer` as a tensor over its memory. Replays read and write
        the memory that they have now.
    dependencies : iterable of Node
    name : str, optional

    Returns
    -------
    Captured

    Raises
    ------
    UnsupportedError
        The builder is of the cpu.
    InputError
        A tensor is on another device.
    GraphError
        PyTorch could not record the work; the message has its reason. Nothing was added, and
        PyTorch can be used as before.
    Exception
        What `fn` raises comes through as it is.

    Notes
    -----
    PyTorch's temporaries lie in a memory pool of this recording, which lives as long as the graph:
    no later tensor of the process is put there, also not after ``torch.cuda.empty_cache()``. What
    a tensor holds that `fn` reads without being given it is for the caller to keep alive.

    Random numbers are the same in each replay: PyTorch moves its generator on only in its own
    replays.

    A clone of the graph calls `fn` again, with the same tensors, for temporaries of its own; it
    writes its results to the same ``outputs``. Where `fn` returns something else than tensors and
    lists, tuples and dicts of them, the graph cannot be cloned.
    """
    b._check_open()
    backend = b.context._backend
    backend.require("capture", "interop.torch.capture")
    dependencies = (dependencies,) if isinstance(dependencies, Node) else tuple(dependencies)
    b._ids(dependencies)
    device = torch.device("cuda", b.context.ordinal)
    given = tuple(as_tensor(x) if isinstance(x, Buffer | Scratch) else x for x in tensors)
    for i, tensor in enumerate(given):
        if isinstance(tensor, torch.Tensor) and tensor.device != device:
            raise InputError(f"capture: tensor {i} is on {tensor.device}, the graph on {device}")
    recording = _Recording(backend, device, fn, given)
    graph, outputs = recording.record(lambda: fn(*given))
    recording.outputs = outputs
    foreign = recording.foreign(graph)
    node = b._add_foreign("torch" if name is None else name, foreign, dependencies)
    return Captured(node, outputs)


class _Recording:
    """A function and what it is called with, to be recorded once for each executable."""

    def __init__(self, backend: Any, device: Any, fn: Callable[..., Any], given: tuple[Any, ...]):
        self.backend = backend
        self.device = device
        self.fn = fn
        self.given = given
        self.outputs: Any = None

    def foreign(self, graph: Any) -> Foreign:
        """Return a recorded graph as a node holds it; it keeps all alive that the work needs."""
        return Foreign(int(graph.raw_cuda_graph()), (graph, self), self.again)

    def again(self, addresses: tuple[int, ...]) -> Foreign:
        """Record once more, with temporaries of its own and the same outputs."""
        wanted = list(_tensors(self.outputs))

        def work() -> None:
            made = list(_tensors(self.fn(*self.given)))
            if len(made) != len(wanted):
                raise GraphError(
                    f"{self.fn!r} returned {len(made)} tensors for a clone, {len(wanted)} at first"
                )
            for new, old in zip(made, wanted, strict=True):
                if new.data_ptr() != old.data_ptr():
                    old.copy_(new)

        with torch.no_grad():
            graph, _ = self.record(work)
        return self.foreign(graph)

    def record(self, work: Callable[[], Any]) -> tuple[Any, Any]:
        """Return the graph of what ``work()`` does, and what it returns."""
        with torch.cuda.device(self.device), self.backend.capture_turn():
            for attempt in range(1, ATTEMPTS + 1):
                # A pool that is known by its id can be given back also when the recording fails.
                pool = torch.cuda.graph_pool_handle()
                graph = torch.cuda.CUDAGraph(keep_graph=True)
                outputs, failure, broken = _recorded(graph, pool, self.device, work)
                if broken is None:
                    if failure is not None:
                        raise failure  # and the sound graph goes
                    return graph, outputs
                with contextlib.suppress(RuntimeError):
                    _mend(graph, pool, self.device)
                if failure is None and attempt < ATTEMPTS:
                    continue  # nothing that the function did was refused
                if failure is not None and not isinstance(failure, RuntimeError):
                    raise failure
                reason = broken if failure is None else failure
                hint = SPOILT if failure is None else ""
                raise GraphError(
                    f"PyTorch could not record {self.fn!r}: {reason}{hint}"
                ) from reason
        raise AssertionError("a recording ends by returning or raising")


def _recorded(
    graph: Any, pool: Any, device: Any, work: Callable[[], Any]
) -> tuple[Any, BaseException | None, BaseException | None]:
    """Record; return what `work` returned, what it raised, and what ending the recording did.

    Not by ``torch.cuda.graph``: where its end fails, the stream of the recording stays current.
    """
    outputs: Any = None
    failure: BaseException | None = None
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        try:
            graph.capture_begin(pool=pool, capture_error_mode="relaxed")
        except RuntimeError as error:
            return None, None, error
        try:
            outputs = work()
        except BaseException as error:
            failure = error
        try:
            graph.capture_end()
        except RuntimeError as error:
            return None, failure, error
    return outputs, failure, None


def _mend(graph: Any, pool: Any, device: Any) -> None:
    """Undo what PyTorch leaves of a recording that could not be ended.

    Its allocator goes on sending memory to the pool and frees none of what is cached, and its
    random generator takes itself for recording.
    """
    graph.reset()
    for name in ("_cuda_endAllocateToPool", "_cuda_releasePool"):
        with contextlib.suppress(AttributeError, RuntimeError):
            getattr(torch._C, name)(device.index, pool)
    # Beginning and ending a sound recording sets the generator right. It has a node, because of
    # one without PyTorch warns.
    word = torch.zeros(1, device=device)
    sound = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        sound.capture_begin(capture_error_mode="relaxed")
        try:
            word.zero_()
        finally:
            sound.capture_end()
    stream.synchronize()
    sound.reset()


def _tensors(value: Any) -> Iterable[Any]:
    """Every tensor in what a function returned, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
    elif value is not None:
        raise UnsupportedError(
            f"a graph with recorded work of PyTorch that returns a {type(value).__name__} cannot "
            "be cloned: only tensors, and lists, tuples and dicts of them, are written again"
        )
