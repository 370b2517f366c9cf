"""Attention found in what is written out, read in place, and its projections joined."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fastgraph.ir import Graph, ops, reference
from fastgraph.passes import optimise
from tests.passes.graphs import arguments, encoder

BATCH, HEADS, TOKENS, SIZE = 2, 4, 5, 8
WIDTH = HEADS * SIZE


def checked(graph):
    """Return the run's nodes, after both forms of the graph gave the same."""
    data = arguments(graph)
    wanted = reference.evaluate(graph, **data)
    found = optimise(graph)
    for name, array in reference.evaluate(found.graph, **data).items():
        np.testing.assert_allclose(array, wanted[name], rtol=1e-4, atol=1e-5)
    return found.run_nodes


def names(graph):
    """Return the run's operators but reshapes."""
    return [node.op for node in checked(graph) if node.op != "reshape"]


def operands(*shapes):
    """Return a graph and inputs of these shapes, by default q, k and v of four axes."""
    graph = Graph("written")
    whole = shapes or ((BATCH, HEADS, TOKENS, SIZE),) * 3
    return graph, [graph.input(f"x{i}", shape) for i, shape in enumerate(whole)]


def swapped(x):
    return ops.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


ROOT = math.sqrt(SIZE)
SCALED = {
    "divided": lambda q, k: q @ swapped(k) / ROOT,
    "multiplied": lambda q, k: q @ swapped(k) * (1 / ROOT),
    "first q": lambda q, k: (q / ROOT) @ swapped(k),
    "both": lambda q, k: (q * ROOT**-0.5) @ (swapped(k) * ROOT**-0.5),
    "first k": lambda q, k: q @ swapped(k * 0.25),
    "twice": lambda q, k: (q * 2) @ swapped(k) * 0.5,
    "not": lambda q, k: q @ swapped(k),
    "capped": lambda q, k: ops.tanh(q @ swapped(k) * 0.3 / 2.5) * 2.5,
}


@pytest.mark.parametrize("form", SCALED)
def test_the_factor(form):
    graph, (q, k, v) = operands()
    graph.output(ops.softmax(SCALED[form](q, k)) @ v, "y")
    (node,) = checked(graph)
    assert node.op == "fused_attention"
    assert (node.attrs["softcap"] is not None) == (form == "capped")


MASKS = {
    "added": lambda s, m: s + m,
    "added first": lambda s, m: m + s,
    "two": lambda s, m: s + m + m * 2,
    "hidden": lambda s, m: ops.where(m > 0, s, -np.inf),
    "shown": lambda s, m: ops.where(m > 0, -np.inf, s),
    "lowest": lambda s, m: ops.where(m > 0, s, np.finfo("f4").min.item()),
    "both": lambda s, m: ops.where(m > -1, s, -1e38) + m,
}


@pytest.mark.parametrize("shape", [(BATCH, 1, 1, TOKENS), (TOKENS, TOKENS), (TOKENS,)])
@pytest.mark.parametrize("form", MASKS)
def test_masks(form, shape):
    graph, (q, k, v, mask) = operands(*[(BATCH, HEADS, TOKENS, SIZE)] * 3, shape)
    scores = MASKS[form](q @ swapped(k) * 0.5, mask)
    graph.output(ops.softmax(scores) @ v, "y")
    found = optimise(graph).run_nodes
    assert [node.op for node in found if node.op not in ("region", "reshape")] == [
        "fused_attention"
    ]
    assert found[-1].attrs["mask"] is not None
    if form not in ("hidden", "shown"):  # Where all is hidden, softmax is nan and attention 0.
        checked(graph)


def test_heads_and_batch_in_one_axis():
    graph, (q, k, v, mask) = operands(
        *[(BATCH * HEADS, TOKENS, SIZE)] * 3, (BATCH, 1, TOKENS, TOKENS)
    )
    scores = (q @ swapped(k)).reshape(BATCH, HEADS, TOKENS, TOKENS) + mask
    weights = ops.softmax(scores).reshape(BATCH * HEADS, TOKENS, TOKENS)
    graph.output(weights @ v, "y")
    assert names(graph) == ["fused_attention"]
    graph, (q, k, v) = operands(*[(6, TOKENS, SIZE)] * 3)
    graph.output(ops.softmax(q @ swapped(k)) @ v, "y")
    assert names(graph) == ["fused_attention"]


