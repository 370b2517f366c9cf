"""Records as driver graphs: every kind of node, edges, conditionals, what a replay calls."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from fastgraph._core import counters
from fastgraph._core.record import PythonCall, Record
from fastgraph.errors import DriverError, GraphError
from tests.core.cuda_bench import Recipe, at, f4, i4

pytestmark = pytest.mark.fake

ROOT = Path(__file__).resolve().parents[2]

ONES = np.ones(16, "f4")
LOG = np.zeros(16, "i4")


def order_of(bench, block):
    log = bench.read(block, "i4")
    return log[1 : 1 + log[0]].tolist()


# ---- kinds of nodes


def test_kernels_copies_and_memsets_of_every_size(bench):
    recipe = Recipe(bench, 3)
    first = recipe.memset(int(np.float32(5).view("u4")))
    second = recipe.add(10, after=[first])
    recipe.copy(1, 0, after=[second])
    recipe.memset(7, 1, 2, nbytes=63)
    blocks = [bench.memory(ONES) for _ in range(3)]
    graph = bench.instantiate(recipe.record, blocks)
    assert graph.node_count == 4
    bench.run(graph)
    assert (bench.read(blocks[1]) == 15).all()
    assert bench.read(blocks[2], "u1").tolist() == [7] * 63 + [np.float32(1).tobytes()[-1]]


@pytest.mark.parametrize(
    ("itemsize", "value", "helper"),
    [
        (1, 0xAB, 0),
        (2, 0xABCD, 0),
        (4, 0xABCDEF01, 0),
        (8, 0xABCDEF01ABCDEF01 - (1 << 64), 0),
        (8, 0x0102030405060708, 1),
        (8, -2, 1),
    ],
)
def test_a_memset(bench, itemsize, value, helper):
    recipe = Recipe(bench)
    recipe.memset(value, itemsize)
    block = bench.memory(ONES)
    bench.run(bench.instantiate(recipe.record, [block]))
    wanted = np.uint64(value % (1 << 64)).tobytes()[:itemsize]
    assert bench.read(block, "u1").tobytes() == wanted * (64 // itemsize)
    assert bench.fake.kernels_run() == helper


@pytest.mark.parametrize("kind", ["copy", "memset", "empty"])
def test_a_node_that_does_nothing_still_orders(bench, kind):
    recipe = Recipe(bench, 2)
    first = recipe.note(1, memory=0)
    if kind == "copy":
        middle = recipe.copy(1, 0, [first], nbytes=0)
    elif kind == "memset":
        middle = recipe.memset(1, after=[first], nbytes=0)
    else:
        middle = recipe.node("empty", "empty", (), [first])
    recipe.note(2, after=[middle])
    for seed in range(5):
        bench.fake.seed(seed)
        blocks = [bench.memory(LOG), bench.memory(LOG)]
        bench.run(bench.instantiate(recipe.record, blocks))
        assert order_of(bench, blocks[0]) == [1, 2]


def test_copies_between_kinds_of_memory(bench):
    recipe = Recipe(bench, 3)
    first = recipe.copy(1, 0)
    recipe.copy(2, 1, [first])
    blocks = [bench.memory(ONES * 3, pinned=True), bench.memory(ONES), bench.memory(ONES, True)]
    bench.run(bench.instantiate(recipe.record, blocks))
    assert (bench.read(blocks[2]) == 3).all()


def test_memories_at_offsets(bench):
    recipe = Recipe(bench)
    recipe.add(1)
    block = bench.memory(np.zeros(64, "f4"))
    bench.run(bench.instantiate(recipe.record, [(block, 128)]))
    assert bench.read(block).tolist() == [0] * 32 + [1] * 16 + [0] * 16


def test_what_cuda_cannot_do_is_refused_by_name(bench):
    recipe = Recipe(bench)
    recipe.record.add_node("odd", "function", "add_f32", [at(0)])
    with pytest.raises(GraphError, match="add_f32") as caught:
        bench.instantiate(recipe.record, [bench.memory(ONES)])
    assert any("node 0 'odd'" in note for note in caught.value.__notes__)
    recipe = Recipe(bench)
    recipe.node("odd", "function", [at(0)], call=PythonCall(print, (("value", 1),)))
    with pytest.raises(GraphError, match="cpu device only"):
        bench.instantiate(recipe.record, [bench.memory(ONES)])


def test_unbound_and_small_memory(bench):
    recipe = Recipe(bench)
    recipe.add(1)
    with pytest.raises(GraphError, match="no address"):
        bench.instantiate(recipe.record, [None])
    with pytest.raises(GraphError, match="needs 64 bytes; the block has 32"):
        bench.instantiate(recipe.record, [(bench.memory(ONES), 32)])
    with pytest.raises(GraphError, match="0 blocks for 1 memories"):
        bench.instantiate(recipe.record, [])


# ---- edges


def test_edges_are_kept_in_any_order_of_the_rest(bench):
    recipe = Recipe(bench)
    a, b = recipe.note(1), recipe.note(2)
    c = recipe.note(3, [a, b])
    recipe.note(4, [c, a, b])
    for seed in range(8):
        bench.fake.seed(seed)
        block = bench.memory(LOG)
        bench.run(bench.instantiate(recipe.record, [block]))
        order = order_of(bench, block)
        assert sorted(order[:2]) == [1, 2] and order[2:] == [3, 4]


def edges_of(bench, graph):
    """Sorted (earlier, later, is programmatic) of the top level, nodes in order of adding."""
    handle, count = ctypes.c_void_p(graph.handle), ctypes.c_size_t()
    cuda = bench.cuda
    assert cuda.cuGraphGetNodes(handle, None, ctypes.byref(count)) == 0
    nodes = (ctypes.c_void_p * count.value)()
    assert cuda.cuGraphGetNodes(handle, nodes, ctypes.byref(count)) == 0
    assert cuda.cuGraphGetEdges_v2(handle, None, None, None, ctypes.byref(count)) == 0
    ends = [(ctypes.c_void_p * count.value)() for _ in range(2)]
    data = ((ctypes.c_uint8 * 8) * count.value)()
    assert cuda.cuGraphGetEdges_v2(handle, *ends, data, ctypes.byref(count)) == 0
    number = {node: i for i, node in enumerate(nodes)}
    return sorted((number[a], number[b], kind[2]) for a, b, kind in zip(*ends, data, strict=True))


def test_programmatic_edges_are_between_kernels_only(bench):
    recipe = Recipe(bench, 2)
    a = recipe.add(1, programmatic=True)
    b = recipe.add(1, after=[a], programmatic=True)
    c = recipe.copy(1, 0, [b])
    d = recipe.add(1, after=[c, b], programmatic=True)
    recipe.add(1, after=[d])
    body = recipe.body()
    first = body.add(1, programmatic=True)
    body.add(1, after=[first], programmatic=True)
    recipe.control("if", [body], 1, [d])
    blocks = [bench.memory(ONES), bench.memory(ONES)]
    graph = bench.instantiate(recipe.record, blocks)
    # Node 5 sets the condition, node 6 is the conditional.
    plain = [(1, 2, 0), (2, 3, 0), (3, 4, 0), (3, 5, 0), (5, 6, 0)]
    assert edges_of(bench, graph) == sorted([(0, 1, 1), (1, 3, 1), *plain])
    bench.run(graph)


def child_of(recipe, bodies, after=(), name="child"):
    return recipe.node(name, "child", (), after, bodies=[bodies.record])


def test_a_child_is_inlined_between_what_surrounds_it(bench):
    recipe = Recipe(bench)
    first = recipe.note(1)
    inner = recipe.body()
    inner.note(2)
    inner.note(3)
    child = child_of(recipe, inner, [first])
    recipe.note(4, [child])
    for seed in range(5):
        bench.fake.seed(seed)
        block = bench.memory(LOG)
        graph = bench.instantiate(recipe.record, [block])
        assert graph.node_count == 4
        bench.run(graph)
        order = order_of(bench, block)
        assert (order[0], order[3], sorted(order)) == (1, 4, [1, 2, 3, 4])


def test_an_empty_child_hands_dependencies_on(bench):
    recipe = Recipe(bench)
    root = child_of(recipe, recipe.body())
    first = recipe.note(1, [root])
    outer = recipe.body()
    child_of(outer, outer.body())
    child = child_of(recipe, outer, [first])
    recipe.note(2, [child, first])
    for seed in range(5):
        bench.fake.seed(seed)
        block = bench.memory(LOG)
        graph = bench.instantiate(recipe.record, [block])
        assert graph.node_count == 2
        bench.run(graph)
        assert order_of(bench, block) == [1, 2]


def test_wide_children_meet_in_one_node(bench):
    recipe = Recipe(bench)
    last, before = [], bench.fake.settled()["nodes"]
    for _ in range(3):
        inner = recipe.body()
        for _ in range(300):
            inner.node("empty", "empty", ())
        last = [child_of(recipe, inner, last)]
    graph = bench.instantiate(recipe.record, [bench.memory(LOG)])
    assert graph.node_count == 903
    assert bench.fake.live()["nodes"] == before + 903


# ---- conditionals


def counting(bench, kind, value, bodies=1):
    """Memory 0 is the log, memory 1 the condition."""
    recipe = Recipe(bench, 2)
    first = recipe.note(90)
    inner = []
    for number in range(bodies):
        body = recipe.body()
        noted = body.note(number)
        if kind == "while":
            call = bench.launch("count_down", ("pointer", 0))
            body.node("count", "function", [at(1, 4)], [noted], call=call)
        inner.append(body)
    choice = recipe.control(kind, inner, 1, [first])
    recipe.note(91, [choice])
    condition = np.zeros(16, "u4")
    condition[0] = value
    return recipe, [bench.memory(LOG), bench.memory(condition)]


@pytest.mark.parametrize(
    ("kind", "value", "bodies", "wanted"),
    [
        ("if", 1, 1, [0]),
        ("if", 0, 1, []),
        ("if", 7, 2, [0]),
        ("if", 0, 2, [1]),
        ("while", 3, 1, [0, 0, 0]),
        ("while", 0, 1, []),
        ("switch", 2, 3, [2]),
        ("switch", 3, 3, []),
    ],
)
def test_a_conditional(bench, kind, value, bodies, wanted):
    recipe, blocks = counting(bench, kind, value, bodies)
    graph = bench.instantiate(recipe.record, blocks)
    bench.run(graph)
    assert order_of(bench, blocks[0]) == [90, *wanted, 91]


def test_conditionals_in_children_in_conditionals(bench):
    recipe = Recipe(bench, 2)
    deepest = recipe.body()
    deepest.note(1)
    inner = recipe.body()
    inner.control("if", [deepest], 1)
    outer = recipe.body()
    child_of(outer, inner)
    again = outer.note(2, [0])
    call = bench.launch("count_down", ("pointer", 0))
    outer.node("count", "function", [at(1, 4)], [again], call=call)
    loop = recipe.control("while", [outer], 1)
    recipe.note(3, [loop])
    blocks = [bench.memory(LOG), bench.memory(np.full(16, 2, "u4"))]
    bench.run(bench.instantiate(recipe.record, blocks))
    assert order_of(bench, blocks[0]) == [1, 2, 1, 2, 3]


def test_an_empty_body(bench):
    recipe = Recipe(bench, 2)
    recipe.control("if", [recipe.body(), recipe.body()], 1)
    bench.run(bench.instantiate(recipe.record, [bench.memory(LOG), bench.memory(LOG)]))


def test_what_bodies_must_not_hold(bench):
    recipe = Recipe(bench, 2)
    body = recipe.body()
    body.node("host", "host", (), call=PythonCall(print, ()))
    recipe.control("if", [body], 1)
    blocks = [bench.memory(LOG), bench.memory(LOG)]
    with pytest.raises(GraphError, match="CUDA forbids"):
        bench.instantiate(recipe.record, blocks)


# ---- host functions


def test_a_host_function_runs_between_the_nodes_around_it(bench):
    seen = []
    recipe = Recipe(bench)
    block = bench.memory(ONES)
    first = recipe.add(1)
    host = recipe.node(
        "look", "host", (), [first], call=PythonCall(lambda: seen.append(bench.read(block)[0]), ())
    )
    recipe.add(1, after=[host])
    graph = bench.instantiate(recipe.record, [block])
    for _ in range(3):
        bench.run(graph)
    assert seen == [2, 4, 6]


def test_an_exception_of_a_host_function_reaches_the_next_wait_or_replay(bench):
    def fail():
        raise KeyError("lost")

    recipe = Recipe(bench)
    host = recipe.node("bad", "host", (), call=PythonCall(fail, ()))
    recipe.add(1, after=[host])
    block = bench.memory(ONES)
    graph = bench.instantiate(recipe.record, [block])
    graph.replay_on(bench.stream)
    with pytest.raises(KeyError, match="lost") as caught:
        graph.wait()
    assert "host node 'bad'" in caught.value.__notes__[0]
    assert bench.read(block)[0] == 2  # CUDA goes on all the same
    graph.wait()
    graph.replay_on(bench.stream)
    bench.stream.synchronize()
    with pytest.raises(KeyError):
        graph.replay_on(bench.stream)
    assert bench.read(block)[0] == 3
    bench.fake.forget_calls()


def test_a_host_function_must_not_use_the_device(bench):
    errors = []

    def use():
        for call in (
            lambda: graph.replay_on(bench.stream),
            lambda: graph.set_scalars({(0, 0): f4(1)}),
            lambda: bench.instantiate(recipe.record, [block]),
        ):
            try:
                call()
            except Exception as error:
                errors.append(type(error))

    recipe = Recipe(bench)
    recipe.node("use", "host", (), call=PythonCall(use, ()))
    block = bench.memory(ONES)
    graph = bench.instantiate(recipe.record, [block])
    bench.run(graph)
    assert errors == [GraphError] * 3


def test_a_graph_that_is_dropped_in_a_host_function_is_closed_later(bench):
    execs = bench.fake.settled()["execs"]
    recipe = Recipe(bench)
    recipe.add(1)
    block = bench.memory(ONES)
    held = [bench.instantiate(recipe.record, [block])]
    bench.run(held[0])
    dropping = Recipe(bench)
    dropping.node("drop", "host", (), call=PythonCall(held.clear, ()))
    graph = bench.instantiate(dropping.record, [block])
    bench.run(graph)
    assert not held and bench.fake.live()["execs"] == execs + 2
    graph.close()
    bench.instantiate(recipe.record, [block]).close()
    assert bench.fake.live()["execs"] == execs


def test_a_graph_in_a_cycle_with_its_host_function_waits_for_it(bench):
    execs = bench.fake.settled()["execs"]
    recipe = Recipe(bench)
    holder = []
    recipe.node("host", "host", (), call=PythonCall(lambda: holder and time.sleep(0.01), ()))
    graph = bench.instantiate(recipe.record, [bench.memory(ONES)])
    holder.append(graph)
    graph.replay_on(bench.stream)
    recipe = graph = holder = None
    gc.collect()
    assert bench.fake.live()["execs"] == execs


# ---- replays


def test_a_replay_is_one_launch_and_nothing_else(bench):
    recipe, blocks = counting(bench, "if", 1)
    graph = bench.instantiate(recipe.record, blocks)
    bench.run(graph)
    names = [n for n in CALLS if bench.fake.calls(n)]
    assert "cuGraphLaunch" in names
    bench.fake.forget_calls()
    for _ in range(10):
        graph.replay_on(bench.stream)
    assert {n: bench.fake.calls(n) for n in CALLS if bench.fake.calls(n)} == {"cuGraphLaunch": 10}


CALLS = (
    *("cuGraphLaunch", "cuCtxGetCurrent", "cuCtxSetCurrent", "cuStreamQuery", "cuEventRecord"),
    *("cuEventQuery", "cuStreamWaitEvent", "cuStreamIsCapturing", "cuGraphUpload", "cuMemAlloc"),
    *("cuGraphExecKernelNodeSetParams", "cuGraphExecNodeSetParams", "cuStreamSynchronize"),
    *("cuStreamGetCaptureInfo", "cuEventCreate", "cuGraphAddNode", "cuGraphInstantiate"),
)


def test_replays_on_two_streams_are_in_order(bench):
    other = type(bench.stream)(bench.device)
    recipe = Recipe(bench)
    recipe.add(1)
    later = Recipe(bench)
    later.add(2, kernel="scale")
    block = bench.memory(ONES)
    last_use = type(bench.instantiate(recipe.record, [block]).last_use)()
    a = bench.instantiate(recipe.record, [block], last_use=last_use)
    b = bench.instantiate(later.record, [block], last_use=last_use)
    for _ in range(3):
        a.replay_on(bench.stream)
        b.replay_on(other)
    b.wait()
    assert bench.read(block)[0] == 22


def test_uploads(bench):
    recipe = Recipe(bench)
    recipe.add(1)
    graph = bench.instantiate(recipe.record, [bench.memory(ONES)])
    graph.upload()
    assert bench.fake.calls("cuGraphUpload") == 1


def test_closed(bench):
    execs = bench.fake.settled()["execs"]
    recipe = Recipe(bench)
    recipe.add(1)
    block = bench.memory(ONES)
    graph = bench.instantiate(recipe.record, [block])
    graph.replay_on(bench.stream)
    graph.close()
    assert bench.read(block)[0] == 2  # it was waited for
    assert bench.fake.live()["execs"] == execs
    graph.close()
    for call in (
        lambda: graph.replay_on(bench.stream),
        graph.upload,
        lambda: graph.set_scalars({}),
        lambda: graph.node_count,
        lambda: graph.rebind(0, block),
    ):
        with pytest.raises(GraphError, match="closed"):
            call()


def test_inside_and_outside_of_the_lock(bench):
    recipe = Recipe(bench)
    recipe.add(1)
    block = bench.memory(ONES)
    graph = bench.instantiate(recipe.record, [block])
    with pytest.raises(GraphError, match="held=True"):
        graph.launch_held(bench.stream)
    graph.locked(lambda: graph.launch_held(bench.stream))
    graph.wait()
    assert bench.read(block)[0] == 2


def test_what_a_graph_tells(bench):
    recipe = Recipe(bench)
    recipe.add(1)
    block = bench.memory(ONES)
    graph = bench.instantiate(recipe.record, [block])
    assert graph.idle and graph.nbytes_estimate > 1000 and graph.handle
    with bench.fake.held():
        graph.replay_on(bench.stream)
        assert not graph.idle
    graph.wait()
    assert graph.idle and graph.bound(0) == (block, 0)


def test_replays_of_many_threads(bench):
    recipe = Recipe(bench)
    recipe.add(1)
    block = bench.memory(ONES)
    graph = bench.instantiate(recipe.record, [block])
    streams = [bench.stream, type(bench.stream)(bench.device)]

    def replay(stream):
        for _ in range(100):
            graph.replay_on(stream)
        stream.synchronize()

    threads = [threading.Thread(target=replay, args=(streams[i % 2],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    graph.wait()
    assert bench.read(block)[0] == 401


START = """
import gc, os, sys, time
from pathlib import Path
import numpy as np
from fastgraph._core.record import PythonCall
from fastgraph.errors import ContextPoisonedError, DriverError
from tests import fake_cuda
from tests.core.cuda_bench import Bench, Recipe

