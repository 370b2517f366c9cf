"""Arrays of other libraries, taken in without a copy."""

from __future__ import annotations

import importlib
import math
import operator
from collections.abc import Iterable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from fastgraph._core import buffer
from fastgraph._core.buffer import Buffer
from fastgraph._core.dlpack import Tensor
from fastgraph.device.libraries import HOST, Live, named_dtype, ordinal_of, reader_of
from fastgraph.device.values import check_element, check_shape
from fastgraph.errors import InputError

__all__ = [
    "as_array", "as_buffer", "as_located", "as_taken", "bare", "describe", "is_foreign", "settle",
    "to_read",
]  # fmt: skip

_Array = np.ndarray[Any, np.dtype[Any]]

# DLPack's types of devices.
CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
# The newest DLPack that is read; its successors of the same major number are read as well.
DLPACK_VERSION = (1, 0)
# The legacy stream, and the one that is another in each thread.
LEGACY_STREAM, THREAD_STREAM = 1, 2
# What other libraries' methods raise, and NumPy about what they return.
UNREADABLE = (
    *(AttributeError, BufferError, LookupError, OverflowError, RuntimeError, TypeError),
    ValueError,
)
# What is no array: ours are known, and text and numbers have bytes, too.
NOT_FOREIGN = (Buffer, np.ndarray, bytes, str, np.generic, int, float)
# What DLPack is given where nobody is to wait for anything.
NO_STREAM = -1


def is_foreign(x: object) -> bool:
    """Return whether `x`, no Buffer and no ndarray, says that it is an array."""
    if isinstance(x, NOT_FOREIGN):
        return False
    ways = ("__dlpack__", "__array_interface__", "__cuda_array_interface__")
    return any(_says(x, way) for way in ways) or _memory(x) is not None


def _says(x: object, way: str) -> bool:
    try:
        return hasattr(x, way)
    except UNREADABLE:
        return True  # and why it cannot be read is told when it is


def bare(x: _Array) -> _Array:
    """Return an ndarray as NumPy itself has it, whatever a subclass says of its shape or dtype."""
    return x if type(x) is np.ndarray else np.asarray(x)


def as_array(x: Any) -> Buffer | _Array:
    """Return what `as_buffer` does, on the device where `x` is, to be read."""
    return as_buffer(x, _device_of(x), readonly=True)


def as_buffer(
    x: Any, device: str, stream: Any = None, *, readonly: bool = False
) -> Buffer | _Array:
    """Return an array of another library as one that fastgraph works on; nothing is copied.

    Parameters
    ----------
    x : Buffer, ndarray, or array of another library
        An object with ``__dlpack__``, ``__array_interface__``, ``__cuda_array_interface__`` or the
        buffer protocol: tensors of torch, arrays of CuPy, ``array.array``, ``mmap`` … Dense, where
        it is on a GPU.
    device : str
        ``"cpu"``, ``"cuda:0"`` … Memory of the host is good for every device, a GPU's for its own.
    stream : Stream, optional
        A stream of the device that is made to wait for the work that fills `x`. Without one that
        work is waited for.
    readonly : bool, default False
        Take also what may not be written.

    Returns
    -------
    Buffer or numpy.ndarray
        A buffer of the device over the same bytes, which keeps `x` alive; of memory of the host an
        ndarray, but a buffer where it is pinned and `device` a GPU.

    Raises
    ------
    InputError
        `x` is no array, is on another device, is not dense, or may not be written; its dtype has
        no name in NumPy or ml_dtypes, is byte-swapped, or is of objects, text or times.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.device.foreign import as_buffer
    >>> x = np.arange(3)
    >>> as_buffer(x, "cpu") is x
    True
    """
    ordinal_of(device)  # InputError where it names none
    if isinstance(x, Buffer):
        if x.device != device and not x.host_visible:
            raise InputError(f"{x!r} is not on {device}")
        return x
    if isinstance(x, np.ma.MaskedArray):
        raise InputError(f"{_named(x)} is masked; there is no place for its mask")
    if isinstance(x, np.ndarray):
        return _checked(bare(x), readonly, x)
    if _has_dlpack(x):
        if readonly and (reader := reader_of(x)) is not None:
            x = reader.bare(x)
        return _from_dlpack(x, device, stream, readonly)
    interface = _interface(x)
    if interface is not None:
        return _from_interface(x, interface, device, stream, readonly)
    if is_foreign(x):
        return _checked(_host_view(x), readonly, x)
    raise InputError(
        f"a {type(x).__name__} is no array: it has neither __dlpack__ nor __array_interface__ nor "
        "__cuda_array_interface__ nor the buffer protocol"
    )