def test_repeated_heads():
    graph, (q, k, v) = operands(
        (BATCH, HEADS, TOKENS, SIZE), (BATCH, 2, 7, SIZE), (BATCH, 2, 7, SIZE)
    )

    def spread(x):
        wide = ops.broadcast_to(x.reshape(BATCH, 2, 1, 7, SIZE), (BATCH, 2, 2, 7, SIZE))
        return wide.reshape(BATCH, HEADS, 7, SIZE)

    graph.output(ops.softmax(q @ swapped(spread(k)) / ROOT) @ spread(v), "y")
    (node,) = checked(graph)
    assert (node.op, node.attrs["sizes"].key_heads) == ("fused_attention", 2)


def test_what_others_see_stays():
    def written(seen):
        graph, (q, k, v) = operands()
        scores = q @ swapped(k)
        scaled = scores * 0.5
        weights = ops.softmax(scaled)
        graph.output(weights @ v, "y")
        seen(graph, {"scores": scores, "scaled": scaled, "weights": weights})
        return names(graph)

    assert written(lambda graph, parts: None) == ["fused_attention"]
    for name in ("scores", "scaled", "weights"):
        for seen in (
            lambda graph, parts, name=name: graph.output(parts[name], "z"),
            lambda graph, parts, name=name: graph.output(ops.sum(parts[name]), "z"),
        ):
            assert "fused_attention" not in written(seen)


@pytest.mark.parametrize(
    "form",
    [
        lambda q, k, v: ops.softmax(q @ swapped(k), axis=2) @ v,
        lambda q, k, v: ops.softmax(q @ k.transpose(0, 1, 3, 2)[:, :, :, ::-1]) @ v[:1],
        lambda q, k, v: ops.softmax((q @ swapped(k) + 1) * 2 * q[..., :1]) @ v,
        lambda q, k, v: ops.softmax(ops.softmax(q @ swapped(k))) @ v,
        lambda q, k, v: ops.softmax(q[:1] @ swapped(k)) @ v,
        lambda q, k, v: ops.softmax(ops.where(q[..., :1] > 0, q @ swapped(k), -9.0)) @ v,
    ],
)
def test_what_is_no_attention(form):
    graph, (q, k, v) = operands()
    graph.output(form(q, k, v), "y")
    assert "fused_attention" not in names(graph)


def heads(x, count=HEADS):
    return x.reshape(BATCH, TOKENS, count, SIZE).transpose(0, 2, 1, 3)


def test_one_projection_is_read_in_place():
    graph = Graph("packed")
    x = graph.input("x", (BATCH, TOKENS, WIDTH))
    w, b = graph.param("w", (WIDTH, 3 * WIDTH)), graph.param("b", (3 * WIDTH,))
    q, k, v = ops.split(x @ w + b, 3, axis=2)
    y = ops.attention(heads(q), heads(k), heads(v), is_causal=True)
    graph.output(y.transpose(0, 2, 1, 3).reshape(BATCH, TOKENS, WIDTH), "y")
    assert names(graph) == ["fused_matmul", "fused_attention"]
    node = next(node for node in checked(graph) if node.op == "fused_attention")
    assert node.attrs["rows_first"]
    assert [node.attrs[name].offset for name in "qkv"] == [0, WIDTH, 2 * WIDTH]
    assert {node.attrs[name].position for name in "qkv"} == {3 * WIDTH}


def test_heads_in_the_projection():
    """(batch, tokens, 3, heads, elements), one of the three chosen by an index."""
    graph = Graph("packed")
    x = graph.input("x", (BATCH, TOKENS, 3 * WIDTH)).reshape(BATCH, TOKENS, 3, HEADS, SIZE)
    x = x.transpose(2, 0, 3, 1, 4)
    graph.output(ops.attention(x[0], x[1], x[2]), "y")
    assert names(graph) == ["fused_attention"]


