"""Arrays of PyTorch and CuPy read at a glance: address, shape, dtype and the stream of their work.

DLPack makes a capsule, an event and a structure of each array; a replay that takes a few of them
would spend most of its time there. Neither library is imported here: whoever has an array has it.
"""

from __future__ import annotations

import importlib
import sys
from abc import ABC, abstractmethod
from functools import cache
from typing import Any

import numpy as np

from fastgraph.errors import InputError

__all__ = ["READERS", "Live", "Reader", "named_dtype", "ordinal_of", "reader_of"]

_Array = np.ndarray[Any, np.dtype[Any]]
_Shape = tuple[int, ...]
# What stands for a GPU's number where there is none.
HOST = -1
TORCH_DTYPES = (
    *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "bfloat16", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
)


class Live:
    """An array on a GPU, for one copy from it: its address and the CUstream of its library."""

    __slots__ = ("owner", "ptr", "stream")

    def __init__(self, ptr: int, stream: int, owner: object) -> None:
        self.ptr = ptr
        self.stream = stream
        self.owner = owner


class Reader(ABC):
    """How arrays of one library are read."""

    @abstractmethod
    def read(self, x: Any, shape: _Shape, dtype: np.dtype[Any], ordinal: int) -> Any:
        """Return `x` to copy from if it is as told, dense where on a GPU; else None.

        Parameters
        ----------
        x : array
        shape : tuple of int
        dtype : numpy.dtype
        ordinal : int
            The GPU's number, `HOST` for the cpu.

        Returns
        -------
        Live, numpy.ndarray or None
        """

    @abstractmethod
    def describe(self, x: Any) -> tuple[_Shape, np.dtype[Any]]:
        """Return shape and dtype."""

    @abstractmethod
    def device(self, x: Any) -> int:
        """Return the GPU's number; `HOST` where it is on none."""

    @abstractmethod
    def stream(self, ordinal: int) -> int:
        """Return the CUstream that this thread's work of the library goes to on a GPU."""

    def bare(self, x: Any) -> Any:
        """Return `x` without what only its library knows of it."""
        return x


class TorchReader(Reader):
    """Tensors of PyTorch."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.dtypes = {
            getattr(torch, name): dtype
            for name in TORCH_DTYPES
            if hasattr(torch, name) and (dtype := _dtype_or_none(name)) is not None
        }
        # The public way makes an object of the stream.
        self.current = getattr(torch._C, "_cuda_getCurrentRawStream", None) or (
            lambda ordinal: torch.cuda.current_stream(ordinal).cuda_stream
        )

    def read(self, x: Any, shape: _Shape, dtype: np.dtype[Any], ordinal: int) -> Any:
        """Return a tensor to copy from; also one that requires a gradient, for it is only read."""
        if x.shape != shape or self.dtypes.get(x.dtype) != dtype:
            return None
        number = x.get_device()
        try:
            if number == HOST:
                return self.bare(x).numpy()
            if number != ordinal or not x.is_contiguous() or x.is_conj() or x.is_neg():
                return None
            return Live(x.data_ptr(), self.current(number), x)
        except (RuntimeError, TypeError):  # of no memory, sparse, or not for NumPy
            return None

    def describe(self, x: Any) -> tuple[_Shape, np.dtype[Any]]:
        """Return shape and dtype; InputError for a dtype that has no name in NumPy."""
        dtype = self.dtypes.get(x.dtype)
        if dtype is None:
            dtype = named_dtype(str(x.dtype).removeprefix("torch."))
        return tuple(x.shape), dtype

    def device(self, x: Any) -> int:
        """Return the GPU's number."""
        return int(x.get_device()) if x.is_cuda else HOST

    def stream(self, ordinal: int) -> int:
        """Return the current stream of this thread."""
        return int(self.current(ordinal))

    def bare(self, x: Any) -> Any:
        """Return the tensor without its gradient."""
        return x.detach() if x.requires_grad else x


class CupyReader(Reader):
    """Arrays of CuPy."""

    def __init__(self, cupy: Any) -> None:
        self.current = cupy.cuda.get_current_stream

    def read(self, x: Any, shape: _Shape, dtype: np.dtype[Any], ordinal: int) -> Any:
        """Return an array to copy from."""
        if x.shape != shape or x.dtype != dtype or x.device.id != ordinal:
            return None
        if not x.flags.c_contiguous:
            return None
        return Live(int(x.data.ptr), self.stream(ordinal), x)

    def describe(self, x: Any) -> tuple[_Shape, np.dtype[Any]]:
        """Return shape and dtype."""
        return tuple(x.shape), np.dtype(x.dtype)

    def device(self, x: Any) -> int:
        """Return the GPU's number."""
        return int(x.device.id)

    def stream(self, ordinal: int) -> int:
        """Return the current stream of this thread."""
        return int(self.current(ordinal).ptr)


# By the module that a type says it is of: the library, the type's name, and what reads it.
KNOWN: dict[str, tuple[str, frozenset[str], type[Any]]] = {
    "torch": ("torch", frozenset(("Tensor",)), TorchReader),
    "torch.nn.parameter": ("torch", frozenset(("Parameter",)), TorchReader),
    "cupy": ("cupy", frozenset(("ndarray",)), CupyReader),
}
# By the exact type, once one of it was seen: a subclass may mean something else by its methods.
READERS: dict[type, Reader] = {}


def reader_of(x: Any) -> Reader | None:
    """Return how `x` is read, or None where only protocols tell."""
    kind = type(x)
    found = READERS.get(kind)
    if found is None and kind.__module__ in KNOWN:
        library, names, make = KNOWN[kind.__module__]
        module = sys.modules.get(library)
        if module is not None and kind.__name__ in names:
            READERS[kind] = found = make(module)
    return found


@cache
def ordinal_of(device: str) -> int:
    """Return the number of a GPU by its name, `HOST` for the cpu."""
    api, colon, number = device.partition(":")
    if api not in ("cpu", "cuda") or (colon and not (number.isascii() and number.isdecimal())):
        raise InputError(f"there is no device {device!r}; there are 'cpu', 'cuda', 'cuda:1' …")
    return int(number or 0) if api == "cuda" else HOST


def named_dtype(name: str) -> np.dtype[Any]:
    """Return a dtype by its name in NumPy or ml_dtypes; InputError where there is none."""
    dtype = _dtype_or_none(name)
    if dtype is None:
        raise InputError(f"dtype {name} needs ml_dtypes: pip install ml_dtypes")
    return dtype


def _dtype_or_none(name: str) -> np.dtype[Any] | None:
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    except (ImportError, AttributeError):
        return None
