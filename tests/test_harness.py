"""The checks that every test relies on, each seen to fail."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fastgraph as fg
from tests import conftest

ROOT = Path(__file__).resolve().parents[1]

# One file each; all run in one inner session with the settings and fixtures of this suite.
SAMPLES = {
    "leaks": """
import fastgraph as fg
kept = []

def test_it():
    kept.append(fg.DeviceContext("cpu").create_buffer((8,), "float32"))
""",
    "is_tidy": """
import fastgraph as fg

def test_it():
    fg.DeviceContext("cpu").create_buffer((8,), "float32")
""",
    "warns": """
import warnings
import fastgraph as fg

def test_it():
    warnings.warn("something", fg.FastGraphWarning)
""",
    "sleeps": """
import time
import pytest

@pytest.mark.timeout(0.2, func_only=True)
def test_it():
    time.sleep(30)
""",
    "misspells_a_marker": """
import pytest

@pytest.mark.misspelt
def test_it():
    pass
""",
    "passes_against_expectation": """
import pytest

@pytest.mark.xfail
def test_it():
    pass
""",
    "needs_cuda": """
import pytest

@pytest.mark.cuda
def test_it():
    pass
""",
}


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    search = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    settings = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", *settings, *options, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(search)},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    folder = tmp_path_factory.mktemp("inner")
    for name, source in SAMPLES.items():
        (folder / f"test_{name}.py").write_text(source, "utf-8")
    return run_pytest(folder, "-rA", "--continue-on-collection-errors")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("ERROR test_leaks.py::test_it", "the test left alive: {"),
        ("PASSED test_is_tidy.py::test_it", ""),
        ("FAILED test_warns.py::test_it", "FastGraphWarning: something"),
        ("FAILED test_sleeps.py::test_it", "Timeout"),
        ("ERROR test_misspells_a_marker.py", "'misspelt' not found in `markers`"),
        ("FAILED test_passes_against_expectation.py::test_it", "[XPASS(strict)]"),
    ],
)
def test_outcome(session, line, reason):
    assert line in session.stdout
    assert reason in session.stdout
    assert session.returncode == 1


def test_cuda_tests_are_left_out_only_without_cuda(session):
    assert ("1 deselected" in session.stdout) == bool(conftest.CUDA_PROBLEM)


def test_required_cuda(tmp_path):
    (tmp_path / "test_nothing.py").write_text("def test_it():\n    pass\n", "utf-8")
    result = run_pytest(tmp_path, "--require-cuda")
    if conftest.GPU_PROBLEM:
        assert result.returncode != 0
        assert f"--require-cuda: {conftest.GPU_PROBLEM}" in result.stderr
    else:
        assert result.returncode == 0


def test_native_kernels(native_library):
    """The kernels have the ABI, and the sizes, that the tests of recording rely on."""
    data = (ctypes.c_float * 8)(*range(8))
    values = [ctypes.c_void_p(ctypes.addressof(data)), ctypes.c_float(2.0), ctypes.c_int32(8)]
    args = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in values))
    dims = (ctypes.c_int32 * 6)(3, 1, 1, 2, 1, 1)
    native_library.inc(args, dims)
    assert list(data) == [2, 3, 4, 5, 6, 7, 6, 7]


def test_native_kernels_in_a_graph(native_kernels):
    ctx = fg.DeviceContext("cpu")
    out, sizes = ctx.create_buffer((1024,), "float32"), ctx.create_buffer((6,), "int32")

    def build(b):
        filled = b.add_function(native_kernels.fill, out, 1.5, 1024, grid_dim=4, block_dim=256)
        b.add_function(
            native_kernels.inc, out, 2.0, 1000, grid_dim=4, block_dim=256, dependencies=[filled]
        )
        b.add_function(native_kernels.dims, sizes, grid_dim=(2, 3), block_dim=(4, 5, 6))

    fg.DeviceGraph.create(ctx, build).replay()
    assert out.numpy().tolist() == [3.5] * 1000 + [1.5] * 24
    assert sizes.numpy().tolist() == [2, 3, 1, 4, 5, 6]
