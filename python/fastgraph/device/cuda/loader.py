"""How code comes to one GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from fastgraph._core import buffer, cuda_module, device_memory
from fastgraph._core.cuda_module import Module
from fastgraph._core.stream import CudaDevice
from fastgraph.device.cuda.function import CudaFunction
from fastgraph.errors import DriverError, GraphError, InputError, UnsupportedError

__all__ = ["DeviceLoader"]


class DeviceLoader:
    """Loads images on one device and asks the driver about their functions."""

    def __init__(self, gpu: CudaDevice, device: str) -> None:
        self.gpu = gpu
        self.device = device
        major, minor = gpu.compute_capability
        self.arch = f"sm_{major}{minor}"

        self._images: WeakKeyDictionary[Module, bytes] = WeakKeyDictionary()

    def load(self, image: bytes) -> Module:
        """Load an image; GraphError with the driver's log where it takes none."""
        module = Module(self.gpu, image)
        self._images[module] = image
        return module

    def with_constants(self, f: CudaFunction, values: Mapping[str, Any]) -> CudaFunction:
        """Return the function in a module of its own, in which variables have these values.

        Parameters
        ----------
        f : CudaFunction
        values : mapping of str to array_like
            By the names of ``__constant__`` or ``__device__`` variables, each all of its bytes.

        Raises
        ------
        GraphError
            The code has no such variable.
        InputError
            A value has another size than its variable.
        UnsupportedError
            The code was loaded by another library, so that it cannot be loaded again.
        """
        if not isinstance(values, Mapping):
            raise InputError(
                f"constant_memory is a mapping of names to arrays, not {type(values).__name__}"
            )
        loaded: Any = getattr(f.owner, "owner", None)
        image = self._images.get(loaded) if isinstance(loaded, Module) else None
        if image is None:
            raise UnsupportedError(
                f"constant_memory: the code of {f!r} was loaded by others and cannot be loaded "
                "again; load it with load_function"
            )
        module = self.load(image)
        for name, value in values.items():
            array = np.ascontiguousarray(buffer.as_source(value))
            try:
                ptr, nbytes = module.variable(name)
            except DriverError as error:
                raise GraphError(f"kernel {f.name!r}: its code has no variable {name!r}") from error
            if array.nbytes != nbytes:
                raise InputError(
                    f"kernel {f.name!r}: variable {name!r} has {nbytes} bytes, the value "
                    f"{array.nbytes}"
                )
            block = device_memory.borrow(self.gpu, ptr, nbytes, module)
            view = buffer.view(block, 0, array.shape, array.dtype, self.device)
            view.copy_from(array)
        symbol = cuda_module.name_of_function(self.gpu, f.handle)
        handle = module.function(symbol)
        return CudaFunction(f.name, f.parameters, handle, self, module, f.array_ndims)

    def function(self, owner: Module, symbol: str) -> int:
        """Return the handle of a function; DriverError where there is none of that name."""
        return owner.function(symbol)

    def kernel_function(self, kernel: int) -> tuple[int, str]:
        """Return the handle and symbol of the function that a library's kernel is here."""
        return cuda_module.function_of_kernel(self.gpu, kernel)

    def parameter_sizes(self, handle: int) -> Sequence[tuple[int, int]]:
        """Return offset and bytes of each parameter of a function."""
        return cuda_module.parameter_sizes(self.gpu, handle)

    def attribute(self, handle: int, name: str) -> int:
        """Return an attribute of a function, by the driver's name in lower case."""
        return cuda_module.attribute_of_function(self.gpu, handle, name)
