"""Changes of driver graphs: scalars, addresses, parameters, and what no update can do."""

from __future__ import annotations

import ctypes
import logging
import weakref

import numpy as np
import pytest

from fastgraph._core.cuda_capture import capture_call
from fastgraph._core.record import Foreign, Operand, PythonCall
from fastgraph.errors import DriverError, GraphError, UnsupportedError
from tests.core.cuda_bench import Recipe, at, f4, i4

pytestmark = pytest.mark.fake

ONES = np.ones(16, "f4")
LOG = np.zeros(16, "i4")
# The driver's call for every update of parameters.
SET = "cuGraphExecNodeSetParams"


def replaced(record, number, **changes):
    """A copy of a record with one node changed."""
    twin = record.copy()
    twin.replace_node(number, record.nodes[number]._replace(**changes))
    return twin


# ---- scalars by value


def adding(bench, nodes=1, body=False):
    """Kernels that add scalar (1, 0) to the 16 floats of memory 0; memory 2 is a condition."""
    recipe = Recipe(bench, 3)
    call = bench.launch("add", ("pointer", 0), ("scalar", 1, 4), ("value", i4(16)))
    where = recipe.body() if body else recipe
    last = ()
    for _ in range(nodes):
        node = where.node(
            "add", "function", [at(0), Operand(1, 0, 4, True, False)], last, call=call
        )
        last = [node]
    if body:
        recipe.control("if", [where], 2)
    return recipe.record


def places(bench, value=1.0):
    return [bench.memory(ONES * np.float32(value)), bench.memory(ONES), bench.memory(LOG + 1)]


@pytest.mark.parametrize("body", [False, True])
def test_a_scalar_starts_with_its_default_and_is_set_in_every_node(bench, body):
    blocks = places(bench)
    graph = bench.instantiate(adding(bench, 3, body), blocks, scalars={(1, 0): f4(2)})
    bench.run(graph)
    assert bench.read(blocks[0])[0] == 7
    graph.set_scalars({(1, 0): f4(10)})
    assert bench.fake.calls(SET) == 3
    bench.run(graph)
    assert bench.read(blocks[0])[0] == 37
    graph.set_scalars({(1, 0): f4(10)})
    assert bench.fake.calls(SET) == 3


def test_a_scalar_without_a_default_is_zero(bench):
    blocks = places(bench)
    bench.run(bench.instantiate(adding(bench), blocks))
    assert bench.read(blocks[0])[0] == 1


def test_a_value_for_one_launch_goes_back_before_the_next(bench):
    blocks = places(bench, 0)
    graph = bench.instantiate(adding(bench), blocks, scalars={(1, 0): f4(1)})
    sums = []

    def run():
        bench.run(graph)
        sums.append(int(bench.read(blocks[0])[0]))

    graph.set_scalars({(1, 0): f4(10)}, once=True)
    run()
    run()
    graph.set_scalars({(1, 0): f4(100)}, once=True)
    run()
    graph.set_scalars({(1, 0): f4(200)}, once=True)
    run()
    graph.set_scalars({(1, 0): f4(1)}, once=True)
    run()
    run()
    assert sums == [10, 11, 111, 311, 312, 313]
    bench.fake.forget_calls()
    graph.replay_on(bench.stream)
    assert bench.fake.calls(SET) == 0
    graph.wait()


def test_values_for_one_launch_one_after_another_cost_one_update_each(bench):
    blocks = places(bench, 0)
    graph = bench.instantiate(adding(bench), blocks, scalars={(1, 0): f4(0)})
    for i in range(10):
        graph.set_scalars({(1, 0): f4(i + 1)}, once=True)
        graph.replay_on(bench.stream)
    assert bench.fake.calls(SET) == 10
    graph.wait()
    assert bench.read(blocks[0])[0] == 55


def test_a_default_set_between_set_for_one_launch_and_the_launch(bench):
    blocks = places(bench, 0)
    graph = bench.instantiate(adding(bench), blocks, scalars={(1, 0): f4(1)})
    graph.set_scalars({(1, 0): f4(10)}, once=True)
    graph.set_scalars({(1, 0): f4(2)})
    bench.run(graph)
    bench.run(graph)
    assert bench.read(blocks[0])[0] == 4


