"""What the tests beside other libraries share."""

from __future__ import annotations

import importlib
import sys
import warnings
from types import ModuleType
from typing import Any

import pytest

import fastgraph as fg
from fastgraph.device import libraries
from tests.interop import arrays


def library(name: str) -> ModuleType:
    """Another library, whatever it warns of when it is imported; without it the test is skipped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except (ImportError, AttributeError) as error:
            # A release that asks for what another package has dropped is as good as missing.
            pytest.skip(f"{name}: {error}")


@pytest.fixture(scope="module")
def ctx(device: str) -> fg.DeviceContext:
    """A context on the device under test."""
    return fg.DeviceContext(device)


@pytest.fixture(scope="module")
def cuda() -> fg.DeviceContext:
    """A context on the GPU, the fake's too."""
    return fg.DeviceContext("cuda")


@pytest.fixture
def kernels(device: str, request: pytest.FixtureRequest) -> Any:
    """The kernels ``add scaled fill inc dims`` for the device under test."""
    return request.getfixturevalue("native_kernels" if device == "cpu" else "cuda_kernels")


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Modules in the place of torch and CuPy, so that stand-ins of their arrays are read."""
    found = {"torch": arrays.Torch(), "cupy": arrays.Cupy()}
    for name, module in found.items():
        monkeypatch.setitem(sys.modules, name, module)
    yield found
    for kind in (arrays.Tensor, arrays.Ndarray):
        libraries.READERS.pop(kind, None)


@pytest.fixture
def torch() -> ModuleType:
    return library("torch")


@pytest.fixture
def cupy() -> ModuleType:
    return library("cupy")
