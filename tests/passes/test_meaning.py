"""Passes change how a graph is computed, never what: checked by the oracle, before and after."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from fastgraph.ir import Graph, ops, reference
from fastgraph.ir.ops.registry import ELEMENTWISE, OPS
from fastgraph.passes import canonicalise, dead, fold, optimise, schedule, setprogram
from fastgraph.passes import fuse as fuse_pass
from tests.passes.graphs import arguments, encoder, graphs, mlp

LOWERED = {
    "region", "pack_weight", "fused_matmul", "sum", "mean", "max", "min", "prod", "argmax",
    "softmax", "layer_norm", "rms_norm", "reshape", "transpose", "slice", "concat",
    "broadcast_to", "take",
}  # fmt: skip


def same(before, after):
    """Assert that two graphs have the same interface and give the same results."""
    for part in ("inputs", "params", "scalars"):
        assert [(v.name, v.shape, v.dtype) for v in getattr(before, part)] == [
            (v.name, v.shape, v.dtype) for v in getattr(after, part)
        ]
    data = arguments(before)
    wanted = reference.evaluate(before, **data)
    found = reference.evaluate(after, **data)
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        assert (found[name].shape, found[name].dtype) == (array.shape, array.dtype)
        np.testing.assert_allclose(found[name], array, rtol=2e-3, atol=1e-3)


def well_formed(graph):
    """Assert that every node comes after what it reads, under a name of its own, well typed."""
    seen = set()
    for node in graph.nodes:
        assert node.graph is graph
        assert all(value.node in seen for value in node.inputs)
        seen.add(node)
        if node.is_leaf:
            continue
        specs = OPS[node.op].infer([(v.shape, v.dtype) for v in node.inputs], dict(node.attrs))
        assert specs == [(v.shape, v.dtype) for v in node.outputs]
    assert len({node.name for node in graph.nodes}) == len(graph.nodes)
    assert all(value.node in seen for _, value in graph.outputs)


@given(graphs())
@settings(max_examples=60)
def test_each_pass_keeps_the_meaning(graph):
    before = [(node.op, node.name, node.inputs) for node in graph.nodes]
    found = graph
    for run in (dead.run, fold.run, canonicalise.run, setprogram.run, fuse_pass.run, schedule.run):
        after = run(found)
        well_formed(after)
        same(found, after)
        found = after
    assert [(node.op, node.name, node.inputs) for node in graph.nodes] == before


@pytest.mark.parametrize("fuse", [True, False])
@given(graphs())
@settings(max_examples=60)
def test_optimise_keeps_the_meaning(fuse, graph):
    found = optimise(graph, fuse=fuse)
    well_formed(found.graph)
    same(graph, found.graph)
    run = [node for node in found.graph.nodes if not node.is_leaf]
    assert {node.op for node in run} <= LOWERED
    assert run == found.set_nodes + found.run_nodes
    for node in run:
        leaves = [value.node.op for value in node.inputs]
        assert (node in found.is_set) == all(
            op in ("param", "constant") or value.node in found.is_set
            for op, value in zip(leaves, node.inputs, strict=True)
        )
        if node.op in ("layer_norm", "rms_norm"):
            rank = node.inputs[0].ndim
            axes = node.attrs["axis"]
            assert axes == tuple(range(rank - len(axes), rank))
        if not fuse and node.op == "region":
            assert sum(instr.op != "const" for instr in node.attrs["body"]) == 1


@pytest.mark.parametrize("graph", [mlp((20, 17, 5), rows=3), encoder()], ids=lambda g: g.name)
def test_models(graph):
    for fuse in (True, False):
        same(graph, optimise(graph, fuse=fuse).graph)


def test_passes_are_deterministic():
    def listed(graph):
        return [(n.name, n.op, [v.label for v in n.inputs], repr(n.attrs)) for n in graph.nodes]

    assert listed(optimise(encoder()).graph) == listed(optimise(encoder()).graph)


def test_a_deep_chain():
    graph = Graph()
    y = graph.input("x", (2,))
    for i in range(10_000):
        y = ops.softmax(y) if i % 10 == 0 else ops.tanh(y + 1)
    graph.output(y, "y")
    found = optimise(graph)
    assert len(found.run_nodes) == 2000
    x = {"x": np.float32([1, 2])}
    np.testing.assert_allclose(
        reference.evaluate(found.graph, x)["y"], reference.evaluate(graph, x)["y"], rtol=1e-5
    )


def test_elementwise_set():
    assert {"add", "where", "astype", "gelu"} <= ELEMENTWISE
    assert not ELEMENTWISE & LOWERED
