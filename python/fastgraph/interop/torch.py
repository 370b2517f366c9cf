"""PyTorch's work as a node of a device graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from fastgraph._core.buffer import Buffer
from fastgraph.device.builder import DeviceGraphBuilder
from fastgraph.device.pending import Node, Scratch
from fastgraph.errors import GraphError, InputError

__all__ = ["Captured", "as_tensor", "capture"]


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


def as_tensor(buffer: Buffer) -> Any:
    """Return a tensor over a buffer's memory, without a copy.

    Parameters
    ----------
    buffer : Buffer
        Of any device. Not scratch, which has no address while a graph is built.

    Returns
    -------
    torch.Tensor

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
        Called once while PyTorch records; nothing is executed. It must not wait for the device,
        read a value back, or use the random generator's host state. Work whose libraries allocate
        when first used (matrix products, convolutions) should have run once before.
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
    GraphError
        PyTorch could not record the work; the message has its reason. Nothing was added.
    Exception
        What `fn` raises comes through as it is.

    Notes
    -----
    PyTorch's temporaries lie in a memory pool of this recording, which lives as long as the graph:
    no later tensor of the process is put there, also not after ``torch.cuda.empty_cache()``. What
    a tensor holds that `fn` reads without being given it is for the caller to keep alive.

    PyTorch waits for the whole device before it records, as ``torch.cuda.graph`` does.
    """
    b.context._backend.require("capture", "interop.torch.capture")
    device = torch.device("cuda", b.context.ordinal)
    given = tuple(as_tensor(x) if isinstance(x, Buffer) else x for x in tensors)
    for i, tensor in enumerate(given):
        if isinstance(tensor, torch.Tensor) and tensor.device != device:
            raise InputError(f"capture: tensor {i} is on {tensor.device}, the graph on {device}")
    with torch.cuda.device(device):
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        try:
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="relaxed"):
                outputs = fn(*given)
        except RuntimeError as error:
            if "capture" not in str(error).lower() and "cudaError" not in str(error):
                raise
            raise GraphError(f"PyTorch could not record {fn!r}: {error}") from error
    node = b.add_child_graph(
        int(graph.raw_cuda_graph()),
        owner=(graph, given, outputs, fn),
        dependencies=dependencies,
        name="torch" if name is None else name,
    )
    return Captured(node, outputs)
