"""``python -m bench.gpu device``: what the package costs on a GPU, beside its twins and peers.

Every probe holds both sides of its comparison in one process and runs them in turn. With
``--smoke LIBCUDA`` the probes run on another driver, the tests' own, to see that they work.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gpu.native import Outcome, Smoke, build_host_kernels, run_child
from bench.machine import commit, installed

__all__ = ["DEVICE", "about", "chosen", "probe_runner"]


@dataclass(frozen=True)
class Probe:
    """A probe: what it is about, how long it may take, and what it needs to be installed."""

    meaning: str
    seconds: float = 45.0
    needs: str | None = None


DEVICE = {
    "replay_call": Probe("replay() over a loop in C on the same executable"),
    "replay_cupy": Probe("replay() beside CuPy's Graph.launch", needs="cupy"),
    "replay_cuda_core": Probe("replay() beside cuda.core's Graph.launch", needs="cuda.core"),
    "replay_torch": Probe("replay() beside torch's CUDAGraph.replay", 60.0, "torch"),
    "two_inputs": Probe("a cached create, replay(x, y) and the wait"),
    "inputs_cupy": Probe("the same by hand in CuPy", needs="cupy"),
    "inputs_torch": Probe("the same by hand in torch", needs="torch"),
    "eight_inputs": Probe("eight live inputs, from the device and from the host"),
    "edges": Probe("programmatic edges and chains side by side in a large graph"),
    "scalars": Probe("one scalar of a large graph changed"),
    "fresh_and_updated": Probe("executables as made and updated, side by side"),
    "building": Probe("a large graph made from nothing"),
    "eager": Probe("a loop of launches beside the cached and replayed graph"),
    "soak": Probe("memory over many keys, and many threads on one graph", seconds=150.0),
}

# What takes part, by distribution.
DISTRIBUTIONS = ("numpy", "cuda-bindings", "cuda-core", "torch", "cupy-cuda13x", "numba-cuda")


def chosen(smoke: bool) -> dict[str, str]:
    """The probes that can run here, with their meaning; says which are left out."""
    found = {}
    for name, probe in DEVICE.items():
        if probe.needs and (smoke or not _can_import(probe.needs)):
            why = "a peer" if smoke else f"{probe.needs} is not installed"
            print(f"{name}: left out, {why}", file=sys.stderr)
        else:
            found[name] = probe.meaning
    return found


def _can_import(module: str) -> bool:
    return installed(module.partition(".")[0]) and installed(module)


def about() -> Mapping[str, Any]:
    """What is measured, for the record."""
    versions = {}
    for name in DISTRIBUTIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {"commit": commit(), "versions": versions}


def probe_runner(library: Path, folder: Path, smoke: Smoke | None) -> Any:
    """What runs a probe by name, in a process of its own."""
    arguments = [str(library)]
    if smoke is not None:
        arguments += [str(smoke.driver), str(build_host_kernels(folder))]

    def run(name: str) -> Outcome:
        return run_child("bench.gpu.device_child", name, arguments, DEVICE[name].seconds)

    return run
