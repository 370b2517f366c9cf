"""Which node comes before which."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastgraph._core.order import Order
from fastgraph.errors import GraphError


@st.composite
def dags(draw: st.DrawFn, max_nodes: int = 12) -> list[list[int]]:
    """Random dependencies whose ids are shuffled: a node may wait for a later one."""
    n = draw(st.integers(1, max_nodes))
    edges = [draw(st.lists(st.integers(0, i - 1), max_size=3)) if i else [] for i in range(n)]
    names = draw(st.permutations(range(n)))
    shuffled: list[list[int]] = [[] for _ in range(n)]
    for i, mine in enumerate(edges):
        shuffled[names[i]] = [names[d] for d in mine]
    return shuffled


def reachable(dependencies: list[list[int]], node: int) -> set[int]:
    """Every node that comes before `node`, by breadth-first search."""
    found: set[int] = set()
    left = deque(dependencies[node])
    while left:
        other = left.popleft()
        if other not in found:
            found.add(other)
            left.extend(dependencies[other])
    return found


@given(dags())
def test_before_is_reachability(dependencies):
    order = Order(dependencies)
    n = len(dependencies)
    before = {(a, b) for a in range(n) for b in range(n) if order.before(a, b)}
    assert before == {(a, b) for b in range(n) for a in reachable(dependencies, b)}
    assert order.n_nodes == n
    if order.total:
        assert len(before) == n * (n - 1) // 2


@pytest.mark.parametrize(
    ("dependencies", "total"),
    [([], True), ([[]], True), ([[], [0], [1]], True), ([[], [0], [0]], False), ([[], []], False)],
)
def test_total(dependencies, total):
    assert Order(dependencies).total is total


@pytest.mark.parametrize("dependencies", [[[0]], [[1], [0]], [[], [0, 3], [1], [2]]])
def test_cycle(dependencies):
    with pytest.raises(GraphError, match="cycle through nodes"):
        Order(dependencies)


@pytest.mark.parametrize("bad", [-1, 2, 2**40])
def test_unknown_dependency(bad):
    with pytest.raises(GraphError, match=rf"node 1 depends on node {bad}; there are 2 nodes"):
        Order([[], [bad]])


@pytest.mark.parametrize("dependencies", [None, 5, [5], [["x"]], [[1.5], []]])
def test_rubbish(dependencies):
    with pytest.raises((TypeError, GraphError)):
        Order(dependencies)


def test_question_out_of_range():
    order = Order([[], [0]])
    for a, b in ((-1, 0), (0, 2), (5, 5)):
        with pytest.raises(GraphError, match="there are 2 nodes"):
            order.before(a, b)


def test_made_once():
    """A second `__init__` leaves what the first made."""
    order = Order([[], [0]])
    order.__init__([[], [], []])
    assert (order.n_nodes, order.before(0, 1)) == (2, True)


def test_long_chain():
    """Quadratic work would run into the time limit of a test."""
    order = Order([[i - 1] if i else [] for i in range(100_000)])
    assert order.total
    assert order.before(0, 99_999)
    assert not order.before(99_999, 0)
