"""What all tests share: the devices, the leak check, and kernels compiled for the occasion."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest

from tests import fake_cuda

try:
    import fastgraph as fg
    from fastgraph._core import counters
except ImportError:
    # Pure parts can be tested without the compiled ones; test_harness.py then fails.
    fg = counters = None

NATIVE_SOURCE = Path(__file__).with_name("native_kernels.c")
CUDA_SOURCE = Path(__file__).with_name("cuda_kernels.cu")

# Workers may still be dropping what a finished call held.
SETTLE_SECONDS = 1.0


def gpu_problem() -> str | None:
    """Why nothing can be tested on a real GPU here, or None."""
    if counters is None or not importlib.util.find_spec("fastgraph._core.cuda_graph"):
        return "this build has no cuda modules"
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return str(error)
    count = ctypes.c_int(0)
    if code := driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return f"the driver answers with error {code}"
    return None if count.value else "the driver sees no device"


def load_fake() -> fake_cuda.Fake | None:
    """The fake driver, for builds with cuda modules on machines without a GPU."""
    if not GPU_PROBLEM or not importlib.util.find_spec("fastgraph._core.cuda_graph"):
        return None
    return fake_cuda.load()


GPU_PROBLEM = gpu_problem()
FAKE = load_fake()
CUDA_PROBLEM = None if FAKE is not None else GPU_PROBLEM
DEVICES = ("cpu",) if CUDA_PROBLEM else ("cpu", "cuda")

_outcome = pytest.StashKey[bool]()

# The counters at the end of the last test that passed, and the fixtures of several tests that have
# ended since: what they held may be garbage that still counts.
_settled: dict[str, int] = {}
_finalised: list[str] = []

# Times vary with the machine; a test that means to bound one does so itself.
hypothesis.settings.register_profile("fastgraph", deadline=None)
hypothesis.settings.load_profile("fastgraph")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-cuda",
        action="store_true",
        help="fail when there is no GPU, instead of testing cuda on a fake driver",
    )
    parser.addoption(
        "--no-bodies",
        action="store_true",
        help="skip a test as soon as it makes a graph with conditionals on cuda, whose bodies the "
        "toolkit's checkers lose track of",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--require-cuda") and GPU_PROBLEM:
        raise pytest.UsageError(f"--require-cuda: {GPU_PROBLEM}")


def pytest_report_header() -> str:
    if FAKE is not None:
        return f"devices: {', '.join(DEVICES)} (cuda: a fake driver, for {GPU_PROBLEM})"
    return f"devices: {', '.join(DEVICES)}" + (f" (cuda: {CUDA_PROBLEM})" if CUDA_PROBLEM else "")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what cannot be tested here; ``gpu`` and ``fake`` are kinds of ``cuda``."""
    for item in items:
        if item.get_closest_marker("gpu") or item.get_closest_marker("fake"):
            item.add_marker("cuda")
    problems = {"cuda": CUDA_PROBLEM, "gpu": GPU_PROBLEM, "fake": FAKE is None}
    missing = [mark for mark, problem in problems.items() if problem]
    left_out = [
        item
        for item in items
        if any(map(item.get_closest_marker, missing))
        or (item.get_closest_marker("host") and item.get_closest_marker("cuda"))
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """Keep the collector, which many tests call often, from walking all modules each time."""
    gc.collect()
    gc.freeze()


def pytest_fixture_post_finalizer(fixturedef: pytest.FixtureDef[Any]) -> None:
    """Note what may have left garbage behind."""
    if fixturedef.scope != "function":
        _finalised.append(fixturedef.argname)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
    report = yield
    if report.when == "call":
        item.stash[_outcome] = report.passed
    return report


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(name, marks=[pytest.mark.cuda] if name == "cuda" else []) for name in DEVICES
    ],
)
def device(request: pytest.FixtureRequest) -> str:
    """Each device that this machine can test."""
    return request.param


