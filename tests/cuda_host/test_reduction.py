"""Reductions on cuda: all axes, all dtypes, corners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastgraph.errors import FastGraphError
from fastgraph.ir.graph import Value
from fastgraph.ir.opdef import OPS
from fastgraph.ir.ops import arguments
from fastgraph.ir.types import SUPPORTED
from tests.cuda_host import compiler
from tests.cuda_host.lowered import Case, Suite, close

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")

RNG = np.random.default_rng(21)
OPERATORS = ("sum", "mean", "prod", "max", "min", "argmax", "argmin")
PLACES = ("argmax", "argmin")

# Shape and axes: rows, columns, both between each other, all; short, long, of odd length, empty.
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((4, 8), (1,)),
    ((5, 3), (1,)),
    ((300, 1), (1,)),
    ((3, 1000), (1,)),
    ((70, 257), (1,)),
    ((2, 20000), (1,)),
    ((8, 4), (0,)),
    ((3, 5), (0,)),
    ((1000, 33), (0,)),
    ((5000, 3), (0,)),
    ((700, 256), (0,)),
    ((4, 50, 24), (1,)),
    ((3, 4, 5, 6), (1, 3)),
    ((3, 4, 5, 6), (0, 2)),
    ((9, 40, 3, 16), (0, 1, 3)),
    ((7, 11, 13), (0, 1, 2)),
    ((100003,), (0,)),
    ((1,), (0,)),
    ((1, 1, 5), (0, 2)),
    ((3, 2), ()),
    ((0, 3), (0,)),
    ((3, 0), (0,)),
    ((1000, 1000), (0,)),
]


CORNERS = np.float32(
    [
        [1, np.nan, 3, np.nan],
        [np.inf, -np.inf, 2, np.inf],
        [-0.0, 0.0, -0.0, 0.0],
        [-np.inf] * 4,
        [5, 5, 1, 5],
        [np.nan] * 4,
        [np.inf] * 4,
    ]
)


def case(
    op: str, array: np.ndarray[Any, Any], axes: tuple[int, ...], keepdims: bool, name: str
) -> Case:
    def build(x: Value) -> Value:
        return arguments.node(op, [x], {"axis": axes, "keepdims": keepdims}).outputs[0]

    return Case(f"{op} {name}", build, (array,))


def accepts(op: str, shape: tuple[int, ...], dtype: np.dtype[Any], axes: tuple[int, ...]) -> bool:
    try:
        OPS[op].infer([(shape, dtype)], {"axis": axes, "keepdims": False})
    except FastGraphError:
        return False
    return op not in PLACES or len(axes) == 1


def numbers(shape: tuple[int, ...], dtype: np.dtype[Any], op: str) -> np.ndarray[Any, Any]:
    if dtype.kind == "b":
        return RNG.random(shape) > 0.5
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return RNG.integers(info.min, info.max, shape, dtype, endpoint=True)
    # Near 1, so that products stay numbers.
    drawn = RNG.normal(size=shape)
    return (1 + drawn / 50 if op == "prod" else drawn).astype(dtype)


def cases() -> list[Case]:
    found = []
    for op in OPERATORS:
        # What is walked is the same for all of them.
        few = SHAPES if op in ("sum", "argmax") else SHAPES[::5]
        for i, (shape, axes) in enumerate(few):
            if accepts(op, shape, np.dtype("f4"), axes):
                data = numbers(shape, np.dtype("f4"), op)
                found.append(case(op, data, axes, i % 2 == 0, f"{shape} {axes}"))
        for dtype in SUPPORTED:
            for shape, axes in (((6, 200), (1,)), ((90, 24), (0,))):
                if accepts(op, shape, dtype, axes):
                    data = numbers(shape, dtype, op)
                    found.append(case(op, data, axes, False, f"{dtype.name} {shape} {axes}"))
        found += [case(op, CORNERS, (axis,), False, f"corners {axis}") for axis in (0, 1)]
    # Through what is kept between two launches.
    for op in ("sum", "argmax", "max"):
        for name in ("float16", "float64", "bool", "int8"):
            dtype, shape = np.dtype(name), (20001,)
            if dtype in SUPPORTED and accepts(op, shape, dtype, (0,)):
                data = numbers(shape, dtype, op)
                found.append(case(op, data, (0,), False, f"{name} {shape}"))
    return found


CASES = cases()


@pytest.fixture(scope="module")
def suite() -> Suite:
    return Suite(CASES, level="-O0")


@pytest.mark.parametrize("one", CASES, ids=lambda one: one.name)
def test_reduction(suite: Suite, one: Case) -> None:
    (found,) = suite.run(one)
    (expected,) = one.expected()
    # Of sums what the terms can lose, and of products each factor's share.
    scale = 1 + np.sqrt(one.arrays[0].size) / 20
    close(found, expected, scale=scale if one.arrays[0].dtype.kind not in "iub" else 1)
    assert suite.run(one, seed=1)[0].tobytes() == found.tobytes()


def test_few_results_of_many_elements_take_two_launches() -> None:
    launches = {one.name: len(one.calls) for one in CASES}
    assert launches["sum (100003,) (0,)"] == launches["max (2, 20000) (1,)"] == 2
    assert launches["sum (1000, 1000) (0,)"] == 2
    assert launches["sum (4, 8) (1,)"] == 1
    assert launches["sum (3, 2) ()"] == 0
