"""``python -m bench.gpu``: the driver's facts and the C twins, from one build."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from bench.gpu.facts import FACTS
from bench.gpu.floor import FLOOR
from bench.gpu.native import build, gpu_problem
from bench.gpu.probes import collect

# In the order in which they run: numbers first, while the device is as it was found.
PARTS = {"floor": FLOOR, "facts": FACTS}


def main() -> int:
    """Run from a shell; the exit status tells whether something is broken."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--out", type=Path, default=Path("gpu-results"), help="folder for the JSON")
    parser.add_argument("--compile-only", action="store_true", help="build, on any machine")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.parts if name not in PARTS]
    if unknown:
        parser.error(f"no part is called {', '.join(unknown)}; there are {', '.join(PARTS)}")
    problem = None if chosen.compile_only else gpu_problem()
    if problem:
        print(f"there is no GPU to measure: {problem}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        built = build(Path(folder))
        print(f"compiled in {time.monotonic() - started:.1f} s")
        if chosen.compile_only:
            return 0
        outcomes = []
        for name in chosen.parts or PARTS:
            outcomes += collect(name, PARTS[name], built, chosen.out / f"{name}.json")
    return int(any(outcome.problem for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
