"""Products that share an operand are one: on a GPU where that gains time."""

from __future__ import annotations

import pytest

import fastgraph as fg
from fastgraph import ops
from fastgraph.passes import GPU_ROWS, optimise


def products(rows, dtype, pack=False):
    """How many there are of what makes q, k and v."""
    g = fg.Graph()
    x = g.input("x", (rows, 32), dtype)
    q, k, v = (
        (x @ g.param(name, (32, 32), dtype)).reshape(1, rows, 2, 16).transpose((0, 2, 1, 3))
        for name in "qkv"
    )
    g.output(ops.attention(q, k, v), "y")
    run = optimise(g, pack=pack).run_nodes
    return sum(node.op in ("fused_matmul", "row_product") for node in run)


@pytest.mark.parametrize(
    ("rows", "dtype", "number"),
    [
        (1, "float16", 1),
        (1, "float32", 1),
        (2, "float16", 3),
        (GPU_ROWS - 1, "bfloat16", 3),
        (GPU_ROWS, "bfloat16", 1),
        (GPU_ROWS, "float32", 3),
    ],
)
def test_on_a_gpu_a_single_row_and_many_of_half_floats(rows, dtype, number):
    assert products(rows, dtype) == number


def test_what_may_be_fewer_rows_counts_as_all_of_them():
    assert products(fg.dim("rows", GPU_ROWS), "float16") == 1
    assert products(fg.dim("rows", 2), "float16") == 3


@pytest.mark.parametrize("rows", [1, 2, GPU_ROWS])
def test_on_the_cpu_all(rows):
    assert products(rows, "float32", pack=True) == 1
