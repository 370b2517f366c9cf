"""``python -m bench.gpu.child PROBE LIBRARY CUBIN``: one probe, in this process."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.gpu import gil
from bench.gpu.native import Built, load, open_device

# Probes that are written in Python; all others are functions of the library.
PYTHON = {"gil_policies": gil.measure}


def main(probe: str, library: str, cubin: str) -> int:
    """Open the device, run the probe; its findings go to the standard output."""
    built = Built(Path(library), Path(cubin))
    native = load(built)
    open_device(native, built)
    if probe in PYTHON:
        PYTHON[probe](built)
        return 0
    return int(getattr(native, f"probe_{probe}")())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
