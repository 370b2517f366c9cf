"""Products and the norms of their rows for cuda: lowered, run on the host, beside the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fastgraph.ir import Graph, ops
from tests.cuda_host import compiler
from tests.cuda_host.lowered import SMALL, Case, Suite, close

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")

F16, BF16, F32 = np.dtype("f2"), np.dtype(ml_dtypes.bfloat16), np.dtype("f4")
H200 = replace(SMALL, multiprocessors=132)


def layer(
    dtype: Any, m: int, k: int, n: int, norm: str = "layer_norm", *, bias: bool = True,
    scale: bool = True, residual: bool = False, activation: str = "", seen: bool = False,
) -> Graph:  # fmt: skip
    """A product of m rows and the norm of them; the product is an output too where `seen`."""
    g = Graph("normed")
    y = g.input("x", (m, k), dtype) @ g.param("w", (k, n), dtype)
    if bias:
        y = y + g.param("bias", (n,), dtype)
    if activation:
        y = getattr(ops, activation)(y)
    if residual:
        y = y + g.input("residual", (m, n), dtype)
    weights = [g.param("scale", (n,), dtype)] if scale else [None]
    if norm == "layer_norm":
        weights.append(g.param("shift", (n,), dtype) if scale else None)
    g.output(getattr(ops, norm)(y, *weights, eps=1e-3), "y")
    if seen:
        g.output(y, "sum")
    return g


GRAPHS = {
    "parts": layer(F16, 24, 1024, 96, residual=True),
    "parts, seen": layer(BF16, 24, 1024, 96, "rms_norm", residual=True, seen=True),
    "parts, odd": layer(F16, 19, 1000, 67, activation="gelu", residual=True),
    "parts, f32": layer(F32, 24, 520, 40, bias=False, scale=False, seen=True),
    "few rows": layer(F16, 5, 2048, 64, "rms_norm", bias=False, residual=True),
    "whole": layer(F16, 24, 32, 96, activation="relu"),
    "whole, seen": layer(F32, 24, 16, 33, residual=True, seen=True),
}
CASES = {name: Case.of(name, graph, H200) for name, graph in GRAPHS.items()}


@pytest.fixture(scope="module")
def suite() -> Suite:
    return Suite(CASES.values())


@pytest.mark.parametrize("name", CASES)
def test_normed(name: str, suite: Suite) -> None:
    case = CASES[name]
    kernels = [call.code.entry.split("<")[0] for call in case.calls]
    assert kernels[-1] == ("norm_parts_of_k" if "whole" not in name else "norm_rows")
    assert "matmul" in kernels[-2]
    for seed, inplace in ((0, False), (5, True)):
        for found, wanted in zip(suite.run(case, seed, inplace), case.expected(), strict=True):
            # Sums that the reference rounds before it norms them are not rounded.
            close(found, wanted, scale=30.0 if found.dtype.itemsize >= 4 else 2.0)
