"""The arena of every graph of the benchmark against the least that it needs."""

from __future__ import annotations

import pytest

from bench.arena import GRAPHS, LIMIT, bound, measure
from fastgraph.lower.program import Plan


@pytest.mark.parametrize("name", GRAPHS)
def test_arena_is_near_the_bound(name):
    arena, least, tensors = measure(GRAPHS[name]())
    assert least <= arena <= LIMIT * least
    assert least <= tensors


def plan(n_nodes, sizes, writers, users, pinned=(), inplace=()):
    chain = [(i - 1,) if i else () for i in range(n_nodes)]
    as_lists = ([[n] for n in writers], [list(u) for u in users])
    return Plan(chain, sizes, *as_lists, list(pinned), list(inplace), [0] * len(sizes), 0, {}, [])


def test_bound_of_a_chain_is_its_heaviest_node():
    assert bound(plan(3, [10, 20, 5], [0, 1, 2], [[1], [2], []])) == 30


def test_bound_counts_outputs_everywhere():
    assert bound(plan(3, [10, 20, 5], [0, 1, 2], [[1], [2], []], pinned=[2])) == 35


def test_bound_knows_what_may_be_done_in_place():
    values = [[10, 10, 5], [0, 1, 2], [[1], [2], []]]
    assert bound(plan(3, *values)) == 20
    assert bound(plan(3, *values, inplace=[(1, 0)])) == 15
    # Not where the source is read again later.
    assert bound(plan(3, values[0], values[1], [[1, 2], [2], []], inplace=[(1, 0)])) == 25
