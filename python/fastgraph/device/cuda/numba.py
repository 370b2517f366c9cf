"""Kernels that numba-cuda has compiled.

Nothing here imports numba: a dispatcher is known by what it has. Relied on are ``overloads`` of the
dispatcher, and of its one compiled kernel ``entry_name``, ``argument_types``, ``extensions``,
``inspect_asm(cc)`` and, where there is one, ``_codelibrary.get_cubin(cc=)``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from fastgraph.device.arguments import Parameter
from fastgraph.device.cuda.function import CudaFunction, Loader, find_function, load_module
from fastgraph.device.cuda.image import as_image
from fastgraph.errors import GraphError, UnsupportedError

__all__ = ["is_dispatcher", "numba_function"]

# An array is handed over as two null pointers, number and size of elements, and the address; then
# come its sizes and its strides.
ARRAY_HEAD = 5
WORD = 8
_NUMBER = re.compile(r"u?int(?:8|16|32|64)|float(?:16|32|64)|bool(?:ean)?")


def is_dispatcher(f: Any) -> bool:
    """Whether `f` is what ``numba.cuda.jit`` returns."""
    return hasattr(f, "overloads") and hasattr(f, "py_func")


def numba_function(loader: Loader, f: Any) -> CudaFunction:
    """Return the compiled kernel of a dispatcher.

    Parameters
    ----------
    loader : Loader
    f : dispatcher
        With exactly one compiled signature: declared by ``@cuda.jit("void(float32[:], int32)")``,
        or made by the one call that there was. Arrays, pointers and numbers are possible.

    Raises
    ------
    GraphError
        There is no compiled signature, or more than one.
    UnsupportedError
        A parameter is of another type, or extensions of numba would change it.
    """
    name = str(getattr(f, "__name__", "kernel"))
    overloads = list(f.overloads.values())
    if len(overloads) != 1:
        raise GraphError(
            f"kernel {name!r} has {len(overloads)} compiled signatures, one is needed: "
            '@cuda.jit("void(float32[:], int32)")'
        )
    kernel = overloads[0]
    if getattr(kernel, "extensions", None):
        raise UnsupportedError(f"kernel {name!r} uses extensions of numba for its arguments")
    described = [_describe(name, i, kind) for i, kind in enumerate(kernel.argument_types)]
    parameters = [parameter for parameter, _ in described]
    ndims = [ndim for _, ndim in described]
    module = load_module(loader, as_image(name, _image(kernel, loader.arch)))
    handle = find_function(loader, module, kernel.entry_name)
    wanted = list(_sizes(parameters, ndims))
    sizes = [size for _, size in loader.parameter_sizes(handle)]
    if sizes != wanted:
        raise GraphError(
            f"kernel {name!r}: its types mean parameters of {wanted} bytes, the compiled function "
            f"has {sizes}"
        )
    return CudaFunction(name, parameters, handle, loader, (module, f), ndims)


def _sizes(parameters: Iterable[Parameter], ndims: Iterable[int | None]) -> Iterable[int]:
    for parameter, ndim in zip(parameters, ndims, strict=True):
        if ndim is None:
            assert parameter.size is not None
            yield parameter.size
        else:
            yield from [WORD] * (ARRAY_HEAD + 2 * ndim)


def _image(kernel: Any, arch: str) -> Any:
    number = int("".join(filter(str.isdigit, arch)))
    capability = (number // 10, number % 10)
    library = getattr(kernel, "_codelibrary", None)
    if library is None:
        return kernel.inspect_asm(capability)
    code = library.get_cubin(cc=capability)
    return getattr(code, "code", code)


def _describe(name: str, i: int, kind: Any) -> tuple[Parameter, int | None]:
    """One parameter, and the number of axes if it is an array."""
    text = str(kind)
    if hasattr(kind, "ndim") and hasattr(kind, "layout"):
        if kind.layout == "F" and kind.ndim > 1:
            raise UnsupportedError(
                f"kernel {name!r}, argument {i} ({text}): buffers lie in row order, not in columns"
            )
        const = not getattr(kind, "mutable", True)
        return Parameter(_dtype(kind.dtype), True, const, text), int(kind.ndim)
    if type(kind).__name__ == "CPointer":
        return Parameter(_dtype(kind.dtype), True, False, text), None
    dtype = _dtype(kind)
    if dtype is None:
        raise UnsupportedError(
            f"kernel {name!r}, argument {i} ({text}): arrays, pointers and numbers can be given"
        )
    return Parameter(dtype, False, False, text), None


def _dtype(kind: Any) -> np.dtype[Any] | None:
    text = str(kind)
    if not _NUMBER.fullmatch(text):
        return None
    return np.dtype("bool" if text.startswith("bool") else text)
