"""``python -m bench.report``: writes the newest results between the documents' markers.

A table stands between ``<!-- bench:NAME -->`` and ``<!-- /bench -->``. NAME is a benchmark's name,
or ``machine`` for what they were measured on. No number in them is typed by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.outcome import markdown

__all__ = ["DOCUMENTS", "RESULTS", "filled", "newest"]

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
DOCUMENTS = (ROOT / "docs" / "benchmarks.md", ROOT / "README.md")

BLOCK = re.compile(r"(<!-- bench:(\w+) -->\n).*?(<!-- /bench -->)", re.DOTALL)


def newest(folder: Path = RESULTS) -> dict[str, Any]:
    """Every benchmark's newest record by name, under ``benches``, each with its run's machine."""
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.json"), key=lambda path: path.name):
        run = json.loads(path.read_text("utf-8"))
        about = {key: value for key, value in run.items() if key != "benches"}
        for name, record in run["benches"].items():
            found[name] = {**record, "run": {**about, "file": path.name}}
    return found


def filled(document: str, records: Mapping[str, Any]) -> str:
    """`document` with every block replaced by what `records` hold for it.

    Raises
    ------
    KeyError
        A marker names no benchmark that there is a result of.
    """

    def block(match: re.Match[str]) -> str:
        name = match[2]
        if not records:
            body = "Not measured yet."
        elif name == "machine":
            body = _machine(records)
        elif name in records:
            body = markdown(records[name])
        else:
            raise KeyError(f"no result of a benchmark {name!r}; there are {sorted(records)}")
        return f"{match[1]}{body}\n{match[3]}"

    return BLOCK.sub(block, document)


def _machine(records: Mapping[str, Any]) -> str:
    runs = {record["run"]["file"]: record["run"] for record in records.values()}
    lines = []
    for file, run in sorted(runs.items()):
        machine, clock = run["machine"], run["machine"]["clock_mhz"]
        of_run = sorted(name for name, record in records.items() if record["run"]["file"] == file)
        lines += [
            f"- {', '.join(of_run)}: {run['date']}, commit {run['commit']}, "
            f"{'a quick look, ' if run['quick'] else ''}raw data in `bench/results/{file}`",
            f"  - {machine['processor']}, {machine['cores']} cores"
            + (f" at {clock[0]:.0f} to {clock[1]:.0f} MHz" if clock else "")
            + f", {', '.join(f'{k} {v >> 10} KiB' for k, v in machine['caches'].items())}, "
            f"kernels for {machine['isa']}, load before the start {machine['load_average']}",
            f"  - {', '.join(f'{name} {version}' for name, version in run['versions'].items())}",
        ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Write the documents, or say with ``--check`` whether they are as they would be written."""
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if out of date")
    check = parser.parse_args(arguments).check
    records = newest()
    changed = []
    for path in DOCUMENTS:
        before = path.read_text("utf-8")
        after = filled(before, records)
        if after != before:
            changed.append(path.relative_to(ROOT).as_posix())
            if not check:
                path.write_text(after, "utf-8")
    print(f"{'out of date' if check else 'written'}: {', '.join(changed) or 'nothing'}")
    return int(check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
