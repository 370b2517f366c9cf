"""A layer of a transformer through the kernels of a GPU, as the passes and lowerings make it."""

from __future__ import annotations

import numpy as np
import pytest

from fastgraph.ir import ops
from fastgraph.ir.graph import Graph, Value
from fastgraph.lower.cuda import Target
from tests.cuda_host import compiler
from tests.cuda_host.lowered import Case, Suite

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")

RNG = np.random.default_rng(25)
H200 = Target("sm_90", (9, 0), 132, 232448, 50 << 20)
TOKENS, WORDS, WIDTH, HEADS, INNER = 21, 100, 64, 4, 128


def layer(dtype: str) -> Case:
    """Embeddings, attention under a mask, two products and norms with residuals, a mean."""
    graph = Graph("layer")
    ids = graph.input("ids", (1, TOKENS), "int64")
    mask = graph.input("mask", (1, TOKENS), "bool")

    def linear(x: Value, name: str, width: int) -> Value:
        weight = graph.param(f"{name}.w", (width, x.shape[-1]), dtype)
        return x @ weight.T + graph.param(f"{name}.b", (width,), dtype)

    def norm(x: Value, name: str) -> Value:
        return ops.layer_norm(x, *(graph.param(f"{name}.{k}", (WIDTH,), dtype) for k in "ab"))

    def apart(x: Value) -> Value:
        return x.reshape(1, TOKENS, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)

    x = norm(ops.take(graph.param("words", (WORDS, WIDTH), dtype), ids, axis=0), "first")
    q, k, v = (apart(linear(x, name, WIDTH)) for name in "qkv")
    mixed = ops.attention(q, k, v, mask.reshape(1, 1, 1, TOKENS)).transpose(0, 2, 1, 3)
    x = norm(x + linear(mixed.reshape(1, TOKENS, WIDTH), "mixed", WIDTH), "second")
    x = norm(x + linear(ops.gelu(linear(x, "in", INNER)), "out", WIDTH), "third")
    weight = mask.astype(dtype).reshape(1, TOKENS, 1)
    pooled = ops.sum(x * weight, axis=1) / ops.sum(weight, axis=1)
    graph.output(pooled / ops.sqrt(ops.sum(pooled * pooled, axis=1, keepdims=True)), "y")
    arrays = [RNG.integers(0, WORDS, (1, TOKENS)), np.arange(TOKENS)[None] < 17]
    for param in graph.params:
        spread = 0.3 / np.sqrt(param.shape[-1]) * 4 if param.ndim == 2 else 0.1
        centre = 1.0 if param.name.endswith(".a") else 0.0
        arrays.append((RNG.normal(size=param.shape) * spread + centre).astype(dtype))
    return Case(dtype, graph, tuple(arrays), H200)


CASES = {dtype: layer(dtype) for dtype in ("float32", "float16")}


@pytest.fixture(scope="module")
def suite() -> Suite:
    return Suite(CASES.values())


@pytest.mark.parametrize("dtype", CASES)
def test_layer(suite: Suite, dtype: str) -> None:
    case = CASES[dtype]
    (found,), (expected,) = suite.run(case, seed=1, inplace=True), case.expected()
    assert not suite.fault.array[0]
    # Rows of length 1: what is lost is a share of their largest elements.
    bound = {"float32": 1e-6, "float16": 2e-3}[dtype]
    np.testing.assert_allclose(found.astype("f8"), expected.astype("f8"), rtol=0, atol=bound)
    assert found.tobytes() == suite.run(case)[0].tobytes()
