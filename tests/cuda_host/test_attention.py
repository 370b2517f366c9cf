"""Attention for cuda: lowered, run on the host, compared with the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fastgraph.errors import CompileError
from fastgraph.ir import Graph, ops
from fastgraph.ir.ops.arguments import node
from fastgraph.ir.ops.fused_attention import AttentionSizes, Place
from fastgraph.lower.cuda import LOWERINGS, attention
from fastgraph.lower.cuda.registry import Target
from fastgraph.lower.cuda.tiles import GroupTile
from fastgraph.passes import optimise
from tests.cuda_host import compiler
from tests.cuda_host.lowered import SMALL, Case, Suite, close

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")

Array = np.ndarray[Any, np.dtype[Any]]
F16, BF16, F32, F64 = np.dtype("f2"), np.dtype(ml_dtypes.bfloat16), np.dtype("f4"), np.dtype("f8")
H200 = replace(SMALL, multiprocessors=132)
A100 = replace(H200, arch="sm_80", capability=(8, 0))


def case(
    name: str,
    dtype: Any,
    q: tuple[int, int, int, int],
    kv: tuple[int, int, int, int] | None = None,
    *,
    value: int | None = None,
    mask: Array | None = None,
    target: Target = SMALL,
    **options: Any,
) -> Case:
    """A case of q, and of k and v of shape `kv`, with v's elements `value`."""
    rng = np.random.default_rng(11)
    kv = kv or q
    v = kv if value is None else (*kv[:3], value)
    arrays = [rng.normal(size=shape).astype(dtype) for shape in (q, kv, v)]
    if mask is not None:
        arrays.append(mask if mask.dtype == np.bool_ else mask.astype(dtype))
    return Case(name, lambda *x: ops.attention(*x, **options), tuple(arrays), target)


def in_place(name: str, dtype: Any, rows_first: bool) -> Case:
    """Operands where one product left them: (batch, positions, q k v, heads, elements)."""
    batch, queries, heads, length = 2, 37, 3, 32
    step = 3 * heads * length
    attrs = {
        "sizes": AttentionSizes(batch, heads, heads, queries, queries, length, length),
        **{
            part: Place(0, i * heads * length, queries * step, length, step)
            for i, part in enumerate("qkv")
        },
        "mask": None,
        "rows_first": rows_first,
        "scale": 0.2,
        "softcap": None,
        "lower": None,
        "upper": 0,
    }
    array = np.random.default_rng(13).normal(size=(batch, queries, step)).astype(dtype)
    return Case(name, lambda x: node("fused_attention", [x], attrs).outputs[0], (array,))


