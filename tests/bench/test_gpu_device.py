"""The probes of the device work on the tests' driver, and their page comes from findings alone."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.gpu import report
from bench.gpu.clockwork import Series, Way, in_turn, loop
from bench.gpu.device import DEVICE
from bench.gpu.device_child import PROBES
from bench.gpu.device_tables import DEVICE_TABLES, NOT_YET
from bench.gpu.facts import FACTS
from bench.gpu.floor import FLOOR
from bench.gpu.goals import PROMISES, goals, verdicts
from bench.gpu.replays import COUNTED, allocations
from bench.report import RESULTS, newest
from tests.fake_cuda.build import build as build_driver

ROOT = Path(__file__).resolve().parents[2]
RECORDS = newest(RESULTS / "gpu", "probes")


def test_document_is_up_to_date():
    document = report.DEVICE_DOCUMENT.read_text("utf-8")
    written = report.device_filled(document, RECORDS)
    assert written == document, "python -m bench.gpu.report writes it"


def test_every_table_is_in_the_document():
    document = report.DEVICE_DOCUMENT.read_text("utf-8")
    names = re.findall(r"<!-- bench:(\w+) -->", document)
    assert sorted(names) == sorted(["machine", *DEVICE_TABLES])
    with pytest.raises(KeyError, match="no table is called 'unknown'"):
        report.device_filled("<!-- bench:unknown -->\n<!-- /bench -->\n", RECORDS)


def test_every_probe_can_run_and_has_a_name_of_its_own():
    assert list(PROBES) == list(DEVICE)
    assert not {*DEVICE} & {*FACTS, *FLOOR}
    assert {promise.table for promise in PROMISES} <= {*DEVICE_TABLES}
    assert {promise.probe for promise in PROMISES} <= {*DEVICE}


def test_what_was_measured_is_written_and_what_was_not_says_so():
    names = [
        *("3 kernels: loop of launches p50", "3 kernels: loop of launches p99"),
        *("3 kernels: replayed p50", "3 kernels: replayed p99"),
        *("3 kernels: cached, replayed p50", "3 kernels: cached, replayed p99"),
    ]
    names += [name.replace("3", "100", 1) for name in names]
    found = [{"name": name, "value": 1.5, "unit": "us", "note": ""} for name in names]
    for n in (3, 100):
        for way in ("replayed", "cached, replayed"):
            name = f"{n} kernels: loop of launches over {way}"
            found.append({"name": name, "value": 4.0, "unit": "ratio", "note": ""})
    before = "<!-- bench:gain -->\n<!-- /bench -->\n<!-- bench:soak -->\nold\n<!-- /bench -->\n"
    written = report.device_filled(before, {"eager": {"findings": found}})
    assert "| 3 | 1.50 / 1.50 µs | 1.50 / 1.50 µs | 1.50 / 1.50 µs | 4.00× | 4.00× |" in written
    assert written.endswith(f"<!-- bench:soak -->\n{NOT_YET}\n<!-- /bench -->\n")
    with pytest.raises(KeyError, match="3 kernels"):
        report.device_filled(before, {"eager": {"findings": found[1:]}})


def test_goals_are_told_and_a_broken_probe_has_none():
    findings = [
        {"name": f"{shape}: over plain", "value": value, "unit": "ratio", "note": ""}
        for shape, value in (("programmatic", 0.66), ("eight chains", 0.9))
    ]
    record = {"findings": findings, "problem": None}
    assert verdicts({"edges": record}) == [
        "reached: programmatic edges over plain 0.66 (≤ 0.7)",
        "NOT reached: eight chains over one 0.9 (≤ 0.5)",
    ]
    assert verdicts({"edges": {**record, "problem": "stopped"}}) == []
    with pytest.raises(KeyError):
        goals({"edges": {}})


def test_ways_are_taken_in_turn_and_checked():
    order = []

    def way(name: str) -> Way:
        def run(samples: int) -> list[float]:
            order.append(name)
            return [2.0 if name == "a" else 1.0] * samples

        return Way(run, lambda: order.append(f"{name} checked"), clock=0.5)

    found = in_turn({"a": way("a"), "b": way("b")}, 2, 3)
    assert order[4:] == [
        *("a", "a checked", "b", "b checked"),
        *("b", "b checked", "a", "a checked"),
    ]
    assert found["a"].rounds == [[1.5] * 3] * 2
    assert found["b"].at(50) == 0.5


def test_ratios_and_differences_are_of_rounds(capsys):
    one, other = Series([[2.0], [30.0]]), Series([[1.0], [10.0]])
    one.over(other, "ratio")
    one.minus(other, "difference")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("\t")[1:4] == ["ratio", "2.5", "ratio"]
    assert lines[1].split("\t")[1:4] == ["difference", "10.5", "us"]


def test_calls_are_timed_together_and_set_up_apart():
    told = []
    timed = loop(
        "call()",
        {"call": lambda: told.append("call")},
        before=lambda: told.append("before"),
        after=lambda: told.append("after"),
        together=2,
    )
    assert len(timed(2)) == 2
    assert told == ["before", "call", "call", "after"] * 2


def test_allocations_are_seen():
    kept = []
    blocks, nbytes = allocations(lambda: kept.append(bytearray(1000)), lambda: None)
    assert blocks >= COUNTED
    assert nbytes >= COUNTED * 1000
    blocks, nbytes = allocations(lambda: bytearray(1000), lambda: None)
    assert blocks < COUNTED / 4
    assert nbytes >= 1000


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(
    not importlib.util.find_spec("fastgraph._core.cuda_graph"),
    reason="this build has no cuda modules",
)
def test_probes_work_on_the_driver_of_the_tests(tmp_path):
    command = [sys.executable, "-m", "bench.gpu", "device", "--out", str(tmp_path)]
    command += ["--smoke", str(build_driver())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    probes = json.loads((tmp_path / "device.json").read_text("utf-8"))["probes"]
    assert set(probes) == {name for name, probe in DEVICE.items() if not probe.needs}
    document = report.DEVICE_DOCUMENT.read_text("utf-8")
    for record in probes.values():
        record["run"] = {"file": "sample.json", "machine": None}
    blank = re.sub(r"<!-- bench:machine -->.*?<!-- /bench -->\n", "", document, flags=re.DOTALL)
    assert NOT_YET not in report.device_filled(blank, probes)
    copies = {
        finding["name"]: finding["value"]
        for finding in probes["eight_inputs"]["findings"]
        if "copies of the driver" in finding["name"]
    }
    assert copies == {
        "device: copies of the driver for 8 inputs": 1,
        "host: copies of the driver for 8 inputs": 1,
    }
