"""A step of decoding for cuda: rotation, caches and attention in one node, run on the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fastgraph.ir import Graph, ops
from fastgraph.ir.ops.arguments import node
from fastgraph.lower.cuda import attention
from fastgraph.passes import optimise
from tests.cuda_host import compiler
from tests.cuda_host.lowered import SMALL, Case, Suite, close

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")

F16, BF16 = np.dtype("f2"), np.dtype(ml_dtypes.bfloat16)
H200 = replace(SMALL, multiprocessors=132)
A100 = replace(H200, arch="sm_80", capability=(8, 0))


def step(
    heads: int, key_heads: int, length: int, tokens: int, *, apart: bool = False,
    swapped: bool = False, rows_first: bool = False, masked: bool = True, seen_twice: bool = False,
    interleaved: bool = False, **options: Any,
) -> Callable[..., list[Any]]:  # fmt: skip
    """What builds a step from a row of q, k and v, the caches, the place and the angles.

    `apart`: q and k are turned each on its own; `swapped`: values are put first.
    """
    q_width, width = heads * length, key_heads * length

    def build(qkv: Any, keys: Any, values: Any, at: Any, cos: Any, sin: Any) -> list[Any]:
        place = at.reshape(1, 1)

        def turned(x: Any) -> Any:
            x = x.reshape(1, 1, -1, length)
            if rows_first:
                attrs = {"rows_first": True, "interleaved": interleaved, "length": length}
                (x,) = node("rotary_embedding", [x, cos, sin, place], attrs).outputs
                return x.transpose(0, 2, 1, 3)
            x = x.transpose(0, 2, 1, 3)
            return ops.rotary_embedding(x, cos, sin, place, interleaved=interleaved)

        if apart:
            q, k = turned(qkv[:, :q_width]), turned(qkv[:, q_width : q_width + width])
        else:
            both = turned(qkv[:, : q_width + width])
            q, k = both[:, :heads], both[:, heads:]
        rows = [(keys, k), (values, qkv[:, -width:])]
        found = []
        for cache, row in reversed(rows) if swapped else rows:
            row = row.reshape(1, key_heads, length)
            found.append(ops.scatter_nd(cache, place, row))
        found = found[::-1] if swapped else found
        k, v = (c.transpose(1, 0, 2).reshape(1, key_heads, tokens, length) for c in found)
        mask = ops.greater_equal(place, np.arange(tokens)) if masked else None
        y = ops.attention(q, k, v, mask, **options)
        return [y.reshape(1, -1), *found, *([both + both] if seen_twice else [])]

    return build


def case(
    name: str, heads: int, key_heads: int, length: int, tokens: int, dtype: Any = F16, at: int = -1,
    target: Any = H200, **options: Any,
) -> Case:  # fmt: skip
    rng = np.random.default_rng(21)
    shapes = (1, (heads + 2 * key_heads) * length), *[(tokens, key_heads, length)] * 2
    qkv, keys, values = (rng.normal(size=shape).astype(dtype) for shape in shapes)
    angles = rng.normal(size=(tokens, length // 2))
    cos, sin = np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)
    place = np.array(at if at >= 0 else tokens + at)
    build = step(heads, key_heads, length, tokens, **options)
    return Case(name, build, (qkv, keys, values, place, cos, sin), target)


def cases() -> list[Case]:
    found = [
        case("last", 8, 2, 64, 300),
        case("middle", 8, 2, 64, 300, at=130),
        case("first", 4, 4, 64, 40, at=0, masked=False),
        case("apart", 8, 2, 64, 300, apart=True, masked=False),
        case("values first", 8, 2, 64, 100, swapped=True),
        case("rows first", 8, 2, 64, 100, rows_first=True, softcap=3.0),
        case("one head of keys", 16, 1, 32, 100, BF16),
        case("long heads", 4, 2, 128, 70, is_causal=True),
        case("longest", 1, 1, 256, 40),
        case("without clusters", 8, 2, 64, 600, target=A100),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "FEW_LONG", 96)
        patch.setattr(attention, "MOST_CLUSTER", 2)
        found.append(case("more clusters", 8, 2, 64, 600))
    bad = case("out of range", 8, 2, 64, 100)
    found.append(
        replace(bad, arrays=(*bad.arrays[:3], np.array(100), *bad.arrays[4:]), faults=True)
    )
    return found


CASES = {one.name: one for one in cases()}


@pytest.fixture(scope="module")
def suite() -> Suite:
    return Suite(CASES.values())


@pytest.mark.parametrize("name", CASES)
def test_a_step(name: str, suite: Suite) -> None:
    one = CASES[name]
    ops_of = [each.op for each, _ in one.items]
    assert "attention_step" in ops_of
    assert not {"rotary_embedding", "scatter_pair", "fused_attention"} & set(ops_of)
    for seed, inplace in ((0, False), (3, True), (0, True)):
        found = suite.run(one, seed, inplace)
        if one.faults:
            assert suite.fault.array[0]
            assert all(
                np.array_equal(*pair) for pair in zip(found[1:], one.arrays[1:3], strict=True)
            )
            continue
        for array, wanted in zip(found, one.expected(), strict=True):
            close(array, wanted)


def test_the_same_bits_in_each_run(suite: Suite) -> None:
    for name in ("last", "more clusters"):
        runs = [suite.run(CASES[name], seed)[0].tobytes() for seed in (1, 2)]
        assert runs[0] == runs[1]


@pytest.mark.parametrize(
    "options",
    [
        {"seen_twice": True},
        {"interleaved": True},
        {"is_causal": True, "window": 7},
        {"dtype": np.dtype("f4")},
        {"length": 80},
        {"heads": 34},
    ],
)
def test_what_is_no_step_stays_apart(options: Any) -> None:
    sizes = {"heads": 8, "key_heads": 2, "length": 64, "tokens": 100} | options
    one = case("apart", **sizes)
    assert "attention_step" not in [each.op for each, _ in one.items]


def test_a_mask_that_needs_the_keys_keeps_them_apart() -> None:
    g = Graph()
    build = step(4, 2, 32, 8, masked=False)
    qkv, at = g.input("qkv", (1, 256), "float16"), g.input("at", (), "int64")
    keys, values = (g.input(name, (8, 2, 32), "float16") for name in ("keys", "values"))
    cos, sin = np.ones((8, 16), "f2"), np.zeros((8, 16), "f2")
    inner = build(qkv, keys, values, at, cos, sin)
    q, k, v = inner[0].node.inputs[0].node.inputs
    mask = ops.greater(ops.sum(inner[1], axis=(1, 2)), 0.0).reshape(1, 8)
    g.output(ops.attention(q, k, v, mask), "y")
    found = [each.op for each in optimise(g, pack=False).graph.nodes]
    assert "fused_attention" in found
    assert "attention_step" not in found
