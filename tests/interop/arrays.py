"""Stand-ins for arrays of other libraries, over buffers of ours."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np


class Dlpack:
    """An array with DLPack alone; ``asked`` are the streams that consumers named."""

    def __init__(self, x: Any) -> None:
        self.x = x
        self.asked: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.x.__dlpack_device__()

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        self.asked.append(stream)
        if stream is not None:
            options["stream"] = stream
        return self.x.__dlpack__(**options)


class Interface:
    """An array with ``__cuda_array_interface__`` alone."""

    def __init__(self, x: Any, **changes: Any) -> None:
        self.x = x
        self.__cuda_array_interface__ = {**x.__cuda_array_interface__, **changes}


def given(array: Any, options: dict[str, Any]) -> Any:
    """The capsule of an array; the consumer's stream waits for the ``producer``."""
    if array.producer is not None and options.get("stream"):
        array.producer.precede(options["stream"])
    return array.x.__dlpack__(**options)


class Tensor:
    """A tensor as PyTorch has it, as far as a replay looks at it."""

    requires_grad = False
    producer: Any = None

    def __init__(self, x: Any, contiguous: bool = True) -> None:
        self.x = x
        self.shape = x.shape
        self.dtype = f"torch.{x.dtype}"
        self.contiguous = contiguous
        self.is_cuda = x.device != "cpu"

    def get_device(self) -> int:
        return int(self.x.device.partition(":")[2]) if self.is_cuda else -1

    def numpy(self) -> np.ndarray:
        return np.asarray(self.x)

    def is_contiguous(self) -> bool:
        return self.contiguous

    def is_conj(self) -> bool:
        return False

    is_neg = is_conj

    def data_ptr(self) -> int:
        return self.x.ptr

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.x.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        if not self.contiguous:
            raise BufferError("not contiguous")
        return given(self, options)


Tensor.__module__ = "torch"


class Ndarray:
    """An array as CuPy has it."""

    producer: Any = None

    def __init__(self, x: Any, contiguous: bool = True) -> None:
        self.x = x
        self.shape = x.shape
        self.dtype = x.dtype
        self.device = SimpleNamespace(id=int(x.device.partition(":")[2]))
        self.data = SimpleNamespace(ptr=x.ptr)
        self.flags = SimpleNamespace(c_contiguous=contiguous)

    __dlpack_device__ = Dlpack.__dlpack_device__

    def __dlpack__(self, **options: Any) -> Any:
        return given(self, options)


Ndarray.__module__ = "cupy"
Ndarray.__name__ = "ndarray"


class Torch(SimpleNamespace):
    """The module, with a current stream."""

    def __init__(self) -> None:
        names = ("float32", "float64", "int32", "uint8", "bfloat16")
        super().__init__(**{name: f"torch.{name}" for name in names})
        self.handle = 0
        self._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda ordinal: self.handle)


class Cupy(SimpleNamespace):
    """The module, with a current stream."""

    def __init__(self) -> None:
        super().__init__()
        self.handle = 0
        self.cuda = SimpleNamespace(
            get_current_stream=lambda ordinal: SimpleNamespace(ptr=self.handle)
        )
