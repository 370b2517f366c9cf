"""Functions of a cuda device: loaded code, the parameters of each kernel, and its limits."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

from fastgraph._core.calls import CallPlan
from fastgraph.device.arguments import Parameter
from fastgraph.device.cuda.compile import compile_source
from fastgraph.device.cuda.image import as_image, ptx_text
from fastgraph.device.cuda.parameters import resolve_parameters
from fastgraph.device.cuda.ptx import entry_names
from fastgraph.device.function import OWN
from fastgraph.errors import DriverError, GraphError

__all__ = ["CudaFunction", "Loader", "compile_function", "load_function"]

NOT_FOUND = 500  # CUDA_ERROR_NOT_FOUND


class Loader(Protocol):
    """How code comes to a device: one object for each device, hashable and weakly referable."""

    @property
    def device(self) -> str:
        """The device as buffers name it: ``"cuda:0"``."""

    @property
    def arch(self) -> str:
        """What code is compiled for: ``"sm_90"``."""

    def load(self, image: bytes) -> Any:
        """Load an image and return what keeps it loaded; GraphError with the driver's log."""

    def function(self, owner: Any, symbol: str) -> int:
        """Return the handle of a function of a loaded image; DriverError where there is none."""

    def kernel_function(self, kernel: int) -> tuple[int, str]:
        """Return the handle and symbol of the function that a library's kernel is here."""

    def parameter_sizes(self, handle: int) -> Sequence[tuple[int, int]]:
        """Return offset and size of each parameter of a function."""

    def attribute(self, handle: int, name: str) -> int:
        """Return an attribute of a function, by the driver's name in lower case."""


class CudaFunction:
    """A kernel that is loaded on one cuda device.

    Made by `fastgraph.DeviceContext.compile_function` and ``load_function``. Its code stays loaded
    as long as it, or a graph that holds it, is there.

    Attributes
    ----------
    name : str
    parameters : tuple of Parameter
    array_ndims : tuple of int or None
        For each parameter the axes of an array that is handed over with its shape, as kernels of
        numba take it; None for pointers and values.
    handle : int
        The driver's handle.
    device : str
    static_shared_bytes, max_dynamic_shared_bytes, max_threads_per_block : int
        As the driver tells them; the second is what needs no opting in.
    owner : object
        What keeps the code loaded.
    plan : CallPlan or None
        The short way of plain arguments; None where arrays are handed over with their shapes.
    fitting : set of tuple
        Grids and blocks that were found within the limits, without anything else asked for.
    """

    __slots__ = (
        "__weakref__",
        "array_ndims",
        "device",
        "fitting",
        "handle",
        "max_dynamic_shared_bytes",
        "max_threads_per_block",
        "name",
        "owner",
        "parameters",
        "plan",
        "static_shared_bytes",
    )

    def __init__(
        self,
        name: str,
        parameters: Sequence[Parameter],
        handle: int,
        loader: Loader,
        owner: object,
        array_ndims: Sequence[int | None] | None = None,
    ) -> None:
        self.owner = owner
        self.name = name
        self.parameters = tuple(parameters)
        self.array_ndims: tuple[int | None, ...] = (
            (None,) * len(self.parameters) if array_ndims is None else tuple(array_ndims)
        )
        self.handle = handle
        self.plan: CallPlan | None = None
        if all(ndim is None for ndim in self.array_ndims):
            self.plan = CallPlan(handle, self.parameters, OWN)
        self.fitting: set[tuple[tuple[int, int, int], tuple[int, int, int]]] = set()
        self.device = loader.device
        self.static_shared_bytes = loader.attribute(handle, "shared_size_bytes")
        self.max_threads_per_block = loader.attribute(handle, "max_threads_per_block")
        self.max_dynamic_shared_bytes = loader.attribute(handle, "max_dynamic_shared_size_bytes")

    @property
    def signature(self) -> str:
        """str: the parameters as far as they are known."""
        return ", ".join(parameter.text for parameter in self.parameters)

    def __repr__(self) -> str:
        return f"<CudaFunction {self.name}({self.signature}) on {self.device}>"


