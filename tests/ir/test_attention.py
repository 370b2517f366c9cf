"""What attention means, query by query, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from fastgraph.errors import GraphError
from fastgraph.ir import Graph, ops, reference
from fastgraph.passes import optimise

RANDOM = np.random.default_rng(3)


def drawn(*shape):
    return RANDOM.normal(size=shape).astype("f4")


def plain(q, k, v, seen, scale, bias=0.0, cap=None):
    """Attention in loops; `seen(query, key)` says which keys take part."""
    out = np.zeros((*q.shape[:3], v.shape[3]))
    group = q.shape[1] // k.shape[1]
    bias = np.broadcast_to(bias, (*q.shape[:3], k.shape[2]))
    for b, h, i in np.ndindex(q.shape[:3]):
        keys = [j for j in range(k.shape[2]) if seen(i, j)]
        if not keys:
            continue
        scores = k[b, h // group, keys].astype("f8") @ q[b, h, i] * scale
        scores = cap * np.tanh(scores / cap) if cap else scores
        weights = np.exp(scores + bias[b, h, i, keys])
        out[b, h, i] = weights / weights.sum() @ v[b, h // group, keys]
    return out


@pytest.mark.parametrize(("queries", "keys"), [(4, 4), (3, 7), (1, 6), (5, 2)])
@pytest.mark.parametrize(("causal", "window"), [(False, None), (True, None), (True, 2), (False, 2)])
def test_the_last_query_stands_at_the_last_key(queries, keys, causal, window):
    q, k, v = drawn(2, 4, queries, 8), drawn(2, 2, keys, 8), drawn(2, 2, keys, 3)

    def seen(i, j):
        behind = j - (i + keys - queries)
        if causal and behind > 0:
            return False
        return window is None or abs(behind) < window

    found = reference.apply(ops.attention, q, k, v, is_causal=causal, window=window)
    np.testing.assert_allclose(found, plain(q, k, v, seen, 8**-0.5), atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 4, 3, 5), (4, 1, 5), (3, 1), (5,), (2, 1, 1, 5), ()])
@pytest.mark.parametrize("kind", ["bool", "bias"])
def test_masks_broadcast(shape, kind):
    q, k, v = drawn(2, 4, 3, 8), drawn(2, 4, 5, 8), drawn(2, 4, 5, 8)
    mask = np.asarray(RANDOM.normal(size=shape))
    bias = np.where(mask < -0.3, -np.inf, 0.0 if kind == "bool" else mask).astype("f4")
    given = mask >= -0.3 if kind == "bool" else bias
    found = reference.apply(ops.attention, q, k, v, np.asarray(given), scale=0.7, softcap=1.5)
    whole = np.broadcast_to(bias, (2, 4, 3, 5))
    out = np.zeros((2, 4, 3, 8))
    for b, h, i in np.ndindex(2, 4, 3):
        part = (slice(b, b + 1), slice(h, h + 1))
        row = whole[b, h, i]
        one = plain(
            q[part][:, :, i : i + 1], k[part], v[part],
            lambda _, j, row=row: row[j] > -np.inf, 0.7, row, 1.5,
        )  # fmt: skip
        out[b, h, i] = one[0, 0, 0]
    np.testing.assert_allclose(found, out, atol=1e-6)


def test_no_key_gives_zeros():
    q, k = drawn(1, 1, 3, 4), drawn(1, 1, 2, 4)
    found = reference.apply(ops.attention, q, k, k, is_causal=True)
    assert not found[0, 0, 0].any()
    assert found[0, 0, 1:].any()
    assert not reference.apply(ops.attention, q, k, k, np.zeros((3, 2), bool)).any()
    assert not reference.apply(ops.attention, q, k[:, :, :0], k[:, :, :0]).any()


@pytest.mark.parametrize(
    ("shapes", "options", "text"),
    [
        ([(1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 4)], {}, "q must have four axes"),
        ([(1, 2, 3, 4), (2, 2, 3, 4), (1, 2, 3, 4)], {}, "batches of 1, 2 and 1"),
        ([(1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 5, 4)], {}, "same heads and positions"),
        ([(1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 3, 4)], {}, "equally long heads"),
        ([(1, 3, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)], {}, "3 heads of q cannot share 2"),
        ([(1, 2, 3, 4)] * 3 + [(5, 3, 3)], {}, "do not broadcast"),
        ([(1, 2, 3, 4)] * 3 + [(7, 1, 2, 3, 3)], {}, "does not broadcast"),
        ([(1, 2, 3, 4)] * 3, {"window": 0}, "window must be 1 or more"),
        ([(1, 2, 3, 4)] * 3, {"softcap": 0.0}, "softcap must be above 0"),
        ([(1, 2, 3, 4)] * 3, {"scale": float("nan")}, "scale must be finite"),
        ([(1, 2, 3, 4)] * 3, {"is_causal": 2}, "is_causal must be True or False"),
    ],
)
def test_refusals(shapes, options, text):
    graph = Graph()
    values = [graph.input(f"x{i}", shape) for i, shape in enumerate(shapes)]
    with pytest.raises(GraphError, match=text):
        ops.attention(*values, **options)
    assert len(graph.nodes) == len(shapes)


def test_masks_are_bool_or_of_the_operands_dtype():
    graph = Graph()
    q = graph.input("q", (1, 2, 3, 4))
    with pytest.raises(GraphError, match="mask must be bool"):
        ops.attention(q, q, q, graph.input("mask", (3, 3), "int64"))


def test_the_form_of_lowerings_means_the_same():
    q, k, v = drawn(2, 4, 3, 8), drawn(2, 2, 5, 8), drawn(2, 2, 5, 3)
    graph = Graph()
    values = [graph.input(name, x.shape) for name, x in zip("qkv", (q, k, v), strict=True)]
    mask = np.arange(5) != 1
    graph.output(ops.attention(*values, graph.constant(mask), is_causal=True), "y")
    found = optimise(graph)
    assert [node.op for node in found.run_nodes] == ["fused_attention"]
    given = dict(zip("qkv", (q, k, v), strict=True))
    assert (
        reference.evaluate(found.graph, given)["y"].tobytes()
        == reference.evaluate(graph, given)["y"].tobytes()
    )
