"""Matrix products for cuda: lowered, run on the host, compared with the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fastgraph.errors import CompileError
from fastgraph.ir import Graph, ops
from fastgraph.lower.call import Alias
from fastgraph.lower.cuda import LOWERINGS
from fastgraph.lower.cuda.call import CudaCall
from fastgraph.lower.cuda.registry import Target
from fastgraph.lower.cuda.tiles import MMA, SIMT, Shape, choose
from fastgraph.lower.storage import Roots
from fastgraph.passes import optimise
from tests.cuda_host import compiler
from tests.cuda_host.lowered import SMALL, Case, Suite, close

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")

Array = np.ndarray[Any, np.dtype[Any]]
F16, BF16, F32 = np.dtype("f2"), np.dtype(ml_dtypes.bfloat16), np.dtype("f4")
H200 = replace(SMALL, multiprocessors=132)


def swap(value: Any) -> Any:
    return ops.transpose(value, (*range(value.ndim - 2), value.ndim - 1, value.ndim - 2))


def data(dtype: Any, *shapes: tuple[int, ...]) -> tuple[Array, ...]:
    rng = np.random.default_rng(7)
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return tuple(rng.integers(info.min, info.max, s, dtype, endpoint=True) for s in shapes)
    return tuple(rng.normal(size=s).astype(dtype) for s in shapes)


def cases() -> list[Case]:
    found = []

    def add(
        name: str,
        build: Callable[..., Any],
        dtype: Any,
        *shapes: tuple[int, ...],
        target: Target = SMALL,
    ) -> None:
        found.append(Case(name, build, data(dtype, *shapes), target))

    # All of the end, and sizes that no tile divides; on few multiprocessors K stays in one piece.
    for dtype, name in ((F16, "f16"), (F32, "f32")):
        add(
            name, lambda x, w, b, r: ops.gelu(x @ w + b) + r,
            dtype, (70, 72), (72, 44), (44,), (70, 44),
        )  # fmt: skip
        add(
            f"{name}, w along k",
            lambda x, w, r: x @ swap(w) + r,
            dtype,
            (130, 72),
            (44, 72),
            (130, 44),
        )
        add(
            f"{name}, x across k", lambda x, w, b: swap(x) @ w + b, dtype, (72, 70), (72, 33), (33,)
        )
        add(f"{name}, both", lambda x, w: swap(x) @ swap(w), dtype, (2, 24, 70), (31, 24))
        add(f"{name}, odd rows", lambda x, w: ops.relu(x @ w), dtype, (33, 7), (7, 3))
        add(
            f"{name}, long", lambda x, w, b: ops.relu(x @ w + b),
            dtype, (20, 1100), (1100, 36), (36,), target=H200,
        )  # fmt: skip
        # Nothing to add up, one column.
        add(
            f"{name}, k of 0", lambda x, w, b, r: ops.gelu(x @ w + b) + r,
            dtype, (70, 0), (0, 44), (44,), (70, 44),
        )  # fmt: skip
        add(f"{name}, one column", lambda x, w: x @ w, dtype, (40, 72), (72, 1))
        # Few rows: w is streamed, along K and across it, in one part and in several.
        for m, along, t in ((1, True, H200), (13, True, SMALL), (3, False, H200)):
            add(
                f"{name}, {m} rows",
                (lambda x, w, b, r: ops.relu(x @ swap(w) + b + r))
                if along
                else (lambda x, w, b, r: ops.relu(x @ w + b + r)),
                dtype, (m, 1320), (136, 1320) if along else (1320, 136), (136,), (m, 136), target=t,
            )  # fmt: skip
        # What no run writes is read before the wait.
        (tall, long) = data(dtype, (72, 44), (1320, 136))
        add(
            f"{name}, constant w", lambda x, b, r, w=tall: ops.gelu(x @ w + b) + r,
            dtype, (70, 72), (44,), (70, 44),
        )  # fmt: skip
        add(
            f"{name}, 3 rows by a constant", lambda x, b, r, w=long: ops.relu(x @ w + b + r),
            dtype, (3, 1320), (136,), (3, 136), target=H200,
        )  # fmt: skip
        add(f"{name}, rows of a batch", lambda x, w: x @ w, dtype, (3, 2, 40), (3, 40, 72))
        add(f"{name}, a column", lambda x, w: x @ w, dtype, (2, 40, 72), (2, 72, 1))
    add(
        "f16, narrow",
        lambda x, w: x @ w,
        F16,
        (3, 52),
        (52, 72),
        target=replace(SMALL, multiprocessors=4),
    )
    add("bf16", lambda x, w: x @ w, BF16, (3, 1, 20, 30), (2, 30, 50))
    add("bf16, batches", lambda x, w: ops.silu(x @ w), BF16, (2, 3, 4, 30), (2, 3, 30, 50))
    for name, build, shapes in (
        ("tf32", lambda x, w, r: x @ w + r, ((70, 72), (72, 44), (70, 44))),
        ("tf32, both", lambda x, w: swap(x) @ swap(w), ((2, 24, 70), (31, 24))),
        ("tf32, long", lambda x, w: x @ w, ((20, 1100), (1100, 36))),
    ):
        few = replace(H200 if "long" in name else SMALL, tf32=True)
        add(name, build, F32, *shapes, target=few)
    add("f64", lambda x, w, r: x @ w + r, "f8", (70, 33), (33, 9), (70, 9))
    add("f64, k of 0", lambda x, w, r: x @ w + r, "f8", (3, 0), (0, 9), (3, 9))
    add("i8", lambda x, w, b: ops.relu(x @ swap(w) + b), "i1", (4, 30, 20), (4, 33, 20), (33,))
    add("u64", lambda x, w: swap(x) @ w, "u8", (7, 20), (7, 9))
    return found


CASES = {case.name: case for case in cases()}


@pytest.fixture(scope="module")
def suite() -> Suite:
    return Suite(CASES.values())


@pytest.mark.parametrize("name", CASES)
def test_products(name: str, suite: Suite) -> None:
    case = CASES[name]
    for seed, inplace in ((0, False), (5, True)):
        for found, wanted in zip(suite.run(case, seed, inplace), case.expected(), strict=True):
            # Sums of up to 1,320 products; in tf32 each of numbers with ten bits.
            scale = 30.0 if found.dtype.itemsize >= 4 else 1.0
            close(found, wanted, scale=1e4 if case.target.tf32 else scale)


def test_tf32_is_used_only_where_it_is_asked_for() -> None:
    for case in CASES.values():
        assert case.target.tf32 == ("tf32" in case.calls[0].code.entry)


# Weights that the set program turns first.
TURNED = {"f16, constant w", "f16, 3 rows by a constant", "f32, 3 rows by a constant"}


def product_of(name: str) -> list[CudaCall]:
    """The calls of a case's product, without the one that turns its weight."""
    calls = CASES[name].calls
    if name in TURNED:
        assert calls[0].code.entry == "transpose"
        return calls[1:]
    return calls


