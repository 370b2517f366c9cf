"""``python -m bench.gpu.report``: writes the newest findings between the documents' markers.

The tables of cuda_facts.md are those of `tables.py`, whose cells name findings in braces
(`cells.py`), and the lists of `rules.py`; those of device_graphs.md are in `device_tables.py`,
those of gpu_benchmarks.md in `compiled_tables.py`. No number and no answer of the driver in them is
typed by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from bench.gpu.cells import Probes, Table, answer, cell
from bench.gpu.compiled_tables import COMPILED_TABLES, latest
from bench.gpu.device import DEVICE
from bench.gpu.device_tables import DEVICE_TABLES, NOT_YET, written
from bench.gpu.rules import CALLS, rules
from bench.gpu.tables import TABLES
from bench.outcome import markdown
from bench.report import RESULTS, ROOT, newest, replaced, update

__all__ = [
    "COMPILED",
    "COMPILED_DOCUMENT",
    "DEVICE_DOCUMENT",
    "DOCUMENT",
    "compiled_filled",
    "device_filled",
    "filled",
    "findings",
]

DOCUMENT = ROOT / "docs" / "cuda_facts.md"
DEVICE_DOCUMENT = ROOT / "docs" / "device_graphs.md"
COMPILED_DOCUMENT = ROOT / "docs" / "gpu_benchmarks.md"
COMPILED = RESULTS / "gpu" / "compiled"


def findings(records: Mapping[str, Any]) -> Probes:
    """The findings of each probe, by name."""
    return {
        probe: {finding["name"]: finding for finding in record["findings"]}
        for probe, record in records.items()
    }


def filled(document: str, records: Mapping[str, Any]) -> str:
    """`document` with every block written from the findings in `records` about the driver."""
    records = {probe: record for probe, record in records.items() if probe not in DEVICE}
    probes = findings(records)

    def body(name: str) -> str:
        if name == "machine":
            return _machine(records)
        if name in TABLES:
            return markdown(_record(TABLES[name], probes))
        if name in CALLS:
            return markdown(rules(CALLS[name], records, answer))
        raise KeyError(f"no table is called {name!r}; there are {sorted([*TABLES, *CALLS])}")

    return replaced(document, body)


def device_filled(document: str, records: Mapping[str, Any]) -> str:
    """`document` with every block written from the findings in `records` about the device.

    What was not measured says so. Raises KeyError where no table has a marker's name.
    """
    records = {probe: record for probe, record in records.items() if probe in DEVICE}
    probes = findings(records)

    def body(name: str) -> str:
        if name == "machine":
            return _machine(records) if records else NOT_YET
        if name in DEVICE_TABLES:
            return written(name, probes)
        raise KeyError(f"no table is called {name!r}; there are {sorted(DEVICE_TABLES)}")

    return replaced(document, body)


def compiled_filled(document: str, records: Mapping[str, Mapping[str, Any]]) -> str:
    """`document` with every block written from the newest record of its kind.

    What was not measured says so. Raises KeyError where no table has a marker's name.
    """

    def body(name: str) -> str:
        if name not in COMPILED_TABLES:
            raise KeyError(f"no table is called {name!r}; there are {sorted(COMPILED_TABLES)}")
        return markdown(COMPILED_TABLES[name](records[name])) if name in records else NOT_YET

    return replaced(document, body)


def _record(table: Table, probes: Probes) -> dict[str, Any]:
    cells = [[cell(text, probes, table.probe) for text in row] for row in table.rows]
    left = table.left or len(table.head)
    return {"head": table.head, "left": left, "cells": cells, "goals": [], "notes": []}


def _machine(records: Mapping[str, Any]) -> str:
    runs = {record["run"]["file"]: record["run"]["machine"] for record in records.values()}
    lines = []
    for file, machine in sorted(runs.items()):
        driver = (machine["nvidia_smi"] or "unknown").split(",")[0]
        probes = sum(record["run"]["file"] == file for record in records.values())
        lines += [
            f"- {machine['date']}, {probes} probes, raw data in `bench/results/gpu/{file}`",
            f"  - {machine['device']} ({machine['architecture']}, {machine['multiprocessors']} "
            f"multiprocessors at up to {machine['clock_khz'] / 1000:.0f} MHz, "
            f"{machine['memory'] / (1 << 30):.0f} GiB), {machine['processor']}",
            f"  - driver {driver}, CUDA {machine['cuda']}, {machine['nvcc']}, "
            f"Python {machine['python']}",
        ]
        if "versions" in machine:
            versions = ", ".join(f"{name} {what}" for name, what in machine["versions"].items())
            lines.append(f"  - commit {machine['commit']}, {versions}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """The shell command."""
    records = newest(RESULTS / "gpu", "probes")
    documents = {
        DOCUMENT: lambda document: filled(document, records),
        DEVICE_DOCUMENT: lambda document: device_filled(document, records),
        COMPILED_DOCUMENT: lambda document: compiled_filled(document, latest(COMPILED)),
    }
    return update(documents, "bench.gpu.report", __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
