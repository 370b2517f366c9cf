"""The page of facts about CUDA comes from the findings, and leaves none of the refusals out."""

from __future__ import annotations

import re

import pytest

from bench.gpu import report
from bench.gpu.cells import answer, cell, expanded
from bench.gpu.compiled_tables import COMPILED_TABLES, latest
from bench.gpu.rules import CALLS, placed, rules
from bench.gpu.tables import TABLES
from bench.report import RESULTS, newest

RECORDS = newest(RESULTS / "gpu", "probes")


def finding(name, value, unit="us", code=0, note=""):
    result = "CUDA_ERROR_INVALID_VALUE" if code else "CUDA_SUCCESS"
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "code": code,
        "note": note,
        "result": result,
    }


PROBES = {
    "sample": {
        row["name"]: row
        for row in (
            finding("call p50", 1.5, note="behind 2.000000 us"),
            finding("call p99", 3.0),
            finding("add", 1.0, "accepted"),
            finding("run", 1.0, "accepted"),
            finding("clone", 0.0, "accepted", 1),
            finding("bytes", 3 << 20, "B/executable"),
        )
    },
    "other": {"rate": finding("rate", 55.16, "GB/s")},
}


def test_document_is_up_to_date():
    document = report.DOCUMENT.read_text("utf-8")
    assert report.filled(document, RECORDS) == document, "python -m bench.gpu.report writes it"


def test_every_table_is_in_the_document():
    document = report.DOCUMENT.read_text("utf-8")
    names = re.findall(r"<!-- bench:(\w+) -->", document)
    assert sorted(names) == sorted(["machine", *TABLES, *CALLS])


def test_another_number_makes_the_document_another():
    document = report.DOCUMENT.read_text("utf-8")
    (row,) = (
        row
        for row in RECORDS["update_cost"]["findings"]
        if row["name"] == "1000 nodes: set middle node"
    )
    changed = [{**r, "value": 77.0} if r is row else r for r in RECORDS["update_cost"]["findings"]]
    records = {**RECORDS, "update_cost": {**RECORDS["update_cost"], "findings": changed}}
    assert report.filled(document, records) != document


def test_no_refusal_is_left_out():
    told = sum(
        len(row[0].split(", "))
        for title in CALLS.values()
        for row in rules(title, RECORDS, answer)["cells"]
    )
    refused = [
        (probe, row["name"])
        for probe, record in RECORDS.items()
        for row in record["findings"]
        if row["unit"] == "accepted" and not row["value"]
    ]
    assert all(placed(*of).list for of in refused)
    assert told == len(refused)


def test_choices_are_expanded():
    assert list(expanded("a [1/2] b [x/y]")) == ["a 1 b x", "a 1 b y", "a 2 b x", "a 2 b y"]
    assert list(expanded("none")) == ["none"]


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{call p50}", "1.50 µs"),
        ("{call p[50/99]} so", "1.50 / 3.00 µs so"),
        ("{call p99 ÷ call p50}", "2.00×"),
        ("{call p99 − call p50}", "1.50 µs"),
        ("{call p50!note}", "behind 2.00 µs"),
        ("{other|rate}", "55.2 GB/s"),
        ("{bytes}", "3 MiB an executable"),
        ("{[add/run]}, {clone}", "taken, 1 `CUDA_ERROR_INVALID_VALUE`"),
    ],
)
def test_cell(template, text):
    assert cell(template, PROBES, "sample") == text


def test_what_is_not_so_is_not_written():
    with pytest.raises(KeyError, match="missing"):
        cell("{missing}", PROBES, "sample")
    with pytest.raises(ValueError, match="different answers"):
        cell("{[add/clone]}", PROBES, "sample")
    with pytest.raises(ValueError, match="different units"):
        cell("{[call p50/add]}", PROBES, "sample")
    with pytest.raises(KeyError, match="no call is known"):
        placed("body_kinds", "a thing that no pattern knows")
    with pytest.raises(KeyError, match="no table is called 'unknown'"):
        report.filled("<!-- bench:unknown -->\n<!-- /bench -->\n", RECORDS)


