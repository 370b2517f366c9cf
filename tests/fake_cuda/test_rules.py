"""The fake against the real driver: the probes of rules give the answers that were recorded.

``bench/gpu`` asked a driver what it takes and refuses; ``docs/cuda_facts.md`` is made of what it
said. Here the same probes ask the fake. Numbers of time differ, and nothing else may.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from bench.gpu import native
from tests.fake_cuda.build import build, build_kernels, header_directory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PROBE_SOURCES = native.HERE
RECORDED = max((native.ROOT / "bench/results/gpu").glob("*-facts.json"))

# The probe, and how many of its findings are answers of the driver: none may be lost.
PROBES = {
    "body_updates": 10,
    "programmatic_bodies": 4,
    "programmatic_edges": 27,
    "conditional_rules": 32,
    "dependency_rules": 9,
    "body_kinds": 100,
    "attributes": 40,
    "update_rules": 35,
    "launch_rules": 22,
    "batched_copies": 5,
    "host_nodes": 8,
    "poisoned_context": 20,
    "forked_child": 5,
}
# What a note tells beside the answer, where it does not tell a time.
TOLD = ("then ", "result ")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> native.Built:
    """The probes, and their kernels for the host in place of a cubin."""
    folder = tmp_path_factory.mktemp("probes")
    compiler = next(filter(None, map(shutil.which, ("c++", "g++"))))
    made = native.Built(folder / "probes.so", build_kernels(folder))
    shared = ["-O1", "-shared", "-fPIC", "-pthread", f"-I{header_directory()}"]
    sources = [str(path) for path in sorted(PROBE_SOURCES.glob("*.cpp"))]
    subprocess.run([compiler, "-std=c++17", *shared, *sources, "-o", str(made.library)], check=True)
    return made


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """In a process of its own the fake is found by its name."""
    return {**os.environ, "LD_LIBRARY_PATH": str(build().parent)}


def answers(findings: list[native.Finding]) -> dict[str, tuple[int, str]]:
    """The driver's answers by what was asked."""
    return {
        f.name: (f.code, f.note if f.note.startswith(TOLD) else "")
        for f in findings
        if f.unit == "accepted"
    }


@pytest.mark.parametrize("probe", PROBES)
def test_answers_as_the_driver_did(probe, built, environment):
    record = json.loads(RECORDED.read_text("utf-8"))["probes"][probe]["findings"]
    fields = ("name", "value", "unit", "code", "note")
    wanted = answers([native.Finding(*(row[f] for f in fields)) for row in record])
    command = [sys.executable, "-m", "bench.gpu.child", probe, str(built.library)]
    done = subprocess.run(
        [*command, str(built.cubin)],
        cwd=native.ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    found = native.parsed(done.stdout.splitlines())
    assert [f.note for f in found if f.name == "failed"] == []
    assert done.returncode == 0, done.stderr
    assert answers(found) == wanted
    assert len(wanted) >= PROBES[probe]
