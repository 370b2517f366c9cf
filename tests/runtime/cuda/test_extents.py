"""Active extents on cuda: updates of one executable, classes of extents, arrays on the device."""

from __future__ import annotations

import gc
import logging

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops, passes
from fastgraph._core import buffer, counters
from fastgraph.device.cuda import batch
from fastgraph.runtime import cuda_extents
from tests.runtime import models
from tests.runtime.cuda.test_runs import FAKE, ONE_LAUNCH, enqueued
from tests.runtime.models import compiled

pytestmark = pytest.mark.cuda

f4 = np.float32
UPPER = 40
X = np.arange(UPPER * 8, dtype="f4").reshape(UPPER, 8) / 100


def layer(n=UPPER, name="rows"):
    """Products, a norm and a sum; the sizes of all follow."""
    graph = fg.Graph("layer")
    x = graph.input("x", (fg.dim(name, n), 8))
    h = ops.layer_norm(x @ graph.param("w", (8, 8)))
    graph.output(ops.relu(h), "y")
    graph.output(ops.sum(h * h, axis=0), "sum")
    return graph


def ready():
    model = compiled(layer())
    model.set_param("w", np.eye(8, dtype="f4"))
    return model


def check(model, n, w=1.0):
    x = X[:n] * w
    h = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    y, total = model.run({"x": X})
    np.testing.assert_allclose(y, np.maximum(h, 0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(total, (h * h).sum(0), rtol=1e-4, atol=1e-4)


def test_another_extent_is_an_update(monkeypatch, caplog):
    """Of the executable that is there: nothing is compiled or built, and a run is one launch."""
    model = ready()
    own = model.executable
    seen = {}
    for n in (40, 3, 20, 1, 11):
        model.set_active_extent((n, UPPER), dim="rows")
        check(model, n)
        seen[n] = model.executable
    assert len({id(one) for one in (own, *seen.values())}) == 5

    def refuse(*args):
        raise AssertionError("compiled")

    monkeypatch.setattr(batch, "compile_all", refuse)
    # Of one class the executable is one, whichever was set in between.
    for n, like in ((17, 20), (2, 3), (16, 11), (33, 40), (0, 3), (9, 11), (1, 1), (40, 20)):
        model.set_active_extent((n, UPPER), dim="rows")
        if n:
            check(model, n)
        else:
            assert model.run({"x": X})[1].tolist() == [0] * 8
        assert model.executable is seen[like]
        assert model.executable.rebuilds == 0
        if FAKE is not None:
            calls, updates = enqueued(lambda: model.run_slots([X]))
            assert calls == ONE_LAUNCH
            assert updates == 0
    with caplog.at_level(logging.DEBUG, "fastgraph"):
        model.set_active_extent((39, UPPER), dim="rows")
    assert "extents (39,), 6 of 6 nodes follow" in caplog.text
    model.set_active_extent(None)
    assert model.executable is own
    check(model, UPPER)


def test_what_is_joined_and_paired_follows(monkeypatch):
    """Products of one operand, and rows put to two caches, are done together for all extents."""
    monkeypatch.setattr(passes, "GPU_ROWS", 32)
    graph = fg.Graph("joined")
    n = fg.dim("rows", UPPER)
    x, at = graph.input("x", (n, 16), "float16"), graph.input("at", (n, 1), "int64")
    parts = [x @ graph.param(name, (16, 16), "float16") for name in "qkv"]
    graph.output(parts[0], "q")
    for name, part in zip("kv", parts[1:], strict=True):
        cache = graph.input(f"old {name}", (64, 16), "float16")
        graph.output(ops.scatter_nd(cache, at, part), f"new {name}")
    model = compiled(graph)
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((16, 16)).astype("f2") for name in "qkv"}
    model.set_params(weights)
    x = rng.standard_normal((UPPER, 16)).astype("f2")
    at = rng.permutation(64)[:UPPER].reshape(UPPER, 1)
    caches = {f"old {name}": np.zeros((64, 16), "f2") for name in "kv"}
    for rows in (UPPER, 3, 1, 20, 0):
        model.set_active_extent((rows, UPPER), dim="rows")
        q, *new = model.run({"x": x, "at": at, **caches})
        wanted = {name: x[:rows].astype("f4") @ w.astype("f4") for name, w in weights.items()}
        np.testing.assert_allclose(q, wanted["q"], rtol=1e-2, atol=2e-2)
        for name, found in zip("kv", new, strict=True):
            cache = np.zeros((64, 16), f4)
            cache[at[:rows, 0]] = wanted[name]
            np.testing.assert_allclose(found, cache, rtol=1e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_single_row_has_its_kernels_upon_the_weights_of_all(dtype):
    """Nothing of the set program is done in a run: no weight is turned."""
    graph = fg.Graph("gated")
    x = graph.input("x", (fg.dim("rows", UPPER), 32), dtype)
    up, gate, down = (graph.param(name, (32, 32), dtype) for name in ("up", "gate", "down"))
    h = ops.rms_norm(x)
    graph.output(x + (ops.silu(h @ gate) * (h @ up)) @ down, "y")
    model = compiled(graph)
    rng = np.random.default_rng(0)
    weights = {
        info.name: (rng.standard_normal(info.shape) / 5).astype(dtype) for info in model.params
    }
    model.set_params(weights)
    x = rng.standard_normal((UPPER, 32)).astype(dtype)
    whole = model.run({"x": x})[0]
    for rows in (1, 3, 20, 1):
        model.set_active_extent((rows, UPPER), dim="rows")
        np.testing.assert_allclose(model.run({"x": x})[0], whole[:rows], rtol=1e-2, atol=2e-2)
        launched = {node.operator.partition(",")[0] for node in model.profile({"x": x}, 1).nodes}
        assert "transpose" not in launched
        assert ("row_product" in launched) == (rows == 1 and dtype == "float16")


def test_few_queries_of_as_many_sequences_as_are_active():
    """Blocks of a cluster stay ones where there is nothing to do."""
    graph = fg.Graph("few")
    n = fg.dim("sequences", 3)
    q = graph.input("q", (n, 2, 1, 32), "float16")
    k, v = (graph.input(name, (n, 2, 300, 32), "float16") for name in "kv")
    graph.output(ops.attention(q, k, v), "y")
    model = compiled(graph)
    rng = np.random.default_rng(2)
    arrays = {x.name: rng.standard_normal(x.shape).astype("f2") for x in model.inputs}
    scores = np.exp(arrays["q"] @ arrays["k"].transpose(0, 1, 3, 2).astype("f4") / 32**0.5)
    wanted = scores / scores.sum(-1, keepdims=True) @ arrays["v"].astype("f4")
    for rows in (3, 1, 0, 2):
        model.set_active_extent((rows, 3), dim="sequences")
        (found,) = model.run(arrays)
        np.testing.assert_allclose(found, wanted[:rows], rtol=1e-2, atol=1e-2)
        assert model.executable.rebuilds == 0


def test_parameters_go_to_all_programs():
    model = ready()
    for scale, order in ((2.0, (3, None, 20)), (3.0, (20, 3, None))):
        model.set_active_extent((5, UPPER), dim="rows")
        model.set_param("w", scale * np.eye(8, dtype="f4"))
        check(model, 5, scale)
        for n in order:
            model.set_active_extent(None if n is None else (n, UPPER), dim="rows")
            check(model, n or UPPER, scale)


def test_arrays_on_the_device_keep_their_rows_beyond():
    model = ready()
    context = model.context
    x = X.copy()
    x[7:] = np.nan
    x, y = context.to_device(x), context.to_device(np.full((UPPER, 8), 77, f4))
    total = context.create_buffer((8,), "float32")
    step = model.bind({"x": x}, {"y": y, "sum": total}, stream=context.stream)
    for n in (7, 1, 4):
        y.copy_from(np.full((UPPER, 8), 77, f4))
        model.set_active_extent((n, UPPER), dim="rows")
        step()
        context.synchronize()
        found = y.numpy()
        assert np.isfinite(found[:n]).all()
        assert (found[n:] == 77).all()
        assert np.isfinite(total.numpy()).all()


def test_outputs_at_odd_addresses_keep_their_rows_beyond():
    """What is copied there after the run is what the run has written."""
    graph = fg.Graph("inner")
    x = graph.input("x", (2, fg.dim("n", 5), 4))
    graph.output(x * 2, "y")
    graph.output(x.transpose(1, 0, 2) + 1, "turned")
    model = compiled(graph)
    x = np.arange(40, dtype="f4").reshape(2, 5, 4)
    model.set_active_extent((3, 5), dim="n")
    whole = [model.context.to_device(np.full(41, 77, f4)) for _ in range(2)]
    shapes = ((2, 5, 4), (5, 2, 4))
    odd = [
        buffer.view(one.block, one.offset + 4, shape, "float32", one.device)
        for one, shape in zip(whole, shapes, strict=True)
    ]
    model.run({"x": x}, out=odd)
    for one, shape, wanted in zip(
        whole, shapes, (x[:, :3] * 2, x[:, :3].transpose(1, 0, 2) + 1), strict=True
    ):
        assert one.numpy()[0] == 77
        found = one.numpy()[1:].reshape(shape)
        part = tuple(slice(n) for n in wanted.shape)
        assert (found[part] == wanted).all()
        found[part] = 77
        assert (found == 77).all()


def test_arrays_on_the_device_with_the_active_rows_alone():
    model = ready()
    model.set_active_extent((7, UPPER), dim="rows")
    wanted = model.run({"x": X})
    few = model.context.to_device(X[:7])
    for found in (model.run({"x": few}), model.submit({"x": few}).result(60)):
        assert [one.tobytes() for one in found] == [one.tobytes() for one in wanted]
    with pytest.raises(fg.InputError, match="nothing is cast"):
        model.run({"x": model.context.to_device(X[:6])})


def test_handles_come_and_go_while_an_extent_is_set():
    graph = fg.Graph("sum")
    cache = graph.input("cache", (fg.dim("past", UPPER), 8))
    graph.output(cache.sum(axis=0), "sum")
    graph.output(cache + 1.0, "next")
    model = compiled(graph)
    rows = np.ones((UPPER, 8), f4)
    model.set_active_extent((20, UPPER), dim="past")
    assert model.run({"cache": rows})[0].tolist() == [20] * 8
    model.bind_gpu_handle("cache", 2 * rows)
    assert model.run({})[0].tolist() == [40] * 8
    model.set_gpu_handle_feed("cache", "next")
    for n in (20, 3, 1):
        model.set_active_extent((n, UPPER), dim="past")
        model.run({})
    assert model.read_gpu_handle("cache")[:, 0].tolist() == [5] + [4] * 2 + [3] * 17 + [2] * 20
    model.unbind_handle("cache")
    assert model.run({"cache": rows})[0].tolist() == [1] * 8
    model.set_active_extent(None)
    assert model.run({"cache": rows})[0].tolist() == [UPPER] * 8


def test_heads_of_another_length_are_refused_by_name():
    graph = fg.Graph("heads")
    x = graph.input("x", (1, 2, 5, fg.dim("length", 16)))
    graph.output(ops.attention(x, x, x), "y")
    model = compiled(graph)
    x = np.ones((1, 2, 5, 16), f4)
    with pytest.raises(fg.UnsupportedError, match=r"attention, test_extents.py.*cannot follow"):
        model.set_active_extent((8, 16), dim="length")
    assert model.active_extents == {}
    assert model.run({"x": x})[0].shape == x.shape


def test_nothing_is_left_of_a_model_that_is_closed():
    model = compiled(layer())
    model.close()
    gc.collect()
    before = counters.snapshot()
    model = ready()
    other = model.clone()
    for one in (model, other):
        for n in (3, 20, 1):
            one.set_active_extent((n, UPPER), dim="rows")
            check(one, n)
    other.close()
    model.close()
    del one, model, other
    gc.collect()
    assert models.DEVICE == "cuda"
    assert {name: n for name, n in counters.snapshot().items() if n > before.get(name, 0)} == {}


def test_what_no_class_can_do_is_refused_once(monkeypatch):
    """Also where a single row is all that there can be."""
    g = fg.Graph("one row")
    g.output(g.input("x", (1, 4)) * 2, "y")
    model = fg.Session("cuda").compile(g)

    def refuse(self, bounds):
        raise fg.UnsupportedError("nothing can follow")

    monkeypatch.setattr(cuda_extents.CudaNarrowing, "_made", refuse)
    with pytest.raises(fg.UnsupportedError, match="nothing can follow"):
        model.set_active_extent((1, 1))
    assert model.active_extents == {}
