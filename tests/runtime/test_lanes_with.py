"""Runs in flight beside what a model keeps: handles, feeds, notes of experts, kernels of users."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops
from tests.runtime import moe_models
from tests.runtime.models import compiled
from tests.runtime.test_lanes import WIDTH, bits, sets_of

f4 = np.float32


def stateful(width):
    """A state that a product changes; long enough for lanes."""
    graph = fg.Graph("stateful")
    h, x = graph.input("h", (width, width)), graph.input("x", (width, width))
    graph.output(ops.tanh(ops.tanh(h @ x) @ x) @ x, "next")
    return compiled(graph)


def test_handles_are_the_same_in_all_lanes(device):
    width = WIDTH[device]
    model = stateful(width)
    states, sets = sets_of(width, 3, seed=7), sets_of(width, 8)
    expected, found = [], []
    for state in states:
        expected += [model.run({"h": state["x"], **one}) for one in sets]
    for state in states:
        model.bind_handle("h", state["x"])
        found += [model.submit(one) for one in sets]  # runs of the last one may be under way
    assert bits(future.result(60) for future in found) == bits(expected)
    assert bits(model.run_pipelined(sets)) == bits(expected[-8:])
    assert bits(model.pipeline(sets)) == bits(expected[-8:])
    (explicit,) = model.submit({"h": states[0]["x"], **sets[0]}).result(60)
    assert explicit.tobytes() == expected[0][0].tobytes()
    model.unbind_handle("h")
    with pytest.raises(fg.InputError, match=r"'h' .* was not given"):
        model.submit(sets[0])
    assert model.run({"h": states[1]["x"], **sets[0]})[0].tobytes() == expected[8][0].tobytes()


@pytest.mark.host
def test_feeds_are_in_order():
    """A model with a feed does its runs one after another, however they are handed in."""
    model = stateful(96)
    sets, start = sets_of(96, 6), np.eye(96, dtype="f4")

    def fed():
        other = model.clone()
        other.bind_handle("h", start)
        other.set_gpu_handle_feed("h", "next")
        return other

    plain = fed()
    expected = [plain.run(one) for one in sets]
    for way in (
        lambda one: one.run_pipelined(sets),
        lambda one: list(one.pipeline(sets)),
        lambda one: [f.result(60) for f in [one.submit(each) for each in sets]],
        lambda one: [one.submit(sets[0]).result(60), one.run(sets[1]), *one.pipeline(sets[2:])],
    ):
        other = fed()
        assert bits(way(other)) == bits(expected)
        assert other.read_handle("h").tobytes() == expected[-1][0].tobytes()
    other = fed()
    for one in sets:
        other.commit_no_wait(one)
    other.sync_pending()
    assert other.output_view(0).tobytes() == expected[-1][0].tobytes()
    # From lanes to a feed and back, with runs under way.
    other.unbind_handle("h")
    futures = [other.submit({"h": start, **one}) for one in sets]
    other.bind_handle("h", start)
    other.set_gpu_handle_feed("h", "next")
    futures += [other.submit(one) for one in sets]
    other.unbind_handle("h")
    futures += [other.submit({"h": start, **one}) for one in sets]
    found = bits(future.result(60) for future in futures)
    assert found[:6] == found[12:]
    assert found[6:12] == bits(expected)


@pytest.mark.host
def test_bad_data_with_a_feed():
    graph = fg.Graph("sums")
    acc, index = graph.input("acc", (4,)), graph.input("index", (4,), "int64")
    graph.output(acc + ops.take(graph.param("table", (4,)), index, axis=0), "next")
    model = compiled(graph)
    model.set_param("table", np.ones(4, "f4"))
    good, bad = {"index": np.arange(4)}, {"index": np.arange(4) + 1}
    model.bind_handle("acc", np.zeros(4, "f4"))
    model.set_gpu_handle_feed("acc", "next", at=None)
    model.commit_no_wait(good)
    model.commit_no_wait(bad)
    with pytest.raises(fg.InputError, match="index out of range"):
        model.sync_pending()
    with pytest.raises(fg.InputError, match="not valid"):
        model.commit_no_wait(good)
    model.bind_handle("acc", np.zeros(4, "f4"))
    future = model.submit(bad)
    with pytest.raises(fg.InputError, match="index out of range"):
        future.result(60)
    model.bind_handle("acc", np.zeros(4, "f4"))
    assert model.submit(good).result(60)[0].tolist() == [1] * 4


@pytest.mark.parametrize("early", [True, False])
def test_experts_are_counted_in_all_lanes(device, early):
    sizes = (6, 8, 16, 4, 2)
    model = compiled(moe_models.mixture(1, sizes))
    model.set_params(moe_models.mixture_weights(1, sizes))
    random = np.random.default_rng(3)
    sets = [{"x": random.normal(size=(6, 8)).astype(f4)} for _ in range(7)]
    if early:
        model.run_pipelined(sets[:3])  # lanes before there is anything to count
    model.set_moe_resident_experts([True, False, True, False])
    model.enable_moe_topk_capture(4)
    for one in sets:
        model.run(one)
    wanted, chosen = model.take_moe_residency_stats(), model.take_moe_topk_capture()
    for way in (
        lambda: model.run_pipelined(sets),
        lambda: list(model.pipeline(sets, depth=3)),
        lambda: [future.result(60) for future in [model.submit(one) for one in sets]],
        lambda: [model.commit_no_wait(one) for one in sets],
    ):
        way()
        assert model.take_moe_residency_stats() == wanted
        for one, other in zip(model.take_moe_topk_capture(), chosen, strict=True):
            np.testing.assert_array_equal(one, other)
    model.sync_pending()


@pytest.mark.host
def test_kernels_in_python_run_in_the_call():
    """And what they raise comes out of it."""
    seen = []

    def scale(grid, block, y, x):
        seen.append(threading.current_thread())
        if x[0] < 0:
            raise KeyError("negative")
        y[:] = x * 2

    graph = fg.Graph("python")
    x = graph.input("x", (96, 96))
    y = ops.tanh(x) @ x @ x
    graph.output(ops.kernel(scale, [y[0]], (96,), "float32"), "y")
    model = compiled(graph)
    sets = [{"x": np.eye(96, dtype="f4") * f4(k)} for k in (1, 2, 3, 4)]
    expected = bits([model.run(one) for one in sets])
    assert bits(model.run_pipelined(sets)) == expected
    assert bits(model.pipeline(sets, depth=4)) == expected
    assert bits(future.result(60) for future in [model.submit(one) for one in sets]) == expected
    model.commit_no_wait(sets[0])
    assert set(seen) == {threading.main_thread()}
    negative = {"x": np.eye(96, dtype="f4") * f4(-1)}
    for call in (
        lambda: model.commit_no_wait(negative), lambda: model.submit(negative),
        lambda: model.run_pipelined([negative]), lambda: next(model.pipeline([negative])),
    ):  # fmt: skip
        with pytest.raises(KeyError, match="negative"):
            call()
    model.sync_pending()
    assert bits([model.run(sets[0])]) == expected[:1]


def test_active_extents_hold_in_lanes():
    """Set before there are lanes and with runs in them, changed and left; parameters between."""
    graph = fg.Graph("extents")
    x, w = graph.input("x", (96, 96)), graph.param("w", (96, 96))
    graph.output(ops.softmax(ops.tanh(x @ w) @ w @ w, axis=0), "y")
    model = compiled(graph)
    eye = np.eye(96, dtype="f4")
    model.set_param("w", eye)
    plain = model.clone()
    sets = sets_of(96, 5)
    futures, expected = [], []
    for turn, extent in enumerate([(7, 96), (96, 96), None, (3, 96), (7, 96), None]):
        for one in (model, plain):
            one.set_active_extent(extent)
            one.set_param("w", eye * f4(1 + turn))
        futures += [model.submit(one) for one in sets]
        expected += [plain.run(one) for one in sets]
        assert bits(model.run_pipelined(sets)) == bits(expected[-5:])
        assert bits(model.pipeline(sets)) == bits(expected[-5:])
        active = extent[0] if extent else 96
        futures.append(model.submit({"x": sets[0]["x"][:active]}))
        expected.append(plain.run({"x": sets[0]["x"][:active]}))
        assert bits(model.run_pipelined([{"x": sets[0]["x"][:active]}] * 2)) == bits(
            expected[-1:] * 2
        )
    found = [future.result(60) for future in futures]
    assert bits(found) == bits(expected)
    assert {y.shape[0] for (y,) in found} == {3, 7, 96}
    with pytest.raises(fg.InputError, match=r"^set 0: .*shape"):
        model.run_pipelined([{"x": sets[0]["x"][:5]}])
