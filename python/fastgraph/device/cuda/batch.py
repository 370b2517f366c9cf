"""Many kernels at once: those that are kept nowhere are compiled in parallel, all are loaded."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Protocol, TypeVar

from fastgraph._core import cuda_module, pool
from fastgraph.device.cuda.compile import compile_source, recall_source
from fastgraph.device.cuda.disk import Compiled
from fastgraph.device.cuda.function import CudaFunction, find_function, load_module
from fastgraph.device.cuda.loader import DeviceLoader

__all__ = ["Source", "compile_all", "load_all"]

_log = logging.getLogger("fastgraph")


class Source(Protocol):
    """A kernel to compile; hashable."""

    @property
    def source(self) -> str:
        """The text."""

    @property
    def entry(self) -> str:
        """The kernel as C++ names it."""

    @property
    def name(self) -> str:
        """What progress calls it."""

    @property
    def arch(self) -> str:
        """What it is compiled for where that is not what all others are; else ""."""


_S = TypeVar("_S", bound=Source)


def compile_all(sources: Sequence[_S], arch: str) -> dict[_S, Compiled]:
    """Compile kernels for one architecture or their own, as many at once as there are cores.

    Logger ``fastgraph`` tells of each that is not found where compiled code is kept.

    Raises
    ------
    GraphError, UnsupportedError
        As `compile_source`.
    """
    found: dict[_S, Compiled] = {}
    missing = []
    for each in dict.fromkeys(sources):
        kept = recall_source(each.source, each.entry, each.arch or arch)
        if kept is None:
            missing.append(each)
        else:
            found[each] = kept
    if not missing:
        return found
    _log.info("compiling %d of %d kernels for %s", len(missing), len(missing) + len(found), arch)
    with ThreadPoolExecutor(min(len(missing), pool.available_cores())) as workers:
        jobs = {
            workers.submit(compile_source, each.source, each.entry, each.arch or arch): each
            for each in missing
        }
        try:
            for number, job in enumerate(as_completed(jobs), 1):
                each = jobs[job]
                found[each] = job.result()
                _log.info("compiled %d of %d: %s %s", number, len(missing), each.name, each.entry)
        except BaseException:
            workers.shutdown(cancel_futures=True)
            raise
    return found


def load_all(loader: DeviceLoader, sources: Mapping[_S, int]) -> dict[_S, CudaFunction]:
    """Compile and load kernels.

    Parameters
    ----------
    loader : DeviceLoader
    sources : mapping of Source to int
        Each with the most dynamic shared memory, in bytes, that it is launched with.

    Returns
    -------
    dict of Source to CudaFunction
    """
    functions = {}
    for each, compiled in compile_all(list(sources), loader.arch).items():
        module = load_module(loader, compiled.image)
        handle = find_function(loader, module, compiled.symbol)
        function = functions[each] = CudaFunction(each.entry, (), handle, loader, module)
        if sources[each] > function.max_dynamic_shared_bytes:
            cuda_module.allow_shared_bytes(loader.gpu, handle, sources[each])
    return functions
