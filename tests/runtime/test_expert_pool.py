"""Which experts a pool makes resident."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastgraph as fg

pytestmark = pytest.mark.host


def test_two_of_four():
    pool = fg.ExpertPool(4, budget=2)
    pool.record([1, 1, 0, 2])
    assert pool.target() == [1, 0]


def test_three_of_five():
    pool = fg.ExpertPool(5, budget=3)
    pool.record_hits([10, 50, 30, 0, 50])
    assert pool.target() == [1, 4, 2]


def test_two_for_two():
    pool = fg.ExpertPool(8, budget=2)
    assert pool.resident == [0, 1]
    pool.record([7, 6, 6, 7])
    assert pool.refresh() == ([6, 7], [0, 1])
    assert pool.resident == [6, 7]
    assert pool.mask.tolist() == [False] * 6 + [True] * 2
    assert pool.refresh() == ([], [])


@pytest.mark.parametrize(
    ("policy", "residents"),
    [("total", [[3], [3], [3], [2]]), ("window", [[3], [2], [2], [2]]),
     ("decay", [[3], [3], [2], [2]])],
)  # fmt: skip
def test_periods(policy, residents):
    pool = fg.ExpertPool(4, budget=1, period=2, policy=policy)
    chosen = [[3, 3, 3], [3, 3, 3], [2], [2], [2], [], [2, 2, 2], []]
    found = []
    for number, ids in enumerate(chosen):
        change = pool.step(ids)
        assert (change is None) == (number % 2 == 0)
        if change is not None:
            found.append(pool.resident)
    assert found == residents


def test_without_a_period_nothing_is_refreshed():
    pool = fg.ExpertPool(4, budget=1)
    assert [pool.step([2]) for _ in range(5)] == [None] * 5
    assert pool.resident == [0]
    assert pool.target() == [2]


def test_what_nobody_chose_is_not_brought_in():
    pool = fg.ExpertPool(6, budget=3, resident=[3, 5])
    assert pool.target() == [3, 5]
    pool.record([4])
    assert pool.target() == [4, 3, 5]
    assert pool.refresh() == ([4], [])
    assert pool.resident == [3, 4, 5]


def test_no_budget():
    pool = fg.ExpertPool(3, budget=0, period=1)
    assert pool.step([0, 1]) == ([], [])
    assert not pool.mask.any()
    assert pool.hit_rate == 0


def test_hit_rate():
    pool = fg.ExpertPool(4, budget=2)
    assert np.isnan(pool.hit_rate)
    pool.record([0, 1, 2, 3])
    assert pool.hit_rate == 0.5
    pool.record(np.zeros((2, 2), np.uint32))
    assert pool.hit_rate == 0.75


def test_what_a_pool_gives_is_a_copy():
    pool = fg.ExpertPool(4, budget=2)
    pool.mask[...] = True
    pool.hits[...] = 9
    assert pool.resident == [0, 1]
    assert pool.hits.tolist() == [0] * 4
    assert repr(pool) == "<ExpertPool 2 of 4, total: resident [0, 1]>"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((0, 0), "num_experts is 0"),
        ((4, -1), "budget is -1"),
        ((4, 5), "budget is 5; there are 4 experts"),
        ((4, 2.0), "budget is 2.0"),
        ((True, 1), "num_experts is True"),
        ((4, 2, 0), "period is 0"),
        ((4, 2, None, "lru"), "policy is 'lru'; 'total', 'window', 'decay' are possible"),
        ((4, 2, None, "total", [1, 1]), "at most 2 different experts"),
        ((4, 2, None, "total", [0, 1, 2]), "at most 2 different experts"),
        ((4, 2, None, "total", [4]), "expert 4 is out of range; there are 0 to 3"),
    ],
)
def test_pools_that_cannot_be(arguments, told):
    with pytest.raises(fg.InputError, match=told):
        fg.ExpertPool(*arguments)


@pytest.mark.parametrize("ids", [[4], [-1], [1, 2**40], [0.5], ["a"], [[1], [2, 3]], [True]])
def test_ids_that_cannot_be(ids):
    pool = fg.ExpertPool(4, budget=2)
    with pytest.raises(fg.InputError):
        pool.step(ids)
    assert not pool.hits.any()


@pytest.mark.parametrize("hits", [[1, 2, 3], [1, 2, 3, -1], [0.5] * 4, [[1, 2, 3, 4]]])
def test_hits_that_cannot_be(hits):
    pool = fg.ExpertPool(4, budget=2)
    with pytest.raises(fg.InputError):
        pool.record_hits(hits)
    assert not pool.hits.any()


@given(
    st.integers(1, 9).flatmap(
        lambda n: st.tuples(
            st.just(n), st.integers(0, n), st.lists(st.lists(st.integers(0, n - 1)), max_size=4)
        )
    )
)
def test_any_choices(case):
    """A pool is what a plain sort says, and says the same twice."""
    experts, budget, steps = case
    pools = [fg.ExpertPool(experts, budget, period=1) for _ in range(2)]
    resident, hits = set(range(budget)), [0] * experts
    for ids in steps:
        for expert in ids:
            hits[expert] += 1
        chosen = sorted((e for e in range(experts) if hits[e]), key=lambda e: (-hits[e], e))
        stay = sorted(e for e in resident if not hits[e])
        target = [*chosen, *stay][:budget]
        for pool in pools:
            assert pool.step(ids) == (
                [e for e in target if e not in resident], sorted(resident - set(target))
            )  # fmt: skip
        resident = set(target)
    assert all(pool.resident == sorted(resident) for pool in pools)
