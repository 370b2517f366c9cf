"""Rows through a graph: what the analysis says is what the reference computes."""

from __future__ import annotations

import numpy as np
import pytest

from fastgraph.ir import Graph, ops, reference
from fastgraph.ir.ops.registry import OPS
from fastgraph.ir.rows import RULES, follow_rows

N = 4
f4 = np.float32


def heads(x):
    """(rows, 6) as (1, 2, rows, 3)."""
    return x.reshape(1, N, 2, 3).transpose((0, 2, 1, 3))


def merged(x):
    return x.transpose((0, 2, 1, 3)).reshape(N, 6)


ANGLES = np.linspace(0, 1, 2 * N * 3, dtype="f4").reshape(2 * N, 3)

# For rows x of (4, 6) and weights w (6, 6): the output, and the axis of its rows.
APART = {
    "itself": (lambda g, x, w: x, 0),
    "elementwise": (lambda g, x, w: ops.relu(x * w[0] + 1), 0),
    "turned": (lambda g, x, w: x.T, 1),
    "broadcast down": (lambda g, x, w: x.reshape(N, 1, 6) + w, 0),
    "broadcast to": (lambda g, x, w: ops.broadcast_to(x[:, :1], (3, N, 6)), 1),
    "product": (lambda g, x, w: x @ w, 0),
    "weights first": (lambda g, x, w: w @ x.T, 1),
    "vector": (lambda g, x, w: x @ w[0], 0),
    "vector first": (lambda g, x, w: w[0] @ x.T, 0),
    "batched": (lambda g, x, w: x.reshape(N, 2, 3) @ w[:3, :3], 0),
    "batch and weights": (lambda g, x, w: w[:2, :2] @ x.reshape(N, 2, 3), 0),
    "both batched": (lambda g, x, w: x.reshape(N, 2, 3) @ x.reshape(N, 3, 2), 0),
    "sum": (lambda g, x, w: ops.sum(x, axis=1), 0),
    "sum of the first axis": (lambda g, x, w: ops.sum(x.T, axis=0), 0),
    "mean keeps": (lambda g, x, w: ops.mean(x.T, axis=0, keepdims=True), 1),
    "argmax": (lambda g, x, w: ops.argmax(x, axis=1), 0),
    "softmax": (lambda g, x, w: ops.softmax(x), 0),
    "softmax beside": (lambda g, x, w: ops.softmax(x.T, axis=0), 1),
    "norm": (lambda g, x, w: ops.layer_norm(x, w[0], w[1]), 0),
    "rms norm": (lambda g, x, w: ops.rms_norm(x, w[0]), 0),
    "split": (lambda g, x, w: x.reshape(N, 3, 2).transpose((1, 0, 2)), 1),
    "flat and back": (lambda g, x, w: ops.exp(x.reshape(N * 6)).reshape(N, 6), 0),
    "merged with what follows": (lambda g, x, w: (x.reshape(N * 2, 3) @ w[:3]).reshape(N, 12), 0),
    "merged with what precedes": (
        lambda g, x, w: ops.softmax(
            x.reshape(N, 2, 3).transpose((1, 0, 2)).reshape(2 * N, 3)
        ).reshape(2, N, 3), 1,
    ),
    "split over axes": (lambda g, x, w: ops.tanh(x.reshape(2, 2, 6)).reshape(N, 6), 0),
    "columns": (lambda g, x, w: x[:, 1:5:2], 0),
    "columns backwards": (lambda g, x, w: x[:, ::-1], 0),
    "concat": (lambda g, x, w: ops.concat([x, x * 2, ops.broadcast_to(w[:1], (N, 6))], 1), 0),
    "top k": (lambda g, x, w: ops.top_k(x, 2)[0], 0),
    "running sum beside": (lambda g, x, w: ops.cumulative_sum(x, axis=1), 0),
    "running sum": (lambda g, x, w: ops.cumulative_sum(x, axis=0), 0),
    "rows of a table": (lambda g, x, w: ops.take(w, ops.argmax(x, axis=1), axis=0), 0),
    "columns by index": (lambda g, x, w: ops.take(x, g.constant(np.int64([2, 0])), axis=1), 0),
    "index table": (
        lambda g, x, w: ops.take(x.T, g.constant(np.int64([[2, 0, 1]])), axis=0), 2,
    ),
    "attention of each": (
        lambda g, x, w: ops.attention(*[x.reshape(N, 1, 2, 3)] * 3).reshape(N, 6), 0,
    ),
    "attention to others": (
        lambda g, x, w: merged(ops.attention(heads(x), *[w.reshape(1, 2, 6, 3)] * 2)), 0,
    ),
    "causal attention": (
        lambda g, x, w: merged(ops.attention(heads(x), heads(x), heads(x * 2), is_causal=True)), 0,
    ),
    "masked attention": (
        lambda g, x, w: ops.attention(
            *[x.reshape(N, 1, 2, 3)] * 3, ops.broadcast_to(x[:, :1] > 0, (N, 2)).reshape(N, 1, 1, 2)
        ).reshape(N, 6), 0,
    ),
    "rotary": (
        lambda g, x, w: merged(ops.rotary_embedding(
            ops.concat([heads(x), heads(x)], 3), *[g.constant(ANGLES[None, :N])] * 2
        )[:, :, :, :3]), 0,
    ),
    "rotary by position": (
        lambda g, x, w: merged(ops.rotary_embedding(
            ops.concat([heads(x), heads(x)], 3), *[g.constant(ANGLES)] * 2,
            ops.argmax(x, axis=1).reshape(1, N),
        )[:, :, :, :3]), 0,
    ),
    "experts": (
        lambda g, x, w: ops.grouped_matmul(x, w.reshape(2, 6, 3), ops.argmax(x[:, :2], axis=1)), 0,
    ),
    "the first row": (lambda g, x, w: x[0] * 2, None),
    "no rows": (lambda g, x, w: w + 1, None),
}  # fmt: skip

