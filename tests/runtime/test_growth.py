"""Handles that grow: addresses for all rows, memory for those that runs need."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops
from fastgraph._core import counters
from tests import conftest
from tests.runtime import models
from tests.runtime.models import compiled

# A granule of a GPU is 2 MiB, one of the host less: 512 rows of 4 KiB.
ROWS, WIDTH = 4096, 1024
ROW = WIDTH * 4
f4 = np.float32


def written_only(rows=ROWS, width=WIDTH, n=1):
    """A cache that no kernel reads; only rows go there."""
    graph = fg.Graph("written")
    graph.input("cache", (rows, width))
    new = graph.input("new", (n, width))
    graph.scalar("pos", "int32")
    graph.input("where", (), "int32")
    graph.output(new * 2.0, "rows")
    return graph


def read_too(rows=ROWS, width=WIDTH):
    """A cache of which runs read the active rows."""
    graph = fg.Graph("read")
    cache, new = graph.input("cache", (fg.dim("past", rows), width)), graph.input("new", (1, width))
    graph.scalar("pos", "int32")
    graph.output(ops.sum(cache, axis=0), "sum")
    graph.output(new * 2.0, "rows")
    return graph


def growing(model, rows=0, **feed):
    model.bind_gpu_handle("cache", np.ones((rows, model.inputs[0].shape[1]), "f4"), grow=True)
    if feed:
        model.set_gpu_handle_feed("cache", "rows", **feed)
    return model._state.handles[0]


def run(model, pos, value=1.0):
    n, width = model.inputs[1].shape
    inputs = {"new": np.full((n, width), value, "f4")}
    if len(model.inputs) > 2:
        inputs["where"] = np.int32(0)
    return model.run(inputs, pos=pos)


def test_memory_comes_with_rows_and_nothing_moves():
    model = compiled(written_only())
    # What no run reads needs memory for what is fed alone; that is not known of an input, so an
    # extent says it here.
    handle = growing(model, 3, at="pos")
    reserved = handle.growth.reserved
    at = handle.buffer.ptr
    assert reserved.committed < reserved.nbytes
    assert reserved.ptr == at
    assert reserved.nbytes >= ROWS * ROW
    assert model.read_gpu_handle("cache").tolist() == np.ones((3, WIDTH)).tolist()
    assert model.has_gpu_handle("cache")


def test_all_rows_where_a_run_reads_all():
    model = compiled(read_too())
    handle = growing(model, 2, at="pos")
    total, _ = run(model, 5)
    assert total.tolist() == [2] * WIDTH  # rows that nobody wrote are zeros
    assert handle.growth.reserved.committed >= ROWS * ROW
    found = model.read_gpu_handle("cache")
    assert found[:, 0].tolist() == [1, 1, 0, 0, 0, 2]


def test_rows_past_the_extent_are_never_touched():
    """They have no memory: to touch one ends the process."""
    model = compiled(read_too())
    handle = growing(model, 1, at="pos")
    reserved, at = handle.growth.reserved, handle.buffer.ptr
    wanted = np.zeros((ROWS, WIDTH), "f4")
    wanted[0] = 1
    seen = set()
    for pos in (1, 2, 3, 40, 600, 601, 1300):
        model.set_active_extent((pos, ROWS), dim="past")
        total, _ = run(model, pos, float(pos))
        np.testing.assert_allclose(total, wanted[:pos].sum(0))
        wanted[pos] = 2 * pos
        assert (pos + 1) * ROW <= reserved.committed < reserved.nbytes
        assert model._state.handles[0].buffer.ptr == at
        assert len(model.read_handle("cache")) == pos + 1
        seen.add(reserved.committed)
    assert len(seen) > 2
    np.testing.assert_allclose(model.read_handle("cache"), wanted[:1301])
    clone = model.clone()
    np.testing.assert_allclose(clone.read_handle("cache"), wanted[:1301])
    assert clone._state.handles[0].growth.reserved.committed < reserved.nbytes
    clone.set_active_extent((2, ROWS), dim="past")
    run(clone, 1301, 4.0)
    assert len(clone.read_handle("cache")) == 1302
    assert len(model.read_handle("cache")) == 1301


def test_given_back_with_the_model():
    gc.collect()
    before = counters.snapshot()
    live = conftest.FAKE.settled() if conftest.FAKE is not None else {}
    model = compiled(written_only())
    growing(model, 3, at="pos")
    run(model, 700)
    del model
    gc.collect()
    assert conftest.growth(before, counters.snapshot()) == {}
    if live:
        after = conftest.FAKE.live()
        assert {k: after[k] for k in ("reservations", "granules")} == {
            k: live[k] for k in ("reservations", "granules")
        }


def test_positions_of_one_that_grows():
    model = compiled(written_only(64, 4, 2))
    growing(model, 0, at="pos")
    assert model.read_handle("cache").shape == (0, 4)
    for pos, rows in ((4, 6), (0, 6), (62, 64)):
        run(model, pos)
        assert len(model.read_handle("cache")) == rows
    for pos in (-1, 63, 10**6):
        with pytest.raises(fg.InputError, match=f"'pos' is {pos}"):
            run(model, pos)
    model.set_gpu_handle_feed("cache", "rows", at="pos", ring=True)
    run(model, 63, 8.0)
    assert model.read_handle("cache")[[0, 63], 0].tolist() == [16, 16]


BAD = {
    "too many rows": (np.zeros((65, 4), "f4"), r"float32\[65, 4\]; the input is float32\[64, 4\]"),
    "width": (np.zeros((3, 5), "f4"), r"float32\[3, 5\]"),
    "rank": (np.zeros((3,), "f4"), r"float32\[3\]"),
    "dtype": (np.zeros((3, 4)), "float64"),
    "none": (None, "is a NoneType"),
}


@pytest.mark.parametrize("case", BAD)
def test_refused(case):
    array, match = BAD[case]
    model = compiled(written_only(64, 4))
    with pytest.raises(fg.InputError, match=match):
        model.bind_gpu_handle("cache", array, grow=True)
    with pytest.raises(fg.InputError, match="no handle"):
        model.read_handle("cache")


def test_fewer_rows_need_grow_and_rows_need_an_axis():
    model = compiled(written_only(64, 4))
    with pytest.raises(fg.InputError, match=r"float32\[3, 4\]"):
        model.bind_gpu_handle("cache", np.zeros((3, 4), "f4"))
    with pytest.raises(fg.InputError, match="handle 'where' has no rows to grow by"):
        model.bind_gpu_handle("where", np.int32(0), grow=True)


def test_only_a_scalar_tells_the_row():
    model = compiled(written_only(64, 4))
    growing(model, 3)
    with pytest.raises(fg.InputError, match="'cache' grows, so a scalar has to tell the row"):
        model.set_gpu_handle_feed("cache", "rows", at="where")
    model.bind_gpu_handle("cache", np.zeros((64, 4), "f4"))
    model.set_gpu_handle_feed("cache", "rows", at="where")
    with pytest.raises(fg.InputError, match="'cache' grows, so a scalar has to tell the row"):
        growing(model, 3)
    run(model, 0)
    assert model.read_handle("cache")[0].tolist() == [2] * 4


def test_a_buffer_is_copied_where_it_is_to_grow():
    model = compiled(written_only(64, 4))
    held = model.context.to_device(np.ones((5, 4), "f4"))
    model.bind_gpu_handle("cache", held, grow=True)
    held.copy_from(np.zeros((5, 4), "f4"))
    assert model.read_gpu_handle("cache").tolist() == np.ones((5, 4)).tolist()


def test_a_whole_output_fills_it():
    graph = fg.Graph("whole")
    cache = graph.input("cache", (64, 4))
    graph.output(cache + 1.0, "next")
    model = compiled(graph)
    model.bind_gpu_handle("cache", np.ones((2, 4), "f4"), grow=True)
    model.run_feed_gpu_handle({}, "cache", "next")
    assert model.read_handle("cache")[:, 0].tolist() == [2, 2] + [1] * 62
    model.bind_gpu_handle("cache", np.ones((2, 4), "f4"), grow=True)
    model.set_gpu_handle_feed("cache", "next")
    for _ in range(2):
        model.run({})
    assert model.read_handle("cache")[:, 0].tolist() == [3, 3] + [2] * 62


@pytest.mark.fake
def test_memory_that_runs_out_names_the_handle(device):
    if device != "cuda":
        pytest.skip("the host's memory cannot be made to run out")
    fake = conftest.FAKE
    model = compiled(read_too())
    growing(model, 2, at="pos")
    for name in ("cuMemCreate", "cuMemMap", "cuMemSetAccess"):
        fake.fail(name, 2)
        try:
            with pytest.raises(fg.DriverError, match=r"handle 'cache' cannot grow|granules"):
                run(model, 5)
        finally:
            fake.reset()
        assert model.read_handle("cache").shape == (2, WIDTH)
    assert run(model, 5)[0].tolist() == [2] * WIDTH
    for name in ("cuMemAddressReserve", "cuMemCreate"):
        fake.fail(name, 2)
        try:
            with pytest.raises(fg.OutOfMemoryError, match="handle 'cache' of the compiled model"):
                growing(model, 2)
        finally:
            fake.reset()
    assert len(model.read_handle("cache")) == 6
    assert models.DEVICE == "cuda"