bench = Bench(fake_cuda.load(), Path(sys.argv[1]))
recipe = Recipe(bench)
block = bench.memory(np.ones(16, "f4"))

def refuses(call, error):
    try:
        call()
    except error:
        return
    raise AssertionError
"""

POISONED = """
recipe.add(1)
graphs = [bench.instantiate(recipe.record, [block]) for _ in range(3)]
bench.fake.poison_next_kernel()
graphs[0].replay_on(bench.stream)
for call in (graphs[0].wait, lambda: graphs[1].replay_on(bench.stream), graphs[1].upload):
    refuses(call, ContextPoisonedError)
graphs.pop().close()
graphs.clear()
gc.collect()
print("done")
"""

FORKED = """
recipe.add(1)
graphs = [bench.instantiate(recipe.record, [block]) for _ in range(2)]
graphs[0].replay_on(bench.stream)
child = os.fork()
if not child:
    for call in (lambda: graphs[0].replay_on(bench.stream), graphs[0].wait, graphs[1].upload):
        refuses(call, DriverError)
    graphs[0].close()
    graphs.clear()
    gc.collect()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
graphs[0].replay_on(bench.stream)
graphs[0].wait()
assert bench.read(block)[0] == 3
print("done")
"""

# The process ends while a function runs, and others are still to come.
ENDING = """
begun = []
slow = PythonCall(lambda: (begun.append(1), time.sleep(0.2)), ())
first = recipe.node("a", "host", (), call=slow)
recipe.node("b", "host", (), [first], call=PythonCall(lambda: print("too late"), ()))
graph = bench.instantiate(recipe.record, [block])
graph.replay_on(bench.stream)
while not begun:
    time.sleep(0.001)