def test_setting_does_not_wait_and_does_not_touch_what_is_under_way(bench):
    blocks = places(bench, 0)
    graph = bench.instantiate(adding(bench), blocks, scalars={(1, 0): f4(1)})
    with bench.fake.held():
        graph.replay_on(bench.stream)
        graph.set_scalars({(1, 0): f4(10)})
        graph.replay_on(bench.stream)
        graph.set_scalars({(1, 0): f4(100)}, once=True)
        graph.replay_on(bench.stream)
        graph.replay_on(bench.stream)
        assert bench.read(blocks[0])[0] == 0
    graph.wait()
    assert bench.read(blocks[0])[0] == 121


def test_a_value_of_another_size_changes_nothing(bench):
    blocks = places(bench)
    graph = bench.instantiate(adding(bench, 2), blocks, scalars={(1, 0): f4(1)})
    with pytest.raises(GraphError, match="has 4 bytes, not 8"):
        graph.set_scalars({(1, 0): bytes(8)})
    bench.run(graph)
    assert bench.read(blocks[0])[0] == 3


def test_when_the_driver_fails_all_values_are_put_back(bench):
    blocks = places(bench)
    graph = bench.instantiate(adding(bench, 3), blocks, scalars={(1, 0): f4(1)})
    bench.fake.fail(SET, 2, 2)
    with pytest.raises(DriverError):
        graph.set_scalars({(1, 0): f4(10)})
    bench.run(graph)
    assert bench.read(blocks[0])[0] == 4
    graph.set_scalars({(1, 0): f4(10)})
    bench.run(graph)
    assert bench.read(blocks[0])[0] == 34


# ---- addresses


def test_rebinding_reaches_every_kind_of_node(bench):
    recipe = Recipe(bench, 3)
    a = recipe.memset(int(np.float32(3).view("u4")))
    b = recipe.add(1, after=[a])
    body = recipe.body()
    body.add(5)
    c = recipe.control("if", [body], 2, [b])
    recipe.copy(1, 0, [c])
    blocks = places(bench)
    graph = bench.instantiate(recipe.record, blocks)
    bench.run(graph)
    assert bench.read(blocks[1])[0] == 9
    other, condition = bench.memory(np.zeros(64, "f4")), bench.memory(LOG)
    graph.rebind(0, other, 128)
    graph.rebind(2, condition)
    bench.run(graph)
    assert (bench.read(other)[32], bench.read(other)[0], bench.read(blocks[1])[0]) == (4, 0, 4)
    assert (bench.read(blocks[0])[0], graph.rebuilds) == (9, 0)
    assert graph.bound(0) == (other, 128)


def test_rebinding_does_not_wait_and_keeps_the_old_memory(bench):
    recipe = Recipe(bench)
    recipe.add(1)
    graph = bench.instantiate(recipe.record, [bench.memory(ONES)])
    other = bench.memory(ONES)
    with bench.fake.held():
        graph.replay_on(bench.stream)
        graph.rebind(0, other)  # freeing the old memory now would poison the context
        graph.replay_on(bench.stream)
    graph.wait()
    assert bench.read(other)[0] == 2
    assert not bench.fake.poisoned()


def test_what_launches_may_need_does_not_pile_up(bench):
    recipe = Recipe(bench)
    recipe.add(1)
    blocks = [bench.memory(ONES) for _ in range(2)]
    graph = bench.instantiate(recipe.record, [blocks[0]])
    before = bench.fake.settled()["allocations"]
    for _ in range(500):
        graph.rebind(0, bench.memory(ONES))
        graph.replay_on(bench.stream)
        bench.stream.synchronize()
    assert bench.fake.live()["allocations"] < before + 10


def test_what_launches_may_need_does_not_pile_up_where_nobody_waits(bench):
    recipe = Recipe(bench)
    recipe.add(1)
    # Freeing memory of the device would wait for it.
    blocks = [bench.memory(ONES) for _ in range(500)]
    graph = bench.instantiate(recipe.record, blocks[:1])
    gone = []
    with bench.fake.held():
        graph.replay_on(bench.stream)
        for block in blocks:
            thing = Thing()
            gone.append(weakref.ref(thing))
            record = graph.record.copy()
            record.replace_node(0, record.nodes[0]._replace(keep=thing))
            thing = None
            graph.take(record, [block])
            graph.replay_on(bench.stream)
            # Each launch that passes leaves another one in the stream, which is never idle.
            bench.fake.take(2)
            assert not graph.idle
        alive = sum(ref() is not None for ref in gone)
    assert alive < 300
    graph.wait()
    assert not bench.fake.poisoned()


