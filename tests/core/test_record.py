"""Records: what they refuse, and the hazards that they find."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastgraph._core.order import Order
from fastgraph._core.record import KINDS, Operand, Record
from fastgraph.errors import GraphError, HazardError

READ, WRITE = (True, False), (False, True)


def record_of(accesses, dependencies, nbytes=64):
    """One memory; node i touches (start, stop) as `accesses[i]` says."""
    record = Record()
    memory = record.add_memory("buffer", "x", nbytes)
    for i, ((start, stop, how), deps) in enumerate(zip(accesses, dependencies, strict=True)):
        operand = Operand(memory, start, stop - start, *how)
        record.add_node(f"n{i}", "function", "do_nothing", [operand], dependencies=deps)
    return record


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_memory(kind):
    record = Record()
    assert [record.add_memory(kind, "a", 8), record.add_memory(kind, "b", 0)] == [0, 1]
    assert record.memories[1] == (kind, "b", 0)


def test_unknown_kind_of_memory():
    record = Record()
    with pytest.raises(GraphError, match="'stack' is not a kind of memory"):
        record.add_memory("stack", "x", 8)
    assert record.memories == []


@pytest.mark.parametrize(
    "operand",
    [
        Operand(1, 0, 8, *READ),
        Operand(-1, 0, 8, *READ),
        Operand(0, 60, 8, *READ),
        Operand(0, -1, 8, *WRITE),
        Operand(0, 65, 0, *READ),
        Operand(0, 0, 2**70, *READ),
    ],
)
def test_operand_outside(operand):
    record = Record()
    record.add_memory("buffer", "x", 64)
    with pytest.raises(GraphError, match=r"'bad'.*(no memory has number|lie outside buffer 'x')"):
        record.add_node("bad", "function", "do_nothing", [operand])
    assert record.nodes == []


@pytest.mark.parametrize("dependency", [1, -1, 7])
def test_dependency_on_what_is_not_there(dependency):
    record = record_of([(0, 8, READ)], [()])
    with pytest.raises(GraphError, match=rf"'late' depends on node {dependency}"):
        record.add_node("late", "empty", None, [], dependencies=[0, dependency])
    assert len(record.nodes) == 1


@pytest.mark.parametrize("parts", [0, -1, 65536])
def test_parts(parts):
    with pytest.raises(GraphError, match=rf"{parts} parts"):
        Record().add_node("n", "function", "do_nothing", [], parts=parts)


def test_a_dependency_named_twice_counts_once():
    record = record_of([(0, 8, READ)] * 3, [(), (0, 0), (1, 0, 1)])
    assert record.dependencies() == [(), (0,), (1, 0)]
    assert record.edges() == [(0, 1), (1, 2), (0, 2)]


@pytest.mark.parametrize(
    ("accesses", "dependencies", "hazard"),
    [
        ([(0, 8, WRITE), (0, 8, WRITE)], [(), ()], True),
        ([(0, 8, WRITE), (4, 12, READ)], [(), ()], True),
        ([(0, 8, READ), (7, 8, WRITE)], [(), ()], True),
        ([(0, 8, READ), (0, 8, READ)], [(), ()], False),
        ([(0, 8, WRITE), (8, 16, WRITE)], [(), ()], False),
        ([(0, 8, WRITE), (4, 4, WRITE)], [(), ()], False),
        ([(0, 8, WRITE), (0, 8, WRITE)], [(), (0,)], False),
        # Ordered with the last writer, but not with the first reader.
        ([(0, 8, READ), (0, 8, WRITE)], [(), ()], True),
        ([(0, 8, WRITE), (0, 8, READ), (0, 8, READ), (0, 8, WRITE)], [(), (0,), (0,), (1,)], True),
        (
            [(0, 8, WRITE), (0, 8, READ), (0, 8, READ), (0, 8, WRITE)],
            [(), (0,), (0,), (1, 2)],
            False,
        ),
        # A partial write does not hide what it leaves.
        ([(0, 16, WRITE), (0, 8, WRITE), (8, 16, READ)], [(), (0,), ()], True),
    ],
)
def test_hazards(accesses, dependencies, hazard):
    record = record_of(accesses, dependencies)
    if not hazard:
        record.check_hazards()
        return
    with pytest.raises(
        HazardError, match=r"nodes \d 'n\d' and \d 'n\d' both touch bytes .* of 'x'"
    ):
        record.check_hazards()


def test_one_node_may_read_what_it_writes():
    record = Record()
    memory = record.add_memory("buffer", "x", 64)
    both = [Operand(memory, 0, 64, *WRITE), Operand(memory, 0, 64, *READ)]
    record.add_node("a", "function", "do_nothing", both)
    record.check_hazards()


access = st.tuples(
    st.integers(0, 6), st.integers(0, 4), st.sampled_from([READ, WRITE, (True, True)])
).map(lambda a: (a[0], a[0] + a[1], a[2]))


@given(st.data())
def test_hazards_are_those_of_all_pairs(data):
    accesses = data.draw(st.lists(access, min_size=1, max_size=8))
    dependencies = [
        data.draw(st.lists(st.integers(0, i - 1), max_size=2)) if i else []
        for i in range(len(accesses))
    ]
    order = Order(dependencies)
    conflict = any(
        max(accesses[a][0], accesses[b][0]) < min(accesses[a][1], accesses[b][1])
        and (accesses[a][2][1] or accesses[b][2][1])
        and not order.before(a, b)
        for b in range(len(accesses))
        for a in range(b)
    )
    record = record_of(accesses, dependencies)
    if conflict:
        with pytest.raises(HazardError):
            record.check_hazards()
    else:
        record.check_hazards()


@pytest.mark.parametrize("shape", ["chain", "two chains", "readers", "ranges"])
def test_large_records_are_checked(shape):
    """Quadratic work would run into the time limit of a test."""
    n = 100_000 if shape == "chain" else 30_000
    how = READ if shape == "readers" else WRITE
    step = {"chain": 1, "two chains": 2, "readers": n, "ranges": n}[shape]
    places = [i if shape == "ranges" else i % 2 for i in range(n)]
    accesses = [(8 * place, 8 * place + 8, how) for place in places]
    dependencies = [(i - step,) if i >= step else () for i in range(n)]
    record_of(accesses, dependencies, 8 * n).check_hazards()
