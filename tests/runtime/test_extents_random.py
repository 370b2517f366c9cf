"""Random graphs with a dimension, at random extents, beside the graph compiled for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fastgraph as fg
from fastgraph import ops
from tests.runtime.extents import Pair

# A size that is like no other one, so that what fits does so for all sizes.
ANY = 97
UPPER = 13
# On a GPU there are programs for one, up to 16, and up to so many.
WIDE = 40
MOST = 4 * ANY * ANY

UNARY = {"relu": ops.relu, "tanh": ops.tanh, "scaled": lambda x: x * 0.5, "gelu": ops.gelu}
ALONG = {
    "softmax": ops.softmax,
    "norm": lambda x, axis: ops.layer_norm(x, axis=axis),
    "sum": lambda x, axis: ops.sum(x, axis=axis),
    "kept": lambda x, axis: ops.sum(x, axis=axis, keepdims=True),
    "mean": lambda x, axis: ops.mean(x, axis=axis),
    "running": lambda x, axis: ops.cumulative_sum(x, axis=axis),
}
CUTS = {
    "tail": slice(1, None),
    "head": slice(None, -1),
    "middle": slice(2, 9),
    "second": slice(None, None, 2),
    "flipped": slice(None, None, -1),
}
PAIRS = {"add": ops.add, "times": ops.multiply, "larger": lambda a, b: ops.where(a > b, a, b)}


def inputs_of(graph: fg.Graph, n: Any) -> list[fg.Value]:
    return [
        graph.input("x", (n, 4)),
        graph.input("y", (3, n, 4)),
        graph.input("z", (n,)),
        graph.param("w", (4, 4)),
    ]


def step(values: list[fg.Value], name: str, i: int, *rest: int) -> fg.Value:
    x = values[i]
    if name in UNARY:
        return UNARY[name](x)
    if name in ALONG:
        return ALONG[name](x, rest[0])
    if name in CUTS:
        return x[(slice(None),) * rest[0] + (CUTS[name],)]
    if name in PAIRS:
        return PAIRS[name](x, values[rest[0]])
    if name == "joined":
        return ops.concat([x, values[rest[0]]], axis=rest[1])
    if name == "product":
        return x @ values[3]
    if name == "flat":
        return x.reshape(-1)
    if name == "folded":
        return x.reshape(*x.shape[:-2], -1)
    if name == "turned":
        return x.transpose((*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))
    return x @ x.transpose((*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def possible(values: list[fg.Value]) -> list[tuple[Any, ...]]:
    """All steps that fit, whatever the size is."""
    found: list[tuple[Any, ...]] = []
    for i, x in enumerate(values):
        found += [(name, i) for name in UNARY] + [("flat", i)]
        for axis in range(x.ndim):
            found += [(name, i, axis) for name in ALONG]
            found += [(name, i, axis) for name in CUTS if x.shape[axis] > 3]
        found += [("product", i)] * (x.shape[-1:] == (4,))
        if x.ndim > 1:
            found += [("turned", i), ("folded", i), ("gram", i)]
        for j, y in enumerate(values):
            if x.shape == y.shape:
                found += [(name, i, j) for name in PAIRS]
                found += [("joined", i, j, axis) for axis in range(x.ndim)]
    return found


@st.composite
def recipes(draw: Any) -> tuple[list[tuple[Any, ...]], list[int]]:
    values = inputs_of(fg.Graph("recipe"), ANY)
    steps: list[tuple[Any, ...]] = []
    for _ in range(draw(st.integers(1, 8))):
        one = draw(st.sampled_from(possible(values)))
        value = step(values, *one)
        if value.size <= MOST:
            values.append(value)
            steps.append(one)
    seen = draw(st.sets(st.sampled_from(range(len(values))), max_size=3))
    return steps, sorted({len(values) - 1, *seen} - {3})


def builder(steps: list[tuple[Any, ...]], seen: list[int]) -> Any:
    def build(graph: fg.Graph, n: Any) -> list[fg.Value]:
        values = inputs_of(graph, n)
        for one in steps:
            values.append(step(values, *one))
        # Which ones must not depend on the size, as what nobody reads would.
        return [values[i] for i in seen] or [values[0] * 2]

    return build


def agree(recipe: Any, upper: int, extents: list[int], fuse: bool) -> None:
    """Runs with extents give what the graph compiled for each does, and full ones the same bits."""
    pair = Pair(builder(*recipe), upper, "n", fuse=fuse)
    full = pair.model.run(pair.inputs)
    for actual in extents:
        inputs, wanted = pair.exact(actual)
        pair.set(actual)
        found = pair.model.run(pair.poisoned(inputs))
        for one, right in zip(found, wanted, strict=True):
            assert (one.shape, one.dtype) == (right.shape, right.dtype)
            finite = np.abs(right[np.isfinite(right)])
            reach = float(finite.max()) if finite.size else 0.0
            np.testing.assert_allclose(one, right, rtol=2e-4, atol=2e-4 * max(1.0, reach))
    pair.model.set_active_extent(None)
    again = pair.model.run(pair.inputs)
    assert [a.tobytes() for a in again] == [a.tobytes() for a in full]


@pytest.mark.host
@given(recipes(), st.lists(st.integers(0, UPPER), min_size=1, max_size=3), st.booleans())
@settings(max_examples=80, suppress_health_check=list(HealthCheck))
def test_extents_agree_with_the_compile_for_them(recipe, extents, fuse):
    agree(recipe, UPPER, extents, fuse)


@pytest.mark.cuda
@given(recipes(), st.lists(st.integers(0, WIDE), min_size=3, max_size=5), st.booleans())
@settings(max_examples=3, suppress_health_check=list(HealthCheck), derandomize=True)
def test_extents_of_all_classes_agree(device, recipe, extents, fuse):
    """Kernels have to be compiled, so few."""
    if device == "cuda":
        agree(recipe, WIDE, [*extents, 1], fuse)