def as_taken(x: Any, device: str, stream: Any = None, *, readonly: bool = False) -> Any:
    """Return what `as_buffer` does, on the cpu always a buffer: memory that a graph can name.

    Raises
    ------
    InputError
        As `as_buffer`; or `x` is memory of the host and not dense.
    """
    found = as_buffer(x, device, stream, readonly=readonly)
    if device != "cpu" or isinstance(found, Buffer):
        return found
    if not (found.flags.c_contiguous and found.flags.aligned):
        shape = tuple(found.shape)
        raise InputError(f"{_named(x)} of shape {shape} is not dense: make it contiguous first")
    block = buffer.borrow(found.__array_interface__["data"][0], found.nbytes, found)
    return buffer.view(block, 0, found.shape, found.dtype, device)


def as_located(x: Any) -> Buffer:
    """Return an array of another library as a buffer of the device that it is on."""
    device = _device_of(x)
    found: Buffer = as_taken(x, device)
    return found


def describe(x: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and dtype of an array of another library; nobody waits for anything."""
    reader = reader_of(x)
    if reader is not None:
        return reader.describe(x)
    if not _has_dlpack(x):
        interface = _interface(x)
        if interface is not None:
            return interface.shape, interface.dtype
        array = _host_view(x)
        return array.shape, array.dtype
    kind, number = _dlpack_device(x)
    if kind not in (CPU, CUDA, CUDA_HOST, CUDA_MANAGED):
        raise InputError(f"{_named(x)} is on DLPack's device {(kind, number)}: no cpu and no GPU")
    if kind == CPU:
        array = _host_array(x, True)
        return array.shape, array.dtype
    options = {"stream": NO_STREAM} if kind in (CUDA, CUDA_MANAGED) else {}
    tensor = Tensor(_capsule(x, **options))
    return tensor.shape, named_dtype(tensor.dtype)


def to_read(
    x: Any, shape: tuple[int, ...], dtype: np.dtype[Any], device: str, stream: Any
) -> Buffer | _Array | Live:
    """Return an array of another library for one copy from it, enqueued on `stream`.

    What it is read by has the order of its library's stream, but for a `Live`: there both
    directions are left to who copies, for they cost one call for all arrays of a stream.

    Raises
    ------
    InputError
        As `as_buffer`.
    """
    reader = reader_of(x)
    if reader is None:
        return as_buffer(x, device, stream, readonly=True)
    found: _Array | Live | None = reader.read(x, shape, dtype, ordinal_of(device))
    return as_buffer(x, device, stream, readonly=True) if found is None else found


def settle(arrays: Iterable[Any], stream: Any) -> None:
    """Let other libraries work on their arrays again once what is on `stream` now is done.

    Where their stream is known it waits, else this call does. Only foreign arrays on a GPU count.
    """
    if stream is None:
        return
    wait = False
    handles: set[int] = set()
    for x in arrays:
        if is_foreign(x):
            reader = reader_of(x)
            if reader is None:
                wait = True
            elif reader.device(x) != HOST:
                handles.add(reader.stream(reader.device(x)))
    if wait:
        stream.synchronize()
    else:
        for handle in handles:
            stream.precede(handle)


def _device_of(x: Any) -> str:
    """The name of the device that an array is on."""
    reader = reader_of(x)
    if reader is not None:
        number = reader.device(x)
        return "cpu" if number == HOST else f"cuda:{number}"
    if _has_dlpack(x):
        kind, number = _dlpack_device(x)
        return f"cuda:{number}" if kind in (CUDA, CUDA_MANAGED) else "cpu"
    interface = _interface(x)
    if interface is None:
        return "cpu"
    _, memory = _cuda_modules()
    number = memory.device_of(interface.ptr)
    return "cuda:0" if number is None else f"cuda:{number}"


def _has_dlpack(x: Any) -> bool:
    return hasattr(type(x), "__dlpack__") and hasattr(type(x), "__dlpack_device__")


def _from_dlpack(x: Any, device: str, stream: Any, readonly: bool) -> Buffer | _Array:
    kind, number = _dlpack_device(x)
    on_gpu = device.startswith("cuda")
    if kind == CPU or (kind == CUDA_HOST and not on_gpu):
        return _host_array(x, readonly)
    if kind not in (CUDA, CUDA_HOST, CUDA_MANAGED):
        raise InputError(f"{_named(x)} is on DLPack's device {(kind, number)}, not {device}")
    if kind != CUDA_HOST and device != f"cuda:{number}":
        raise InputError(f"{_named(x)} is on cuda:{number}, not on {device}")
    streams, memory = _cuda_modules()
    gpu = streams.cuda_device(ordinal_of(device))
    if kind == CUDA_HOST:
        tensor = Tensor(_capsule(x))
    else:
        order = streams.Stream(gpu) if stream is None else streams.as_stream(stream, gpu)
        tensor = Tensor(_capsule(x, stream=order.handle))
        if stream is None:
            order.synchronize()
    _check_readonly(x, tensor.readonly, readonly)
    dtype = named_dtype(tensor.dtype)
    block = memory.borrow(gpu, tensor.ptr, _nbytes(tensor.shape, dtype), tensor)
    return buffer.view(block, 0, tensor.shape, dtype, device)


def _host_view(x: Any) -> _Array:
    """An array over what NumPy's interface or the buffer protocol tells."""
    try:
        if hasattr(x, "__array_interface__"):
            # Bytes instead of an address are a copy, made for the asking.
            data = x.__array_interface__.get("data")
            if data is not None and not isinstance(data, tuple):
                raise InputError(f"{_named(x)} hands out a copy; use numpy.array of it")
            return np.asarray(x)
        array = np.asarray(_memory(x))
    except InputError:
        raise
    except UNREADABLE as error:
        raise InputError(f"{_named(x)} cannot be read: {error}") from error
    # The same dtype by its usual name: what ctypes gives spells its byte order out.
    return array.view(np.dtype(array.dtype.str)) if array.dtype.kind in "biufc" else array


def _memory(x: Any) -> memoryview | None:
    try:
        return memoryview(x)
    except UNREADABLE:
        return None


def _dlpack_device(x: Any) -> tuple[int, int]:
    try:
        kind, number = x.__dlpack_device__()
        return int(kind), int(number)
    except UNREADABLE as error:
        raise InputError(f"{_named(x)} is not given away: {error}") from error


def _host_array(x: Any, readonly: bool) -> _Array:
    try:
        array = np.from_dlpack(x)
    except UNREADABLE:
        # A dtype that NumPy does not know, or what the producer does not give: then once more.
        tensor = Tensor(_capsule(x))
        dtype = named_dtype(tensor.dtype)
        block = buffer.borrow(tensor.ptr, _nbytes(tensor.shape, dtype), tensor)
        array = np.asarray(buffer.view(block, 0, tensor.shape, dtype, "cpu"))
        array.flags.writeable = not tensor.readonly
    return _checked(array, readonly, x)


def _capsule(x: Any, **options: Any) -> Any:
    """The producer's capsule, of a version that is known here."""
    try:
        try:
            return x.__dlpack__(max_version=DLPACK_VERSION, **options)
        except TypeError:  # from before DLPack had versions
            return x.__dlpack__(**options)
    except UNREADABLE as error:
        raise InputError(f"{_named(x)} is not given away: {error}") from error


class _Interface(NamedTuple):
    """What ``__cuda_array_interface__`` tells; `stream` is None where all is done already."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...] | None
    ptr: int
    readonly: bool
    stream: int | None


def _interface(x: Any) -> _Interface | None:
    """Return what ``__cuda_array_interface__`` tells, or None where there is none."""
    try:
        told = getattr(x, "__cuda_array_interface__", None)
        if told is None:
            return None
        typestr = told["typestr"]
        if not isinstance(typestr, str):
            raise TypeError(f"its typestr is {typestr!r}")
        dtype = np.dtype(typestr)
        shape = check_shape(tuple(told["shape"]), dtype.itemsize)
        strides = told.get("strides")
        ptr, readonly = told["data"]
        # Before version 3 nothing was said of streams, and all was done on the legacy one.
        newer = operator.index(told["version"]) >= 3
        producer = told.get("stream") if newer else LEGACY_STREAM
        found = _Interface(
            shape,
            dtype,
            None if strides is None else tuple(map(operator.index, strides)),
            operator.index(ptr or 0),
            bool(readonly),
            None if producer is None else operator.index(producer),
        )
        is_masked = told.get("mask") is not None
    except UNREADABLE as error:
        raise InputError(
            f"the __cuda_array_interface__ of {_named(x)} cannot be read: {error}"
        ) from error
    check_element(dtype)
    if is_masked:
        raise InputError(f"{_named(x)} is masked; there is no place for its mask")
    if found.strides is not None and len(found.strides) != len(shape):
        raise InputError(f"{_named(x)} has {len(found.strides)} strides for {len(shape)} axes")
    if not 0 <= found.ptr < 1 << 64:
        raise InputError(f"{_named(x)} lies at {found.ptr}, which is no address")
    return found


def _from_interface(x: Any, told: _Interface, device: str, stream: Any, readonly: bool) -> Buffer:
    if not device.startswith("cuda"):
        raise InputError(f"{_named(x)} is on a GPU, not on {device}")
    shape, dtype, strides, ptr, is_readonly, producer = told
    if strides is not None and not _is_dense(shape, strides, dtype.itemsize):
        raise InputError(f"{_named(x)} of shape {shape} is not dense: make it contiguous first")
    _check_readonly(x, is_readonly, readonly)
    streams, memory = _cuda_modules()
    gpu = streams.cuda_device(ordinal_of(device))
    block = memory.borrow(gpu, ptr, _nbytes(shape, dtype), x)
    if producer is not None:
        if producer == 0:
            raise InputError(f"{_named(x)} names stream 0, which is ambiguous")
        order = streams.Stream(gpu) if stream is None else streams.as_stream(stream, gpu)
        if producer == THREAD_STREAM:
            order.follow(producer)  # of this thread, which is the one that was told of it
        else:
            order.wait_for(streams.Stream.borrow(producer, x, gpu))
        if stream is None:
            order.synchronize()
    return buffer.view(block, 0, shape, dtype, device)


def _nbytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return math.prod(check_shape(shape, dtype.itemsize)) * dtype.itemsize


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    expected = itemsize
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected and 0 not in shape:
            return False
        expected *= size
    return True


def _checked(array: _Array, readonly: bool, source: object) -> _Array:
    try:
        check_element(array.dtype)
    except InputError as error:
        raise InputError(f"{_named(source)}: {error}") from None
    _check_readonly(source, not array.flags.writeable, readonly)
    return array


def _check_readonly(x: Any, is_readonly: bool, allowed: bool) -> None:
    if is_readonly and not allowed:
        raise InputError(f"{_named(x)} may not be written")


def _cuda_modules() -> tuple[ModuleType, ModuleType]:
    # By name: a build without them has no GPU's arrays either.
    return (
        importlib.import_module("fastgraph._core.stream"),
        importlib.import_module("fastgraph._core.device_memory"),
    )


def _named(x: Any) -> str:
    return f"this {type(x).__name__}"
