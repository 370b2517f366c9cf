"""Edges of calls from the bytes that they touch, and the order of launches chosen from them."""

from __future__ import annotations

import random

import pytest

import fastgraph as fg
from fastgraph._core import arena
from fastgraph.lower.call import Alias, Temp
from fastgraph.lower.cuda.call import CudaCall, KernelCode
from fastgraph.lower.cuda.order import BRANCHES_NS, launch_edges
from fastgraph.lower.cuda.seam import INPUTS
from fastgraph.lower.edges import chain, critical_path, data_edges, reduced
from fastgraph.lower.plan import plan
from fastgraph.lower.storage import Roots, Seam

CODE = KernelCode("", "nothing", "nothing")


def call(outs, ins, nbytes=0):
    return CudaCall(CODE, tuple(outs), tuple(ins), (1, 1, 1), (1, 1, 1), (), nbytes=nbytes)


def item(outs, ins, nbytes=0, name="node"):
    return Seam(name, "copy", ()), call(outs, ins, nbytes)


def temps(count, nbytes=64):
    return [Temp(nbytes, f"t{i}") for i in range(count)]


def test_what_reads_waits_for_what_wrote():
    a, b, c, d = temps(4)
    items = [item([a], []), item([b], [a]), item([c], [a]), item([d], [b, c])]
    assert data_edges(items, Roots()) == [(), (0,), (0,), (1, 2)]


def test_what_writes_waits_for_what_reads_and_writes_the_same():
    a, b = temps(2)
    items = [item([a], []), item([b], [a]), item([a], []), item([], [a])]
    assert data_edges(items, Roots()) == [(), (0,), (0, 1), (0, 2)]


def test_parts_of_one_value_are_apart():
    graph = fg.Graph()
    whole, left, right = (graph.input(name, (n,)) for name, n in (("w", 8), ("l", 4), ("r", 4)))
    roots = Roots()
    roots.add(Alias(left, whole, 0))
    roots.add(Alias(right, whole, 16))
    (out,) = temps(1)
    items = [item([left], []), item([right], []), item([out], [right]), item([out], [whole])]
    assert data_edges(items, roots) == [(), (), (1,), (0, 1, 2)]


def test_views_of_views_follow_their_root_when_it_moves():
    graph = fg.Graph()
    a, b, c = (graph.input(name, (4,)) for name in "abc")
    roots = Roots()
    roots.add(Alias(b, a, 4))
    roots.add(Alias(c, b, 8))
    (block,) = temps(1)
    roots.put(a, block, 32)
    assert roots.of(c) == (block, 44)
    assert roots.of(b) == (block, 36)


def random_items(seed, count=40):
    draw = random.Random(seed)
    values, items = [], []
    for _ in range(count):
        (out,) = temps(1, draw.choice([16, 64, 200, 4096]))
        items.append(item([out], draw.sample(values, min(len(values), draw.randint(0, 3)))))
        values.append(out)
    return items


@pytest.mark.parametrize("seed", range(10))
def test_reduced_edges_order_the_same_with_none_too_many(seed):
    edges = data_edges(random_items(seed), Roots())
    fewer = reduced(edges)

    def closure(given):
        above = []
        for before in given:
            above.append(set(before).union(*(above[i] for i in before)))
        return above

    assert closure(fewer) == closure(edges)
    for number, before in enumerate(fewer):
        for i in before:
            without = [*fewer[:number], tuple(j for j in before if j != i), *fewer[number + 1 :]]
            assert closure(without) != closure(edges)


@pytest.mark.parametrize("seed", range(10))
def test_plans_over_data_edges_hold(seed):
    items = random_items(seed)
    edges = reduced(data_edges(items, Roots()))
    found = plan(items, edges, Roots(), set(), set())
    given = (found.dependencies, found.sizes, found.writers, found.users, found.offsets)
    arena.verify(*given, found.total, found.pinned, found.inplace)
    # The checker sees a missing edge: without any, values that share bytes are not ordered.
    with pytest.raises(fg.GraphError, match="no edge orders them"):
        arena.verify([()] * len(items), *given[1:], found.total)


def test_critical_path_is_the_longest():
    assert critical_path([], []) == 0
    assert critical_path([(), (), (0,), (1, 2)], [1, 10, 2, 3]) == 13


def branches(count, nbytes):
    (x,) = temps(1)
    ends = temps(count, 1 << 10)
    (y,) = temps(1)
    return [
        item([x], [], name=INPUTS),
        *(item([end], [x], nbytes) for end in ends),
        item([y], ends),
    ]


def test_tiny_branches_are_one_chain_and_long_ones_stay_apart():
    assert launch_edges(branches(4, 0), Roots()) == chain(6)
    long = int(4 * BRANCHES_NS * 3_000)
    assert launch_edges(branches(4, long), Roots()) == [(), (0,), (0,), (0,), (0,), (1, 2, 3, 4)]


def test_all_wait_for_the_inputs():
    a, b, c = temps(3)
    big = int(1e9)
    items = [
        item([a], [], name=INPUTS),
        item([b], [], name=INPUTS),
        item([], [a], big),
        item([], [b], big),
        item([c], [], big),
    ]
    assert launch_edges(items, Roots()) == [(), (0,), (1,), (1,), (1,)]


def test_branches_that_would_take_far_more_memory_are_one_chain():
    def wide(nbytes):
        (x,) = temps(1)
        items = [item([x], [], name=INPUTS)]
        for _ in range(8):
            value = x
            for _ in range(4):
                (after,) = temps(1, nbytes)
                items.append(item([after], [value], int(1e9)))
                value = after
        return items

    assert launch_edges(wide(1 << 10), Roots()) != chain(33)
    assert launch_edges(wide(64 << 20), Roots()) == chain(33)
