"""``python -m bench.gpu``: the driver's facts, the C twins, and the device, from one build."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from bench.gpu import device
from bench.gpu.facts import FACTS
from bench.gpu.floor import FLOOR
from bench.gpu.goals import verdicts
from bench.gpu.native import Outcome, Smoke, build, build_twin, gpu_problem
from bench.gpu.probes import collect, runner

# Of the driver alone, in the order in which they run: numbers first, while the device is as it
# was found. The package's part comes before the facts for the same reason.
PARTS = {"floor": FLOOR, "device": device.DEVICE, "facts": FACTS}


def main() -> int:
    """Run from a shell; the exit status tells whether something is broken."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--out", type=Path, default=Path("gpu-results"), help="folder for the JSON")
    parser.add_argument("--only", nargs="+", metavar="PROBE", help="these probes of the parts")
    parser.add_argument("--compile-only", action="store_true", help="build, on any machine")
    parser.add_argument(
        "--smoke",
        type=Path,
        metavar="LIBCUDA",
        help="run the device's probes shortly on this driver, to see that they work",
    )
    chosen = parser.parse_args()
    unknown = [name for name in chosen.parts if name not in PARTS]
    if unknown:
        parser.error(f"no part is called {', '.join(unknown)}; there are {', '.join(PARTS)}")
    of_parts = {probe for part in chosen.parts or PARTS for probe in PARTS[part]}
    unknown = [name for name in chosen.only or () if name not in of_parts]
    if unknown:
        parser.error(f"no probe of these parts is called {', '.join(unknown)}")
    smoke = None if chosen.smoke is None else Smoke(chosen.smoke)
    parts = chosen.parts or (["device"] if smoke else list(PARTS))
    if smoke and parts != ["device"]:
        parser.error("--smoke is for the device's probes alone")
    problem = None if chosen.compile_only or smoke else gpu_problem()
    if problem:
        print(f"there is no GPU to measure: {problem}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name:
        folder, started = Path(name), time.monotonic()
        built = None if smoke else build(folder)
        library = build_twin(folder) if built is None else built.library
        print(f"compiled in {time.monotonic() - started:.1f} s")
        if chosen.compile_only:
            return 0
        outcomes = []
        for part in parts:
            out = chosen.out / f"{part}.json"
            if part == "device":
                probes = device.chosen(smoke is not None)
                run_one, more = device.probe_runner(library, folder, smoke), device.about()
            else:
                assert built is not None
                probes, run_one, more = PARTS[part], runner(built), None
            if chosen.only:
                probes = {probe: probes[probe] for probe in probes if probe in chosen.only}
            found = collect(part, probes, run_one, out, more)
            outcomes += found
            if part == "device":
                _print_goals(found)
    return int(any(outcome.problem for outcome in outcomes))


def _print_goals(outcomes: list[Outcome]) -> None:
    for verdict in verdicts({outcome.probe: outcome.record() for outcome in outcomes}):
        print(verdict)


if __name__ == "__main__":
    sys.exit(main())
