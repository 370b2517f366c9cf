"""``python -m bench [NAME …]``: measure, print the tables, keep the raw data."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import fastgraph
from bench import (
    arena,
    call,
    codegen,
    decode,
    device_graph,
    experts,
    extent,
    matmul,
    minilm,
    mlp,
    pipeline,
    report,
    silero,
    soak,
    state,
    state_soak,
)
from bench import compile as compile_
from bench.machine import commit, describe, host_class, versions
from bench.outcome import text
from bench.report import RESULTS
from bench.rounds import FULL, QUICK
from fastgraph._core import isa

BENCHES = {
    "call": call.main,
    "device_graph": device_graph.main,
    "mlp": mlp.main,
    "minilm": minilm.main,
    "silero": silero.main,
    "decode": decode.main,
    "experts": experts.main,
    "matmul": matmul.main,
    "arena": arena.main,
    "extent": extent.main,
    "compile": compile_.main,
    "codegen": codegen.main,
    "pipeline": pipeline.main,
    "soak": soak.main,
    "state": state.main,
    "state_soak": state_soak.main,
}

# More than this before the start, and the numbers say more about the others on the machine.
QUIET_LOAD = 0.5


def plain(value: Any) -> object:
    """A NumPy scalar as JSON takes it."""
    return value.item()


def keep(run: dict[str, Any], folder: Path) -> Path:
    """Write `run`; benchmarks of this day and commit that are not in it keep their numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{run['date']}-{host_class()}.json"
    whole = run
    if path.exists():
        earlier = json.loads(path.read_text("utf-8"))
        if earlier["commit"] == run["commit"] and earlier["quick"] == run["quick"]:
            whole = {**run, "benches": {**earlier["benches"], **run["benches"]}}
    text_of_run = json.dumps(whole, indent=1, ensure_ascii=False, default=plain)
    path.write_text(text_of_run + "\n", "utf-8")
    return path


def main() -> int:
    """Run from a shell; the exit status tells whether something is broken."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHES)}")
    parser.add_argument("--quick", action="store_true", help="few rounds; nothing is kept")
    parser.add_argument("--output", type=Path, help="folder for the raw data (bench/results)")
    parser.add_argument("--strict", action="store_true", help="fail on a goal that is missed")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in BENCHES]
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    names = chosen.names or list(BENCHES)
    folder = chosen.output or (None if chosen.quick else RESULTS)
    effort = QUICK if chosen.quick else FULL

    machine = {**describe(), "isa": isa.chosen()}
    if machine["load_average"] > QUIET_LOAD:
        print(f"the load is {machine['load_average']}: the machine is not quiet", file=sys.stderr)
    run = {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
        "quick": chosen.quick,
        "rounds": effort.rounds,
        "machine": machine,
        "versions": {"fastgraph": fastgraph.__version__, **versions()},
        "benches": {},
    }
    broken = []
    for name in names:
        print(f"{name} …", file=sys.stderr, flush=True)
        started = time.monotonic()
        try:
            outcome = BENCHES[name](effort)
        except Exception:  # the others are still worth their numbers
            traceback.print_exc()
            broken.append(f"{name}: raised")
            continue
        record = outcome.record()
        record["seconds"] = round(time.monotonic() - started, 1)
        run["benches"][name] = record
        if folder is not None:
            keep(run, folder)  # what is measured stays, however the next one ends
        if outcome.failed:
            broken.append(f"{name}: failed")
    run["machine"]["load_average_after"] = round(os.getloadavg()[0], 2)

    print(f"{machine['processor']}, {machine['cores']} cores, {machine['isa']}, {run['date']}")
    print(", ".join(f"{name} {version}" for name, version in run["versions"].items()))
    for record in run["benches"].values():
        print(f"\n{text(record)}")
    if folder is not None:
        print(f"\nraw data: {keep(run, folder).name}")
        if folder == RESULTS:
            report.main([])
    missed = [
        goal["what"] for r in run["benches"].values() for goal in r["goals"] if not goal["met"]
    ]
    print(f"\ngoals not reached: {len(missed)}" + "".join(f"\n  {what}" for what in missed))
    if broken:
        print("broken: " + "; ".join(broken))
    return int(bool(broken) or (chosen.strict and bool(missed)))


if __name__ == "__main__":
    sys.exit(main())
