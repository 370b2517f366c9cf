"""Scalars in memory of a GPU: when they change, and in which order with launches."""

from __future__ import annotations

import numpy as np
import pytest

from fastgraph._core.record import Operand
from fastgraph.errors import DriverError, GraphError
from tests.core.cuda_bench import Recipe, at, i4

pytestmark = pytest.mark.fake

streams = pytest.importorskip("fastgraph._core.stream")

COPY = "cuMemcpyHtoDAsync"
A, B = (1, 0), (1, 8)


def reading(bench, **options):
    """A graph that copies the scalars A and B to memory 0, with its blocks."""
    recipe = Recipe(bench, 2)
    operand = Operand(1, 0, 16, True, False)
    recipe.node("read", "copy", [at(0, 16), operand], params=(16,))
    blocks = [bench.memory(np.zeros(16, "i4")), bench.memory(np.full(16, 99, "i4"))]
    options.setdefault("scalars", {A: i4(1), B: i4(2)})
    return bench.instantiate(recipe.record, blocks, cells=[A, B], **options), blocks


def seen(bench, block):
    return bench.read(block, "i4")[[0, 2]].tolist()


def ran(bench, graph, blocks):
    """What a run reads, and how many copies it took to get there."""
    bench.fake.forget_calls()
    bench.run(graph)
    return seen(bench, blocks[0]), bench.fake.calls(COPY)


def test_defaults_go_with_the_first_launch(bench):
    graph, blocks = reading(bench)
    assert ran(bench, graph, blocks) == ([1, 2], 1)
    assert ran(bench, graph, blocks) == ([1, 2], 0)


def test_a_value_takes_one_copy_and_one_to_go_back(bench):
    graph, blocks = reading(bench)
    bench.run(graph)
    bench.fake.forget_calls()
    graph.set_scalars({B: i4(7)})
    assert bench.fake.calls(COPY) == 0
    assert ran(bench, graph, blocks) == ([1, 7], 1)
    graph.set_scalars({A: i4(5)}, once=True)
    assert ran(bench, graph, blocks) == ([5, 7], 1)
    graph.set_scalars({A: i4(6)}, once=True)
    assert ran(bench, graph, blocks) == ([6, 7], 1)
    assert ran(bench, graph, blocks) == ([1, 7], 1)
    assert ran(bench, graph, blocks) == ([1, 7], 0)
    graph.set_scalars({A: i4(3), B: i4(4)}, once=True)
    assert ran(bench, graph, blocks) == ([3, 4], 1)
    graph.set_scalars({B: i4(8)}, once=True)
    assert ran(bench, graph, blocks) == ([1, 8], 1)
    assert graph.scalar_values() == {A: i4(1), B: i4(7)}
    assert graph.scalar_values(now=True) == {A: i4(1), B: i4(8)}


def test_what_is_there_already_takes_no_copy(bench):
    graph, blocks = reading(bench)
    bench.run(graph)
    graph.set_scalars({A: i4(1)})
    assert ran(bench, graph, blocks) == ([1, 2], 0)
    graph.set_scalars({A: i4(1)}, once=True)
    assert ran(bench, graph, blocks) == ([1, 2], 0)
    assert ran(bench, graph, blocks) == ([1, 2], 0)


def test_launches_under_way_keep_their_values(bench):
    """Enqueued on two streams while nothing runs: each launch reads what it was given."""
    graph, _ = reading(bench)
    other = streams.Stream(bench.device)
    outs = [bench.memory(np.zeros(16, "i4")) for _ in range(9)]
    with bench.fake.held():
        for i, out in enumerate(outs):
            graph.rebind(0, out)
            if i % 3 != 2:
                graph.set_scalars({A: i4(10 + i)}, once=True)
            graph.replay_on(other if i % 2 else bench.stream)
        assert not bench.read(outs[-1], "i4").any()
    graph.wait()
    assert [seen(bench, out)[0] for out in outs] == [10, 11, 1, 13, 14, 1, 16, 17, 1]


def test_many_values_in_a_row(bench):
    """More than are kept for the way: the oldest have arrived by then, or are waited for."""
    graph, _ = reading(bench)
    other = streams.Stream(bench.device)
    n = 700
    outs = [bench.memory(np.zeros(16, "i4")) for _ in range(n)]
    for i, out in enumerate(outs):
        graph.rebind(0, out)
        graph.set_scalars({A: i4(i), B: i4(-i)} if i % 5 else {B: i4(-i)})
        graph.replay_on(other if i % 7 == 0 else bench.stream)
    graph.wait()
    assert [seen(bench, out) for out in outs] == [
        [i if i % 5 else max(i - 1, 1), -i] for i in range(n)
    ]


def test_wrong_sizes_change_nothing(bench):
    graph, blocks = reading(bench)
    with pytest.raises(GraphError, match="has 4 bytes, not 8"):
        graph.set_scalars({A: i4(5), B: bytes(8)})
    assert ran(bench, graph, blocks) == ([1, 2], 1)


def test_a_launch_that_fails(bench):
    """What could not be sent is sent with the next launch."""
    graph, blocks = reading(bench)
    bench.run(graph)
    graph.set_scalars({A: i4(5)})
    bench.fake.fail(COPY, 2)
    with pytest.raises(DriverError):
        bench.run(graph)
    assert ran(bench, graph, blocks) == ([5, 2], 1)
    graph.set_scalars({A: i4(6)})
    bench.fake.fail("cuGraphLaunch", 2)
    with pytest.raises(DriverError):
        bench.run(graph)
    assert ran(bench, graph, blocks)[0] == [6, 2]


def test_memory_that_moves_is_filled_again(bench):
    graph, blocks = reading(bench)
    bench.run(graph)
    graph.rebind(1, bench.memory(np.full(16, 99, "i4")))
    assert ran(bench, graph, blocks) == ([1, 2], 1)
    record = graph.record.copy()
    graph.take(record, [blocks[0], bench.memory(np.full(16, 99, "i4"))])
    assert ran(bench, graph, blocks) == ([1, 2], 1)


def test_nodes_one_by_one_read_them_too(bench):
    graph, blocks = reading(bench)
    graph.set_scalars({A: i4(5)})
    graph.run_subset([0])
    assert seen(bench, blocks[0]) == [5, 2]
