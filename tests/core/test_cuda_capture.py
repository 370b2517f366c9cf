"""Captures: what becomes of work that is enqueued by others, and of captures that are spoilt."""

from __future__ import annotations

import ctypes
import gc
import threading

import numpy as np
import pytest

from fastgraph._core import cuda_capture
from fastgraph._core.cuda_capture import Capture, capture_call
from fastgraph.errors import GraphError, UnsupportedError
from tests.core.cuda_bench import Recipe, at

pytestmark = pytest.mark.fake

ONES = np.ones(16, "f4")
LOG = np.zeros(16, "u4")


def fill(bench, stream, block, value=7, count=16):
    handle = ctypes.c_void_p(stream.handle)
    return bench.cuda.cuMemsetD32Async(
        ctypes.c_uint64(block.ptr), value, ctypes.c_size_t(count), handle
    )


def spoil(bench):
    """What another thread does to a capture by waiting for the whole device."""
    thread = threading.Thread(
        target=lambda: (
            bench.cuda.cuCtxSetCurrent(ctypes.c_void_p(bench.device.context)),
            bench.cuda.cuCtxSynchronize(),
        )
    )
    thread.start()
    thread.join()


def run_foreign(bench, foreign, block):
    recipe = Recipe(bench)
    recipe.node("theirs", "child", [at(0)], call=foreign)
    graph = bench.instantiate(recipe.record, [block])
    bench.run(graph)
    return graph


def test_work_in_a_with_block_becomes_a_node(bench):
    block = bench.memory(LOG)
    with Capture(bench.device) as capture:
        assert not gc.isenabled()
        assert fill(bench, capture.stream, block, 7) == 0
        assert fill(bench, capture.stream, block, 8, 4) == 0
    assert gc.isenabled()
    assert (capture.stream, capture.node_count) == (None, 2)
    assert bench.read(block, "u4")[0] == 0  # nothing ran
    graph = run_foreign(bench, capture.foreign, block)
    assert bench.read(block, "u4").tolist() == [8] * 4 + [7] * 12
    assert graph.node_count == 3


def test_a_call(bench):
    block = bench.memory(LOG)
    kept = [object()]
    foreign = capture_call(bench.device, lambda stream: fill(bench, stream, block), kept)
    assert foreign.owner.node_count == 1
    run_foreign(bench, foreign, block)
    assert bench.read(block, "u4")[0] == 7


def test_the_graph_goes_with_its_last_reference(bench):
    block = bench.memory(LOG)
    before = bench.fake.settled()["graphs"]
    foreign = capture_call(bench.device, lambda stream: fill(bench, stream, block))
    assert bench.fake.live()["graphs"] == before + 1
    foreign = None
    assert foreign is None and bench.fake.live()["graphs"] == before


def test_a_spoilt_call_is_tried_again(bench):
    block = bench.memory(LOG)
    calls = []

    def work(stream):
        calls.append(stream)
        fill(bench, stream, block)
        if len(calls) < 4:
            spoil(bench)

    foreign = capture_call(bench.device, work)
    assert len(calls) == 4 and foreign.owner.node_count == 1


def test_a_call_that_raises_because_it_was_spoilt_is_tried_again(bench):
    block = bench.memory(LOG)
    calls = []

    def work(stream):
        calls.append(stream)
        if len(calls) == 1:
            spoil(bench)
        if fill(bench, stream, block):
            raise RuntimeError("operation failed due to a previous error during capture")

    assert capture_call(bench.device, work).owner.node_count == 1
    assert len(calls) == 2


def test_in_the_end_the_error_says_who_spoils_captures(bench):
    calls, before = [], bench.fake.settled()["graphs"]

    def work(stream):
        calls.append(stream)
        spoil(bench)
        raise RuntimeError("previous error")

    with pytest.raises(GraphError, match="cudaDeviceSynchronize") as caught:
        capture_call(bench.device, work)
    assert len(calls) == 4 and isinstance(caught.value.__cause__, RuntimeError)
    assert gc.isenabled()
    with pytest.raises(GraphError, match="cuCtxSynchronize"), Capture(bench.device):
        spoil(bench)
    assert bench.fake.live()["graphs"] == before


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_what_the_work_raises_comes_through_and_ends_the_capture(bench, error):
    before = bench.fake.settled()["graphs"]

    def work(stream):
        raise error("mine")

    with pytest.raises(error, match="mine"):
        capture_call(bench.device, work)
    with pytest.raises(error, match="mine"), Capture(bench.device):
        work(None)
    assert gc.isenabled()
    capture_call(bench.device, lambda stream: None)
    assert bench.fake.live()["graphs"] == before


def test_captures_do_not_nest_and_wait_for_each_other(bench):
    with Capture(bench.device), pytest.raises(GraphError, match="do not nest"):
        capture_call(bench.device, lambda stream: None)
    order = []

    def other():
        capture_call(bench.device, lambda stream: order.append("other"))

    with Capture(bench.device):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(0.05)
        order.append("first")
    thread.join()
    assert order == ["first", "other"]


def test_a_capture_is_done_once(bench):
    capture = Capture(bench.device)
    with pytest.raises(GraphError, match="not ended"):
        capture.node_count  # noqa: B018
    with capture:
        pass
    with pytest.raises(GraphError, match="once"), capture:
        pass


def test_a_collector_that_was_off_stays_off(bench):
    gc.disable()
    try:
        with Capture(bench.device):
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_graph_is_not_launched_into_a_capture(bench):
    recipe = Recipe(bench)
    recipe.add(1)
    block = bench.memory(ONES)
    graph = bench.instantiate(recipe.record, [block])
    with Capture(bench.device) as capture:
        fill(bench, capture.stream, block)
        with pytest.raises(GraphError, match="captured"):
            graph.replay_on(capture.stream)
    assert capture.node_count == 1


def test_what_bodies_and_children_must_not_hold(bench):
    block, condition = bench.memory(LOG), bench.memory(LOG + 1)
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: None)

    def host(stream):
        fill(bench, stream, block)
        assert bench.cuda.cuLaunchHostFunc(ctypes.c_void_p(stream.handle), callback, None) == 0

    good = capture_call(bench.device, lambda stream: fill(bench, stream, block))
    bad = capture_call(bench.device, host)
    assert cuda_capture.contents(good.handle) == (False, False)
    assert cuda_capture.contents(bad.handle) == (True, False)
    for foreign in (good, bad):
        recipe = Recipe(bench, 2)
        body = recipe.body()
        body.node("theirs", "child", [at(0)], call=foreign)
        recipe.control("if", [body], 1)
        if foreign is bad:
            with pytest.raises(GraphError, match="forbids in a body") as caught:
                bench.instantiate(recipe.record, [block, condition])
            assert "'theirs'" in caught.value.__notes__[0]
        else:
            bench.run(bench.instantiate(recipe.record, [block, condition]))
            assert bench.read(block, "u4")[0] == 7


def test_a_foreign_graph_with_a_conditional_is_refused(bench):
    recipe = Recipe(bench, 2)
    recipe.control("if", [recipe.body()], 1)
    blocks = [bench.memory(LOG), bench.memory(LOG)]
    theirs = bench.instantiate(recipe.record, blocks)
    outer = Recipe(bench)
    foreign = capture_call(bench.device, lambda stream: None)._replace(handle=theirs.handle)
    outer.node("theirs", "child", (), call=foreign)
    with pytest.raises(UnsupportedError, match="conditional"):
        bench.instantiate(outer.record, blocks[:1])