class Module:
    """A loaded image; it and its functions are shared by all who load the same bytes."""

    __slots__ = ("__weakref__", "functions", "owner")

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        # Functions hold their module, never the other way round.
        self.functions: WeakValueDictionary[tuple[str, str, str | None], CudaFunction] = (
            WeakValueDictionary()
        )


_lock = threading.Lock()
_modules: WeakKeyDictionary[Loader, WeakValueDictionary[bytes, Module]] = WeakKeyDictionary()


def load_module(loader: Loader, image: bytes) -> Module:
    """Load an image that `as_image` has checked, or find it loaded."""
    digest = hashlib.sha256(image).digest()
    with _lock:
        loaded = _modules.setdefault(loader, WeakValueDictionary())
        module = loaded.get(digest)
        if module is None:
            module = loaded[digest] = Module(loader.load(image))
    return module


def load_function(
    loader: Loader,
    image: Any,
    name: str,
    signature: str | None = None,
    *,
    symbol: str | None = None,
    probe: str | None = None,
) -> CudaFunction:
    """Return a kernel of an image.

    Parameters
    ----------
    loader : Loader
    image : bytes-like or str
        A cubin, a fat binary or PTX.
    name : str
        The kernel's name in the image, mangled where C++ mangles it.
    signature : str, optional
        The types of its parameters, as in C. Without it they are read from the mangled name, or
        from the text of PTX; where neither tells, only sizes are known.
    symbol : str, optional
        The kernel's name in the image, where `name` is only for messages.
    probe : str, optional
        A mangled name that holds the kernel's type.

    Raises
    ------
    GraphError
        `image` is no image or cannot be loaded (with the driver's log), has no such kernel, or
        `signature` is not that of the kernel.
    DriverError
        As the driver says.
    """
    if not isinstance(name, str) or not name:
        raise GraphError(f"the name of a kernel is a string, not {name!r}")
    checked = as_image(name, image)
    text = ptx_text(checked)
    symbol = name if symbol is None else symbol
    if text is not None and entry_names(text) and symbol not in entry_names(text):
        raise GraphError(
            f"the image has no kernel {symbol!r}; it has {', '.join(entry_names(text))}"
        )
    module = load_module(loader, checked)
    key = (symbol, name, signature)
    with _lock:
        found = module.functions.get(key)
    if found is not None:
        return found
    handle = find_function(loader, module, symbol)
    parameters = resolve_parameters(
        name,
        loader.parameter_sizes(handle),
        signature=signature,
        mangled_name=symbol,
        probe=probe,
        ptx_text=text,
    )
    made = CudaFunction(name, parameters, handle, loader, module)
    with _lock:
        return module.functions.setdefault(key, made)


def find_function(loader: Loader, module: Module, symbol: str) -> int:
    """Return the handle of a function of an image; GraphError where there is none."""
    try:
        return loader.function(module.owner, symbol)
    except DriverError as error:
        if error.code != NOT_FOUND:
            raise
        raise GraphError(
            f'the image has no kernel {symbol!r}; C++ mangles names unless the kernel is extern "C"'
        ) from error


def compile_function(
    loader: Loader, source: str, name: str, signature: str | None = None
) -> CudaFunction:
    """Compile a kernel for the loader's device and return it.

    Parameters
    ----------
    loader : Loader
    source : str
        CUDA C++, see `fastgraph.device.cuda.compile.compile_source`.
    name : str
        The kernel as C++ names it, ``"inc"`` or ``"axpy<float>"``.
    signature : str, optional
        The types of its parameters, as in C. Without it they are those of the source; of
        structures only the sizes are known.

    Raises
    ------
    GraphError
        The source does not compile (with the compiler's log), or `signature` is not that of the
        kernel.
    UnsupportedError
        There is no compiler.
    """
    compiled = compile_source(source, name, loader.arch)
    return load_function(
        loader,
        compiled.image,
        name,
        signature,
        symbol=compiled.symbol,
        probe=compiled.probe,
    )
