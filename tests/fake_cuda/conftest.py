"""The fake driver for the tests of the fake itself, called by Python's binding of the driver."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import fake_cuda
from tests.fake_cuda.build import build_kernels

PTX = """\
.version 8.0
.target sm_90
.address_size 64
.visible .entry fg_set_condition(.param .u64 handle, .param .u64 .ptr .align 4 value)
{ ret; }
.visible .entry fg_fill8(
    .param .u64 dst,
    .param .u64 value,
    .param .u64 count
)
{ ret; }
.visible .entry others(.param .u32 n, .param .align 8 .b8 point[24], .param .f64 x) { ret; }
"""


class Driver:
    """The binding with answers apart: ``d.cuX(…)`` must be taken, ``d.code.cuX(…)`` is a number."""

    def __init__(self, binding: Any) -> None:
        self.binding = binding
        self.code = _Codes(binding)

    def __getattr__(self, name: str) -> Any:
        what = getattr(self.binding, name)
        if not name.startswith("cu"):
            return what

        def call(*args: Any) -> Any:
            code, *rest = what(*args)
            assert code == 0, f"{name} gave {code!r}"
            return rest[0] if len(rest) == 1 else tuple(rest)

        return call


class _Codes:
    def __init__(self, binding: Any) -> None:
        self.binding = binding

    def __getattr__(self, name: str) -> Any:
        return lambda *args: int(getattr(self.binding, name)(*args)[0])


class Bench:
    """A context, a stream and the kernels of ``kernels.c``; what it makes goes with it."""

    def __init__(self, fake: fake_cuda.Fake, driver: Driver, image: bytes) -> None:
        self.fake, self.d = fake, driver
        driver.cuInit(0)
        self.context = driver.cuDevicePrimaryCtxRetain(0)
        driver.cuCtxSetCurrent(self.context)
        self.modules = [driver.cuModuleLoadData(image), driver.cuModuleLoadData(PTX.encode())]
        self.stream = driver.cuStreamCreate(1)
        self._memory: list[int] = []

    def close(self) -> None:
        self.fake.reset()
        self.d.cuCtxSetCurrent(self.context)
        self.d.cuStreamSynchronize(self.stream)
        for address in self._memory:
            self.d.cuMemFree(address)
        for module in self.modules:
            self.d.cuModuleUnload(module)
        self.d.cuStreamDestroy(self.stream)
        self.d.cuDevicePrimaryCtxRelease(0)
        self.d.cuCtxSetCurrent(0)

    def memory(self, nbytes: int = 4096) -> int:
        """Zeroed memory of the device."""
        address = int(self.d.cuMemAlloc(nbytes))
        self._memory.append(address)
        self.d.cuMemsetD8(address, 0, nbytes)
        return address

    def free(self, address: int) -> None:
        self._memory.remove(address)
        self.d.cuMemFree(address)

    def read(self, address: int, kind: Any = ctypes.c_uint32) -> Any:
        value = kind()
        self.d.cuMemcpyDtoH(ctypes.addressof(value), address, ctypes.sizeof(kind))
        return value.value

    def function(self, name: str) -> Any:
        return self.d.cuModuleGetFunction(self.modules[name.startswith("fg_")], name.encode())

    def launch(self, name: str, values: tuple[Any, ...], kinds: tuple[Any, ...]) -> int:
        shape = (1, 1, 1, 1, 1, 1, 0)
        function = self.function(name)
        return self.d.code.cuLaunchKernel(function, *shape, self.stream, (values, kinds), 0)

    def kernel(self, name: str, values: tuple[Any, ...], kinds: tuple[Any, ...]) -> Any:
        """Parameters of a kernel node."""
        params = self.d.CUDA_KERNEL_NODE_PARAMS()
        params.func = self.function(name)
        params.gridDimX = params.gridDimY = params.gridDimZ = 1
        params.blockDimX = params.blockDimY = params.blockDimZ = 1
        params.kernelParams = (values, kinds)
        return params

    def fill(self, address: int, value: int, n: int = 1) -> Any:
        """Parameters of a memset node of words."""
        params = self.d.CUDA_MEMSET_NODE_PARAMS()
        params.dst, params.value, params.elementSize = address, value, 4
        params.width, params.height = n, 1
        return params

    def wait(self) -> int:
        return self.d.code.cuStreamSynchronize(self.stream)

    def run(self, exec_: Any) -> int:
        self.d.cuGraphLaunch(exec_, self.stream)
        return self.wait()


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_kernels(tmp_path_factory.mktemp("kernels"))


@pytest.fixture(scope="session")
def fake() -> fake_cuda.Fake:
    if problem := fake_cuda.problem():
        pytest.skip(problem)
    return fake_cuda.load()


@pytest.fixture
def bench(fake: fake_cuda.Fake, image: Path) -> Iterator[Bench]:
    binding = pytest.importorskip("cuda.bindings.driver")
    before = fake.settled()
    made = Bench(fake, Driver(binding), image.read_bytes())
    yield made
    made.close()
    assert fake.live() == before
