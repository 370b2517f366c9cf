"""Running sums, the largest elements, rotations and rows by their numbers, on cuda."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fastgraph.ir import ops
from fastgraph.ir.graph import Value
from fastgraph.ir.ops import arguments
from fastgraph.ir.types import SUPPORTED, is_float
from tests.cuda_host import compiler
from tests.cuda_host.lowered import Case, Suite, close

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")

Array = np.ndarray[Any, np.dtype[Any]]
RNG = np.random.default_rng(23)
NUMBERS = [dtype for dtype in SUPPORTED if dtype.kind != "b"]
FLOATS = [dtype for dtype in NUMBERS if is_float(dtype)]


def numbers(*shape: int, dtype: Any = "f4") -> Array:
    """Random numbers with many equal ones."""
    drawn = RNG.normal(size=shape) * 10
    return np.abs(drawn).astype(dtype) if np.dtype(dtype).kind == "u" else drawn.astype(dtype)


def node(op: str, **attrs: Any) -> Callable[..., Any]:
    """What builds the node itself, with all its results."""

    def build(*values: Value) -> Any:
        return arguments.node(op, values, dict(attrs)).outputs

    return build


def scans() -> list[Case]:
    found = []
    shapes = [
        *(((6, 40), 1), ((3, 1000), 1), ((5, 33), 1), ((2, 3000), 1), ((40004,), 0)),
        *(((3, 9001), 1), ((30, 7), 0), ((4, 100, 6), 1), ((1, 3), 0), ((2000, 3), 0)),
        *(((0, 4), 1), ((1,), 0)),
    ]
    for i, (shape, axis) in enumerate(shapes):
        for exclusive, reverse in (
            ((False, False), (True, True)) if i < 7 else ((bool(i % 2), i % 3 == 0),)
        ):
            build = node("cumulative_sum", axis=axis, exclusive=exclusive, reverse=reverse)
            found.append(Case(f"sums {shape} {axis} {exclusive}", build, (numbers(*shape),)))
    for dtype in (*FLOATS, np.dtype("i8"), np.dtype("u8")):
        build = node("cumulative_sum", axis=1, exclusive=False, reverse=True)
        found.append(Case(f"sums of {dtype}", build, (numbers(3, 500, dtype=dtype),)))
    return found


def choices() -> list[Case]:
    found = []
    shapes = [
        *(((7, 64), 1, 8), ((3, 5), 1, 5), ((2, 1000), 1, 3), ((2, 2048), 1, 2048)),
        *(((9, 4), 0, 2), ((3, 100, 4), 1, 7), ((1, 9000), 1, 20), ((2, 5000), 1, 1000)),
        *(((1, 2500), 1, 1500), ((3, 4), 1, 0), ((4, 1), 1, 1)),
    ]
    for i, (shape, axis, k) in enumerate(shapes):
        build = node("top_k", axis=axis, k=k, largest=i % 3 != 1, layer=None)
        found.append(Case(f"top {k} of {shape}", build, (np.round(numbers(*shape)),)))
    for dtype in NUMBERS:
        for largest in (True, False):
            build = node("top_k", axis=1, k=9, largest=largest, layer=None)
            found.append(Case(f"top of {dtype} {largest}", build, (numbers(4, 30, dtype=dtype),)))
    corners = np.float32([[np.nan, 1, np.inf, -np.inf, 0, -0.0, np.nan, 1]])
    for largest in (True, False):
        build = node("top_k", axis=1, k=8, largest=largest, layer=None)
        found.append(Case(f"top of corners {largest}", build, (corners,)))
    return found


def rotations() -> list[Case]:
    found = []
    for interleaved in (False, True):
        for dtype in FLOATS:
            x, angles = numbers(2, 3, 5, 32, dtype=dtype), numbers(1, 5, 8)
            pair = (np.cos(angles).astype(dtype), np.sin(angles).astype(dtype))
            build = node("rotary_embedding", interleaved=interleaved, length=16, rows_first=False)
            found.append(Case(f"rotated {dtype} {interleaved}", build, (x, *pair)))
        table = (np.cos(numbers(40, 3)), np.sin(numbers(40, 3)))
        for rows_first in (False, True):
            positions = RNG.integers(0, 40, (2, 4))
            x = numbers(2, 4, 4, 7)
            build = node(
                "rotary_embedding", interleaved=interleaved, length=6, rows_first=rows_first
            )
            found.append(
                Case(f"rotated at {rows_first} {interleaved}", build, (x, *table, positions))
            )
    build = node("rotary_embedding", interleaved=False, length=6, rows_first=False)
    few = (numbers(2, 1, 3, 6), *table)
    one = np.array([[1, 39, 0]], "i4")
    found += [
        Case("rotated at one", build, (*few, one)),
        Case("rotated out of range", build, (*few, np.array([[1, 40, -1]])), faults=True),
        Case(
            "rotated by batch", build, (numbers(2, 1, 3, 6), *(numbers(2, 3, 3) for _ in range(2)))
        ),
    ]
    return found


def scatters() -> list[Case]:
    found = []
    for reduction in ("none", "add", "multiply", "maximum", "minimum"):
        build = node("scatter", reduction=reduction)
        for rows, width, count in (
            (10, 4, 30),
            (500, 1, 700),
            (3, 3000, 5),
            (40, 33, 0),
            (5, 0, 0),
        ):
            indices = RNG.integers(-rows, rows, count)
            given = (numbers(rows, width), indices, numbers(count, width))
            found.append(Case(f"scatter {reduction} {rows} {width}", build, given))
        for dtype in NUMBERS:
            given = tuple(np.round(numbers(*s)).astype(dtype) for s in ((9, 5), (20, 5)))
            indices = RNG.integers(-9, 9, 20)
            name = f"scatter {reduction} {dtype}"
            if np.dtype(dtype).kind != "u" or reduction != "multiply":
                found.append(Case(name, build, (abs(given[0]), indices, abs(given[1]) % 3 + 1)))
    flags = (numbers(8, 3) > 0, RNG.integers(0, 8, 5), numbers(5, 3) > 0)
    outside = (numbers(4, 2), np.array([1, 4, -5, 0]), numbers(4, 2))
    build = node("scatter", reduction="none")
    found += [
        Case("scatter of flags", build, flags),
        Case("scatter out of range", build, outside, faults=True),
        Case(
            "scatter into nothing",
            build,
            (numbers(0, 2), np.array([0]), numbers(1, 2)),
            faults=True,
        ),
    ]
    return found


def scatter_pairs() -> list[Case]:
    found = []
    for reduction, rows, width, count in (
        ("none", 10, 4, 1),
        ("none", 500, 3, 40),
        ("add", 9, 5, 20),
    ):
        indices = RNG.integers(-rows, rows, count)
        shapes = ((rows, width), (count, width), (rows, width), (count, width))
        x, updates, other, more = (numbers(*shape) for shape in shapes)
        build = node("scatter_pair", reduction=reduction)
        found.append(Case(f"pair {reduction} {rows}", build, (x, indices, updates, other, more)))
    return found


def groups() -> list[Case]:
    found = []
    build = node("grouped_matmul", layer=0)
    for dtype in FLOATS:
        for rows, k, n, experts in ((4, 3, 2, 3), (8, 5, 4, 4), (70, 40, 72, 2), (33, 64, 136, 5)):
            x, w = numbers(rows, k, dtype=dtype) / 4, numbers(experts, k, n, dtype=dtype) / 4
            ids = RNG.integers(0, max(1, experts - 1), rows)
            found.append(
                Case(f"groups {dtype} {rows}", build, (x.astype(dtype), w.astype(dtype), ids))
            )
    wide = (numbers(6, 4), numbers(40, 4, 3), np.array([39, 0, 31, 32, 0, 39], "i4"))
    none = (numbers(3, 0), numbers(2, 0, 3), np.array([1, 0, 1]))
    lost = (numbers(4, 4), numbers(3, 4, 70), np.array([2, 3, -1, 0]))
    return [
        *found,
        Case("groups of many experts", build, wide),
        Case("groups of nothing", build, none),
        Case("groups without an expert", build, lost, faults=True),
    ]


FAMILIES = (scans, choices, rotations, scatters, scatter_pairs, groups)
CASES = [case for build in FAMILIES for case in build()]


@pytest.fixture(scope="module")
def suite() -> Suite:
    return Suite(CASES, level="-O0")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_indexing(suite: Suite, case: Case) -> None:
    found = suite.run(case)
    assert bool(suite.fault.array[0]) == case.faults
    again = suite.run(case, seed=1, inplace=True)
    assert [one.tobytes() for one in again] == [one.tobytes() for one in found]
    if case.faults:
        return
    for one, expected in zip(found, case.expected(), strict=True):
        # A sum loses a share of the largest that it has come by.
        summed = case.name.startswith(("sums", "groups"))
        largest = float(np.abs(expected.astype("f8")).max(initial=1)) if summed else 1
        close(one, expected, scale=6 * max(1, largest / 4))


def test_long_lines_are_cut() -> None:
    launches = {case.name: len(case.calls) for case in CASES}
    assert launches["top 20 of (1, 9000)"] == 2
    assert launches["top 1500 of (1, 2500)"] == launches["top 2048 of (2, 2048)"] == 1
    assert launches["sums (40004,) 0 False"] == 2
    assert launches["sums (3, 9001) 1 True"] == 1


def test_composed_operators_are_lowered() -> None:
    x = numbers(3, 5)
    cases = [
        Case("pad", lambda x: ops.pad(x, ((1, 2), (0, 1))), (x,)),
        Case("tile", lambda x: ops.tile(x, (2, 3)), (x,)),
        Case("triangle", lambda x: ops.tril(x), (x,)),
        Case(
            "along", lambda x, i: ops.take_along_axis(x, i, axis=1), (x, np.array([[0], [4], [-1]]))
        ),
        Case("groups", lambda x: ops.group_norm(x, 2), (numbers(2, 4, 6),)),
        Case("logarithm", lambda x: ops.log_softmax(x), (x,)),
    ]
    suite = Suite(cases)
    for case in cases:
        close(suite.run(case)[0], case.expected()[0], scale=6)
