"""Runs lists of probes, prints what they found, writes it as JSON."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.gpu.native import (
    Built,
    Finding,
    Outcome,
    build,
    code_name,
    environment,
    gpu_problem,
    run,
)

__all__ = ["collect", "command", "line", "runner"]

LIMIT_SECONDS = 45.0


def line(finding: Finding) -> str:
    """A finding in one line: yes or no with the driver's word for it, or a number."""
    note = f"  ({finding.note})" if finding.note else ""
    if finding.unit == "accepted":
        answer = "yes" if finding.value else f"no, {finding.code} {code_name(finding.code)}"
        return f"  {finding.name:<68} {answer}{note}"
    value = "-" if finding.value is None else f"{finding.value:,.5g}"
    return f"  {finding.name:<68} {value:>10} {finding.unit}{note}"


def collect(
    title: str,
    probes: Mapping[str, str],
    run_one: Callable[[str], Outcome],
    out: Path,
    more: Mapping[str, object] | None = None,
) -> list[Outcome]:
    """Run `probes`, print each as it ends, and write all of them to `out`.

    `more` is said about the machine beside what is always said.
    """
    about = {**environment(), **(more or {})}
    print(f"{title}: {about.get('device')}, {about.get('nvidia_smi')}, {about['date']}")
    outcomes = []
    for probe, meaning in probes.items():
        outcome = run_one(probe)
        outcomes.append(outcome)
        print(f"\n{probe}: {meaning} [{outcome.seconds:.1f} s]")
        for finding in outcome.findings:
            print(line(finding))
        if outcome.problem:
            print(f"  BROKEN: {outcome.problem}")
        sys.stdout.flush()
        _write(title, about, outcomes, probes, out)
    broken = [outcome.probe for outcome in outcomes if outcome.problem]
    seconds = sum(outcome.seconds for outcome in outcomes)
    print(f"\n{title}: {len(outcomes)} probes in {seconds:.0f} s, broken: {broken or 'none'}\n")
    return outcomes


def runner(built: Built) -> Callable[[str], Outcome]:
    """What runs a probe of the driver by name."""
    return lambda probe: run(probe, built, LIMIT_SECONDS)


def _write(
    title: str,
    about: Mapping[str, object],
    outcomes: list[Outcome],
    probes: Mapping[str, str],
    out: Path,
) -> None:
    """Written after each probe, so that a run which is cut short keeps what it had."""
    record = {
        "what": title,
        "machine": about,
        "probes": {o.probe: {"meaning": probes[o.probe], **o.record()} for o in outcomes},
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")


def command(title: str, probes: Mapping[str, str], description: str | None) -> int:
    """The shell command of a list of probes; its exit status tells whether one is broken."""
    parser = argparse.ArgumentParser(prog=f"python -m bench.gpu.{title}", description=description)
    parser.add_argument("names", nargs="*", metavar="PROBE", help="all of them without")
    parser.add_argument("--out", type=Path, default=Path(f"{title}.json"), help="the JSON file")
    parser.add_argument("--list", action="store_true", help="print the probes and end")
    chosen = parser.parse_args()
    if chosen.list:
        print("\n".join(f"{name:<24} {meaning}" for name, meaning in probes.items()))
        return 0
    unknown = [name for name in chosen.names if name not in probes]
    if unknown:
        parser.error(f"no probe is called {', '.join(unknown)}; there are {', '.join(probes)}")
    if problem := gpu_problem():
        print(f"there is no GPU to measure: {problem}", file=sys.stderr)
        return 1
    wanted = {name: probes[name] for name in chosen.names or probes}
    with tempfile.TemporaryDirectory() as folder:
        outcomes = collect(title, wanted, runner(build(Path(folder))), chosen.out)
    return int(any(outcome.problem for outcome in outcomes))