def test_the_end_is_part_of_the_product() -> None:
    for name in CASES:
        if name == "i8":  # Only floats are fused.
            continue
        calls = product_of(name)
        count = 2 if calls[0].grid[1] > 1 else 1
        kernels = [call for call in calls if call.code.name == "matmul"]
        assert len(kernels) == len(calls) == count, name


def test_a_long_k_is_cut_and_added_up_in_order(suite: Suite) -> None:
    for name in ("f16, long", "f32, long", "f16, 3 rows", "f32, 3 rows"):
        first, second = CASES[name].calls
        assert first.grid[1] > 1
        assert first.outs == second.ins[:1]
        once, again = (suite.run(CASES[name], seed)[0] for seed in (1, 2))
        assert once.tobytes() == again.tobytes()


@pytest.mark.parametrize("name", ["f16", "f32", "f64"])
def test_nan_and_infinity_stay_in_their_rows(name: str, suite: Suite) -> None:
    case = CASES[name]
    x, w, *rest = (array.copy() for array in case.arrays)
    x[3, 5], x[69, 0], w[2, 7] = np.nan, np.inf, -np.inf
    spoilt = Case(name, case.build, (x, w, *rest))
    (found,), (wanted,) = suite.run(spoilt), spoilt.expected()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(wanted))


