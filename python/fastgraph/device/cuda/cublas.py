"""cuBLASLt where it is installed: found once, started on a device when a product first wants it."""

from __future__ import annotations

import importlib
import logging
import threading
import warnings
from typing import Any

from fastgraph._core import blas, cuda_capture
from fastgraph._core.record import Foreign
from fastgraph._core.stream import CudaDevice, Stream
from fastgraph.errors import FastGraphWarning, UnsupportedError

__all__ = ["DeviceBlas", "Planned", "library"]

_log = logging.getLogger("fastgraph")
_lock = threading.Lock()
# The library, or None where there is none that can be used; empty before it was looked for.
_known: list[blas.Library | None] = []


def locate() -> tuple[int, str] | None:
    """Load cuBLASLt: the package's extra, a toolkit's or what another library has loaded.

    Returns
    -------
    (int, str) or None
        The loader's handle and the file.
    """
    try:
        finder: Any = importlib.import_module("cuda.pathfinder")
        found = finder.load_nvidia_dynamic_lib("cublasLt")
    # One that is not there is a RuntimeError of the finder's, as is a platform that it knows not.
    except (ImportError, AttributeError, RuntimeError, OSError) as error:
        _log.debug("cuBLASLt was not found: %s", error)
        return None
    return found._handle_uint, found.abs_path or "libcublasLt"


def library() -> blas.Library | None:
    """Return cuBLASLt, or None where it is not installed.

    Warns once where a library was found that cannot be used.
    """
    with _lock:
        if not _known:
            _known.append(_load())
        return _known[0]


def _load() -> blas.Library | None:
    place = locate()
    if place is None:
        return None
    try:
        found = blas.Library(*place)
    except UnsupportedError as error:
        warnings.warn(
            f"{error}; products on cuda are done by kernels of the package's own",
            FastGraphWarning,
            stacklevel=2,
        )
        return None
    _log.info("cuBLASLt %s: %s", found.words, found.path)
    return found


class Planned:
    """A product that cuBLASLt is to do on one device, with the algorithm chosen.

    Attributes
    ----------
    workspace_nbytes : int
        Bytes of scratch, the second operand if there are any.
    """

    def __init__(self, gpu: CudaDevice, product: blas.Product) -> None:
        self.gpu = gpu
        self.product = product
        self.workspace_nbytes = product.workspace_nbytes

    @property
    def foreign(self) -> Foreign:
        """Foreign: what a node of a record calls; captured anew for each binding."""
        return Foreign(0, self, self.again, self.enqueue)

    def enqueue(self, stream: Stream, addresses: tuple[int, ...]) -> None:
        """Put it on a stream; `addresses` as `blas.Product.enqueue` takes them."""
        self.product.enqueue(stream.handle, addresses)

    def again(self, addresses: tuple[int, ...]) -> Foreign:
        """Return a graph of it at these addresses."""
        return cuda_capture.capture_call(
            self.gpu, lambda stream: self.enqueue(stream, addresses), self, self.again
        )


class DeviceBlas:
    """cuBLASLt on one device; not looked for before the first product."""

    def __init__(self, gpu: CudaDevice) -> None:
        self.gpu = gpu
        self._lock = threading.Lock()
        self._blas: blas.Blas | None = None

    def plan(self, **wanted: Any) -> Planned | None:
        """Return how a product is done, `wanted` as `blas.Blas.product` takes it.

        None where cuBLASLt is not installed or has no algorithm for it.

        Raises
        ------
        DriverError
            The library fails; the message says how to do without it.
        """
        found = library()
        if found is None:
            return None
        with self._lock:
            if self._blas is None:
                self._blas = blas.Blas(found, self.gpu.context)
        product = self._blas.product(**wanted)
        return None if product is None else Planned(self.gpu, product)
