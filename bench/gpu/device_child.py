"""``python -m bench.gpu.device_child PROBE LIBRARY [DRIVER KERNELS]``: one probe of the device."""

from __future__ import annotations

import ctypes
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.gpu.eager import eager
from bench.gpu.graphs import building, edges, fresh_and_updated, scalars
from bench.gpu.inputs import eight_inputs, inputs_beside, two_inputs
from bench.gpu.native import driver, say
from bench.gpu.replays import replay_beside, replay_call
from bench.gpu.rig import Rig
from bench.gpu.soaks import soak

__all__ = ["PROBES"]

PROBES: dict[str, Callable[[Rig], None]] = {
    "replay_call": replay_call,
    "replay_cupy": partial(replay_beside, peer_name="cupy_peer"),
    "replay_cuda_core": partial(replay_beside, peer_name="cuda_core_peer"),
    "replay_torch": partial(replay_beside, peer_name="torch_peer"),
    "two_inputs": two_inputs,
    "inputs_cupy": partial(inputs_beside, peer_name="cupy_peer"),
    "inputs_torch": partial(inputs_beside, peer_name="torch_peer"),
    "eight_inputs": eight_inputs,
    "edges": edges,
    "scalars": scalars,
    "fresh_and_updated": fresh_and_updated,
    "building": building,
    "eager": eager,
    "soak": soak,
}


def main(probe: str, library: str, other: str = "", kernels: str = "") -> int:
    """Load the driver and the twins, run the probe; its findings go to the standard output."""
    if other:
        # By its name alone whoever asks for the driver afterwards finds this one.
        ctypes.CDLL(other, mode=ctypes.RTLD_GLOBAL)
    driver()
    image = Path(kernels).read_bytes() if kernels else None
    try:
        PROBES[probe](Rig(ctypes.CDLL(library), image))
    except Exception as error:
        traceback.print_exc()
        reason = str(error).replace("\n", " ").replace("\t", " ")
        say("failed", float("nan"), "", -1, f"{type(error).__name__}: {reason}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