MIXED = {
    "sum": (lambda g, x, w: ops.sum(x, axis=0), "sum"),
    "sum of all": (lambda g, x, w: ops.sum(x), "sum"),
    "softmax": (lambda g, x, w: ops.softmax(x, axis=0), "softmax"),
    "norm": (lambda g, x, w: ops.layer_norm(x, axis=(0, 1)), "layer_norm"),
    "norm by rows": (lambda g, x, w: ops.layer_norm(w[:4], x[:, 0], axis=0), "layer_norm"),
    "summed over": (lambda g, x, w: w[:, :4] @ x, "matmul"),
    "summed over first": (lambda g, x, w: x.T @ w[:4], "matmul"),
    "with itself": (lambda g, x, w: x @ x.T, "matmul"),
    "with a turned one": (lambda g, x, w: x[:, :4] + x[:, :4].T, "add"),
    "across": (lambda g, x, w: x.reshape(N, 1, 6) + x.reshape(1, N, 6), "add"),
    "later": (lambda g, x, w: ops.relu(ops.max(x, axis=0) + w), "max"),
    "the last row": (lambda g, x, w: x[-1], "slice"),
    "rows backwards": (lambda g, x, w: x[::-1], "slice"),
    "two rows": (lambda g, x, w: x[:2], "slice"),
    "joined": (lambda g, x, w: ops.concat([w, x]), "concat"),
    "running sum backwards": (
        lambda g, x, w: ops.cumulative_sum(x, axis=0, reverse=True), "cumulative_sum",
    ),
    "running sum of all": (
        lambda g, x, w: ops.cumulative_sum(x.reshape(2, 2, 6), axis=1), "cumulative_sum",
    ),
    "top k": (lambda g, x, w: ops.top_k(x, 2, axis=0)[0], "top_k"),
    "by index": (lambda g, x, w: ops.take(x, g.constant(np.int64([0])), axis=0), "take"),
    "by index of rows": (lambda g, x, w: ops.take(x, ops.argmax(x, axis=1), axis=1), "take"),
    "attention": (lambda g, x, w: merged(ops.attention(*[heads(x)] * 3)), "attention"),
    "keys alone": (
        lambda g, x, w: ops.attention(w.reshape(1, 2, 6, 3), heads(x), heads(x)), "attention",
    ),
    "causal, but ahead": (
        lambda g, x, w: ops.attention(
            w.reshape(1, 2, 6, 3), heads(x), heads(x), is_causal=True
        ), "attention",
    ),
    "mask of keys": (
        lambda g, x, w: ops.attention(
            *[w[:4].reshape(1, 2, 4, 3)] * 3, x[:, 0].reshape(1, 1, 1, 4)
        ), "attention",
    ),
    "scattered": (
        lambda g, x, w: ops.scatter_add(
            w, ops.broadcast_to(ops.argmax(x, axis=1, keepdims=True), (4, 6)), x, axis=0
        ), "scatter",
    ),
    "rows cut up": (lambda g, x, w: x.reshape(2, 2, 6), "reshape"),
    "rows merged": (lambda g, x, w: x.reshape(24), "reshape"),
}  # fmt: skip


def written(make):
    graph = Graph()
    x, w = graph.input("x", (N, 6)), graph.param("w", (6, 6))
    graph.output(make(graph, x, w), "y")
    return graph


@pytest.mark.parametrize("name", APART)
def test_apart(name):
    """What follows a row changes nothing of it, and the axis is that of the rows."""
    make, axis = APART[name]
    graph = written(make)
    flow = follow_rows(graph, {"x": 0}, N)
    assert not flow.mixed
    assert (flow.outputs[0] and flow.outputs[0].axis) == axis
    random = np.random.default_rng(0)
    x, w = random.normal(size=(N, 6)).astype(f4), random.normal(size=(6, 6)).astype(f4)
    whole = reference.evaluate(graph, {"x": x}, {"w": w})["y"]
    for rows in range(1, N):
        other = np.concatenate([x[:rows], random.normal(size=(N - rows, 6)).astype(f4)])
        found = reference.evaluate(graph, {"x": other}, {"w": w})["y"]
        if axis is None:
            np.testing.assert_array_equal(found, whole)
        else:
            assert found.shape[axis] == N
            kept = np.arange(rows)
            np.testing.assert_array_equal(found.take(kept, axis), whole.take(kept, axis))


@pytest.mark.parametrize("name", MIXED)
def test_mixed(name):
    make, op = MIXED[name]
    flow = follow_rows(written(make), {"x": 0}, N)
    assert flow.outputs == [None]
    assert [(found, node.op) for found, node in flow.mixed] == [("y", op)]


def test_each_output_for_itself():
    graph = Graph()
    x, other = graph.input("x", (2, N)), graph.input("other", (2,))
    total = ops.sum(x, axis=1)
    graph.output(x + 1, "a")
    graph.output(total, "b")
    graph.output(other * 2, "c")
    graph.output(ops.exp(total) + other, "d")
    flow = follow_rows(graph, {"x": 1}, N)
    assert [place and place.axis for place in flow.outputs] == [1, None, None, None]
    assert [(name, node.op) for name, node in flow.mixed] == [("b", "sum"), ("d", "sum")]


def test_rules_are_of_operators():
    assert set(RULES) <= set(OPS)
