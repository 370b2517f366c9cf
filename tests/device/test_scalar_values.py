"""When values of scalars take effect, and that nothing of a call is left behind."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest

import fastgraph as fg
from tests.device.kernels import Sum


@pytest.fixture
def both(ctx, kernels):
    """Makes graphs whose output is their scalar ``node`` plus their scalar ``memory``."""
    return lambda **options: Sum(ctx, kernels, **options)


@pytest.mark.parametrize("options", [{}, {"check": True}, {"verify": 30}])
def test_values_of_a_call_end_with_it(both, options):
    made = both(**options)
    replay, run = made.graph.replay, made.graph.run
    for given, want in (
        ({}, 11),
        ({"node": 20}, 21),
        ({"memory": 5}, 15),
        ({}, 11),
        ({"memory": np.int32(6), "node": np.int32(30)}, 36),
        ({"node": 40}, 41),
        ({"memory": 7}, 17),
        ({"memory": 8}, 18),
        ({"memory": 1, "node": 10}, 11),
        ({}, 11),
    ):
        assert made.after(replay, **given) == want
        assert made.after(run, **given) == want
        assert made.after(replay, **given) == want
    made.graph.set(memory=2)
    made.graph.set(node=-2)
    made.graph.set(memory=3)
    assert made.after(replay) == 1
    assert made.after(replay, node=1) == 4
    made.graph.set(node=5)
    assert made.after(run) == 8
    twin = made.graph.clone()
    assert twin.run()[0][0] == 8
    twin.set(node=0, memory=0)
    assert (twin.run()[0][0], made.graph.run()[0][0]) == (0, 8)


def test_a_value_that_does_not_fit_leaves_the_others(both):
    made = both()
    for act in (made.graph.replay, made.graph.run, made.graph.set):
        for bad in (
            {"node": 5, "memory": 2**31},
            {"memory": 5, "node": 1.5},
            {"node": 5, "memory": 5, "other": 5},
        ):
            with pytest.raises(fg.InputError):
                act(**bad)
            assert made.after(made.graph.replay) == 11


def test_set_while_others_replay_with_values(both):
    """A run has its own values and, of the others, those of one `set` or the next."""
    made, wrong, done = both(), [], threading.Event()

    def work(number):
        while not done.is_set():
            given = {"node": 1000 * number} if number % 2 else {"memory": 1000 * number}
            found = int(made.graph.run(**given)[0][0])
            if not 1000 * number <= found < 1000 * number + 200:
                wrong.append((number, found))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 5)]
    for thread in threads:
        thread.start()
    for i in range(150):
        made.graph.set(node=i)
        made.graph.set(memory=i)
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert made.after(made.graph.replay) == 298


def test_an_update_keeps_what_was_set(both):
    made = both()
    made.graph.set(node=20, memory=2)
    made.graph.replay(memory=7)
    made.graph.update("total", enabled=False)
    made.graph.update("total", enabled=True)
    assert made.after(made.graph.replay) == 22
    assert made.after(made.graph.replay, memory=3) == 23
    assert made.after(made.graph.replay) == 22


@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_sets_and_values(both, seed):
    made, rng = both(), random.Random(seed)
    defaults = {"node": 10, "memory": 1}
    for _ in range(60):
        names = [name for name in defaults if rng.random() < 0.5]
        given = {name: rng.randrange(3) for name in names}
        call = rng.choice(["replay", "run", "set"])
        if call == "set":
            made.graph.set(**given)
            defaults |= given
        else:
            now = defaults | given
            assert made.after(getattr(made.graph, call), **given) == sum(now.values())
    for call in (made.graph.set, made.graph.replay):
        with pytest.raises(fg.InputError, match="'other'"):
            call(other=3)
        with pytest.raises(fg.InputError, match="'node'"):
            call(node=1 << 40)
    assert made.after(made.graph.replay) == sum(defaults.values())