keep = [graph]
keep.append(keep)
print("done")
"""


@pytest.mark.parametrize("script", [POISONED, FORKED, ENDING], ids=["poisoned", "forked", "ending"])
def test_the_end_of_things_is_quiet(bench_library, script):
    """In processes of their own, for which the device stays lost."""
    command = [sys.executable, "-W", "error", "-c", START + script, str(bench_library)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


# ---- one node at a time


def test_single_nodes_run_one_after_another(bench):
    recipe = Recipe(bench)
    first = recipe.add(1)
    recipe.add(3, after=[first], kernel="scale")
    block = bench.memory(ONES)
    graph = bench.instantiate(recipe.record, [block])
    graph.run_subset([1, 0, 0])
    assert bench.read(block)[0] == 5
    graph.run_subset([0])
    bench.run(graph)
    assert bench.read(block)[0] == 21
    with pytest.raises(GraphError, match="no node 2"):
        graph.run_subset([2])


# ---- failures


def mixed(bench):
    """A record with every kind of node that the package makes by itself."""
    recipe = Recipe(bench, 3)
    a = recipe.memset(3)
    b = recipe.add(1, after=[a], priority=-1)
    c = recipe.copy(1, 0, [b])
    d = recipe.memset(0x0102030405060708, 8, after=[c])
    e = recipe.node("empty", "empty", (), [d])
    f = recipe.node("host", "host", (), [e], call=PythonCall(int, ()))
    body = recipe.body()
    inner = body.add(2, memory=1)
    last = body.body()
    last.add(1)
    body.control("if", [last, last], 2, [inner])
    g = recipe.control("while", [body], 2, [f])
    h = recipe.control("switch", [last, last, last], 2, [g])
    recipe.record.replace_node(1, recipe.record.nodes[1]._replace(enabled=False))
    child_of(recipe, last, [h])
    return recipe.record, [bench.memory(LOG) for _ in range(3)]


MAKING = (
    *("cuGraphCreate", "cuGraphAddNode", "cuGraphKernelNodeSetAttribute"),
    *("cuGraphConditionalHandleCreate", "cuGraphInstantiateWithFlags", "cuGraphNodeSetEnabled"),
)


@pytest.mark.parametrize("code", [1, 2])
@pytest.mark.parametrize("name", MAKING)
def test_a_failure_at_any_call_of_the_driver_leaves_nothing(bench, name, code):
    record, blocks = mixed(bench)
    bench.run(bench.instantiate(record, blocks))
    gc.collect()
    live, alive = bench.fake.settled(), counters.snapshot()
    count = 0
    while True:
        count += 1
        bench.fake.fail(name, code, count)
        try:
            bench.instantiate(record, blocks).close()
        except DriverError as error:
            notes = error.__notes__ if name != "cuGraphCreate" else ["node"]
            assert "node" in notes[0]
            if name not in ("cuGraphCreate", "cuGraphInstantiateWithFlags"):
                assert repr(error.node) in notes[0]
        else:
            break
        del notes
        gc.collect()
        assert bench.fake.live() == live
        assert counters.snapshot() == alive
    bench.fake.fail(name, 0, 0)
    assert count > 1


def test_long_chains_are_made_and_freed_in_reasonable_time(bench):
    def seconds(count, wide):
        record = Record()
        record.add_memory("buffer", "m", 64)
        call = bench.launch("note", ("pointer", 0), ("value", i4(1)))
        for i in range(count):
            before = [] if not i else [0] if wide else [i - 1]
            record.add_node("n", "function", None, [at(0)], dependencies=before, call=call)
        start = time.perf_counter()
        bench.instantiate(record, [bench.memory(LOG)]).close()
        return time.perf_counter() - start

    for wide in (False, True):
        small = seconds(5_000, wide)
        assert seconds(50_000, wide) < 40 * small + 1
    assert seconds(100_000, False) < 30
