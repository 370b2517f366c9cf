"""Products of a single row for cuda: lowered, run on the host, compared with the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fastgraph.ir import Graph, ops
from fastgraph.lower.cuda import tiles
from tests.cuda_host import compiler
from tests.cuda_host.lowered import SMALL, Case, Suite, close

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")

F16, BF16, F32 = np.dtype("f2"), np.dtype(ml_dtypes.bfloat16), np.dtype("f4")
H200 = replace(SMALL, multiprocessors=132)


def row(
    dtype: Any, k: int, n: int, *, norm: bool = False, scale: bool = False, gate: str = "",
    bias: bool = False, activation: str = "", residual: bool = False, offset: int = 0,
) -> Graph:  # fmt: skip
    """A product of one row with what may come before and after it."""
    g = Graph("row")
    whole = g.input("x", (1, offset + k), dtype)
    x = whole[:, offset:] if offset else whole
    if norm or scale:
        x = ops.rms_norm(x, g.param("scale", (k,), dtype) if scale else None, eps=1e-3)
    w = g.param("w", (k, n), dtype)
    if gate:
        y = getattr(ops, gate)(x @ g.param("gate", (k, n), dtype)) * (x @ w)
    else:
        y = x @ w
        if bias:
            y = y + g.param("bias", (n,), dtype)
        if activation:
            y = getattr(ops, activation)(y)
        if residual:
            y = y + g.input("residual", (1, n), dtype)
    g.output(y, "y")
    return g


GRAPHS = {
    "plain": row(F16, 1320, 136),
    "few columns": row(F16, 520, 10),
    "bf16": row(BF16, 1320, 70, residual=True),
    "end": row(F16, 200, 33, bias=True, activation="gelu", residual=True),
    "normed": row(F16, 1320, 36, norm=True, residual=True),
    "scaled": row(BF16, 264, 36, scale=True, activation="tanh"),
    "gated": row(F16, 1320, 37, scale=True, gate="silu"),
    "gated alone": row(F16, 40, 130, gate="gelu"),
    "f32": row(F32, 520, 37, scale=True, gate="silu"),
    "odd address": row(F16, 64, 12, offset=3),
}
CASES = {
    f"{name}, {target.multiprocessors}": Case.of(name, graph, target)
    for name, graph in GRAPHS.items()
    for target in (SMALL, H200)
}


@pytest.fixture(scope="module")
def suite() -> Suite:
    return Suite(CASES.values())


@pytest.mark.parametrize("name", CASES)
def test_rows(name: str, suite: Suite) -> None:
    case = CASES[name]
    assert "matmul_row<" in case.calls[-1].code.entry
    for seed, inplace in ((0, False), (5, True)):
        for found, wanted in zip(suite.run(case, seed, inplace), case.expected(), strict=True):
            # Parts that the reference of the whole rounds are not rounded.
            close(found, wanted, scale=30.0 if found.dtype.itemsize >= 4 else 2.0)


def test_few_columns_are_shared_by_more_blocks() -> None:
    assert tiles.choose_row(2, 4096, 4096, False, 132)[:4] == (4, 2, 2, 2)
    assert tiles.choose_row(2, 256, 4096, False, 132)[:4] == (2, 4, 2, 2)
    assert tiles.choose_row(2, 10, 64, False, 132)[:4] == (2, 4, 1, 1)


def test_blocks_that_are_there_at_once_have_more_warps() -> None:
    assert tiles.choose_row(2, 2048, 8192, False, 132)[:4] == (4, 2, 4, 4)
    assert tiles.choose_row(2, 2048, 256, False, 132)[:4] == (4, 2, 1, 1)
    assert tiles.choose_row(2, 3072, 2048, False, 132)[:4] == (4, 2, 2, 2)
    assert tiles.choose_row(2, 1024, 2048, False, 132)[:4] == (4, 2, 2, 2)


def test_an_odd_address_is_read_in_pieces() -> None:
    case = CASES["odd address, 132"]
    assert ", 2, 16, " in case.calls[-1].code.entry