def test_compiled_tables_are_up_to_date():
    document = report.COMPILED_DOCUMENT.read_text("utf-8")
    records = latest(report.COMPILED)
    assert report.compiled_filled(document, records) == document, "python -m bench.gpu.report"
    names = re.findall(r"<!-- bench:(\w+) -->", document)
    assert sorted(names) == sorted(COMPILED_TABLES)
    with pytest.raises(KeyError, match="no table is called 'unknown'"):
        report.compiled_filled("<!-- bench:unknown -->\n<!-- /bench -->\n", records)


ABOUT = {"machine": {"date": "2026-01-02", "device": "GPU"}}
GOAL = {"what": "of it", "limit": 0.75, "least": True, "value": 0.5, "met": False}
COMPILED_RECORDS = {
    "models": [
        {"case": "perceptron, run_slots", "us": 10.0, "p99_us": 12.0},
        {"case": "perceptron, torch, graph", "us": 40.0, "p99_us": 50.0},
        {"case": "encoder", "us": 100.0, "first_run_s": 0.5},
        {"case": "encoder: torch eager", "us": 300.0, "first_run_s": 2.0},
        {"case": "encoder: torch default", "us": 200.0, "first_run_s": 2.0},
    ],
    "operators": [
        {"read_gb_per_s": 4000.0},
        {"case": "a", "us": 2.0, "tflops": 1.0, "share_of_read": 0.5, "torch_us": 4.0},
        {"case": "b", "us": 2.0, "tflops": 1.0, "share_of_copy": 0.25},
        {"case": "c", "failed": "it"},
    ],
    "decode": [
        {"case": "fastgraph", "us": 700.0, "share_of_read": 0.5, "error": 1e-3, "nodes": 148}
    ],
    "pipeline": [
        {
            "case": "all",
            **{f"{part} us": 1.0 for part in ("host staging", "copy in", "copy out", "compute")},
            "loop us": 3.0,
            "pipelined us": 1.5,
            "of_slowest": 0.67,
            "over_loop": 2.0,
            "at_once": 1.3,
        }
    ],
    "extent": [
        {"dtype": "float16", "rows": 128, "extent_us": 50.0},
        {"dtype": "float16", "rows": 1, "extent_us": 11.0, "compiled_us": 10.0},
    ],
    "experts": [{"resident": "none", "us": 9.0, "hit_rate": 0.5, "bus_bytes": 2e6}],
}


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("models", ["| perceptron, run_slots | 10.00 |  | 40.00 | 0.25 |",
                    "| encoder | 100 | 0.50 | 200 | 0.50 |"]),
        ("operators", ["| a | 2.00 | 1.0 | 50.0 % of a read | 4.00 | 0.50 |",
                       "| b | 2.00 | 1.0 | 25.0 % of a copy |  |  |", "| c | failed |"]),
        ("decode", ["| fastgraph | 700 | 50.0 % | 148 | 1.0e-03 |"]),
        ("pipeline", ["| all | 1.00 | 1.00 | 1.00 | 1.00 | 3.00 | 1.50 | 0.67 | 2.00 | 1.30 |"]),
        ("extent", ["| float16 | 128 | 50.00 |  |  |", "| float16 | 1 | 11.00 | 10.00 | 1.10 |",
                    "of 9 nodes: 5.00 µs a new one, 2.00 µs one"]),
        ("experts", ["| none | 9.00 | 50.0 % | 2.0 |"]),
    ],
)  # fmt: skip
def test_compiled_tables(kind, rows):
    record = {**ABOUT, "lines": COMPILED_RECORDS[kind], "goals": [GOAL], "file": "x.json"}
    record["setting"] = {"nodes": 9, "new_us": 5.0, "again_us": 2.0}
    before = f"<!-- bench:{kind} -->\nold\n<!-- /bench -->\n"
    after = report.compiled_filled(before, {kind: record})
    for row in (*rows, "NOT reached: of it 0.5 (≥ 0.75)", "2026-01-02, GPU, `bench/results/gpu"):
        assert row in after
    assert report.compiled_filled(after, {kind: record}) == after
    assert "not measured" in report.compiled_filled(before, {}).lower()
