"""Devices by name."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from fastgraph.device.backend import Backend, note_backend
from fastgraph.device.host import HostBackend
from fastgraph.errors import InputError, UnsupportedError

__all__ = ["best_device", "cuda_in_build", "open_device"]

_HOST = note_backend(HostBackend())


def open_device(device: str) -> Backend:
    """Return the device of a name; what it needs is loaded when it is first asked for.

    Parameters
    ----------
    device : str
        ``"cpu"``, ``"cuda"``, ``"cuda:1"`` …

    Raises
    ------
    InputError
        There is no such device.
    UnsupportedError
        This build, or this machine's driver, has none of the kind.
    """
    if not isinstance(device, str):
        raise InputError(f"a device is named by a string like 'cpu', not {device!r}")
    api, colon, number = device.partition(":")
    if api not in ("cpu", "cuda") or (colon and not (number.isascii() and number.isdecimal())):
        raise InputError(f"there is no device {device!r}; there are 'cpu', 'cuda', 'cuda:1' …")
    ordinal = int(number or 0)
    if api == "cuda":
        return note_backend(_cuda_module().open_device(ordinal))
    if ordinal:
        raise InputError(f"there is no device {device!r}; there is one 'cpu'")
    return _HOST


def cuda_in_build() -> bool:
    """Return whether the modules for GPUs were built."""
    return importlib.util.find_spec("fastgraph._core.cuda_graph") is not None


def best_device() -> tuple[str, str | None]:
    """Return the best usable device, and why a GPU that is there is not it."""
    if not Path("/dev/nvidiactl").exists():
        return "cpu", None
    try:
        open_device("cuda")
    except UnsupportedError as error:
        return "cpu", str(error)
    return "cuda", None


def _cuda_module() -> Any:
    # By name, so that a build without the modules, or a machine without a driver, loads the rest.
    if not cuda_in_build():
        raise UnsupportedError(
            "device 'cuda' is not in this build (no cuda modules); `fastgraph info` says why"
        )
    return importlib.import_module("fastgraph.device.cuda.backend")
