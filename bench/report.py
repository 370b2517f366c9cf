"""``python -m bench.report``: writes the newest results between the documents' markers.

A table stands between ``<!-- bench:NAME -->`` and ``<!-- /bench -->``. NAME is a benchmark's name,
or ``machine`` for what they were measured on. No number in them is typed by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.outcome import markdown

__all__ = ["DOCUMENTS", "RESULTS", "ROOT", "filled", "newest", "replaced", "update"]

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
DOCUMENTS = (ROOT / "docs" / "benchmarks.md", ROOT / "README.md")

BLOCK = re.compile(r"(<!-- bench:(\w+) -->\n).*?(<!-- /bench -->)", re.DOTALL)


def newest(folder: Path = RESULTS, key: str = "benches") -> dict[str, Any]:
    """Every newest record by name, of those that a run keeps under `key`, with that run."""
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.json"), key=lambda path: path.name):
        run = json.loads(path.read_text("utf-8"))
        about = {name: value for name, value in run.items() if name != key}
        for name, record in run[key].items():
            found[name] = {**record, "run": {**about, "file": path.name}}
    return found


def replaced(document: str, body: Callable[[str], str]) -> str:
    """`document` with what `body` gives for each block's name in that block."""
    return BLOCK.sub(lambda match: f"{match[1]}{body(match[2])}\n{match[3]}", document)


def filled(document: str, records: Mapping[str, Any]) -> str:
    """`document` with every block replaced by what `records` hold for it.

    Raises
    ------
    KeyError
        A marker names no benchmark that there is a result of.
    """

    def body(name: str) -> str:
        if not records:
            return "Not measured yet."
        if name == "machine":
            return _machine(records)
        if name in records:
            return markdown(records[name])
        raise KeyError(f"no result of a benchmark {name!r}; there are {sorted(records)}")

    return replaced(document, body)


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


def update(
    documents: Mapping[Path, Callable[[str], str]],
    program: str,
    description: str | None,
    arguments: list[str] | None,
) -> int:
    """Write `documents`, or say with ``--check`` whether they are as they would be written."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if out of date")
    check = parser.parse_args(arguments).check
    changed = []
    for path, fill in documents.items():
        before = path.read_text("utf-8")
        after = fill(before)
        if after != before:
            changed.append(path.relative_to(ROOT).as_posix())
            if not check:
                path.write_text(after, "utf-8")
    print(f"{'out of date' if check else 'written'}: {', '.join(changed) or 'nothing'}")
    return int(check and bool(changed))


def main(arguments: list[str] | None = None) -> int:
    """The shell command."""
    records = newest()
    fill = dict.fromkeys(DOCUMENTS, lambda document: filled(document, records))
    return update(fill, "bench.report", __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
