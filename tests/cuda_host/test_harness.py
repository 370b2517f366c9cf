"""The harness: what runs, and that each mistake is seen."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from fastgraph.lower.cuda.text import source
from tests.cuda_host import Fault, Guarded, Kernels, compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")

TEXT = Path(__file__).with_name("kernels.cu").read_text()
ENTRIES = (
    *("convert_f16", "round_to<f16>", "round_to<bf16>", "double_to_half"),
    *("sums<f16>", "sums<bf16>", "sums<i64>", "product<f16>", "product<bf16>", "product_tf32"),
    *("pass_on<false>", "pass_on<true>"),
    *("reverse", "reverse_without_barrier", "lanes", "some_at_a_barrier", "different_meetings"),
    *(
        "ended_lane",
        "waits_sometimes",
        "misaligned",
        "copies_unwaited",
        "writes_at",
        "faults",
        "reads_before",
    ),
)
BF16 = np.dtype(ml_dtypes.bfloat16)
ONE = (1, 1, 1)


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    common = source("cluster.cuh")
    return Kernels([(common + TEXT, entry) for entry in ENTRIES], [common])


def test_every_half_widens_and_comes_back(kernels: Kernels) -> None:
    every = np.arange(65536, dtype="u2").view("f2")
    x, wide, back = Guarded(every), Guarded(np.zeros(65536, "f4")), Guarded(np.zeros(65536, "f2"))
    kernels.launch("convert_f16", ONE, (64, 1, 1), [x, wide, back, np.int32(65536)])
    np.testing.assert_array_equal(wide.array, every.astype("f4"))
    np.testing.assert_array_equal(back.array, every)


@pytest.mark.parametrize(("name", "dtype"), [("f16", np.dtype("f2")), ("bf16", BF16)])
def test_narrowing_rounds_to_nearest_even(kernels: Kernels, name: str, dtype: np.dtype) -> None:
    bits = np.random.default_rng(3).integers(0, 2**32, 5000, dtype="u4")
    # Near the halves, where ties lie, and at the ends.
    near = np.random.default_rng(4).normal(size=2000).astype("f2").astype("f4")
    ties = (near.view("u4") + np.uint32(0x1000)).view("f4")
    ends = np.float32([0, -0.0, 65519, 65520, -65536, 6e-8, 2.9e-8, 3e-8, np.inf, -np.inf, np.nan])
    x = Guarded(np.concatenate([bits.view("f4"), near, ties, ends]))
    y = Guarded(np.zeros(x.array.size, dtype))
    kernels.launch(f"round_to<{name}>", ONE, (32, 1, 1), [x, y, np.int32(x.array.size)])
    with np.errstate(over="ignore", invalid="ignore"):
        expected = x.array.astype(dtype)
    np.testing.assert_array_equal(y.array.astype("f4"), expected.astype("f4"))
    assert (np.signbit(y.array) == np.signbit(expected))[~np.isnan(x.array)].all()


def test_doubles_are_rounded_once(kernels: Kernels) -> None:
    x = Guarded(np.float64([1 + 2**-11 + 2**-40, 2**-24 * 0.5000001, -(2.0**-25), 1e300, 2047.5]))
    y = Guarded(np.zeros(5, "f2"))
    kernels.launch("double_to_half", ONE, (32, 1, 1), [x, y, np.int32(5)])
    with np.errstate(over="ignore", under="ignore"):
        np.testing.assert_array_equal(y.array, x.array.astype("f2"))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_blocks_reduce(kernels: Kernels, seed: int) -> None:
    x = np.arange(300)
    for name, dtype in (("f16", "f2"), ("bf16", BF16), ("i64", "i8")):
        operand, y = Guarded(x.astype(dtype)), Guarded(np.zeros(3, dtype))
        kernels.launch(f"sums<{name}>", (3, 1, 1), (256, 1, 1), [operand, y, np.int32(300)],
                       seed=seed, must_wait=True)  # fmt: skip
        expected = operand.array.astype("f8").sum().astype(dtype)
        assert (y.array == expected).all()


@pytest.mark.parametrize(("name", "dtype"), [("f16", np.dtype("f2")), ("bf16", BF16)])
def test_matrix_units(kernels: Kernels, name: str, dtype: np.dtype) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.normal(size=size).astype(dtype) for size in ((16, 16), (16, 8)))
    d = Guarded(np.zeros((16, 8), "f4"))
    kernels.launch(f"product<{name}>", ONE, (32, 1, 1), [Guarded(a), Guarded(b), d], seed=1)
    np.testing.assert_allclose(d.array, a.astype("f4") @ b.astype("f4") + 1, rtol=1e-5, atol=1e-5)


def test_tf32_has_ten_bits(kernels: Kernels) -> None:
    rng = np.random.default_rng(6)
    a, b = rng.normal(size=(16, 8)).astype("f4"), rng.normal(size=(8, 8)).astype("f4")
    d = Guarded(np.zeros((16, 8), "f4"))
    kernels.launch("product_tf32", ONE, (32, 1, 1), [Guarded(a), Guarded(b), d])
    error = np.abs(d.array - a @ b)
    assert 1e-5 < error.max() < 1e-2


def test_lanes_exchange(kernels: Kernels) -> None:
    y = Guarded(np.zeros(176, "i4"))
    kernels.launch("lanes", ONE, (32, 1, 1), [y], seed=7)
    lane = np.arange(32)
    np.testing.assert_array_equal(y.array[:32], np.minimum(lane + 1, 31))
    np.testing.assert_array_equal(y.array[32:64], np.where(lane < 2, lane, lane - 2))
    np.testing.assert_array_equal(y.array[64:96], lane ^ 5)
    np.testing.assert_array_equal(y.array[96:128], lane // 8 * 8 + 3)
    assert (y.array[128:160] == sum(1 << i for i in range(0, 32, 3))).all()
    assert (y.array[160:] == 15).all()


def test_dynamic_shared_memory(kernels: Kernels) -> None:
    x, y = Guarded(np.arange(200, dtype="i4")), Guarded(np.zeros(200, "i4"))
    kernels.launch("reverse", ONE, (200, 1, 1), [x, y], shared_bytes=800, seed=3)
    np.testing.assert_array_equal(y.array, x.array[::-1])


def test_blocks_of_a_cluster_see_each_other(kernels: Kernels) -> None:
    before = np.arange(8) // 4 * 4 + (np.arange(8) - 1) % 4
    wanted = np.stack([before.repeat(32), np.tile(np.arange(32), 8)], axis=1)
    for seed in (0, 1, 2):
        y = Guarded(np.zeros((256, 2), "f4"))
        given = {"shared_bytes": 520, "cluster": 4, "seed": seed}
        kernels.launch("pass_on<true>", (8, 1, 1), (32, 1, 1), [y, np.int32(32)], **given)
        np.testing.assert_array_equal(y.array, wanted)


@pytest.mark.parametrize(
    ("begun", "grid", "pieces", "complaint"),
    [
        ("false", 8, 32, "which is no memory"),  # Blocks that have not begun.
        ("true", 8, 33, "waits forever"),
        ("true", 6, 32, "a size that no device takes"),
    ],
)
def test_what_blocks_of_a_cluster_must_not_do(
    kernels: Kernels, begun: str, grid: int, pieces: int, complaint: str
) -> None:
    arguments = [Guarded(np.zeros((256, 2), "f4")), np.int32(pieces)]
    given = {"shared_bytes": 520, "cluster": 4}
    with pytest.raises(Fault, match=complaint):
        kernels.launch(f"pass_on<{begun}>", (grid, 1, 1), (32, 1, 1), arguments, **given)


def test_a_missing_barrier_is_seen(kernels: Kernels) -> None:
    x, y = Guarded(np.arange(256, dtype="i4")), Guarded(np.zeros(256, "i4"))
    kernels.launch("reverse_without_barrier", ONE, (256, 1, 1), [x, y])
    # What was not yet written is 0xff in every byte.
    assert (y.array[:128] == -1).all()


def test_faults_of_data(kernels: Kernels) -> None:
    fault = Guarded(np.zeros(1, "u8"))
    kernels.launch("faults", ONE, (32, 1, 1), [fault, np.uint64(40)])
    assert fault.array[0] == 41


@pytest.mark.parametrize(
    ("entry", "threads", "arguments", "complaint"),
    [
        ("some_at_a_barrier", 64, [Guarded], "waits forever"),
        ("different_meetings", 32, [], "meet at different places"),
        ("ended_lane", 32, [], "a lane that has ended"),
        ("waits_sometimes", 32, [], "without fg_wait"),
        ("misaligned", 1, [Guarded, Guarded], "misaligned"),
        ("writes_at", 1, [Guarded, np.int32(64)], "which is no memory"),
        ("writes_at", 1, [Guarded, np.int32(-1)], "wrote outside"),
        ("writes_at", 1, [Guarded, np.int32(-2000)], "which is no memory"),
        ("writes_at", 1, [Guarded], "parameters of"),
        ("writes_at", 1, [Guarded, np.int64(1)], "parameters of"),
        ("writes_at", 1025, [Guarded, np.int32(1)], "that no device takes"),
    ],
)
def test_a_mistake_is_a_fault(
    kernels: Kernels, entry: str, threads: int, arguments: list, complaint: str
) -> None:
    given = [Guarded(np.zeros(64, "f4")) if a is Guarded else a for a in arguments]
    with pytest.raises(Fault, match=complaint):
        kernels.launch(entry, ONE, (threads, 1, 1), given, must_wait=entry == "waits_sometimes")


def test_copies_come_when_they_are_waited_for(kernels: Kernels) -> None:
    x, y = Guarded(np.arange(4, dtype="i4")), Guarded(np.zeros(4, "i4"))
    kernels.launch("copies_unwaited", ONE, (1, 1, 1), [x, y])
    assert y.array[0] == -1


def test_what_is_read_before_the_wait_is_seen(kernels: Kernels) -> None:
    x, y = Guarded(np.arange(64, dtype="i4")), Guarded(np.zeros(64, "i4"))
    # What does not change during a run may be read at any time.
    kernels.launch("reads_before", ONE, (64, 1, 1), [x, y], must_wait=True, hidden=[y])
    np.testing.assert_array_equal(y.array, x.array)
    with pytest.raises(Fault, match="before fg_wait"):
        kernels.launch("reads_before", ONE, (64, 1, 1), [x, y], must_wait=True, hidden=[x, y])
    assert x.array[63] == 63


@pytest.mark.parametrize("align", [1, 2, 4, 8, 16, 64])
def test_operands_are_aligned_as_asked(align: int) -> None:
    operand = Guarded(np.zeros(3, "u1"), align)
    assert operand.address % align == 0
    assert align == 64 or operand.address % (2 * align)
    assert operand.untouched()