class Thing:
    pass


def test_a_memory_that_is_too_small_or_not_there(bench):
    recipe = Recipe(bench)
    recipe.add(1)
    block = bench.memory(ONES)
    graph = bench.instantiate(recipe.record, [block])
    with pytest.raises(GraphError, match="needs 64 bytes"):
        graph.rebind(0, bench.memory(LOG), 16)
    with pytest.raises(GraphError, match="no memory has number 1"):
        graph.rebind(1, block)
    bench.run(graph)
    assert bench.read(block)[0] == 2


def test_a_failed_rebinding_changes_nothing(bench):
    recipe = Recipe(bench)
    first = recipe.add(1)
    recipe.add(1, after=[first])
    block, other = bench.memory(ONES), bench.memory(ONES)
    graph = bench.instantiate(recipe.record, [block])
    bench.fake.fail(SET, 2, 2)
    with pytest.raises(DriverError) as caught:
        graph.rebind(0, other)
    assert caught.value.node == "add"
    bench.run(graph)
    assert (bench.read(block)[0], bench.read(other)[0]) == (3, 1)


# ---- other records


def chain(bench):
    recipe = Recipe(bench, 2)
    first = recipe.add(1)
    second = recipe.add(2, after=[first])
    recipe.copy(1, 0, [second])
    blocks = [bench.memory(ONES), bench.memory(ONES)]
    return recipe.record, blocks, bench.instantiate(recipe.record, blocks)


def test_only_what_changed_is_updated(bench):
    record, blocks, graph = chain(bench)
    call = bench.launch("add", ("pointer", 0), ("value", f4(10)), ("value", i4(16)))
    graph.take(replaced(record, 1, call=call), blocks)
    assert (bench.fake.calls(SET), graph.rebuilds) == (1, 0)
    bench.run(graph)
    assert bench.read(blocks[1])[0] == 12


def test_another_function_of_other_arguments(bench):
    record, blocks, graph = chain(bench)
    call = bench.launch("nothing")
    graph.take(replaced(record, 1, call=call, operands=()), blocks)
    bench.run(graph)
    assert (bench.read(blocks[1])[0], graph.rebuilds) == (2, 0)
    graph.rebind(0, bench.memory(ONES * 5))
    bench.run(graph)
    assert bench.read(blocks[1])[0] == 6


def test_nodes_are_switched_off_and_on(bench):
    record, blocks, graph = chain(bench)
    graph.set_enabled(1, False)
    bench.run(graph)
    assert bench.read(blocks[1])[0] == 2
    graph.rebind(1, blocks[1])
    graph.set_enabled(1, True)
    bench.run(graph)
    assert (bench.read(blocks[1])[0], graph.rebuilds) == (5, 0)
    graph.take(replaced(record, 0, enabled=False), blocks)
    bench.run(graph)
    assert bench.read(blocks[1])[0] == 7


@pytest.mark.parametrize("kind", ["host", "empty", "if", "child"])
def test_what_cannot_be_switched_off(bench, kind):
    recipe = Recipe(bench)
    if kind in ("if", "child"):
        recipe.node("it", kind, [at(0, 4)], bodies=[recipe.body().record])
    else:
        call = PythonCall(int, ()) if kind == "host" else None
        recipe.node("it", kind, (), call=call)
    block = bench.memory(LOG)
    graph = bench.instantiate(recipe.record, [block])
    with pytest.raises(UnsupportedError, match=f"{kind}") as caught:
        graph.set_enabled(0, False)
    assert "'it'" in caught.value.__notes__[0]
    off = replaced(recipe.record, 0, enabled=False)
    with pytest.raises(UnsupportedError):
        bench.instantiate(off, [block])


def grown(record):
    """One node more."""
    twin = record.copy()
    twin.add_node("more", "empty", None, [])
    return twin


