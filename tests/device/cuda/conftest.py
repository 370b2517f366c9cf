"""What the tests of the cuda device share; compiled code stays out of the user's cache."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fastgraph as fg
from fastgraph.device.cuda import compile as compiling
from fastgraph.device.cuda import disk
from tests import conftest, fake_cuda
from tests.fake_cuda.build import build_kernels

MORE = Path(__file__).with_name("more_kernels.cu")
MORE_SIGNATURES = {
    "add_table": "float *x",
    "gather_up": "uint32_t *counter, uint32_t *slot, uint32_t need, uint64_t ns",
    "linger": "uint64_t ns",
    "take_number": "uint32_t *counter, uint32_t *slot",
    "wild": "float *x",
}


@pytest.fixture
def nvrtc(tmp_path, monkeypatch):
    """NVRTC, with nothing kept from before; the directory is where compiled code goes."""
    for module in ("cuda", "cuda.core", "cuda.bindings"):
        if importlib.util.find_spec(module) is None:
            pytest.skip("cuda-core is not installed")
    monkeypatch.setattr(disk, "_place", tmp_path / "kept")
    monkeypatch.setattr(disk, "_is_set", True)
    monkeypatch.setattr(compiling, "_kept", type(compiling._kept)())
    return tmp_path / "kept"


# Of the module, since pytest keeps a test's own fixtures alive while leaks are looked for.
@pytest.fixture(scope="module")
def ctx() -> fg.DeviceContext:
    """A context on the first GPU."""
    return fg.DeviceContext("cuda")


@pytest.fixture
def kernels(cuda_kernels: SimpleNamespace) -> SimpleNamespace:
    return cuda_kernels


@pytest.fixture
def fake() -> Iterator[fake_cuda.Fake]:
    """The fake driver, for tests marked with its name; as it was new when the test is over."""
    driver = conftest.FAKE
    driver.reset()
    driver.forget_calls()
    yield driver
    driver.reset()


@pytest.fixture(scope="session")
def more_image(tmp_path_factory: pytest.TempPathFactory) -> bytes | str:
    """Code of the kernels of `MORE_SIGNATURES`: source for a GPU, an image for the fake driver."""
    if conftest.FAKE is None:
        return MORE.read_text()
    return build_kernels(tmp_path_factory.mktemp("more")).read_bytes()


@pytest.fixture(scope="session")
def more(more_image: bytes | str) -> SimpleNamespace:
    """Those kernels, loaded."""
    ctx = fg.DeviceContext("cuda")
    load = ctx.compile_function if conftest.FAKE is None else ctx.load_function
    return SimpleNamespace(
        **{name: load(more_image, name, text) for name, text in MORE_SIGNATURES.items()}
    )


@pytest.fixture
def load_untyped(more_image: bytes | str) -> Callable[[fg.DeviceContext, str], Any]:
    """Load one of those kernels from an image, which tells the sizes of its parameters alone."""

    def load(ctx: fg.DeviceContext, name: str) -> Any:
        image = more_image
        if isinstance(image, str):
            image = compiling.compile_source(image, name, ctx._backend.loader.arch).image
        return ctx.load_function(image, name)

    return load


@pytest.fixture(scope="session")
def binding():
    """Python's binding of the driver, to look at what we made of it."""
    return pytest.importorskip("cuda.bindings.driver")
