"""The page of facts about CUDA comes from the findings, and leaves none of the refusals out."""

from __future__ import annotations

import re

import pytest

from bench.gpu import report
from bench.gpu.cells import answer, cell, expanded
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