def cases() -> list[Case]:
    rng = np.random.default_rng(12)
    keep = rng.random((2, 1, 40, 75)) < 0.7
    keep[1, 0, 5] = False  # A query that sees no key.
    bias = rng.normal(size=(4, 1, 75))
    found = []
    for dtype, name in ((F16, "f16"), (F32, "f32")):
        shapes = (2, 4, 40, 24), (2, 2, 75, 24)
        found += [
            case(name, dtype, *shapes),
            case(f"{name}, causal", dtype, *shapes, is_causal=True),
            case(f"{name}, window", dtype, *shapes, window=9, is_causal=True),
            case(f"{name}, window on both sides", dtype, *shapes, window=50),
            case(f"{name}, more queries", dtype, (1, 2, 90, 24), (1, 2, 33, 24), is_causal=True),
            case(f"{name}, causal, negative scale", dtype, *shapes, is_causal=True, scale=-0.4),
            case(f"{name}, causal, no scale", dtype, *shapes, is_causal=True, scale=0.0),
            case(f"{name}, scores far apart", dtype, *shapes, scale=2.0),
            case(f"{name}, bool mask", dtype, *shapes, mask=keep, scale=-0.3),
            case(f"{name}, bias", dtype, *shapes, mask=bias, softcap=2.5, is_causal=True),
            case(f"{name}, no keys", dtype, (2, 4, 40, 24), (2, 2, 0, 24)),
            case(f"{name}, odd heads", dtype, (1, 2, 20, 35), value=18),
            case(f"{name}, step", dtype, (1, 8, 1, 64), (1, 2, 600, 64), target=H200),
            case(f"{name}, step in a window", dtype, (1, 8, 1, 64), (1, 2, 600, 64), window=70,
                 is_causal=True, target=H200),
            case(f"{name}, short step", dtype, (2, 4, 2, 64), (2, 2, 30, 64), is_causal=True),
        ]  # fmt: skip
    found += [
        in_place("f16 in place", F16, True),
        in_place("f32 in place", F32, True),
        in_place("f16 in place, heads first", F16, False),
        case(
            "f16, few rows on many multiprocessors",
            F16,
            (1, 2, 40, 64),
            (1, 1, 600, 64),
            is_causal=True,
            target=H200,
        ),
        case("bf16", BF16, (1, 2, 70, 128), is_causal=True),
        case("f16, long heads", F16, (1, 1, 20, 256)),
        case("f16, longest", F16, (1, 1, 18, 264)),
        case("f64", F64, (2, 2, 21, 40), (2, 1, 37, 40), is_causal=True, softcap=3.0),
        case("f64, step", F64, (1, 2, 1, 32), (1, 2, 300, 32), target=H200),
    ]
    step = (1, 8, 1, 64), (1, 2, 600, 64)
    found += [
        case("f16, step without clusters", F16, *step, target=A100),
        case("f16, step, bool mask", F16, *step, mask=rng.random((1, 600)) < 0.5, target=H200),
        case("bf16, step, bias", BF16, *step, mask=rng.normal(size=(8, 1, 600)), softcap=2.5,
             target=H200),
        case("f16, step, nothing seen", F16, *step, mask=np.zeros((1, 600), bool), target=H200),
        case("f16, step of twelve rows", F16, (2, 8, 3, 128), (2, 2, 300, 128), is_causal=True,
             target=H200),
        case("f16, step, odd heads", F16, (1, 2, 1, 35), (1, 2, 300, 35), value=18, target=H200),
        case("f16, step, longest", F16, (1, 4, 1, 256), (1, 1, 200, 256), target=H200),
        long_step("f16, long step", step),
        long_step("f16, long step without clusters", step, target=A100),
    ]  # fmt: skip
    return found