def calls_of(graph: Graph, target: Target) -> list[CudaCall]:
    node = optimise(graph, pack=False).graph.nodes[-1]
    return [call for call in LOWERINGS[node.op](node, target) if isinstance(call, CudaCall)]


def test_views_at_odd_addresses_are_read_by_elements() -> None:
    graph = Graph()
    whole = graph.input("whole", (5000,), "float16")
    graph.output(graph.input("x", (8, 64), "float16") @ graph.input("w", (64, 64), "float16"))
    node = optimise(graph, pack=False).graph.nodes[-1]
    target = replace(H200, roots=Roots())
    target.roots.add(Alias(node.inputs[0], whole, 6))
    assert "false, false, 2, 16, " in calls_of_node(node, target)
    target.roots.add(Alias(node.inputs[1], whole, 2008))
    assert "false, false, 2, 8, " in calls_of_node(node, target)


def calls_of_node(node: Any, target: Target) -> str:
    return str(LOWERINGS[node.op](node, target)[0].code.entry)


def test_too_many_axes_are_refused() -> None:
    shape = (1, 2) * 9
    graph = Graph()
    graph.output(graph.input("x", (*shape, 1, 2)) @ graph.input("w", (*shape[::-1], 2, 1)))
    with pytest.raises(CompileError, match="at most 8 are supported; broadcast_to one"):
        calls_of(graph, H200)


def test_nothing_is_launched_for_no_elements() -> None:
    graph = Graph()
    graph.output(graph.input("x", (0, 3)) @ graph.input("w", (3, 4)))
    assert not calls_of(graph, H200)


def test_a_residual_may_be_overwritten_only_where_it_is_no_other_operand() -> None:
    for again, pairs in ((False, ((0, 2),)), (True, ())):
        graph = Graph()
        x, w, r = (graph.input(name, (64, 64)) for name in "xwr")
        graph.output((r if again else x) @ w + r)
        assert calls_of(graph, SMALL)[0].inplace == pairs


def test_constant_weights_are_read_ahead() -> None:
    flag = -3  # w_constant among the arguments
    for name in CASES:
        wanted, first = "constant" in name, product_of(name)[0]
        assert first.arguments[flag] == ("value", bytes([wanted, 0, 0, 0])) or (
            first.code.entry.startswith("matmul_plain")
        )
    for declare, wanted in ((Graph.param, 1), (Graph.input, 0)):
        graph = Graph()
        graph.output(graph.input("x", (64, 64)) @ declare(graph, "w", (64, 64)))
        (call,) = calls_of(graph, SMALL)
        assert call.arguments[flag] == ("value", bytes([wanted, 0, 0, 0]))


def test_what_the_set_program_gives_is_constant_in_a_run_alone() -> None:
    graph = Graph()
    set_product = graph.param("v", (64, 64)) @ graph.param("w", (64, 64))
    product = graph.input("x", (64, 64)) @ set_product
    graph.output(product)
    target = replace(H200, is_set={set_product.node})
    assert target.is_constant(set_product, product.node)
    assert not target.is_constant(set_product, set_product.node)
    assert target.is_constant(graph.params[0], set_product.node)
    assert not target.is_constant(graph.inputs[0], product.node)


def test_tiles_fill_the_device() -> None:
    for shape in (Shape(1, 4096, 4096, 4096), Shape(1, 128, 384, 1536), Shape(12, 128, 128, 32)):
        for tiles in (MMA, SIMT):
            tile, k_part, splits = choose(tiles, shape, 132, 227 << 10)
            blocks = shape.matrices * -(-shape.m // tile.bm) * -(-shape.n // tile.bn) * splits
            assert 3 * blocks >= 2 * 132 or min(tile.bm, tile.bn) <= 32
            assert k_part * splits >= shape.k > k_part * (splits - 1)


def test_a_small_device_gets_tiles_that_fit() -> None:
    tile = choose(MMA, Shape(1, 4096, 4096, 4096), 100, 64 << 10)[0]
    assert tile.shared_bytes <= 64 << 10
