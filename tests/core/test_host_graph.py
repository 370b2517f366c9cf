"""Programs and their bindings: side by side, bounds, bad data, several threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from fastgraph._core import buffer, counters, isa
from fastgraph._core.host_graph import HostGraph, instantiate
from fastgraph._core.host_program import HostProgram
from fastgraph._core.params import block_of
from fastgraph._core.record import Operand, Record
from fastgraph.errors import GraphError, InputError


def copying_record():
    """Memory 0 is copied to 1, and 1 to 2, 64 bytes each."""
    record = Record()
    for i in range(3):
        record.add_memory("buffer", f"m{i}", 64)
    for i in range(2):
        operands = [Operand(i + 1, 0, 64, False, True), Operand(i, 0, 64, True, False)]
        before = (i - 1,) if i else ()
        record.add_node(f"copy {i}", "copy", "copy_bytes", operands, (64,), dependencies=before)
    return record


@pytest.fixture(scope="module")
def program():
    return HostProgram(copying_record(), isa.chosen())


def blocks(first):
    return {
        0: block_of(np.full(16, first, "f4")),
        1: buffer.allocate(64),
        2: buffer.allocate(64),
    }


def value(block, offset=0):
    return buffer.view(block, offset, (16,), "f4", "cpu").numpy()[0]


def test_two_bindings_of_one_record_side_by_side(program):
    mine, theirs = blocks(1), blocks(2)
    a, b = instantiate(program, mine), instantiate(program, theirs)
    a.run()
    assert (value(mine[2]), value(theirs[2])) == (1, 0)
    b.run()
    assert (value(mine[2]), value(theirs[2])) == (1, 2)
    assert a.program is b.program


def test_rebinding_is_seen_by_the_next_run(program):
    mine = blocks(1)
    graph = instantiate(program, mine)
    graph.run()
    graph.bind(0, block_of(np.full(16, 5, "f4")))
    graph.run()
    assert value(mine[2]) == 5


def test_at_an_offset(program):
    arena = buffer.allocate(192)
    graph = instantiate(program, {0: block_of(np.ones(16, "f4")), 1: (arena, 0), 2: (arena, 128)})
    graph.run()
    assert (value(arena, 128), value(arena, 64)) == (1, 0)
    assert graph.bound(2) is arena


def test_at_once_on_two_threads(program):
    pairs = [blocks(i) for i in range(2)]
    graphs = [instantiate(program, each, release_gil=True) for each in pairs]
    threads = [threading.Thread(target=lambda g=g: [g.run() for _ in range(500)]) for g in graphs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [value(each[2]) for each in pairs] == [0, 1]


def test_blocks_stay_alive(program):
    before = counters.snapshot()
    graph = instantiate(program, blocks(3))
    assert counters.snapshot()["blocks"] == before["blocks"] + 3
    graph.run()
    assert value(graph.bound(2)) == 3
    del graph
    assert counters.snapshot() == before


@pytest.mark.parametrize(
    ("memory", "nbytes", "offset", "message"),
    [
        (3, 64, 0, "no memory has number 3"),
        (-1, 64, 0, "no memory has number -1"),
        (0, 63, 0, "needs 64 bytes; the block has 63"),
        (0, 64, 1, "the block has 63 from byte 1 on"),
        (0, 64, -1, "needs 64 bytes"),
        (0, 64, 2**62, "needs 64 bytes"),
    ],
)
def test_binding_refused(program, memory, nbytes, offset, message):
    good = blocks(7)
    graph = instantiate(program, good)
    bad = buffer.allocate(nbytes)
    with pytest.raises(GraphError, match=message):
        graph.bind(memory, bad, offset)
    with pytest.raises(GraphError, match=message):
        instantiate(program, {memory: (bad, offset)})
    graph.run()
    assert value(good[2]) == 7


@pytest.mark.parametrize("block", [None, "x", np.zeros(16), 4096])
def test_binding_of_what_is_no_block(program, block):
    graph = instantiate(program, {})
    with pytest.raises(TypeError):
        graph.bind(0, block)
    with pytest.raises(TypeError):
        instantiate(program, {0: block})


def test_unbound_memory(program):
    graph = instantiate(program, {0: buffer.allocate(64), 1: buffer.allocate(64)})
    for run in (graph.run, graph.run_timed, lambda: graph.run_subset([0, 1])):
        with pytest.raises(GraphError, match="buffer 'm2' has no address yet"):
            run()
    graph.run_subset([0])
    assert graph.bound(2) is None


@pytest.mark.parametrize("memory", [-1, 3, 2**40])
def test_bound_out_of_range(program, memory):
    with pytest.raises(GraphError, match="no memory has number"):
        instantiate(program, {}).bound(memory)


def test_subset(program):
    mine = blocks(4)
    graph = instantiate(program, mine)
    graph.run_subset([1])
    assert value(mine[2]) == 0
    graph.run_subset([0, 1, 1])
    assert value(mine[2]) == 4
    graph.run_subset([])


@pytest.mark.parametrize("nodes", [[2], [-1], [2**70], ["x"], [None], [1.5], None, 5, [[0]]])
def test_subset_of_rubbish(program, nodes):
    graph = instantiate(program, blocks(1))
    with pytest.raises((GraphError, TypeError)):
        graph.run_subset(nodes)
    graph.run()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((None, {}), TypeError),
        (("x", {}), TypeError),
        (("program", None), TypeError),
        (("program", []), TypeError),
        (("program", {"x": None}), TypeError),
        (("program", {}, 0), GraphError),
        (("program", {}, -1), OverflowError),
        (("program", {}, 1, "yes"), InputError),
        (("program", {}, 1, 1), InputError),
    ],
)
def test_instantiate_rubbish(program, arguments, error):
    before = counters.snapshot()["executables"]
    with pytest.raises(error):
        instantiate(*[program if a == "program" else a for a in arguments])
    assert counters.snapshot()["executables"] == before


def test_unknown_kernel_and_isa():
    record = Record()
    record.add_node("n", "function", "no_such_kernel", [])
    with pytest.raises(KeyError, match="no host kernel is called 'no_such_kernel'"):
        HostProgram(record, isa.chosen())
    with pytest.raises(ValueError, match="no kernels for instruction set 'z80'"):
        HostProgram(copying_record(), "z80")
    with pytest.raises(TypeError):
        HostProgram(record, None)


@pytest.mark.parametrize("word", [2**63, "x", None, 1.5])
def test_constants_that_are_no_words(word):
    record = Record()
    record.add_node("n", "function", "do_nothing", [], (word,))
    with pytest.raises((OverflowError, TypeError)):
        HostProgram(record, isa.chosen())


def test_is_made_once(program):
    with pytest.raises(TypeError, match="made once"):
        program.__init__(copying_record(), isa.chosen())
    with pytest.raises(TypeError, match="made by the instantiate"):
        HostGraph()


def test_one_without_a_program_does_nothing():
    graph = HostGraph.__new__(HostGraph)
    graph.run()
    assert (graph.functions(), graph.program.record) == ([], None)
    with pytest.raises((GraphError, AttributeError)):
        graph.bind(0, buffer.allocate(8))
    with pytest.raises(GraphError):
        graph.bound(0)


def test_timed(program):
    graph = instantiate(program, blocks(1))
    times = graph.run_timed()
    assert len(times) == 2
    assert min(times) >= 0


def test_empty_nodes_are_walked_over():
    record = Record()
    record.add_node("a", "empty", None, [])
    record.add_node("b", "empty", None, [], dependencies=[0])
    graph = instantiate(HostProgram(record, isa.chosen()), {})
    graph.run()
    assert (graph.run_timed(), graph.functions()) == ([0, 0], [])
    graph.run_subset([0, 1])


def test_every_node_is_a_compiled_function(program):
    functions = instantiate(program, {}).functions()
    assert [node for node, _ in functions] == [0, 1]
    assert all(address for _, address in functions)


def test_running_itself_is_refused(program):
    """A run cannot be entered from what collects its results; afterwards it can."""
    graph = instantiate(program, blocks(1))
    with pytest.raises(GraphError, match="running in this very thread"):
        graph.run(graph.run)
    graph.run()