CHANGES = {
    "direction": None,
    "empty copy": lambda bench, r: replaced(r, 2, params=(0,)),
    "kind": lambda bench, r: replaced(
        r, 2, kind="memset", kernel="set_bytes", params=(64, 4, 0), operands=(at(1),)
    ),
    "priority": lambda bench, r: replaced(r, 1, call=r.nodes[1].call._replace(priority=-1)),
    "cooperative": lambda bench, r: replaced(r, 1, call=r.nodes[1].call._replace(cooperative=True)),
    "cluster": lambda bench, r: replaced(r, 1, call=r.nodes[1].call._replace(cluster=(1, 1, 1))),
    "programmatic": lambda bench, r: replaced(
        r, 1, call=r.nodes[1].call._replace(programmatic=True)
    ),
    "edges": lambda bench, r: replaced(r, 2, dependencies=(0, 1)),
    "number": lambda bench, r: grown(r),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_no_update_can_do_is_one_rebuild(bench, caplog, change):
    record, blocks, graph = chain(bench)
    graph.replay_on(bench.stream)
    wanted = record if change == "direction" else CHANGES[change](bench, record)
    if change == "direction":
        blocks = [blocks[0], bench.memory(ONES, pinned=True)]
    with caplog.at_level(logging.WARNING, logger="fastgraph"):
        graph.take(wanted, blocks)
    assert graph.rebuilds == 1
    (message,) = [r.getMessage() for r in caplog.records if r.name == "fastgraph"]
    assert "built anew" in message
    if change not in ("number",):
        number = 1 if change in ("priority", "cooperative", "cluster", "programmatic") else 2
        assert f"node {number} '{'add' if number == 1 else 'copy'}'" in message
    bench.run(graph)
    assert bench.read(blocks[0])[0] == 7
    graph.take(graph.record, blocks)
    assert graph.rebuilds == 1


def test_a_failed_rebuild_changes_nothing(bench):
    record, blocks, graph = chain(bench)
    call = bench.launch("add", ("pointer", 0), ("value", f4(10)), ("value", i4(16)))
    wanted = replaced(replaced(record, 0, call=call), 2, params=(0,))
    live = bench.fake.settled()
    for name in ("cuGraphCreate", "cuGraphAddNode", "cuGraphInstantiateWithFlags"):
        bench.fake.fail(name, 2)
        with pytest.raises(DriverError):
            graph.take(wanted, blocks)
        assert (bench.fake.live(), graph.rebuilds, graph.record) == (live, 0, record)
    bench.run(graph)
    assert bench.read(blocks[1])[0] == 4


def test_parameters_that_the_driver_takes_neither_way(bench):
    record, blocks, graph = chain(bench)
    call = record.nodes[1].call._replace(block=(2048, 1, 1))
    with pytest.raises(DriverError) as caught:
        graph.take(replaced(record, 1, call=call), blocks)
    assert (caught.value.node, graph.rebuilds) == ("add", 0)
    bench.run(graph)
    assert bench.read(blocks[1])[0] == 4


def test_a_refused_update_after_others_that_were_taken(bench):
    """The parameters that were taken are put back before a rebuild that then fails."""
    record, blocks, graph = chain(bench)
    pinned = bench.memory(ONES, pinned=True)
    call = bench.launch("add", ("pointer", 0), ("value", f4(10)), ("value", i4(16)))
    bench.fake.fail("cuGraphCreate", 2)
    with pytest.raises(DriverError):
        graph.take(replaced(record, 0, call=call), [blocks[0], pinned])
    bench.run(graph)
    assert bench.read(blocks[1])[0] == 4
    graph.take(replaced(record, 0, call=call), [blocks[0], pinned])
    bench.run(graph)
    assert (bench.read(pinned)[0], graph.rebuilds) == (16, 1)


def test_a_rebuild_keeps_scalars_and_does_not_wait(bench):
    blocks = places(bench, 0)
    record = adding(bench)
    graph = bench.instantiate(record, blocks, scalars={(1, 0): f4(1)})
    graph.set_scalars({(1, 0): f4(3)})
    with bench.fake.held():
        graph.replay_on(bench.stream)
        graph.take(replaced(record, 0, call=record.nodes[0].call._replace(priority=-1)), blocks)
        graph.replay_on(bench.stream)
    graph.wait()
    assert (bench.read(blocks[0])[0], graph.rebuilds) == (6, 1)


# ---- foreign graphs


def foreign(bench, addresses, again=False):
    """A driver graph of one memset of the memory at the first address, as others make them."""
    graph = ctypes.c_void_p()
    cuda = bench.cuda
    assert cuda.cuGraphCreate(ctypes.byref(graph), 0) == 0

    class Params(ctypes.Structure):
        _fields_ = [
            ("dst", ctypes.c_uint64), ("pitch", ctypes.c_size_t), ("value", ctypes.c_uint),
            ("element", ctypes.c_uint), ("width", ctypes.c_size_t), ("height", ctypes.c_size_t),
        ]  # fmt: skip

    params = Params(addresses[0], 0, int(np.float32(9).view("u4")), 4, 16, 1)
    node = ctypes.c_void_p()
    context = ctypes.c_void_p(bench.device.context)
    assert (
        cuda.cuGraphAddMemsetNode(ctypes.byref(node), graph, None, 0, ctypes.byref(params), context)
        == 0
    )

    class Owner:
        def __del__(self):
            cuda.cuGraphDestroy(graph)

    make = (lambda found: foreign(bench, found, True)) if again else None
    return Foreign(graph.value, Owner(), make)


def with_foreign(bench, again, operands=True):
    recipe = Recipe(bench, 2)
    block = bench.memory(ONES)
    call = foreign(bench, [block.ptr], again)
    node = recipe.node("theirs", "child", [at(0)] if operands else (), call=call)
    recipe.add(1, after=[node])
    return recipe.record, [block, bench.memory(ONES)]


def test_a_foreign_graph_is_a_node(bench):
    record, blocks = with_foreign(bench, False)
    graph = bench.instantiate(record, blocks)
    bench.run(graph)
    assert bench.read(blocks[0])[0] == 10
    assert graph.node_count == 3


def test_a_foreign_graph_that_cannot_be_made_again(bench):
    record, blocks = with_foreign(bench, False)
    graph = bench.instantiate(record, blocks)
    with pytest.raises(UnsupportedError, match="second time") as caught:
        graph.rebind(0, bench.memory(ONES))
    assert "node 0 'theirs'" in caught.value.__notes__[0]
    with pytest.raises(UnsupportedError, match="second time"):
        bench.instantiate(record, blocks, again=True)
    graph.rebind(1, bench.memory(ONES))
    graph.take(replaced(record, 1, call=record.nodes[1].call._replace(priority=-1)), blocks)
    assert graph.rebuilds == 1
    bench.run(graph)
    assert bench.read(blocks[0])[0] == 10


def test_a_foreign_graph_is_made_again_for_other_addresses(bench):
    record, blocks = with_foreign(bench, True)
    graph = bench.instantiate(record, blocks)
    other = bench.memory(ONES)
    graph.rebind(0, other)
    bench.run(graph)
    assert (bench.read(blocks[0])[0], bench.read(other)[0], graph.rebuilds) == (1, 10, 0)
    third = [bench.memory(ONES), blocks[1]]
    twin = bench.instantiate(record, third, again=True)
    bench.run(twin)
    assert (bench.read(third[0])[0], bench.read(blocks[0])[0]) == (10, 1)
    # A rebuild for another reason keeps what was made for the addresses of now.
    graph.take(
        replaced(record, 1, call=record.nodes[1].call._replace(priority=-1)), [other, blocks[1]]
    )
    bench.run(graph)
    assert (bench.read(blocks[0])[0], bench.read(other)[0], graph.rebuilds) == (1, 10, 1)


def test_a_foreign_graph_of_another_shape_is_a_rebuild(bench):
    record, blocks = with_foreign(bench, True)
    graph = bench.instantiate(record, blocks)
    more = capture_call(bench.device, lambda stream: None)
    graph.take(replaced(record, 0, call=more), blocks)
    bench.run(graph)
    assert (bench.read(blocks[0])[0], graph.rebuilds) == (2, 1)


def test_another_foreign_graph_in_its_place(bench):
    record, blocks = with_foreign(bench, True)
    graph = bench.instantiate(record, blocks)
    other = foreign(bench, [blocks[1].ptr])
    graph.take(replaced(record, 0, call=other), blocks)
    bench.run(graph)
    assert (bench.read(blocks[0])[0], bench.read(blocks[1])[0], graph.rebuilds) == (2, 9, 0)
