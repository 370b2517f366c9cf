"""``python -m bench.gpu.floor``: the C twins that the package is compared with.

`launch_twin.cpp` is the loop that ``replay()`` is held against, `mlp_twin.cpp` the perceptron from
host memory to host memory.
"""

from __future__ import annotations

import sys

from bench.gpu.probes import command

__all__ = ["FLOOR"]

FLOOR = {
    "launch_twin": "chains of 1, 10, 100, 1000 tiny kernels: launch call, launch + wait",
    "mlp_twin": "784-512-512-10 at batch 1, host memory to host memory",
}

if __name__ == "__main__":
    sys.exit(command("floor", FLOOR, __doc__))
