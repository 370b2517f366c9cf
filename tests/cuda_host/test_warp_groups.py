"""Products by warp groups of sm_90a: tiles, layouts, ends, and the emulation they run on here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fastgraph.ir import ops
from fastgraph.lower.cuda import matmul, tiles
from fastgraph.lower.cuda.text import source
from fastgraph.lower.cuda.tiles import WgmmaTile
from tests.cuda_host import Fault, Guarded, Kernels, compiler
from tests.cuda_host.lowered import Case, Suite, close

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")

Array = np.ndarray[Any, np.dtype[Any]]
F16, BF16 = np.dtype("f2"), np.dtype(ml_dtypes.bfloat16)


def swap(value: Any) -> Any:
    return ops.transpose(value, (*range(value.ndim - 2), value.ndim - 1, value.ndim - 2))


def lowered(
    name: str,
    tile: tuple[int, int, int, int, int],
    build: Callable[..., Any],
    dtype: Any,
    *shapes: tuple[int, ...],
    parts: int = 1,
) -> Case:
    """The case with this tile alone, K cut into so many parts."""
    rng = np.random.default_rng(11)
    arrays = tuple(rng.normal(size=shape).astype(dtype) for shape in shapes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matmul, "WGMMA", (WgmmaTile(*tile),))
        patch.setattr(matmul, "MMA", ())
        patch.setattr(tiles, "SPLITS", (parts,))
        tiles.choose.cache_clear()
        case = Case(name, build, arrays)
    tiles.choose.cache_clear()
    return case


def cases() -> list[Case]:
    w = np.random.default_rng(12).normal(size=(72, 104)).astype("f2")
    return [
        # Two multiprocessors: a block does several tiles, and its turns go on from one to the next.
        lowered(
            "all of the end", (128, 96, 1, 3, 2), lambda x, w, b, r: ops.gelu(x @ w + b) + r,
            F16, (300, 136), (136, 200), (200,), (300, 200),
        ),
        lowered(
            "residual first", (64, 64, 1, 2, 1), lambda x, w, b, r: ops.relu(x @ swap(w) + b + r),
            BF16, (70, 200), (72, 200), (72,), (70, 72),
        ),
        lowered(
            "w along k", (128, 64, 2, 2, 1), lambda x, w, r: x @ swap(w) + r,
            F16, (300, 72), (136, 72), (300, 136),
        ),
        lowered(
            "odd columns", (128, 128, 2, 2, 1), lambda x, w, b, r: x @ swap(w) + b + r,
            F16, (90, 72), (75, 72), (75,), (90, 75),
        ),
        lowered(
            "both across k", (128, 144, 2, 2, 1), lambda x, w, b: swap(x) @ w + b,
            BF16, (2, 72, 136), (72, 160), (160,),
        ),
        lowered(
            "x across k", (64, 96, 1, 2, 1), lambda x, w: swap(x) @ swap(w),
            F16, (72, 136), (72, 72),
        ),
        lowered(
            "parts of k", (64, 192, 1, 3, 2), lambda x, w, b: ops.relu(x @ w + b),
            F16, (70, 704), (704, 200), (200,), parts=3,
        ),
        # Several turns of a block, of parts of different lengths.
        lowered(
            "short parts", (128, 64, 2, 5, 1), lambda x, w: x @ w,
            F16, (70, 456), (456, 200), parts=3,
        ),
        lowered(
            "parts, odd columns", (64, 64, 1, 2, 2), lambda x, w: x @ swap(w),
            F16, (70, 264), (75, 264), parts=2,
        ),
        lowered(
            "high", (256, 192, 2, 3, 1), lambda x, w: ops.silu(x @ swap(w)),
            F16, (300, 136), (200, 136),
        ),
        lowered(
            "three groups", (192, 64, 3, 2, 1), lambda x, w: x @ w, F16, (200, 64), (64, 72)
        ),
        lowered(
            "narrow", (64, 16, 1, 5, 1), lambda x, w, b: ops.relu(x @ w + b),
            F16, (70, 200), (200, 56), (56,),
        ),
        lowered("broad", (128, 256, 2, 2, 1), lambda x, w: x @ w, F16, (150, 136), (136, 264)),
        lowered(
            "batch", (64, 64, 1, 2, 1), lambda x, w: x @ w, F16, (3, 1, 40, 72), (2, 72, 104)
        ),
        lowered(
            "constant w", (64, 64, 1, 4, 1), lambda x, b: ops.relu(x @ w + b),
            F16, (70, 72), (104,),
        ),
    ]  # fmt: skip


CASES = {case.name: case for case in cases()}


@pytest.fixture(scope="module")
def suite() -> Suite:
    return Suite(CASES.values())


@pytest.mark.parametrize("name", CASES)
def test_products(name: str, suite: Suite) -> None:
    case = CASES[name]
    product = next(call.code for call in case.calls if call.code.name == "matmul")
    assert product.entry.startswith("matmul_wgmma") and product.arch == "sm_90a"
    (expected,) = case.expected()
    found = [suite.run(case, seed, inplace=seed > 0)[0] for seed in (0, 3, 4)]
    close(found[0], expected, scale=2.0)
    assert len({each.tobytes() for each in found}) == 1


def test_they_are_for_rows_at_multiples_of_16_bytes() -> None:
    for shapes in (((70, 68), (68, 104)), ((70, 72), (72, 100))):
        with pytest.raises(AssertionError, match="the smallest tile fits"):
            lowered("odd rows", (64, 64, 1, 2, 1), lambda x, w: x @ w, F16, *shapes)


# One product of 64 x 64 x 64, by way of operands that lie as they are told.
ONE = """
template <bool A, bool B>
__global__ void one(const f16 *a, const f16 *b, float *d, int commit, int pending) {
  FG_DYNAMIC_SHARED(shared);
  const int thread = threadIdx.x;
  for (int i = thread; i < 512; i += 128) {
    const int at = swizzled<8>(i / 8, i % 8);
    memcpy(shared + at, a + i * 8, 16);
    memcpy(shared + 8192 + at, b + i * 8, 16);
  }
  fence_async();
  __syncthreads();
  f32 sums[32] = {};
  wgmma_fence();
  for (int k = 0; k < 4; k++)
    wgmma_64<f16, 64, A, B>(sums, describe_panel(shared) + k * NEXT_PANEL_16<A>,
                            describe_panel(shared + 8192) + k * NEXT_PANEL_16<B>, k > 0);
  if (commit) wgmma_commit();
  if (pending == 0) wgmma_wait<0>();
  for (int j = 0; j < 8; j++)
    for (int i = 0; i < 4; i++)
      d[(thread / 32 * 16 + thread % 32 / 4 + i / 2 * 8) * 64 + j * 8 + thread % 4 * 2 + i % 2] =
          sums[j * 4 + i];
  if (pending) wgmma_wait<0>();
}
__global__ void turns(const int *x, int *y, int arrivals, int parity) {
  FG_DYNAMIC_SHARED(shared);
  u64 *full = (u64 *)(shared + 1024);
  if (threadIdx.x == 0 && arrivals) barrier_init(full, arrivals);
  __syncthreads();
  if (threadIdx.x < 32) {
    cp_async<16>(shared + threadIdx.x * 16, x + threadIdx.x * 4);
    cp_async_arrive(full);
  } else {
    barrier_wait(full, parity);
    const int *place = (int *)shared + (threadIdx.x - 32) * 4;
    for (int i = 0; i < 4; i++) y[(threadIdx.x - 32) * 4 + i] = place[i];
  }
}
"""
HEAD = source("tiles.cuh", "wgmma.cuh")
# Rows of eight that are said to lie elsewhere; pieces that are not where they are looked for.
WRONG = {
    "stride": (HEAD.replace("(u64)(1024 >> 4) << 32", "(u64)(2048 >> 4) << 32"), ONE),
    "swizzle": (HEAD, ONE.replace("swizzled<8>(i / 8, i % 8)", "i * 16")),
    "advance": (HEAD.replace("16 * 128 : 32", "16 * 128 : 64"), ONE),
}


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    codes = [(HEAD + ONE, f"one<{a}, {b}>") for a in ("false", "true") for b in ("false", "true")]
    codes += [("".join(texts), "one<false, false>") for texts in WRONG.values()]
    return Kernels([*codes, (HEAD + ONE, "turns")], [source()])


def product(kernels: Kernels, code: tuple[str, str], commit: int = 1, pending: int = 0) -> float:
    """The largest error of a product."""
    rng = np.random.default_rng(13)
    a, b = (rng.normal(size=(64, 64)).astype("f2") for _ in range(2))
    d = Guarded(np.zeros((64, 64), "f4"))
    arguments = [Guarded(a), Guarded(b), d, np.int32(commit), np.int32(pending)]
    kernels.launch(code, (1, 1, 1), (128, 1, 1), arguments, shared_bytes=32768, seed=1)
    left = a.astype("f4") if code[1].startswith("one<false") else a.astype("f4").T
    right = b.astype("f4").T if code[1].endswith("false>") else b.astype("f4")
    return float(np.abs(d.array - left @ right).max())


@pytest.mark.parametrize("a", ["false", "true"])
@pytest.mark.parametrize("b", ["false", "true"])
def test_operands_lie_either_way(kernels: Kernels, a: str, b: str) -> None:
    assert product(kernels, (HEAD + ONE, f"one<{a}, {b}>")) < 1e-3


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_description_gives_wrong_numbers(kernels: Kernels, name: str) -> None:
    assert not product(kernels, ("".join(WRONG[name]), "one<false, false>")) < 1.0


def test_sums_are_there_when_they_have_been_waited_for(kernels: Kernels) -> None:
    assert product(kernels, (HEAD + ONE, "one<false, false>"), pending=1) > 1.0
    with pytest.raises(Fault, match="before its asynchronous products"):
        product(kernels, (HEAD + ONE, "one<false, false>"), commit=0)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_copies_arrive_at_barriers(kernels: Kernels, seed: int) -> None:
    x = Guarded(np.arange(128, dtype="i4"))

    def run(arrivals: int, parity: int) -> Array:
        y = Guarded(np.zeros(128, "i4"))
        arguments = [x, y, np.int32(arrivals), np.int32(parity)]
        kernels.launch("turns", (1, 1, 1), (64, 1, 1), arguments, shared_bytes=1032, seed=seed)
        return y.array.copy()

    np.testing.assert_array_equal(run(32, 0), x.array)
    # The phase before the first counts as over: nothing is waited for, and nothing has come.
    assert (run(32, 1) == -1).all()
    with pytest.raises(Fault, match="waits forever"):
        run(33, 0)
    with pytest.raises(Fault, match="was not made"):
        run(0, 0)
