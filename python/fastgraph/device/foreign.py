"""Arrays of other libraries, taken in without a copy."""

from __future__ import annotations

import importlib
import math
from types import ModuleType
from typing import Any

import numpy as np

from fastgraph._core import buffer
from fastgraph._core.buffer import Buffer
from fastgraph._core.dlpack import Tensor
from fastgraph.errors import InputError

__all__ = ["as_array", "as_buffer", "is_foreign"]

_Array = np.ndarray[Any, np.dtype[Any]]

# DLPack's types of devices.
CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
# The newest DLPack that is read; its successors of the same major number are read as well.
DLPACK_VERSION = (1, 0)
LEGACY_STREAM = 1
# What other libraries' methods raise, and NumPy about what they return.
UNREADABLE = (AttributeError, BufferError, OverflowError, RuntimeError, TypeError, ValueError)
# Text and numbers have bytes, too, but are no arrays.
NO_ARRAYS = (bytes, str, np.generic)


def is_foreign(x: object) -> bool:
    """Return whether `x`, which is no Buffer and no ndarray, says that it is an array."""
    if isinstance(x, NO_ARRAYS):
        return False
    ways = ("__dlpack__", "__array_interface__", "__cuda_array_interface__")
    return any(hasattr(x, way) for way in ways) or _memory(x) is not None


def as_array(x: Any) -> Buffer | _Array:
    """Return what `as_buffer` does, on the device where `x` is, to be read."""
    kind, number = CPU, 0
    if hasattr(type(x), "__dlpack_device__"):
        kind, number = x.__dlpack_device__()
    on_gpu = kind in (CUDA, CUDA_MANAGED)
    return as_buffer(x, f"cuda:{number}" if on_gpu else "cpu", readonly=True)


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
        `x` is no array, is on another device, is not dense, has a dtype without a name in NumPy or
        ml_dtypes, or may not be written.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.device.foreign import as_buffer
    >>> x = np.arange(3)
    >>> as_buffer(x, "cpu") is x
    True
    """
    if isinstance(x, Buffer):
        if x.device != device and not x.host_visible:
            raise InputError(f"{x!r} is not on {device}")
        return x
    if isinstance(x, np.ndarray):
        return _checked(x, readonly)
    if hasattr(type(x), "__dlpack__") and hasattr(type(x), "__dlpack_device__"):
        return _from_dlpack(x, device, stream, readonly)
    interface = getattr(x, "__cuda_array_interface__", None)
    if interface is not None:
        return _from_interface(x, interface, device, stream, readonly)
    if is_foreign(x):
        return _checked(_host_view(x), readonly)
    raise InputError(
        f"a {type(x).__name__} is no array: it has neither __dlpack__ nor __array_interface__ nor "
        "__cuda_array_interface__ nor the buffer protocol"
    )


def _from_dlpack(x: Any, device: str, stream: Any, readonly: bool) -> Buffer | _Array:
    kind, number = x.__dlpack_device__()
    on_gpu = device.startswith("cuda")
    if kind == CPU or (kind == CUDA_HOST and not on_gpu):
        return _host_array(x, readonly)
    if kind not in (CUDA, CUDA_HOST, CUDA_MANAGED):
        raise InputError(f"{_named(x)} is on DLPack's device {(int(kind), number)}, not {device}")
    if kind != CUDA_HOST and device != f"cuda:{number}":
        raise InputError(f"{_named(x)} is on cuda:{number}, not on {device}")
    streams, memory = _cuda_modules()
    gpu = streams.cuda_device(_ordinal(device))
    if kind == CUDA_HOST:
        tensor = Tensor(_capsule(x))
    else:
        order = streams.Stream(gpu) if stream is None else stream
        tensor = Tensor(_capsule(x, stream=order.handle))
        if stream is None:
            order.synchronize()
    _check_readonly(x, tensor.readonly, readonly)
    dtype = _dtype(tensor.dtype)
    nbytes = math.prod(tensor.shape) * dtype.itemsize
    block = memory.borrow(gpu, tensor.ptr, nbytes, tensor)
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
    except (TypeError, ValueError, BufferError):
        return None


def _host_array(x: Any, readonly: bool) -> _Array:
    try:
        array = np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError, ValueError):
        # A dtype that NumPy does not know, or what the producer does not give: then once more.
        tensor = Tensor(_capsule(x))
        dtype = _dtype(tensor.dtype)
        block = buffer.borrow(tensor.ptr, math.prod(tensor.shape) * dtype.itemsize, tensor)
        array = np.asarray(buffer.view(block, 0, tensor.shape, dtype, "cpu"))
        array.flags.writeable = not tensor.readonly
    return _checked(array, readonly)


def _capsule(x: Any, **options: Any) -> Any:
    """The producer's capsule, of a version that is known here."""
    try:
        try:
            return x.__dlpack__(max_version=DLPACK_VERSION, **options)
        except TypeError:  # from before DLPack had versions
            return x.__dlpack__(**options)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"{_named(x)} is not given away: {error}") from error


def _from_interface(
    x: Any, interface: dict[str, Any], device: str, stream: Any, readonly: bool
) -> Buffer:
    if not device.startswith("cuda"):
        raise InputError(f"{_named(x)} is on a GPU, not on {device}")
    dtype = np.dtype(interface["typestr"])
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    if interface.get("mask") is not None:
        raise InputError(f"{_named(x)} is masked; there is no place for its mask")
    if strides is not None and not _is_dense(shape, strides, dtype.itemsize):
        raise InputError(f"{_named(x)} of shape {shape} is not dense: make it contiguous first")
    ptr, is_readonly = interface["data"]
    _check_readonly(x, is_readonly, readonly)
    streams, memory = _cuda_modules()
    gpu = streams.cuda_device(_ordinal(device))
    # Before version 3 nothing was said of streams, and all was done on the legacy one.
    newer = interface["version"] >= 3
    producer = interface.get("stream") if newer else LEGACY_STREAM
    block = memory.borrow(gpu, ptr or 0, math.prod(shape) * dtype.itemsize, x)
    if producer is not None:
        if producer == 0:
            raise InputError(f"{_named(x)} names stream 0, which is ambiguous")
        source = streams.Stream.borrow(producer, x, gpu)
        if stream is None:
            source.synchronize()
        else:
            stream.wait_for(source)
    return buffer.view(block, 0, shape, dtype, device)


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    expected = itemsize
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected and 0 not in shape:
            return False
        expected *= size
    return True


def _checked(array: _Array, readonly: bool) -> _Array:
    _check_readonly(array, not array.flags.writeable, readonly)
    return array


def _check_readonly(x: Any, is_readonly: bool, allowed: bool) -> None:
    if is_readonly and not allowed:
        raise InputError(f"{_named(x)} may not be written")


def _dtype(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    except (ImportError, AttributeError):
        raise InputError(f"dtype {name} needs ml_dtypes: pip install ml_dtypes") from None


def _ordinal(device: str) -> int:
    return int(device.partition(":")[2] or 0)


def _cuda_modules() -> tuple[ModuleType, ModuleType]:
    # By name: a build without them has no GPU's arrays either.
    return (
        importlib.import_module("fastgraph._core.stream"),
        importlib.import_module("fastgraph._core.device_memory"),
    )


def _named(x: Any) -> str:
    return f"this {type(x).__name__}"
