"""GPUs for the tests of the core: the fake driver's, or real ones where there are."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
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