def test_what_is_no_view_stays():
    graph, (q, k, v) = operands()
    graph.output(ops.attention(q[:, :, ::-1], k, v[..., ::2]), "y")
    assert names(graph) == ["slice", "slice", "fused_attention"]
    graph = Graph("walk over the end")
    x = graph.input("x", (1, 6, 10))[:, :, :8]
    graph.output(ops.attention(*[x.reshape(1, 2, 3, 8).transpose(0, 1, 2, 3)] * 3), "y")
    assert names(graph) == ["fused_attention"]
    graph = Graph("walk over the end")
    x = graph.input("x", (1, 6, 10))[:, :, :8]
    graph.output(ops.attention(*[x.reshape(1, 3, 4, 4)] * 3), "y")
    assert names(graph) == ["slice", "fused_attention"]


def test_a_result_that_others_see_is_not_turned():
    graph, (q, k, v) = operands()
    y = ops.attention(q, k, v)
    graph.output(y, "y")
    graph.output(y.transpose(0, 2, 1, 3), "z")
    assert names(graph) == ["fused_attention", "transpose"]


def test_the_encoder_joins_its_projections():
    nodes = checked(encoder())
    assert [node.op for node in nodes if node.op != "reshape"] == [
        *("fused_matmul", "fused_attention", "fused_matmul", "layer_norm"),
        *("fused_matmul", "fused_matmul", "layer_norm"),
    ]
    assert [node.attrs["n"] for node in nodes if node.op == "fused_matmul"] == [48, 16, 64, 16]


def projections(rows, seen=lambda graph, parts: None, weights=("param",) * 3):
    """Three products of one operand, whose results attention or a sum reads."""
    graph = Graph("projections")
    x = graph.input("x", (1, rows, WIDTH))
    parts = []
    for i, kind in enumerate(weights):
        part = x @ getattr(graph, kind)(f"w{i}", (WIDTH, WIDTH))
        parts.append(part + graph.param(f"b{i}", (WIDTH,)) if i else part)
    q, k, v = (part.reshape(1, rows, HEADS, SIZE).transpose(0, 2, 1, 3) for part in parts)
    graph.output(ops.attention(q, k, v), "y")
    seen(graph, parts)
    return [node.attrs["n"] for node in checked(graph) if node.op == "fused_matmul"]


def test_products_that_may_be_joined():
    assert projections(3) == [3 * WIDTH]
    assert projections(1) == [3 * WIDTH]
    # A weight that a run is given is not set before it.
    assert sorted(projections(3, weights=("param", "input", "param"))) == [WIDTH, 2 * WIDTH]
    # One that is an output, or that more than attention reads.
    assert sorted(projections(3, lambda g, p: g.output(p[0], "q"))) == [WIDTH, 2 * WIDTH]
    assert sorted(projections(3, lambda g, p: g.output(p[1] * 2, "k"))) == [WIDTH, 2 * WIDTH]
    assert sorted(projections(1, lambda g, p: g.output(p[1] * 2, "k"))) == [3 * WIDTH]


def test_on_a_gpu_large_products_of_half_types_alone_are_joined():
    for rows, dtype, joined in (
        (1024, "float16", True), (1023, "float16", False), (1024, "float32", False)
    ):  # fmt: skip
        graph = Graph("projections")
        x = graph.input("x", (1, rows, WIDTH), dtype)
        parts = [x @ graph.param(f"w{i}", (WIDTH, WIDTH), dtype) for i in range(3)]
        heads = (part.reshape(1, rows, HEADS, SIZE).transpose(0, 2, 1, 3) for part in parts)
        graph.output(ops.attention(*heads), "y")
        nodes = optimise(graph, pack=False).run_nodes
        found = [node.attrs["n"] for node in nodes if node.op == "fused_matmul"]
        assert found == ([3 * WIDTH] if joined else [WIDTH] * 3)


def test_a_single_row_joins_whatever_reads_it():
    graph = Graph("gated")
    x = graph.input("x", (1, 8))
    up, gate = (x @ graph.param(name, (8, 12)) for name in ("up", "gate"))
    graph.output(ops.silu(gate) * up, "y")
    assert names(graph).count("fused_matmul") == 1
    graph = Graph("gated")
    x = graph.input("x", (2, 8))
    up, gate = (x @ graph.param(name, (8, 12)) for name in ("up", "gate"))
    graph.output(ops.silu(gate) * up, "y")
    assert names(graph).count("fused_matmul") == 2
