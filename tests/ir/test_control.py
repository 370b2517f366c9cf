"""Choices and loops as they are written: what is captured, what is refused, what stays."""

from __future__ import annotations

import numpy as np
import pytest

from fastgraph.errors import GraphError
from fastgraph.ir import Graph, ops, reference

f4 = np.float32


def graph_with(*shapes):
    graph = Graph("outer")
    return graph, *(graph.input(f"x{i}", shape) for i, shape in enumerate(shapes))


def test_what_is_computed_in_a_branch_is_not_computed_outside():
    """Also where a branch names nothing but values of the graph around it."""
    graph, x = graph_with((2,))
    flag = graph.input("flag", (), "bool")
    count = len(graph.nodes)
    ops.cond(flag, lambda: ops.exp(x) + 1, lambda: ops.while_loop(
        lambda y: ops.sum(y) < 3, lambda y: y + ops.exp(x), x))  # fmt: skip
    assert [node.op for node in graph.nodes[count:]] == ["astype", "cond"]


def test_the_same_graph_may_be_copied_and_changed():
    graph, x = graph_with((2,))
    y = ops.cond(ops.sum(x) > 0, lambda: x + 1, lambda: x)
    graph.output(y, "y")
    other = graph.copy()
    graph.output(x, "x")
    assert list(reference.evaluate(other, {"x0": f4([1, 2])})) == ["y"]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: ops.cond(x, ops.exp, ops.log, x), "pred must be one bool or integer"),
        (lambda x: ops.cond(x[0], ops.exp, ops.log, x), r"float32\[\]; use x.reshape"),
        (lambda x: ops.cond(1.5, ops.exp, ops.log, x), "cond: a Value"),
        (
            lambda x: ops.cond(x[0] > 0, ops.exp, ops.sum, x),
            r"then_fn 'exp' returns float32\[2\], else_fn 'sum' returns float32\[\]; both",
        ),
        (
            lambda x: ops.cond(x[0] > 0, lambda: (x, x), lambda: x),
            r"returns float32\[2\], float32\[2\], else_fn '<lambda>' returns float32\[2\]",
        ),
        (lambda x: ops.cond(x[0] > 0, ops.exp, None, x), "else_fn is a function, found NoneType"),
        (lambda x: ops.cond(x[0] > 0, lambda: 1, lambda: 2), "returns a int; a Value or a tuple"),
        (lambda x: ops.cond(x[0] > 0, ops.exp, ops.exp, 3), "value 0 must be a Value"),
        (lambda x: ops.while_loop(lambda x: x > 0, ops.exp, x), "what cond_fn '<lambda>' returns"),
        (lambda x: ops.while_loop(lambda x: (x[0] > 0, x), ops.exp, x), r"bool\[\], float32\[2\]"),
        (
            lambda x: ops.while_loop(lambda x: x[0] > 0, lambda x: x[:1], x),
            r"takes float32\[2\] and returns float32\[1\]; shapes and dtypes stay the same",
        ),
        (lambda x: ops.while_loop(lambda: True, lambda: x), "at least one"),
        (lambda x: ops.while_loop(lambda x: x[0] > 0, lambda x: (x, x), x), "stay the same"),
        (
            lambda x: ops.cond(x[0] > 0, lambda: x + Graph().input("z", (2,)), lambda: x),
            "z belongs to another graph",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(build, message):
    """The graph is as it was before."""
    graph, x = graph_with((2,))
    with pytest.raises(GraphError, match=message):
        build(x)
    # The operands of the call are nodes of their own.
    assert {node.op for node in graph.nodes} <= {"input", "constant", "slice", "reshape", "greater"}
    graph.output(ops.cond(x[0] > 0, lambda: x, lambda: x * 2), "y")
    assert reference.evaluate(graph, {"x0": f4([-1, 1])})["y"].tolist() == [-2, 2]


def test_an_error_in_a_branch_comes_out_and_changes_nothing():
    graph, x = graph_with((2,))

    def broken():
        graph.param("w", (2,))
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        ops.cond(x[0] > 0, lambda: x, broken)
    assert [v.name for v in (*graph.inputs, *graph.params)] == ["x0"]
    graph.param("w", (2,))


def test_values_of_a_branch_stay_in_it():
    graph, x = graph_with((2,))
    kept = []

    def keep(x):
        kept.append(x + 1)
        with pytest.raises(GraphError, match="only what its function returns"):
            graph.output(kept[0], "y")
        return kept[0]

    y = ops.cond(x[0] > 0, keep, lambda x: x, x)
    with pytest.raises(GraphError, match="belongs to another graph, \"then_fn 'keep'\""):
        y + kept[0]
