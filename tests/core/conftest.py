"""GPUs for the tests of the core: the fake driver's, or real ones where there are."""

from __future__ import annotations

import gc
import importlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import fake_cuda

FAKE_PROBLEM = fake_cuda.problem()


def core(name: str) -> ModuleType:
    """A cuda module of the core; where the build has none the test is skipped."""
    return pytest.importorskip(f"fastgraph._core.{name}")


@pytest.fixture
def fake() -> Iterator[fake_cuda.Fake]:
    """The fake driver, as it was new when the test is over."""
    core("driver")
    if FAKE_PROBLEM:
        pytest.skip(FAKE_PROBLEM)
    driver = fake_cuda.load()
    driver.reset()
    driver.forget_calls()
    yield driver
    driver.reset()


@pytest.fixture
def gpu(request: pytest.FixtureRequest) -> Any:
    """The first GPU."""
    stream = core("stream")
    if not FAKE_PROBLEM:
        request.getfixturevalue("fake")
    try:
        return stream.cuda_device(0)
    except NotImplementedError as error:
        pytest.skip(str(error))


@pytest.fixture
def memory() -> ModuleType:
    return core("device_memory")


@pytest.fixture
def streams() -> ModuleType:
    return core("stream")


@pytest.fixture
def driver() -> ModuleType:
    return importlib.import_module(core("driver").__name__)


@pytest.fixture(scope="session")
def bench_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels of ``cuda_graph_kernels.c``, as the fake driver loads them."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc"))), None)
    if compiler is None:
        pytest.fail("these tests need a C compiler: cc or gcc")
    source = Path(__file__).with_name("cuda_graph_kernels.c")
    library = tmp_path_factory.mktemp("graph") / "kernels.so"
    flags = ["-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *flags, "-o", str(library), str(source)], check=True)
    return library


@pytest.fixture(scope="session")
def bench_of_session(bench_library: Path) -> Any:
    core("cuda_graph")
    if FAKE_PROBLEM:
        pytest.skip(FAKE_PROBLEM)
    bench = importlib.import_module("tests.core.cuda_bench")
    return bench.Bench(fake_cuda.load(), bench_library)


@pytest.fixture
def bench(bench_of_session: Any, fake: fake_cuda.Fake) -> Iterator[Any]:
    """A device of the fake driver, a stream, kernels; no graph of the driver may be left."""
    kinds = ("graphs", "nodes", "execs")
    before = fake.settled()
    yield bench_of_session
    fake.reset()
    gc.collect()
    after = fake.live()
    assert {kind: after[kind] for kind in kinds} == {kind: before[kind] for kind in kinds}
