"""The seam to cuBLASLt: what is found, what is refused, and what is left of a call that fails."""

from __future__ import annotations

import ctypes
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import blas, counters
from fastgraph.device.cuda import cublas as module
from fastgraph.device.cuda.backend import open_device
from tests import conftest
from tests.fake_cublas import load

pytestmark = pytest.mark.fake

WANTED = {
    "kind": "f32", "result": "f32", "tf32": False, "matrices": 3, "m": 8, "n": 16, "k": 4,
    "x_transposed": False, "w_transposed": True, "x_step": 32, "w_step": 64,
    "bias": True, "activation": "relu", "residual": False,
}  # fmt: skip
# The functions that a plan and a call of it go through, and how often.
OF_A_PLAN = {
    "MatmulDescCreate": 1,
    "MatmulDescSetAttribute": 4,
    "MatrixLayoutCreate": 3,
    "MatrixLayoutSetAttribute": 6,
    "MatmulPreferenceCreate": 1,
    "MatmulPreferenceSetAttribute": 6,
    "MatmulAlgoGetHeuristic": 1,
}


def found_library():
    """The fake one, through the loader's handle."""
    fake = load()
    return blas.Library(fake.handle, str(fake.path))


# ---- finding it


def test_a_finder_gives_handle_and_path(monkeypatch, real_locate):
    finder = SimpleNamespace(
        load_nvidia_dynamic_lib=lambda name: SimpleNamespace(_handle_uint=5, abs_path=f"/{name}")
    )
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", finder)
    assert real_locate() == (5, "/cublasLt")


@pytest.mark.parametrize("error", [RuntimeError, OSError, ImportError])
def test_a_library_that_is_not_there_is_no_error(monkeypatch, real_locate, error):
    def refuse(name):
        raise error(name)

    finder = SimpleNamespace(load_nvidia_dynamic_lib=refuse)
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", finder)
    monkeypatch.setattr(module, "locate", real_locate)
    monkeypatch.setattr(module, "_known", [])
    assert module.library() is None
    assert module.DeviceBlas(open_device(0).gpu).plan(**WANTED) is None


def test_without_a_finder_there_is_none(monkeypatch, real_locate):
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    assert real_locate() is None


@pytest.mark.parametrize("number", [110601, 140000])
def test_other_releases_are_refused_with_one_warning(monkeypatch, cublas, number):
    cublas.version(number)
    with pytest.warns(fg.FastGraphWarning, match=rf"is cuBLASLt {number // 10000}\..* 12.0 to 13"):
        assert module.library() is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert module.library() is None


def test_a_library_without_a_function_is_named():
    other = ctypes.CDLL(None)
    with pytest.raises(fg.UnsupportedError, match=r"libother is no .* cublasLtGetVersion"):
        blas.Library(other._handle, "libother")


def test_the_version():
    library = found_library()
    assert library.version == (13, 1, 0)
    assert library.words == "13.1.0"
    assert library.path.endswith("libcublasLt.so.13")


# ---- failing calls


def test_one_that_does_not_start_is_an_error_and_is_started_again(cublas):
    before = cublas.live()
    on_device = module.DeviceBlas(open_device(0).gpu)
    cublas.fail("Create", 1)
    with pytest.raises(fg.DriverError, match=r"NOT_INITIALIZED.*cublas=False") as caught:
        on_device.plan(**WANTED)
    assert (caught.value.code, caught.value.name) == (1, "CUBLAS_STATUS_NOT_INITIALIZED")
    assert cublas.live() == before
    assert on_device.plan(**WANTED).workspace_nbytes == 0
    assert cublas.live() == before + 1


@pytest.mark.parametrize("name", OF_A_PLAN)
def test_a_call_of_a_plan_that_fails_leaves_nothing(cublas, name):
    on_device = open_device(0).blas
    on_device.plan(**WANTED)
    before = cublas.live(), counters.snapshot()
    for count in range(1, OF_A_PLAN[name] + 1):
        cublas.fail(name, 14, count)
        with pytest.raises(fg.DriverError, match="INTERNAL_ERROR"):
            on_device.plan(**WANTED)
        assert (cublas.live(), counters.snapshot()) == before
    calls = cublas.calls(name)
    assert on_device.plan(**WANTED) is not None
    assert cublas.calls(name) == calls + OF_A_PLAN[name]


def test_memory_that_runs_out_is_told_as_such(cublas):
    cublas.fail("MatmulAlgoGetHeuristic", 3)
    with pytest.raises(fg.OutOfMemoryError, match="ALLOC_FAILED"):
        open_device(0).blas.plan(**WANTED)


@pytest.mark.parametrize("status", [8, 15])
def test_a_product_without_an_algorithm_is_no_error(cublas, status):
    cublas.fail("MatmulAlgoGetHeuristic", status)
    assert open_device(0).blas.plan(**WANTED) is None
    assert open_device(0).blas.plan(**WANTED) is not None


def test_a_call_that_fails_in_its_capture_leaves_nothing(cublas):
    fake = conftest.FAKE
    planned = open_device(0).blas.plan(**WANTED)
    ctx = fg.DeviceContext("cuda")
    addresses = tuple(ctx.create_buffer(512).ptr for _ in range(4))
    before = fake.settled()
    cublas.fail("Matmul", 13)
    with pytest.raises(fg.DriverError, match="enqueuing a product: CUBLAS_STATUS_EXECUTION_FAILED"):
        planned.again(addresses)
    assert fake.live() == before
    made = planned.again(addresses)
    assert made.handle
    assert fake.live()["graphs"] == before["graphs"] + 1
    del made
    assert fake.live() == before


def test_addresses_that_were_not_promised_are_refused(cublas):
    planned = open_device(0).blas.plan(**WANTED)
    ctx = fg.DeviceContext("cuda")
    good = [ctx.create_buffer(512).ptr for _ in range(4)]
    for i in range(4):
        addresses = [address + 8 * (i == j) for j, address in enumerate(good)]
        with pytest.raises(fg.DriverError, match="INVALID_VALUE"):
            planned.again(tuple(addresses))


def test_products_are_made_by_the_library_alone():
    with pytest.raises(TypeError):
        blas.Product()


def test_outside_of_graphs_it_is_work_on_a_stream(cublas):
    planned = open_device(0).blas.plan(**WANTED)
    ctx = fg.DeviceContext("cuda")
    rng = np.random.default_rng(0)
    x, w, bias = (rng.standard_normal(s).astype("f4") for s in ((3, 8, 4), (3, 16, 4), 16))
    y = ctx.create_buffer((3, 8, 16))
    given = [ctx.to_device(a) for a in (x, w, bias)]
    planned.enqueue(ctx.stream, tuple(buffer.ptr for buffer in (y, *given)))
    ctx.synchronize()
    wanted = np.maximum(x @ w.transpose(0, 2, 1) + bias, 0)
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-5, atol=1e-5)
