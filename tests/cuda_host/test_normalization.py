"""Softmax and the norms on cuda: rows of every length, columns, parts, corners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastgraph.ir import ops
from fastgraph.ir.graph import Value
from fastgraph.ir.types import SUPPORTED, is_float
from fastgraph.lower.cuda import Target
from fastgraph.lower.cuda.normalization import RowPlan
from tests.cuda_host import compiler
from tests.cuda_host.lowered import Case, Suite, close

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")

RNG = np.random.default_rng(22)
FLOATS = [dtype for dtype in SUPPORTED if is_float(dtype)]
CORNERS = np.array(
    [
        [1, np.nan, 3, 0],
        [np.inf, 1, 2, 3],
        [-np.inf, 1, 2, 3],
        [-np.inf] * 4,
        [0] * 4,
        [80, -80, 0, 90],
        [-np.inf, -np.inf, np.nan, -np.inf],
        [1000, 1001, 999, -5],
    ]
)
LENGTHS = (1, 3, 10, 33, 100, 384, 1000, 1001, 1024, 1500, 4096, 16384, 20000, 40003)


def normal(*shape: int, dtype: Any = "f4") -> np.ndarray[Any, Any]:
    return (RNG.normal(size=shape) * 2 + 0.5).astype(dtype)


def softmax_cases() -> list[Case]:
    def along(axis: int) -> Any:
        return lambda x: ops.softmax(x, axis=axis)

    found = [Case(f"softmax {n}", along(-1), (normal(5 if n < 2000 else 2, n),)) for n in LENGTHS]
    for shape, axis in (((7, 5, 12), 1), ((40, 3), 0), ((300, 64), 0), ((2, 9, 1, 33), 1)):
        found.append(Case(f"softmax {shape} {axis}", along(axis), (normal(*shape),)))
    for dtype in FLOATS:
        for shape in ((9, 48), (3, 2048), (1, 40000)):
            found.append(
                Case(f"softmax {dtype} {shape}", along(-1), (normal(*shape, dtype=dtype),))
            )
        found.append(Case(f"softmax {dtype} columns", along(0), (normal(20, 8, dtype=dtype),)))
    long = np.repeat(CORNERS, 5000, axis=1)
    found += [
        Case("softmax corners", along(-1), (CORNERS.astype("f4"),)),
        Case("softmax corners of columns", along(0), (CORNERS.T.astype("f4").copy(),)),
        Case("softmax corners in parts", along(-1), (long.astype("f4"),)),
        Case("softmax of nothing", along(-1), (normal(0, 4),)),
        Case("softmax of a view", lambda x: ops.softmax(x[1:41].reshape((4, 10))), (normal(50),)),
    ]
    return found


def norm_cases() -> list[Case]:
    found = []
    for n in LENGTHS:
        x, w, b = normal(5 if n < 2000 else 2, n), normal(n), normal(n)
        found += [
            Case(f"layer_norm {n}", lambda x, w, b: ops.layer_norm(x, w, b), (x, w, b)),
            Case(f"rms_norm {n}", lambda x, w: ops.rms_norm(x, w), (x, w)),
        ]

    def chain(x: Value, y: Value, w: Value, b: Value) -> list[Value]:
        total = x + y
        return [ops.layer_norm(total, w, b), total]

    def fixed(x: Value, y: Value) -> Value:
        n = x.shape[-1]
        weight = np.linspace(0.5, 2, n).astype(x.dtype)
        return ops.layer_norm(x + y, weight, weight[::-1].copy())

    for dtype in FLOATS:
        for n in (48, 1536, 24000):
            x, y, w, b = (normal(*s, dtype=dtype) for s in ((4, n), (4, n), (n,), (n,)))
            found += [
                Case(f"residual {dtype} {n}", chain, (x, y, w, b)),
                Case(
                    f"rms residual {dtype} {n}", lambda x, y, w: ops.rms_norm(x + y, w), (x, y, w)
                ),
                Case(f"fixed {dtype} {n}", fixed, (x, y)),
            ]
    many = normal(700, 24)
    found += [
        Case(
            "layer_norm of two axes", lambda x: ops.layer_norm(x, axis=(1, 2)), (normal(3, 5, 7),)
        ),
        Case("rms_norm plain", lambda x: ops.rms_norm(x, eps=0.5), (normal(3, 20),)),
        Case("layer_norm far from 0", lambda x: ops.layer_norm(x), (normal(3, 64) + 1000,)),
        Case("layer_norm of many", fixed, (many, many)),
        Case("layer_norm corners", lambda x: ops.layer_norm(x), (CORNERS.astype("f4"),)),
        Case("rms_norm corners", lambda x: ops.rms_norm(x), (CORNERS.astype("f4"),)),
        Case("layer_norm of nothing", lambda x: ops.layer_norm(x), (normal(0, 4),)),
    ]
    return found


CASES = softmax_cases() + norm_cases()


@pytest.fixture(scope="module")
def suite() -> Suite:
    return Suite(CASES, level="-O0")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_normalization(suite: Suite, case: Case) -> None:
    found = suite.run(case)
    for one, expected in zip(found, case.expected(), strict=True):
        # What is subtracted from numbers far from 0 is lost before it is seen.
        close(one, expected, scale=400 if "far" in case.name else 3)
    again = suite.run(case, seed=1, inplace=True)
    assert [one.tobytes() for one in again] == [one.tobytes() for one in found]


def test_one_launch_but_for_rows_that_fit_no_block() -> None:
    launches = {case.name: len(case.calls) for case in CASES}
    for name in (
        "softmax 16384",
        "layer_norm 16384",
        "softmax (300, 64) 0",
        "residual float16 1536",
    ):
        assert launches[name] == 1, name
    assert launches["softmax 20000"] == launches["layer_norm 40003"] == 2
    assert launches["softmax of nothing"] == 0


def test_rows_of_a_model_are_done_by_warps() -> None:
    target = Target("sm_90", (9, 0), 132, 232448, 50 << 20)
    plan = RowPlan.of(32 * 128, 384, 2, target)
    assert plan is not None
    assert (plan.group, plan.width, plan.each) == (32, 8, 2)
