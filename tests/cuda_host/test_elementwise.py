"""Regions on cuda: every instruction in every dtype at its corners, every way of reading."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from fastgraph.errors import FastGraphError
from fastgraph.ir import ops
from fastgraph.ir.graph import Value
from fastgraph.ir.opdef import OPS
from fastgraph.ir.ops import arguments
from fastgraph.ir.ops.elementwise import ELEMENTWISE
from fastgraph.ir.types import SUPPORTED
from tests.cuda_host import compiler
from tests.cuda_host.lowered import Case, Suite, close

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")

RNG = np.random.default_rng(20)
# What a cast gives beyond the range of floats, and what lies between two numbers.
FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.5,
    -2.5,
    3.5,
    7.0,
    -7.0,
    0.1,
    100.0,
    -300.0,
    2147483648.0,
]
FLOATS += [1e-7, 65504.0, 3e38, -3e38, 1e19, -1e19, np.inf, -np.inf, np.nan]
# Rules that differ by dtype are asked in all of them; the others in one of each kind.
EVERYWHERE = frozenset(
    ("add", "multiply", "maximum", "remainder", "floor_divide", "power", "less", "right_shift")
)
SOME = ("float16", "float32", "float64", "int8", "int64", "uint32", "bool")
ATTRIBUTES: dict[str, list[dict[str, Any]]] = {
    "gelu": [{"approximate": "none"}, {"approximate": "tanh"}],
    "astype": [{"dtype": dtype} for dtype in SUPPORTED[::2]],
}


def corners(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Numbers of a dtype at which instructions differ."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        ends = [info.min, info.min + 1, info.max, info.max - 1]
        return np.array(
            [n for n in (0, 1, 2, 3, 7, 8, 31, 64, -1, -2, -7) if n >= info.min] + ends, dtype
        )
    with np.errstate(over="ignore"):
        return np.array(FLOATS, "f8").astype(dtype)


def operands(dtypes: list[np.dtype[Any]]) -> list[np.ndarray[Any, Any]]:
    """All combinations of corners, and random numbers behind them."""
    grid = np.array(list(product(*(range(len(corners(dtype))) for dtype in dtypes))))
    return [corners(dtype)[column] for dtype, column in zip(dtypes, grid.T, strict=True)]


def accepts(op: str, dtypes: list[np.dtype[Any]], attrs: dict[str, Any]) -> bool:
    """Whether the operator takes operands of these dtypes."""
    try:
        OPS[op].infer([((2,), dtype) for dtype in dtypes], dict(attrs))
    except (FastGraphError, ValueError):
        return False
    return True


def instructions() -> list[Case]:
    """Each operator in each dtype that it takes."""
    cases = []
    for op in sorted(ELEMENTWISE):
        dtypes_of = [d for d in SUPPORTED if op in EVERYWHERE or d.name in SOME]
        for dtype, attrs in product(dtypes_of, ATTRIBUTES.get(op, [{}])):
            for dtypes in ([dtype], [dtype] * 2, [np.dtype(bool), dtype, dtype]):
                if accepts(op, dtypes, attrs):

                    def build(*values: Value, op: str = op, attrs: dict[str, Any] = attrs) -> Value:
                        return arguments.node(op, values, dict(attrs)).outputs[0]

                    label = "-".join([op, dtype.name, *map(str, attrs.values())])
                    cases.append(Case(label, build, tuple(operands(dtypes))))
    return cases


def normal(*shape: int, dtype: str = "f4") -> np.ndarray[Any, Any]:
    return RNG.normal(size=shape).astype(dtype)


def shapes() -> list[Case]:
    """Each way of reading, with and without whole vectors."""

    def add(x: Value, y: Value) -> Value:
        return ops.gelu(x + y * 2)

    pairs = {
        "dense": ((6, 8), (6, 8)),
        "odd": ((7, 3), (7, 3)),
        "rank 0": ((), ()),
        "one": ((3, 1000), ()),
        "ones": ((1, 1), (1, 1)),
        "row": ((64, 48), (48,)),
        "row of odd length": ((65, 37), (37,)),
        "row of even length": ((65, 38), (38,)),
        "column": ((300, 12), (300, 1)),
        "column, odd": ((300, 13), (300, 1)),
        "both": ((300, 1), (1, 16)),
        "middle": ((4, 1, 32), (1, 50, 1)),
        "middle, odd": ((4, 1, 3), (4, 50, 1)),
        "heads": ((2, 3, 20, 24), (2, 1, 1, 24)),
        "masks": ((2, 3, 20, 24), (2, 1, 20, 24)),
        "long": ((20000,), (20000,)),
        "long, odd": ((20001,), (1,)),
        "empty": ((0, 3), (3,)),
    }  # fmt: skip
    cases = [Case(name, add, (normal(*a), normal(*b))) for name, (a, b) in pairs.items()]
    wide = {"dense": 4096, "tail": 4099}
    cases += [
        Case(f"many {name}", lambda x, y: x * 3 - y, (normal(64, n), normal(64, n)))
        for name, n in wide.items()
    ]
    cases += [
        Case("shape of constants", lambda x: x + np.zeros((3, 4), "f4"), (normal(),)),
        Case("narrow and wide", lambda x, y: ops.where(x, y, -y), (normal(8192) > 0, normal(8192))),
        Case("a number twice", lambda x: x * x + x, (normal(40),)),
        Case("of integers", lambda x: (x * 3 + 1) // 2, (np.arange(99, dtype="i8"),)),
    ]
    return cases


def halves() -> list[Case]:
    """Each number that float16 has, through what has a short cut for halves."""
    every = np.arange(65536, dtype="u2").view("f2")
    functions = {
        "exp": ops.exp,
        "sigmoid": ops.sigmoid,
        "silu": ops.silu,
        "tanh": ops.tanh,
        "gelu": ops.gelu,
        "gelu, tanh": lambda x: ops.gelu(x, approximate="tanh"),
    }
    return [Case(f"{name} of every half", build, (every,)) for name, build in functions.items()]


HALVES = halves()
CASES = instructions() + shapes() + HALVES


@pytest.fixture(scope="module")
def suite() -> Suite:
    return Suite(CASES, level="-O0")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_region(suite: Suite, case: Case) -> None:
    found = suite.run(case)
    for one, expected in zip(found, case.expected(), strict=True):
        close(one, expected, scale=4)
    again = suite.run(case, seed=1, inplace=True)
    assert [one.tobytes() for one in again] == [one.tobytes() for one in found]


@pytest.mark.parametrize("case", HALVES, ids=lambda case: case.name)
def test_short_cuts_for_halves_are_right_to_their_last_place(suite: Suite, case: Case) -> None:
    (found,), (expected,) = suite.run(case), case.expected()
    # One unit of the last place, or of what lies below all normal numbers.
    np.testing.assert_allclose(found.astype("f8"), expected.astype("f8"), rtol=9.8e-4, atol=2e-7)