@pytest.fixture(scope="session", autouse=True)
def own_kernel_cache(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    """What is compiled for a GPU does not end up in the user's cache."""
    if not CUDA_PROBLEM:
        set_cache_directory = importlib.import_module(
            "fastgraph.device.cuda.disk"
        ).set_cache_directory
        set_cache_directory(tmp_path_factory.mktemp("kernels"))
        # Loaded once for all tests, not in the one that happens to be the first.
        helpers = importlib.import_module("fastgraph.device.cuda.backend").open_device(0).helpers
        assert helpers.set_condition.handle
        assert helpers.fill8.handle
        request.getfixturevalue("cuda_kernels")


@pytest.fixture(autouse=True)
def no_bodies(request: pytest.FixtureRequest) -> Iterator[None]:
    """Skip what would have a conditional on cuda, where that is asked for."""
    if CUDA_PROBLEM or not request.config.getoption("--no-bodies"):
        yield
        return
    graphs = importlib.import_module("fastgraph._core.cuda_graph")
    flat_nodes = importlib.import_module("fastgraph._core.record").flat_nodes
    instantiate = graphs.instantiate

    def without(record: Any, *args: Any, **options: Any) -> Any:
        if any(node.bodies for node in flat_nodes(record.nodes)):
            pytest.skip("a graph with bodies")
        return instantiate(record, *args, **options)

    # Not by the fixture: that would outlive `no_leak` in every test, with all that tests patch.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphs, "instantiate", without)
        yield


@pytest.fixture(scope="session", autouse=True)
def compile_all() -> Iterator[Callable[..., Any] | None]:
    """On the fake driver kernels of compiled graphs are built for the host; the real compiler."""
    if FAKE is None:
        yield None
        return
    batch = importlib.import_module("fastgraph.device.cuda.batch")
    image = importlib.import_module("tests.cuda_host.image")
    real, batch.compile_all = batch.compile_all, image.compile_all
    yield real
    batch.compile_all = real


@pytest.fixture(scope="session", autouse=True)
def real_locate() -> Iterator[Callable[[], Any] | None]:
    """The real cuBLASLt, where it is installed, finds no GPU on the fake driver; what looks for it.

    So on that driver nothing is found.
    """
    if FAKE is None:
        yield None
        return
    module = importlib.import_module("fastgraph.device.cuda.cublas")
    real, module.locate = module.locate, lambda: None
    yield real
    module.locate = real


@pytest.fixture
def cublas(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """cuBLASLt for every product that it can do; on the fake driver one of the host, which counts.

    On a GPU it is None, and the test is left out where the library is not installed.
    """
    module = importlib.import_module("fastgraph.device.cuda.cublas")
    backend = importlib.import_module("fastgraph.device.cuda.backend").open_device(0)
    lowering = importlib.import_module("fastgraph.lower.cuda.library")
    monkeypatch.setattr(lowering, "library_ns", lambda *shape: 0.0)
    if FAKE is None:
        if module.library() is None:
            pytest.skip("cuBLASLt is not installed")
        yield None
        return
    found = importlib.import_module("tests.fake_cublas").load()
    found.reset()
    monkeypatch.setattr(module, "locate", lambda: (found.handle, str(found.path)))
    monkeypatch.setattr(module, "_known", [])
    monkeypatch.setattr(backend, "blas", module.DeviceBlas(backend.gpu))
    yield found
    found.reset()


def growth(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """Counters that are higher than before, each with by how much."""
    return {
        name: count - before.get(name, 0)
        for name, count in after.items()
        if count > before.get(name, 0)
    }


@pytest.fixture(autouse=True)
def no_leak(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test leaves as many live objects and bytes as it found."""
    if counters is None:
        yield
        return
    before = counters.snapshot()
    if before != _settled or _finalised:
        # Garbage of a fixture or of a failed test would hide as much of a leak of this one.
        _finalised.clear()
        gc.collect()
        before = counters.snapshot()
    yield
    if not request.node.stash.get(_outcome, False):
        return  # the traceback of a failed test holds its objects
    deadline = time.monotonic() + SETTLE_SECONDS
    while growth(before, counters.snapshot()):
        late = time.monotonic() > deadline
        gc.collect()  # may itself take long, where the driver is checked or slow to free
        if late and (leaked := growth(before, counters.snapshot())):
            pytest.fail(f"the test left alive: {leaked}")
        time.sleep(0.001)
    _settled.clear()
    _settled.update(counters.snapshot())


FOR_ALL_DEVICES = frozenset(("add", "scaled", "fill", "inc", "dims", "square", "total"))
SIGNATURES = {
    "add": "float *out, const float *a, const float *b, int32_t n",
    "scaled": "float *out, const float *a, const float *b, float s, int32_t n",
    "fill": "float *out, float value, int32_t n",
    "inc": "float *buf, float delta, int32_t n",
    "dims": "int32_t *out",
    "square": "float *x, uint32_t *turns",
    "total": "int32_t *out, int32_t value, const int32_t *more",
    "spoil": "float *out, float value",
    "span": "int64_t *clock, int64_t *readings, int32_t us",
    "meet": "int32_t *here, const int32_t *there, int32_t *met, int32_t ms",
}


@pytest.fixture(scope="session")
def native_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``native_kernels.c``, compiled by the system's C compiler."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "g++"))), None)
    if compiler is None:
        pytest.fail("these tests need a C compiler: cc, gcc or g++")
    library = tmp_path_factory.mktemp("native") / "kernels.so"
    command = [compiler, "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, "-o", str(library), str(NATIVE_SOURCE)], check=True)
    return library


@pytest.fixture(scope="session")
def native_library(native_path: Path) -> ctypes.CDLL:
    """The same, loaded."""
    return ctypes.CDLL(str(native_path))


@pytest.fixture(scope="session")
def native_kernels(native_library: ctypes.CDLL) -> SimpleNamespace:
    """The kernels of `SIGNATURES` as `fastgraph.NativeKernel`, by attribute."""

    def kernel(name: str) -> fg.NativeKernel:
        address = ctypes.cast(getattr(native_library, name), ctypes.c_void_p).value
        return fg.NativeKernel(address, SIGNATURES[name], name=name, owner=native_library)

    return SimpleNamespace(**{name: kernel(name) for name in SIGNATURES})


@pytest.fixture(scope="session")
def cuda_kernels(native_path: Path) -> SimpleNamespace:
    """The same kernels for cuda; on the fake driver they are those of the host."""
    body = CUDA_SOURCE.read_text() if FAKE is None else native_path.read_bytes()
    kernels = {
        name: fg.Kernel(name, cuda=body, signature=signature)
        for name, signature in SIGNATURES.items()
        if name in FOR_ALL_DEVICES
    }
    # Code is loaded once for all: not in the test that happens to be the first.
    backend = importlib.import_module("fastgraph.device.cuda.backend").open_device(0)
    for kernel in kernels.values():
        importlib.import_module("fastgraph.device.cuda.accepted").as_cuda_function(
            kernel, backend.loader
        )
    return SimpleNamespace(**kernels)


@pytest.fixture
def kernels(device: str, request: pytest.FixtureRequest):
    """The kernels ``add scaled fill inc dims`` for the device under test."""
    return request.getfixturevalue("native_kernels" if device == "cpu" else "cuda_kernels")
