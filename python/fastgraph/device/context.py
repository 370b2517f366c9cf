"""Device contexts: where buffers live and work is done."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastgraph._core import buffer, host_graph, isa, pool
from fastgraph._core.buffer import Buffer
from fastgraph._core.host_graph import HostProgram
from fastgraph.device.nodes import as_place, function_work
from fastgraph.device.pending import Pending, Scalar, Shared
from fastgraph.device.recording import record
from fastgraph.device.values import check_dtype, check_shape, pattern
from fastgraph.errors import FastGraphWarning, GraphError, InputError, UnsupportedError

__all__ = ["CAPABILITIES", "DeviceContext"]

# What each device can do, by name; docs/api.md explains every name.
CAPABILITIES = {"cpu": frozenset({"host_memory", "native_kernels", "compiled_graphs"})}


class DeviceContext:
    """A device to make buffers and graphs on.

    Parameters
    ----------
    device : str, optional
        ``"cpu"``. Without one the best usable device is taken; where a GPU is there but this build
        cannot use it, that is said once as a `FastGraphWarning`.

    Attributes
    ----------
    api : str
        ``"cpu"``.
    ordinal : int
        0.
    capabilities : frozenset of str
        What the device can do; everything else raises UnsupportedError.

    Raises
    ------
    UnsupportedError
        The device is not in this build.
    InputError
        `device` is not the name of a device.

    Notes
    -----
    Contexts of one device are equal, and their buffers are good for each other. On cpu all work
    is done when the call returns. ``with`` waits on exit; it frees nothing that is referenced.

    Examples
    --------
    >>> import fastgraph as fg, numpy as np
    >>> ctx = fg.DeviceContext("cpu")
    >>> x = ctx.to_device(np.arange(4, dtype="f4"))
    >>> ctx.memset(x[:2], 7.0)
    >>> x.numpy()
    array([7., 7., 2., 3.], dtype=float32)
    """

    __slots__ = ("api", "ordinal")

    def __init__(self, device: str | None = None) -> None:
        if device is None:
            _warn_of_unused_gpu()
            device = "cpu"
        if not isinstance(device, str):
            raise InputError(f"a device is named by a string like 'cpu', not {device!r}")
        api = device.partition(":")[0]
        if api == "cuda":
            raise UnsupportedError(
                "device 'cuda' is not in this build (no cuda modules); use 'cpu'"
            )
        if device not in ("cpu", "cpu:0"):
            raise InputError(f"there is no device {device!r}; this build has 'cpu'")
        self.api = api
        self.ordinal = 0

    @property
    def device(self) -> str:
        """str: the device's name, as buffers and graphs carry it."""
        return self.api

    @property
    def capabilities(self) -> frozenset[str]:
        """frozenset of str: what the device can do."""
        return CAPABILITIES[self.api]

    @property
    def attributes(self) -> dict[str, int]:
        """dict: the device in numbers: ``cores`` that this process may use."""
        return {"cores": pool.available_cores()}

    @property
    def memory_info(self) -> tuple[int, int]:
        """tuple of int: (available, total) bytes of memory."""
        page = os.sysconf("SC_PAGE_SIZE")
        return (
            page * os.sysconf("SC_AVPHYS_PAGES"),
            page * os.sysconf("SC_PHYS_PAGES"),
        )

    def create_buffer(self, shape: int | Sequence[int], dtype: npt.DTypeLike = "float32") -> Buffer:
        """Return a new zero-filled buffer.

        Parameters
        ----------
        shape : int or sequence of int
        dtype : dtype_like, default float32

        Returns
        -------
        Buffer

        Raises
        ------
        InputError
            A size is negative or the whole is too large to address.
        OutOfMemoryError
            The device has too little memory. Nothing is held after either.
        """
        kind = check_dtype(dtype)
        sizes = check_shape(shape, kind.itemsize)
        nbytes = math.prod(sizes) * kind.itemsize
        return buffer.view(buffer.allocate(nbytes), 0, sizes, kind, self.device)

    def create_host_buffer(
        self, shape: int | Sequence[int], dtype: npt.DTypeLike = "float32"
    ) -> Buffer:
        """Return a new zero-filled buffer in host memory; on cpu the same as `create_buffer`."""
        return self.create_buffer(shape, dtype)

    def to_device(self, array: npt.ArrayLike) -> Buffer:
        """Return a new buffer with a copy of `array`'s elements.

        Parameters
        ----------
        array : array_like
            Any strides; its dtype is kept.

        Returns
        -------
        Buffer

        Raises
        ------
        InputError
            The dtype has no fixed-size elements, or is byte-swapped.
        OutOfMemoryError
            As `create_buffer`.
        """
        source = buffer.as_source(array)
        result = self.create_buffer(source.shape, source.dtype)
        result.copy_from(source)
        return result

    def copy(self, dst: Any, src: Any) -> None:
        """Copy `src` to `dst`; each is a buffer or a NumPy array.

        Raises
        ------
        InputError
            Sizes or dtypes differ, `dst` is read-only. Nothing was copied.
        """
        if not isinstance(dst, Buffer | np.ndarray) or isinstance(dst, np.ma.MaskedArray):
            raise InputError(f"copy writes to a buffer or an array, not {type(dst).__name__}")
        target, source = np.asarray(dst), buffer.as_source(src)
        if target.shape != source.shape or target.dtype != source.dtype:
            raise InputError(
                f"copy of {source.dtype}{list(source.shape)} to "
                f"{target.dtype}{list(target.shape)}: sizes and dtypes must be equal"
            )
        if not target.flags.writeable:
            raise InputError("copy: the destination is read-only")
        target[...] = source

    def memset(self, dst: Buffer, value: Any) -> None:
        """Set every element of `dst` to `value`.

        Raises
        ------
        InputError
            `value` is no exact element of the dtype. Nothing was set.
        """
        if not isinstance(dst, Buffer):
            raise InputError(f"memset writes to a buffer, not {type(dst).__name__}")
        np.asarray(dst)[...] = pattern(value, dst.dtype)

    def launch(
        self,
        f: Any,
        *args: Any,
        grid_dim: int | Sequence[int] = 1,
        block_dim: int | Sequence[int] = 1,
    ) -> None:
        """Call a function now, with the arguments of `DeviceGraphBuilder.add_function`.

        Raises
        ------
        InputError, GraphError, UnsupportedError
            As `DeviceGraphBuilder.add_function`. Nothing was run.
        """

        def place(value: Any, written: bool) -> Any:
            found = as_place(value, self.device, written)
            if not isinstance(found, Buffer | np.ndarray):
                raise GraphError(f"{found!r} belongs to a graph")
            return found

        work = function_work(place, self.api, f, args, grid_dim, block_dim)
        if any(isinstance(access.place, Scalar) for access in work.accesses):
            raise GraphError("a scalar belongs to a graph; a launch takes numbers")
        recorded = record([Pending(work.name, work, ())], Shared(), False)
        blocks = {i: place for i, place in enumerate(recorded.blocks) if place is not None}
        program = HostProgram(recorded.record, isa.chosen())
        host_graph.instantiate(program, blocks, release_gil=True).run()

    def synchronize(self) -> None:
        """Wait for all work given to this context; on cpu it is already done."""

    def compile_function(self, source: str, name: str, signature: Any = None) -> Any:
        """Compile device code: UnsupportedError on cpu, where `NativeKernel` takes its place."""
        raise UnsupportedError("compile_function: the cpu takes NativeKernel(pointer, signature)")

    def load_function(self, image: bytes, name: str, signature: Any = None) -> Any:
        """Load device code: UnsupportedError on cpu, where `NativeKernel` takes its place."""
        raise UnsupportedError("load_function: the cpu takes NativeKernel(pointer, signature)")

    def __enter__(self) -> DeviceContext:
        return self

    def __exit__(self, *exc: object) -> None:
        self.synchronize()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeviceContext):
            return NotImplemented
        return (self.api, self.ordinal) == (other.api, other.ordinal)

    def __hash__(self) -> int:
        return hash((self.api, self.ordinal))

    def __repr__(self) -> str:
        return f"<DeviceContext {self.device}>"


def _warn_of_unused_gpu() -> None:
    if Path("/dev/nvidiactl").exists():
        warnings.warn(
            "a GPU is there, but this build of fastgraph has no cuda modules: using 'cpu'",
            FastGraphWarning,
            stacklevel=3,
        )