def long_step(name: str, shapes: Any, **options: Any) -> Case:
    """A case that is cut into parts as far more keys would be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "FEW_LONG", 96)
        patch.setattr(attention, "MOST_CLUSTER", 2)
        return case(name, F16, *shapes, **{"target": H200, **options})


def by_groups(
    name: str, tile: tuple[int, int, int], dtype: Any, *shapes: Any, **options: Any
) -> Case:
    """A case for warp groups: of `tile` all but its speed."""
    length = shapes[0][-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "WARP_GROUPS", {length: (GroupTile(*tile, 1.0),)})
        found = case(f"groups, {name}", dtype, *shapes, **options)
    (call,) = found.calls
    assert call.code.arch == "sm_90a"
    return found


def cases_of_groups() -> list[Case]:
    rng = np.random.default_rng(14)
    shapes = (1, 2, 140, 64), (1, 2, 170, 64)
    keep = rng.random((1, 1, 140, 170)) < 0.7
    keep[0, 0, 5] = False  # A query that sees no key.
    few = (2, 64, 2)
    return [
        # Two multiprocessors: without bounds a block does several tiles of rows.
        by_groups("f16", (2, 128, 2), F16, *shapes),
        by_groups("f16, causal", few, F16, *shapes, is_causal=True),
        by_groups("f16, three groups", (3, 64, 2), F16, *shapes, scale=2.0),
        # Weights grow too large in some groups at some tiles, and in others they do not.
        by_groups("f16, far apart", (2, 64, 3), F16, (1, 2, 140, 64), (1, 2, 450, 64), scale=0.6),
        by_groups("bf16, far apart", few, BF16, (1, 2, 140, 64), (1, 2, 450, 64), scale=0.6),
        by_groups("f16, window", few, F16, *shapes, window=70, is_causal=True),
        by_groups("f16, more queries", few, F16, (1, 2, 200, 64), (1, 2, 70, 64), is_causal=True),
        by_groups("f16, bool mask", few, F16, *shapes, mask=keep, scale=-0.3),
        by_groups("f16, bias", few, F16, *shapes, mask=rng.normal(size=(2, 1, 170)), softcap=2.5,
                  is_causal=True),
        by_groups("f16, grouped heads", few, F16, (3, 4, 70, 64), (3, 2, 40, 64)),
        by_groups("f16, many heads", few, F16, (2, 9, 20, 64), (2, 9, 10, 64)),
        by_groups("f16, no keys", few, F16, (2, 2, 70, 64), (2, 2, 0, 64)),
        by_groups("f16, long heads", (2, 128, 3), F16, (1, 2, 70, 128), (1, 2, 140, 128)),
        by_groups("bf16, long heads", (2, 64, 3), BF16, (1, 2, 90, 128)),
    ]  # fmt: skip


CASES = {one.name: one for one in [*cases(), *cases_of_groups()]}


@pytest.fixture(scope="module")
def suite() -> Suite:
    return Suite(CASES.values())


@pytest.mark.parametrize("name", CASES)
def test_attention(name: str, suite: Suite) -> None:
    for seed in (0, 3):
        (found,), (wanted,) = suite.run(CASES[name], seed), CASES[name].expected()
        # Weights of halves are rounded before they meet the values.
        close(found, wanted, scale=10.0 if found.dtype == F32 else 1.0)


def test_keys_are_cut_where_queries_are_few(suite: Suite) -> None:
    for name in ("f16, long step", "f16, step without clusters", "f32, step", "f64, step"):
        first, second = CASES[name].calls
        assert first.outs == second.ins
        once, again = (suite.run(CASES[name], seed)[0] for seed in (1, 2))
        assert once.tobytes() == again.tobytes()


@pytest.mark.parametrize(
    ("name", "blocks"), [("f16, step", 8), ("f16, long step", 2), ("f16, short step", 1)]
)
def test_blocks_of_a_cluster_share_the_keys_of_few_queries(
    name: str, blocks: int, suite: Suite
) -> None:
    call = CASES[name].calls[0]
    assert call.cluster == blocks
    assert call.grid[0] % blocks == 0
    once, again = (suite.run(CASES[name], seed)[0] for seed in (1, 2))
    assert once.tobytes() == again.tobytes()


@pytest.mark.parametrize("name", ["f16, causal", "f32, causal", "f16, step", "f32, step"])
def test_nan_and_infinity_stay_with_their_queries(name: str, suite: Suite) -> None:
    one = CASES[name]
    q, k, v = (array.copy() for array in one.arrays)
    q[0, 1, 0, 3], k[-1, 1, 29, 0] = np.nan, np.inf
    spoilt = Case(name, one.build, (q, k, v), one.target)
    (found,), (wanted,) = suite.run(spoilt), spoilt.expected()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))


def lowered(shape: tuple[int, ...], dtype: str, target: Target) -> Any:
    graph = Graph()
    q, k, v = (graph.input(name, shape, dtype) for name in "qkv")
    graph.output(ops.attention(q, k, v))
    last = optimise(graph, pack=False).graph.nodes[-1]
    return LOWERINGS[last.op](last, target)


def test_scratch_does_not_grow_with_the_square_of_the_keys() -> None:
    (call,) = lowered((8, 16, 2048, 64), "float16", H200)
    assert len(call.outs) == 1
    assert call.grid[0] >= 132


@pytest.mark.parametrize(
    ("shape", "served"),
    [
        ((8, 16, 2048, 64), True),
        ((8, 16, 2048, 128), True),
        ((8, 16, 2048, 96), False),  # Another length of heads.
        ((1, 4, 2048, 64), False),  # Too few blocks.
        ((64, 16, 8, 64), False),  # Rows for no group.
    ],
)
def test_warp_groups_serve(shape: tuple[int, ...], served: bool) -> None:
    ((call,), (portable,)) = (
        lowered(shape, "bfloat16", target) for target in (H200, replace(H200, capability=(10, 0)))
    )
    assert (call.code.arch, portable.code.arch) == ("sm_90a" if served else "", "")
    assert call.grid[0] == 132 or not served


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("length", [64, 128, 256])
@pytest.mark.parametrize("queries", [1, 300])
def test_every_device_has_shared_memory_for_it(dtype: str, length: int, queries: int) -> None:
    small = replace(H200, max_shared_bytes=99 << 10)
    for call in lowered((1, 2, queries, length), dtype, small):
        assert call.shared_bytes <= small.max_shared_bytes


def test_heads_that_fit_nowhere_are_refused_with_the_numbers() -> None:
    with pytest.raises(CompileError, match=r"heads of 4096 and 4096 elements needs .* bytes"):
        lowered((1, 1, 20, 4096), "float32", H200)
