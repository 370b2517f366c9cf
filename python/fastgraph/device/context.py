"""Device contexts: where buffers live and work is done."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastgraph._core import buffer
from fastgraph._core.buffer import Buffer, as_source
from fastgraph.device.backend import Backend, LaunchOptions
from fastgraph.device.devices import best_device, open_device
from fastgraph.device.foreign import as_buffer, as_taken, bare, is_foreign, settle
from fastgraph.device.kernel import Declared
from fastgraph.device.nodes import as_place
from fastgraph.device.pending import Scalar
from fastgraph.device.values import check_dtype, check_shape, pattern
from fastgraph.errors import FastGraphWarning, GraphError, InputError

__all__ = ["DeviceContext"]


class DeviceContext:
    """A device to make buffers and graphs on, and a stream of work for it.

    Parameters
    ----------
    device : str, optional
        ``"cpu"``, ``"cuda"`` (the first GPU), ``"cuda:1"`` … Without one the best usable device is
        taken; where a GPU is there but cannot be used, that is said once as a `FastGraphWarning`.
    stream : Stream or object with ``__cuda_stream__``, optional
        The stream that work goes to; by default one of its own. Not on cpu.

    Attributes
    ----------
    api : str
        ``"cpu"`` or ``"cuda"``.
    ordinal : int
        The number of the device among those of its kind.
    capabilities : frozenset of str
        What the device can do; everything else raises UnsupportedError.

    Raises
    ------
    UnsupportedError
        The device is not in this build, or its driver is missing or too old.
    InputError
        `device` is not the name of a device.

    Notes
    -----
    Contexts of one device are equal, and their buffers are good for each other. On cpu all work
    is done when the call returns; on a GPU it is enqueued in the order of the context's stream.
    ``with`` waits on exit; it frees nothing that is referenced.

    Examples
    --------
    >>> import fastgraph as fg, numpy as np
    >>> ctx = fg.DeviceContext("cpu")
    >>> x = ctx.to_device(np.arange(4, dtype="f4"))
    >>> ctx.memset(x[:2], 7.0)
    >>> x.numpy()
    array([7., 7., 2., 3.], dtype=float32)
    """

    __slots__ = ("_backend", "_stream", "api", "ordinal")

    def __init__(self, device: str | None = None, stream: Any = None) -> None:
        if device is None:
            device, problem = best_device()
            if problem:
                _warn_of_unused_gpu(problem)
        self._backend: Backend = open_device(device)
        self.api = self._backend.api
        self.ordinal = self._backend.ordinal
        self._stream = self._backend.context_stream(stream)

    @property
    def device(self) -> str:
        """str: the device's name, as buffers and graphs carry it."""
        return self._backend.device

    @property
    def capabilities(self) -> frozenset[str]:
        """frozenset of str: what the device can do."""
        return self._backend.capabilities

    @property
    def attributes(self) -> dict[str, int]:
        """dict: the device in numbers; on cpu the ``cores`` that this process may use."""
        return self._backend.attributes

    @property
    def memory_info(self) -> tuple[int, int]:
        """tuple of int: (available, total) bytes of memory."""
        return self._backend.memory_info

    @property
    def stream(self) -> Any:
        """Stream: where this context's work goes; UnsupportedError on cpu."""
        self._backend.require("streams", "stream")
        return self._stream

    def create_stream(self, priority: int = 0) -> Any:
        """Return a new stream of the device; UnsupportedError on cpu.

        Parameters
        ----------
        priority : int, default 0
            Lower goes first; the device has few, and InputError says which.

        Examples
        --------
        >>> import fastgraph as fg
        >>> fg.DeviceContext("cpu").create_stream()  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        fastgraph.errors.UnsupportedError: ...
        """
        self._backend.require("streams", "create_stream")
        return self._backend.create_stream(priority)

    def create_event(self) -> Any:
        """Return a point in time to be recorded, waited for and compared with another.

        Returns
        -------
        Event
            ``record(stream=None)``, ``query()``, ``synchronize()``, ``elapsed_ms(start)``.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> start, end = ctx.create_event(), ctx.create_event()
        >>> start.record()
        >>> end.record()
        >>> end.synchronize()
        >>> end.elapsed_ms(start) >= 0
        True
        """
        return self._backend.create_event(self._stream)

    def wait_for(self, other: DeviceContext) -> None:
        """Let the work given to this context from now on wait for what `other` was given so far.

        The call itself does not wait.

        Raises
        ------
        InputError
            `other` is no DeviceContext.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> other = fg.DeviceContext("cpu")
        >>> other.wait_for(ctx)
        """
        if not isinstance(other, DeviceContext):
            raise InputError(f"wait_for takes a DeviceContext, not {type(other).__name__}")
        if self._stream is not None and other._stream is not None:
            self._stream.wait_for(other._stream)

    def execution_time(self, f: Callable[[], object], n: int = 1) -> float:
        """Return how long the work takes that `n` calls of `f` give to this context.

        Parameters
        ----------
        f : callable
            Called without arguments.
        n : int, default 1

        Returns
        -------
        float
            Seconds, of all calls together, on the device's clock from the first piece of work to
            the end of the last; on cpu on the host's clock.

        Raises
        ------
        InputError
            `n` is not positive, or `f` is not callable.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> x = ctx.create_buffer(1024)
        >>> ctx.execution_time(lambda: ctx.memset(x, 1.0), n=10) > 0
        True
        """
        if not callable(f):
            raise InputError(f"execution_time takes a callable, not {type(f).__name__}")
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise InputError(f"execution_time: n is {n!r}; a positive integer is needed")
        start, end = self.create_event(), self.create_event()
        start.record()
        for _ in range(n):
            f()
        end.record()
        end.synchronize()
        return float(end.elapsed_ms(start)) / 1e3

    def enable_peer_access(self, other: DeviceContext) -> None:
        """Let this device read and write the memory of another one; again is fine.

        Raises
        ------
        UnsupportedError
            On cpu, or where the two devices cannot.
        InputError
            `other` is no DeviceContext, or one of this device.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> ctx.enable_peer_access(ctx)  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        fastgraph.errors.UnsupportedError: ...
        """
        self._backend.require("peer_access", "enable_peer_access")
        if not isinstance(other, DeviceContext) or other == self:
            raise InputError(f"enable_peer_access takes a context of another GPU, not {other!r}")
        self._backend.enable_peer_access(other._backend)

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

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> ctx.create_buffer((2, 3), "int32").numpy()
        array([[0, 0, 0],
               [0, 0, 0]], dtype=int32)
        """
        kind = check_dtype(dtype)
        sizes = check_shape(shape, kind.itemsize)
        block = self._backend.allocate_for(
            math.prod(sizes) * kind.itemsize, "a buffer of", kind, sizes
        )
        return buffer.view(block, 0, sizes, kind, self.device)

    def create_host_buffer(
        self, shape: int | Sequence[int], dtype: npt.DTypeLike = "float32"
    ) -> Buffer:
        """Return a new zero-filled buffer in host memory that the device reaches.

        On a GPU it is pinned: `numpy.asarray` views it, and copies read and write it in the order
        of the stream. On cpu it is the same as `create_buffer`, whose errors it has.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> ctx = fg.DeviceContext("cpu")
        >>> x = ctx.create_host_buffer(3)
        >>> np.asarray(x)[:] = 5
        >>> x.numpy()
        array([5., 5., 5.], dtype=float32)
        """
        kind = check_dtype(dtype)
        sizes = check_shape(shape, kind.itemsize)
        nbytes = math.prod(sizes) * kind.itemsize
        return buffer.view(self._backend.allocate_host(nbytes), 0, sizes, kind, self.device)

    def to_device(self, array: npt.ArrayLike) -> Buffer:
        """Return a new buffer with a copy of `array`'s elements.

        Parameters
        ----------
        array : array_like
            Any strides; its dtype is kept. On a GPU it is a `Buffer` or an array of another
            library, dense and on this one; the copy waits for what fills it.

        Returns
        -------
        Buffer

        Raises
        ------
        InputError
            The dtype has no fixed-size elements, or is byte-swapped.
        OutOfMemoryError
            As `create_buffer`.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> ctx = fg.DeviceContext("cpu")
        >>> ctx.to_device(np.arange(4, dtype="f4")[::2]).numpy()
        array([0., 2.], dtype=float32)
        """
        source = self._source(array, "to_device reads from")
        result = self.create_buffer(source.shape, source.dtype)
        if isinstance(source, Buffer):
            self.copy(result, source)
            self.synchronize()  # the source may go
        else:
            result.copy_from(source)
        return result

    def copy(self, dst: Any, src: Any) -> None:
        """Copy `src` to `dst`; each is a buffer or an array.

        With an array of another library on a GPU the copy comes after what is on the stream of
        that library, and before what is put there later.

        One of two buffers may be another GPU's; work on that one's streams is not waited for, see
        `wait_for`.

        Raises
        ------
        InputError
            Sizes or dtypes differ, `dst` is read-only. Nothing was copied.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> ctx = fg.DeviceContext("cpu")
        >>> x = ctx.create_buffer(4)
        >>> ctx.copy(x[1:3], np.ones(2, "f4"))
        >>> x.numpy()
        array([0., 1., 1., 0.], dtype=float32)
        """
        dst, src = self._backend.copy_sides(dst, src)
        target = self._place(dst, "copy writes to", True)
        source = self._source(src, "copy reads from")
        if target.shape != source.shape or target.dtype != source.dtype:
            raise InputError(
                f"copy of {source.dtype}{list(source.shape)} to "
                f"{target.dtype}{list(target.shape)}: sizes and dtypes must be equal"
            )
        if isinstance(target, np.ndarray) and not target.flags.writeable:
            raise InputError("copy: the destination is read-only")
        if target.nbytes:
            try:
                self._backend.copy(target, source, self._stream)
            finally:  # also where an interrupt comes between: the copy may be enqueued
                settle((dst, src), self._stream)

    def memset(self, dst: Any, value: Any) -> None:
        """Set every element of `dst` to `value`.

        Raises
        ------
        InputError
            The dtype has no such element: floats are rounded to it, ints must be exact. Nothing
            was set.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> x = ctx.create_buffer(2, "uint16")
        >>> ctx.memset(x, 0xBEEF)
        >>> x.numpy()
        array([48879, 48879], dtype=uint16)
        """
        target = dst
        if is_foreign(dst):
            target = as_taken(dst, self.device, self._stream)
        if not isinstance(target, Buffer):
            raise InputError(f"memset writes to a buffer, not {type(dst).__name__}")
        self._place(target, "memset writes to", True)
        element = pattern(value, target.dtype)
        if target.nbytes:
            self._backend.memset(target, element, self._stream)
            settle((dst,), self._stream)

    def launch(
        self,
        f: Any,
        *args: Any,
        grid_dim: int | Sequence[int] = 1,
        block_dim: int | Sequence[int] = 1,
        cluster_dim: int | Sequence[int] | None = None,
        shared_mem_bytes: int = 0,
        cooperative: bool = False,
        priority: int | None = None,
        programmatic: bool = False,
        constant_memory: Any = None,
    ) -> None:
        """Call a function once, with the arguments of `DeviceGraphBuilder.add_function`.

        Raises
        ------
        InputError, GraphError, UnsupportedError
            As `DeviceGraphBuilder.add_function`. Nothing was run.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> def inc(grid, block, x, delta):
        ...     x += delta
        >>> x = ctx.create_buffer(3)
        >>> ctx.launch(fg.Kernel("inc", cpu=inc), x, 2.0)
        >>> x.numpy()
        array([2., 2., 2.], dtype=float32)
        """

        def place(value: Any, written: bool) -> Any:
            found = as_place(value, self.device, written, self._stream)
            if not isinstance(found, Buffer | np.ndarray):
                raise GraphError(f"{found!r} belongs to a graph")
            return found

        options = LaunchOptions(
            grid_dim,
            block_dim,
            cluster_dim,
            shared_mem_bytes,
            cooperative,
            priority,
            programmatic,
            constant_memory,
        )
        work = self._backend.function_work(place, f, args, options)
        if any(isinstance(access.place, Scalar) for access in work.accesses):
            raise GraphError("a scalar belongs to a graph; a launch takes numbers")
        self._backend.launch(work, self._stream)
        settle((arg.value if isinstance(arg, Declared) else arg for arg in args), self._stream)

    def synchronize(self) -> None:
        """Wait for all work given to this context; on cpu it is already done.

        Raises
        ------
        Exception
            What a host function of a graph on this device raised, if nobody was told yet.
        DriverError
            The work failed. After an illegal address the device is lost: ContextPoisonedError.
        KeyboardInterrupt
            Ctrl-C while waiting; the work goes on.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> x = ctx.create_buffer(2)
        >>> ctx.memset(x, 1.0)
        >>> ctx.synchronize()
        """
        if self._stream is not None:
            self._stream.synchronize()
            self._backend.raise_faults()

    def compile_function(self, source: str, name: str, signature: Any = None) -> Any:
        """Compile CUDA C++ for this device and return one of its kernels.

        Parameters
        ----------
        source : str
        name : str
            Of the kernel, as in C++: ``"inc"``, ``"axpy<float>"``.
        signature : str, optional
            The parameters as in C. Without one they come from the kernel's mangled name; of one
            that is ``extern "C"`` only the sizes are known.

        Returns
        -------
        CudaFunction
            Good for every context of the device.

        Raises
        ------
        GraphError
            The source does not compile (the message has the compiler's log), or has no such
            kernel, or `signature` does not fit it.
        UnsupportedError
            On cpu, where `NativeKernel` takes its place; or the compiler is not installed.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> ctx.compile_function("", "nothing")  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        fastgraph.errors.UnsupportedError: ...
        """
        self._backend.require("device_kernels", "compile_function")
        return self._backend.compile_function(source, name, signature)

    def load_function(self, image: bytes | str, name: str, signature: Any = None) -> Any:
        """Load a kernel from a compiled image: PTX, cubin or fatbin; else as `compile_function`.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> ctx.load_function(b"", "nothing")  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        fastgraph.errors.UnsupportedError: ...
        """
        self._backend.require("device_kernels", "load_function")
        return self._backend.load_function(image, name, signature)

    def _place(self, value: Any, what: str, written: bool) -> Any:
        if isinstance(value, np.ma.MaskedArray):
            raise InputError(f"{what} a buffer or an array: there is no place for a mask")
        if isinstance(value, np.ndarray):
            value = bare(value)
        elif not isinstance(value, Buffer):
            try:
                value = as_buffer(value, self.device, self._stream, readonly=not written)
            except InputError as error:
                raise InputError(f"{what} a buffer or an array: {error}") from None
        if isinstance(value, Buffer) and value.device != self.device:
            raise InputError(f"{what} {value!r}, which is not on {self.device}")
        return value

    def _source(self, value: Any, what: str) -> Any:
        """Return a buffer of this device, or an array of the host, to read from."""
        if isinstance(value, Buffer) or is_foreign(value):
            return self._place(value, what, False)
        return as_source(value)

    def __enter__(self) -> DeviceContext:
        return self

    def __exit__(self, *exc: object) -> None:
        self.synchronize()

    def __copy__(self) -> DeviceContext:
        return self

    def __deepcopy__(self, memo: object) -> DeviceContext:
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeviceContext):
            return NotImplemented
        return (self.api, self.ordinal) == (other.api, other.ordinal)

    def __hash__(self) -> int:
        return hash((self.api, self.ordinal))

    def __repr__(self) -> str:
        return f"<DeviceContext {self.device}>"


def _warn_of_unused_gpu(problem: str) -> None:
    warnings.warn(
        f"a GPU is there, but cannot be used ({problem}): using 'cpu'",
        FastGraphWarning,
        stacklevel=3,
    )
