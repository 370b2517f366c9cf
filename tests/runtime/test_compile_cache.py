"""Compiles by structure: one for each graph, whoever writes it and however often."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops
from tests.runtime import models
from tests.runtime.models import SUITE, data_for
from tests.runtime.test_threads import run_all

f4 = np.float32


def written(
    scale=2.0,
    name="layer",
    width=3,
    param="w",
    dtype="float32",
    constant=(1, 2, 3),
    op=ops.relu,
    **more,
):
    graph = fg.Graph(name)
    x, w = graph.input("x", (2, width), dtype), graph.param(param, (width,), dtype, **more)
    y = op(x * w * scale) + graph.constant(np.array(constant[:width]).astype(dtype))
    graph.output(y, "y")
    return graph


def test_one_compile_for_equal_graphs(device):
    cache = fg.CompileCache(device)
    one, two = cache.compile(written()), cache.compile(written(name="other"))
    assert cache.stats[:4] == (1, 1, 1, 0)
    assert (one.name, two.name) == ("layer", "other")
    assert cache.device == one.device
    x = {"x": np.ones((2, 3), "f4")}
    one.set_param("w", np.full(3, 2, "f4"))
    with pytest.raises(fg.InputError, match=r"\['w'\] have no value"):
        two.run(x)
    two.set_param("w", np.full(3, -2, "f4"))
    assert one.run(x)[0].tolist() == [[5, 6, 7]] * 2
    assert two.run(x)[0].tolist() == [[1, 2, 3]] * 2
    one.close()
    assert cache.compile(written()).name == "layer"
    assert two.run(x)[0].tolist() == [[1, 2, 3]] * 2


OTHERS = {
    "attribute": {"op": ops.gelu}, "number": {"scale": 3.0}, "constant": {"constant": (1, 2, 4)},
    "shape": {"width": 2}, "name of a parameter": {"param": "v"}, "dtype": {"dtype": "float16"},
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_another_graph_is_another_compile(device, name):
    cache = fg.CompileCache(device)
    models_ = [cache.compile(written(**changed)) for changed in ({}, OTHERS[name], {})]
    assert cache.stats[:3] == (1, 2, 2)
    for model, changed in zip(models_, ({}, OTHERS[name], {}), strict=True):
        plain = fg.Session(device).compile(written(**changed))
        for each in (model, plain):
            each.set_params(data_for(each.params))
        inputs = data_for(model.inputs, 1)
        assert model.run(inputs)[0].tobytes() == plain.run(inputs)[0].tobytes()


def test_what_counts(device):
    """Names of outputs, large constants, options; not lines, nor what parameters hold."""
    cache = fg.CompileCache(device)

    def builds(graph, options=None):
        before = cache.stats.builds
        cache.compile(graph, options)
        return cache.stats.builds - before

    def large(last, name="y"):
        graph = fg.Graph()
        table = np.zeros(5000, "f4")
        table[-1] = last
        graph.output(graph.input("x", (5000,)) + graph.constant(table), name)
        return graph

    assert builds(large(1)) == 1
    assert builds(large(1)) == 0
    assert builds(large(2)) == 1
    assert builds(large(1, "z")) == 1
    assert builds(large(1), fg.CompileOptions(fuse=False)) == 1
    assert builds(large(1), fg.CompileOptions()) == 0
    assert builds(written(initial=np.ones(3, "f4"))) == 1
    assert builds(written(initial=np.zeros(3, "f4"))) == 0
    assert builds(written()) == 0


def test_each_has_what_its_own_graph_says(device):
    cache = fg.CompileCache(device)
    x = {"x": np.ones((2, 3), "f4")}
    for value in (1, 2, 1):
        model = cache.compile(written(initial=np.full(3, value, "f4")))
        assert model.run(x)[0].tolist() == [[2 * value + 1, 2 * value + 2, 2 * value + 3]] * 2
    assert cache.stats.builds == 1


@pytest.mark.parametrize("name", SUITE)
def test_every_model_of_the_suite(device, name):
    cache = fg.CompileCache(device)
    models_ = [cache.compile(SUITE[name]()) for _ in range(2)]
    assert cache.stats[:3] == (1, 1, 1)
    inputs = data_for(models_[0].inputs, 1)
    found = []
    for model in models_:
        model.set_params(data_for(model.params))
        found.append([y.tobytes() for y in model.run(inputs, **models.SCALARS.get(name, {}))])
    assert found[0] == found[1]


def test_threads_that_miss_at_once(device, monkeypatch):
    cache = fg.CompileCache(device)
    real, inside = fg.Session._compilation, threading.Barrier(1)
    started = threading.Event()

    def slow(*arguments):
        inside.wait()
        started.wait(10)
        return real(*arguments)

    monkeypatch.setattr(fg.Session, "_compilation", slow)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(cache.compile(written()))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    started.set()
    for thread in threads:
        thread.join()
    assert len({id(model) for model in found}) == 8
    assert cache.stats.builds == 1


def test_a_failed_compile_leaves_nothing(device):
    cache = fg.CompileCache(device)
    bad = fg.Graph("bad")
    rows = bad.constant(np.int64([3])) * 2
    table = bad.constant(np.ones((3, 2), "f4"))
    bad.output(ops.take(table, rows, axis=0) + bad.input("x", (2,)), "y")
    wrong = []

    def work():
        try:
            cache.compile(bad)
        except (fg.CompileError, fg.InputError) as error:
            wrong.append(str(error))

    run_all([threading.Thread(target=work) for _ in range(4)])
    assert len(wrong) == 4
    assert cache.stats.live_graphs == 0
    builds = cache.stats.builds
    with pytest.raises(fg.CompileError, match="no outputs"):
        cache.compile(fg.Graph())
    with pytest.raises(fg.InputError, match="takes a Graph"):
        cache.compile(3)
    with pytest.raises(fg.InputError, match="CompileOptions"):
        cache.compile(written(), 3)
    assert cache.stats.builds == builds


def test_limits(device):
    cache = fg.CompileCache(device, max_graphs=2)
    kept = cache.compile(written(1.0))
    for scale in (2.0, 1.0, 3.0, 1.0, 2.0):
        cache.compile(written(scale))
    assert cache.stats == (2, 4, 4, 2, 2, cache.stats.live_bytes)
    kept.set_param("w", np.ones(3, "f4"))
    assert kept.run({"x": np.ones((2, 3), "f4")})[0].tolist() == [[2, 3, 4]] * 2
    cache.clear()
    assert cache.stats[4:] == (0, 0)
    small = fg.CompileCache(device, max_bytes=1)
    small.compile(written())
    assert small.stats.live_graphs == 0
    for wrong in ({"max_graphs": 0}, {"max_bytes": -1}, {"threads": 0}, {"release_gil": 1}):
        with pytest.raises(fg.InputError):
            fg.CompileCache(device, **wrong)
