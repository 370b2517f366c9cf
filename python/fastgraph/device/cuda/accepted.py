"""Everything that a cuda device takes as a function."""

from __future__ import annotations

from typing import Any

from fastgraph.device.cuda.function import CudaFunction, Loader, compile_function, load_function
from fastgraph.device.cuda.image import is_ptx
from fastgraph.device.cuda.numba import is_dispatcher, numba_function
from fastgraph.device.cuda.parameters import resolve_parameters
from fastgraph.device.function import NativeKernel
from fastgraph.device.kernel import Kernel
from fastgraph.errors import GraphError, InputError, UnsupportedError

__all__ = ["as_cuda_function"]

IMAGES = frozenset(("cubin", "fatbin", "ptx"))


def as_cuda_function(f: Any, loader: Loader) -> tuple[str, CudaFunction]:
    """Return name and function of what ``add_function`` and ``launch`` accept on cuda.

    Parameters
    ----------
    f : CudaFunction, Kernel, cuda.core Kernel or numba-cuda dispatcher
        A `Kernel`'s body is one of the others, or source text, an image, or an ``ObjectCode`` of
        cuda.core that holds a kernel of this name.
    loader : Loader
        The device.

    Raises
    ------
    UnsupportedError
        `f` is something else, or has no body for cuda.
    GraphError
        Its code cannot be compiled or loaded, or its types are not what the code says.
    InputError
        It is loaded on another device.

    Notes
    -----
    A `Kernel` is compiled and loaded once for each device, and stays loaded as long as it lives.
    """
    if isinstance(f, Kernel):
        if f.cuda is None:
            raise UnsupportedError(f"kernel {f.name!r} has no body for cuda: Kernel(…, cuda=…)")
        held = f._loaded.get(loader)
        if held is None:
            # Threads that do this at once make the same; the first one stays.
            made = _body(f.cuda, f.name, f.signature, loader)
            held = f._loaded.setdefault(loader, made)
        return f.name, held
    found = _loaded(f, None, None, loader)
    if found is None:
        raise UnsupportedError(
            "cuda runs CudaFunction, Kernel, kernels of cuda.core and of numba-cuda, not "
            f"{_described(f)}"
        )
    return found.name, found


def _described(f: Any) -> str:
    if isinstance(f, NativeKernel):
        return f"{f!r}, which is for the cpu: Kernel(name, cuda=…, cpu=…) has a body for each"
    if _is_core(f, "ObjectCode"):
        return "ObjectCode, which holds kernels by name: Kernel(name, cuda=object_code)"
    if isinstance(f, str | bytes):
        return "source or image: Kernel(name, cuda=…) names the kernel in it"
    return type(f).__name__


def _body(body: Any, name: str, signature: str | None, loader: Loader) -> CudaFunction:
    if isinstance(body, str) and not is_ptx(body):
        return compile_function(loader, body, name, signature)
    if isinstance(body, str | bytes | bytearray | memoryview):
        return load_function(loader, body, name, signature)
    if _is_core(body, "ObjectCode"):
        return _from_object_code(body, name, signature, loader)
    found = _loaded(body, name, signature, loader)
    if found is None:
        raise UnsupportedError(
            f"kernel {name!r}: a body for cuda is source text, an image, a CudaFunction, or a "
            f"kernel of cuda.core or numba-cuda, not {type(body).__name__}"
        )
    return found


def _loaded(f: Any, name: str | None, signature: str | None, loader: Loader) -> CudaFunction | None:
    """What is compiled already, None for what is no function."""
    if type(f) is CudaFunction and signature is None and f.device == loader.device:
        return f
    if _is_core(f, "Kernel"):
        handle, symbol = loader.kernel_function(int(f.handle))
        parameters = resolve_parameters(
            name or symbol,
            loader.parameter_sizes(handle),
            signature=signature,
            mangled_name=symbol,
        )
        return CudaFunction(name or symbol, parameters, handle, loader, f)
    if isinstance(f, CudaFunction) or is_dispatcher(f):
        if signature is not None:
            raise GraphError(f"kernel {name!r}: {type(f).__name__} says its types itself")
        if not isinstance(f, CudaFunction):
            return numba_function(loader, f)
        if f.device != loader.device:
            raise InputError(f"{f!r} is not on {loader.device}")
        return f
    return None


def _from_object_code(code: Any, name: str, signature: str | None, loader: Loader) -> CudaFunction:
    if str(code.code_type) not in IMAGES:
        raise UnsupportedError(
            f"kernel {name!r}: object code of type {code.code_type!r} cannot be loaded; compile it "
            "to a cubin"
        )
    symbol = code.symbol_mapping.get(name, name)
    if isinstance(symbol, bytes):
        symbol = symbol.decode()
    return load_function(loader, code.code, name, signature, symbol=symbol)


def _is_core(f: Any, kind: str) -> bool:
    """Whether `f` is of a class of cuda.core, which is never imported for the question."""
    cls = type(f)
    return cls.__name__ == kind and cls.__module__.split(".")[:2] == ["cuda", "core"]
