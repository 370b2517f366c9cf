"""What a launch may ask of a device: checked when it is recorded, each limit by its name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastgraph.device.cuda.function import CudaFunction
from fastgraph.errors import GraphError, UnsupportedError

__all__ = ["DeviceLimits", "Dims", "check_launch"]

Dims = tuple[int, int, int]
# More blocks in a cluster are possible on some devices alone, and only where a kernel opts in.
PORTABLE_CLUSTER = 8


class DeviceLimits(NamedTuple):
    """The limits of one device.

    Attributes
    ----------
    device : str
    capability : tuple of int
    grid, block : tuple of int
        The largest size of each axis.
    threads_per_block : int
    shared_bytes : int
        Shared memory of a block, with opting in.
    cooperative : bool
    """

    device: str
    capability: tuple[int, int]
    grid: Dims
    block: Dims
    threads_per_block: int
    shared_bytes: int
    cooperative: bool

    @classmethod
    def read(cls, device: str, attribute: Callable[[str], int]) -> DeviceLimits:
        """Ask a device; `attribute` takes the driver's names in lower case."""

        def axes(what: str) -> Dims:
            x, y, z = (attribute(f"max_{what}_dim_{axis}") for axis in "xyz")
            return x, y, z

        return cls(
            device,
            (attribute("compute_capability_major"), attribute("compute_capability_minor")),
            axes("grid"),
            axes("block"),
            attribute("max_threads_per_block"),
            attribute("max_shared_memory_per_block_optin"),
            bool(attribute("cooperative_launch")),
        )


def check_launch(
    limits: DeviceLimits,
    name: str,
    f: CudaFunction,
    grid: Dims,
    block: Dims,
    *,
    cluster: Dims | None = None,
    shared_bytes: int = 0,
    cooperative: bool = False,
    residency: Callable[[int, int], int] | None = None,
) -> None:
    """Check a launch against the limits of its function and of the device.

    Parameters
    ----------
    limits : DeviceLimits
    name : str
        The kernel, for messages.
    f : CudaFunction
    grid, block, cluster : tuple of int
        Positive sizes.
    shared_bytes : int
        Dynamic shared memory of a block.
    cooperative : bool
    residency : callable, optional
        How many blocks of so many threads, with so many bytes of dynamic shared memory, are on the
        device at once. Without it a cooperative grid is not checked.

    Raises
    ------
    GraphError
        A size is beyond its limit, the grid is no whole number of clusters, `shared_bytes` is no
        size, or a cooperative grid is not on the device at once.
    UnsupportedError
        More shared memory than a block can have, clusters or cooperative launches where the device
        has none.
    """
    _check_axes(limits, name, "grid_dim", grid, limits.grid)
    _check_axes(limits, name, "block_dim", block, limits.block)
    threads = math.prod(block)
    if threads > limits.threads_per_block:
        raise GraphError(
            f"kernel {name!r}: block_dim {block} has {threads} threads; {limits.device} allows "
            f"{limits.threads_per_block} in a block"
        )
    if threads > f.max_threads_per_block:
        raise GraphError(
            f"kernel {name!r}: block_dim {block} has {threads} threads; the kernel was compiled "
            f"for at most {f.max_threads_per_block} (registers, or __launch_bounds__)"
        )
    _check_shared(limits, name, f, shared_bytes)
    if cluster is not None:
        _check_cluster(limits, name, grid, cluster)
    if cooperative:
        if not limits.cooperative:
            raise UnsupportedError(f"kernel {name!r}: {limits.device} has no cooperative launches")
        _check_residency(limits, name, grid, threads, shared_bytes, residency)


def _check_axes(limits: DeviceLimits, name: str, what: str, dims: Dims, most: Dims) -> None:
    for axis, size, limit in zip("xyz", dims, most, strict=True):
        if size > limit:
            raise GraphError(
                f"kernel {name!r}: {what}.{axis} is {size}; {limits.device} allows 1 to {limit}"
            )


def _check_shared(limits: DeviceLimits, name: str, f: CudaFunction, shared_bytes: int) -> None:
    if (
        isinstance(shared_bytes, bool)
        or not isinstance(shared_bytes, int | np.integer)
        or shared_bytes < 0
    ):
        raise GraphError(
            f"kernel {name!r}: shared_mem_bytes is {shared_bytes!r}; an integer from 0 on is needed"
        )
    left = limits.shared_bytes - f.static_shared_bytes
    if shared_bytes > left:
        raise UnsupportedError(
            f"kernel {name!r}: shared_mem_bytes is {shared_bytes}; {limits.device} has "
            f"{limits.shared_bytes} for a block, of which the kernel itself takes "
            f"{f.static_shared_bytes}: at most {left}"
        )


def _check_cluster(limits: DeviceLimits, name: str, grid: Dims, cluster: Dims) -> None:
    if limits.capability < (9, 0):
        raise UnsupportedError(
            f"kernel {name!r}: cluster_dim needs compute capability 9.0; {limits.device} has "
            f"{'.'.join(map(str, limits.capability))}"
        )
    if math.prod(cluster) > PORTABLE_CLUSTER:
        raise GraphError(
            f"kernel {name!r}: cluster_dim {cluster} has {math.prod(cluster)} blocks; "
            f"{PORTABLE_CLUSTER} are possible"
        )
    for axis, blocks, size in zip("xyz", grid, cluster, strict=True):
        if blocks % size:
            raise GraphError(
                f"kernel {name!r}: grid_dim.{axis} is {blocks}, no multiple of cluster_dim.{axis}, "
                f"which is {size}"
            )


def _check_residency(
    limits: DeviceLimits,
    name: str,
    grid: Dims,
    threads: int,
    shared_bytes: int,
    residency: Callable[[int, int], int] | None,
) -> None:
    if residency is None:
        return
    most = residency(threads, shared_bytes)
    if math.prod(grid) > most:
        raise GraphError(
            f"kernel {name!r}: a cooperative grid of {math.prod(grid)} blocks; {limits.device} "
            f"holds {most} blocks of {threads} threads and {shared_bytes} bytes at once"
        )
