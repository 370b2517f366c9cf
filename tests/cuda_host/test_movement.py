"""Movement and indexing on cuda."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fastgraph.ir import ops
from fastgraph.ir.types import SUPPORTED
from tests.cuda_host import compiler
from tests.cuda_host.lowered import Case, Suite

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")

TAKEN = np.array([5, 2, -3])
DTYPES = sorted({dtype.itemsize: dtype.name for dtype in SUPPORTED}.values())


def numbered(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    """An array of numbers that differ as far as the dtype allows."""
    return (
        (np.arange(np.prod(shape, dtype=int)) % 251 % 2 ** (4 if "8" in dtype else 8))
        .reshape(shape)
        .astype(dtype)
    )


def cases() -> list[Case]:
    found = []

    def add(
        name: str, build: Callable[..., Any], *arrays: np.ndarray[Any, Any], faults: bool = False
    ) -> None:
        found.append(Case(name, build, arrays, faults=faults))

    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((5, 7), (1, 0)), ((64, 64), (1, 0)), ((130, 66), (1, 0)), ((3, 1000), (1, 0)),
        ((1000, 3), (1, 0)), ((2, 5000), (1, 0)), ((5, 128, 64), (0, 2, 1)),
        ((2, 40, 3, 64), (0, 2, 1, 3)), ((2, 40, 3, 7), (0, 2, 1, 3)),
        ((4, 33, 5, 18), (3, 0, 2, 1)), ((6, 5, 4, 3), (3, 2, 1, 0)),
        ((1, 8, 1, 4), (2, 1, 0, 3)), ((0, 4), (1, 0)), ((4, 6, 8), (2, 0, 1)),
    ]  # fmt: skip
    for shape, axes in shapes:
        add(
            f"transpose {shape} {axes}",
            lambda x, axes=axes: ops.transpose(x, axes),
            numbered(*shape),
        )
    for dtype in DTYPES:
        add(
            f"transpose of {dtype}",
            lambda x: ops.transpose(x, (0, 2, 1)),
            numbered(3, 132, 68, dtype=dtype),
        )
        add(
            f"transpose of {dtype}, odd",
            lambda x: ops.transpose(x, (0, 2, 1)),
            numbered(3, 131, 67, dtype=dtype),
        )
        add(f"slice of {dtype}", lambda x: x[1:, ::2], numbered(5, 90, dtype=dtype))
        add(
            f"concat of {dtype}",
            lambda x, y: ops.concat([x, y, x], axis=1),
            numbered(300, 16, dtype=dtype),
            numbered(300, 32, dtype=dtype),
        )
        add(
            f"concat of {dtype}, odd",
            lambda x, y: ops.concat([x, y], axis=-1),
            numbered(40, 5, dtype=dtype),
            numbered(40, 2, dtype=dtype),
        )
        add(
            f"take of {dtype}",
            lambda x, i: ops.take(x, i, axis=0),
            numbered(20, 32, dtype=dtype),
            np.array([[3, -1], [19, -20]]),
        )
        add(
            f"broadcast of {dtype}",
            lambda x: ops.broadcast_to(x, (4, 9, 16)),
            numbered(9, 1, dtype=dtype),
        )
    x = numbered(6, 10, 12)
    flat = (720,)
    for name, build in {
        "rows": lambda x: x[2:5],
        "columns": lambda x: x[:, :, 4:12],
        "odd columns": lambda x: x[:, :, 3:10],
        "one column": lambda x: x[:, 3, 5],
        "backwards": lambda x: x[::-1, :, ::-2],
        "an element": lambda x: x[1, 2, 3],
        "nothing": lambda x: x[:, 4:4],
        # A view at an odd address is read by other kernels.
        "a view, added": lambda x: x.reshape(flat)[3:700] * 2 + 1,
        "a view, transposed": lambda x: ops.transpose(x.reshape(flat)[1:661].reshape((20, 33))),
        "a view, concatenated": lambda x: ops.concat(
            [x.reshape(flat)[1:641], x.reshape(flat)[:80]]
        ),
        "a view, taken": lambda x: ops.take(x.reshape(flat)[1:641].reshape((20, 32)), TAKEN),
    }.items():
        add(f"slice: {name}", build, x)
    add(
        "concat along the first axis",
        lambda x, y: ops.concat([x, y], axis=0),
        numbered(40, 33),
        numbered(70, 33),
    )
    add(
        "concat with nothing",
        lambda x, y: ops.concat([x, y], axis=0),
        numbered(0, 3),
        numbered(7, 3),
    )
    add(
        "concat of many",
        lambda *x: ops.concat(x, axis=1),
        *(numbered(3, 1 + i % 3) for i in range(131)),
    )
    add(
        "concat of much",
        lambda x, y: ops.concat([x, y], axis=1),
        numbered(64, 1000),
        numbered(64, 24),
    )
    add(
        "take along the middle",
        lambda x, i: ops.take(x, i, axis=1),
        x,
        np.array([9, 0, -10, 3, 3], "i4"),
    )
    add("take single elements", lambda x, i: ops.take(x, i, axis=2), x, np.array([11, 0, 5]))
    add("take one", lambda x, i: ops.take(x, i, axis=0), x, np.array(4))
    add("take much", lambda x, i: ops.take(x, i, axis=0), numbered(50, 64), np.arange(2000) % 50)
    add("take nothing", lambda x, i: ops.take(x, i, axis=0), x, np.zeros(0, "i8"))
    add(
        "take out of range",
        lambda x, i: ops.take(x, i, axis=0),
        x,
        np.array([1, 6, -7, 2**62, -(2**62), 0]),
        faults=True,
    )
    return found


CASES = cases()


@pytest.fixture(scope="module")
def suite() -> Suite:
    return Suite(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_movement(suite: Suite, case: Case) -> None:
    for seed in (0, 1):
        (found,) = suite.run(case, seed, inplace=bool(seed))
        assert bool(suite.fault.array[0]) == case.faults
        if not case.faults:
            np.testing.assert_array_equal(found, case.expected()[0])


def test_what_is_out_of_range_gives_zeros_and_the_node(suite: Suite) -> None:
    (case,) = (case for case in CASES if case.faults)
    (found,) = suite.run(case)
    x = case.arrays[0]
    np.testing.assert_array_equal(found, np.stack([x[1], *[x[0] * 0] * 4, x[0]]))
    assert suite.fault.array[0] == 1


def test_what_lies_right_is_not_moved() -> None:
    moves = {case.name: len(case.calls) for case in CASES}
    for name in ("slice: rows", "slice: an element", "concat with nothing", "take nothing"):
        assert moves[name] == 0, name
    assert moves["transpose (1, 8, 1, 4) (2, 1, 0, 3)"] == 0
    assert moves["concat of many"] == 2
