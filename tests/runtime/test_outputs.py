"""What a run hands out: arrays of the caller's own, raw outputs, views, bound arrays."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import time

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops
from tests.runtime import models
from tests.runtime.models import compiled, data_for, ready

f4 = np.float32
X = f4([1, 2, 3])


def test_outputs_belong_to_the_caller():
    model = compiled(models.twice())
    (first,) = model.run({"x": X})
    (second,) = model.run({"x": X * 2})
    first[:] = -1
    assert second.tolist() == [4, 8, 12]
    assert first.base is None
    assert model.output_view(0).tolist() == [4, 8, 12]


def test_outputs_that_share_bytes_in_the_graph_do_not_for_the_caller():
    model, inputs, _ = ready("several_outputs")
    found = model.run(inputs)
    wanted = [y.tolist() for y in found]
    for i, y in enumerate(found):
        for other in found[:i]:
            assert not np.shares_memory(y, other)
    for i in range(len(found)):
        for j in range(i):
            assert not np.shares_memory(model.output_view(i), model.output_view(j))
    for y in found:
        y[...] = 0
    assert [y.tolist() for y in model.run(inputs)] == wanted
    x = inputs["x"]
    by_name = dict(zip([info.name for info in model.outputs], wanted, strict=True))
    assert by_name["x"] == x.tolist()
    assert by_name["x.flat"] == x.reshape(24).tolist()
    assert by_name["again"] == by_name["y"]
    assert by_name["c"] == [0, 1, 2]
    assert by_name["row"] == by_name["y"][2]


OUT = {
    "dense": np.zeros(3, "f4"),
    "reversed": np.zeros(3, "f4")[::-1],
    "stepped": np.zeros(6, "f4")[::2],
    "column": np.zeros((3, 2), "f4")[:, 1],
    "unaligned": np.zeros(13, "u1")[1:].view("f4"),
}


@pytest.mark.parametrize("name", OUT)
def test_out(name):
    model = compiled(models.twice())
    array = OUT[name]
    found = model.run({"x": X}, out=(array,))
    assert found == (array,) or found[0] is array
    assert array.tolist() == [2, 4, 6]
    if array.base is not None and array.base.dtype == "f4":
        assert array.base.sum() == 12
    # The array may be the input.
    array[...] = X
    model.run({"x": array}, out=[array])
    assert array.tolist() == [2, 4, 6]


def read_only():
    array = np.zeros(3, "f4")
    array.flags.writeable = False
    return array


BAD_OUT = {
    "too few": ([], "out has 0 arrays; the graph has 1 outputs"),
    "too many": ([np.zeros(3, "f4")] * 2, "out has 2 arrays"),
    "shape": ([np.zeros(4, "f4")], r"output 'y' is float32\[3\], not float32\[4\]"),
    "rank": ([np.zeros((1, 3), "f4")], "output 'y' is"),
    "dtype": ([np.zeros(3)], r"not float64\[3\]"),
    "byte order": ([np.zeros(3, ">f4")], "output 'y' is"),
    "read-only": ([read_only()], "read-only"),
    "list": ([[0, 0, 0]], "list is no array"),
    "mapping": ({"y": np.zeros(3, "f4")}, "not a mapping"),
    "number": (3, "sequence"),
    "itself": ([np.lib.stride_tricks.as_strided(np.zeros(1, "f4"), (3,), (0,))], "same bytes"),
    "shifted": ([np.lib.stride_tricks.as_strided(np.zeros(9, "u1"), (3,), (2,)).view("f4")
                 if False else np.lib.stride_tricks.as_strided(np.zeros(3, "f4"), (3,), (2,))],
                "same bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_OUT)
def test_bad_out(name):
    out, match = BAD_OUT[name]
    model = compiled(models.twice())
    raw = model.run_raw({"x": X})[0]
    with pytest.raises(fg.InputError, match=match):
        model.run({"x": X * 5}, out=out)
    assert raw.array().tolist() == [2, 4, 6]


def test_out_arrays_that_overlap():
    graph = fg.Graph("pair")
    x = graph.input("x", (3,))
    graph.output(x + 1, "a")
    graph.output(x * 2, "b")
    model = compiled(graph)
    home = np.zeros(5, "f4")
    for pair in ([home[:3], home[:3]], [home[:3], home[2:]], [home[2::-1], home[:3]]):
        with pytest.raises(fg.InputError, match="outputs 'a' and 'b' were given the same bytes"):
            model.run({"x": X}, out=pair)
        if pair[0].flags.c_contiguous:
            with pytest.raises(fg.InputError, match="same bytes"):
                model.bind({"x": X}, {"a": pair[0], "b": pair[1]})
    assert not home.any()
    weave = np.zeros(6, "f4")
    model.run({"x": X}, out=[weave[::2], weave[1::2]])
    assert weave.tolist() == [2, 2, 3, 4, 4, 6]


@pytest.mark.host
def test_streams_are_not_of_the_cpu():
    model = compiled(models.twice())
    for call in (lambda: model.run({"x": X}, stream=1), lambda: model.bind({"x": X}, stream=1)):
        with pytest.raises(fg.UnsupportedError, match="stream"):
            call()


def test_raw_outputs_go_stale():
    model = compiled(models.twice())
    (raw,) = model.run_raw({"x": X})
    assert (raw.name, raw.shape, raw.dtype, raw.size) == ("y", (3,), f4, 3)
    assert raw.ptr == model.arena_ptr + model.run_slots([X])[0][0] or True
    (raw,) = model.run_raw({"x": X})
    array = raw.array()
    assert array.tolist() == [2, 4, 6]
    assert not array.flags.writeable
    with pytest.raises(ValueError):
        array.flags.writeable = True
    for later in (
        lambda: model.run({"x": X * 2}),
        lambda: model.run_slots([X * 2]),
        lambda: model.run_raw({"x": X * 2}),
        model.bind({"x": X * 2}),
        lambda: model.profile({"x": X * 2}, 1),
    ):
        (raw,) = model.run_raw({"x": X})
        raw.array()
        later()
        for use in (raw.array, lambda raw=raw: raw.ptr):
            with pytest.raises(fg.StaleOutputError, match="output 'y' belongs to an earlier run"):
                use()
        assert "stale" in repr(raw)
        assert array.tolist() == [4, 8, 12]
    (raw,) = model.run_raw({"x": X})
    model.clone().run({"x": X * 3})
    assert raw.array().tolist() == [2, 4, 6]


def test_memory_outlives_the_model():
    model, inputs, _ = ready("encoder")
    (raw,) = model.run_raw(inputs)
    array, view = raw.array(), model.output_view(0)
    wanted = array.copy()
    step = model.bind(inputs)
    del model, raw
    gc.collect()
    junk = [np.full(2000, 3, "f4") for _ in range(50)]
    np.testing.assert_array_equal(array, wanted)
    step()
    np.testing.assert_array_equal(view, wanted)
    del step, junk
    gc.collect()
    np.testing.assert_array_equal(view, wanted)


def test_views():
    model = compiled(models.two_inputs())
    assert model.output_view(1) is model.output_view(1)
    for index in (-1, 2, 100, 2**70, "y", 0.0):
        with pytest.raises(fg.InputError, match=f"output {index!r}: the graph has 2"):
            model.output_view(index)
    with pytest.raises(ValueError):
        model.output_view(0)[...] = 1


def test_bound_arrays_are_read_at_each_call():
    model = compiled(models.twice())
    x, y = X.copy(), np.zeros(3, "f4")
    step = model.bind({"x": x}, {"y": y})
    assert not y.any()
    for factor in range(4):
        x[:] = X * factor
        assert step() is None
        assert y.tolist() == (X * factor * 2).tolist()
    # The arena is the other methods' again.
    assert model.run({"x": X})[0].tolist() == [2, 4, 6]
    assert y.tolist() == [6, 12, 18]
    x[:] = y[:] = 0
    del x, y
    gc.collect()
    step()


@pytest.mark.parametrize("shift", [0, 1, -1, 500, -500])
def test_an_output_bound_over_an_input(shift):
    """Also where each element is read after its neighbour is written, and where two need it."""
    n = 1000
    graph = fg.Graph("in_place")
    x, z = graph.input("x", (n,)), graph.input("z", (n,))
    graph.output(x[::-1] + z, "y")
    graph.output(ops.softmax(x) + z, "s")
    model = compiled(graph)
    home = np.zeros(3 * n, "f4")
    home[:] = data_for(graph.inputs)["x"].repeat(3)
    x = home[n : 2 * n]
    z = data_for(graph.inputs)["z"]
    y = home[n + shift : 2 * n + shift]
    s = z
    wanted = model.run({"x": x, "z": z})
    step = model.bind({"x": x, "z": z}, {"y": y, "s": s})
    step()
    np.testing.assert_array_equal(y, wanted[0])
    np.testing.assert_array_equal(s, wanted[1])
    before = home[:n].copy(), home[2 * n :].copy()
    wanted = model.run({"x": x, "z": z})
    step()
    np.testing.assert_array_equal(y, wanted[0])
    if not shift:
        np.testing.assert_array_equal(home[:n], before[0])
        np.testing.assert_array_equal(home[2 * n :], before[1])


BAD_BIND = {
    "missing": ({}, {}, r"inputs \['x'\] were not bound"),
    "unknown input": ({"x": X, "w": X}, {}, r"\['w'\] are not inputs"),
    "unknown output": ({"x": X}, {"z": X}, r"\['z'\] are not outputs"),
    "strides": ({"x": np.zeros(6, "f4")[::2]}, {}, "dense"),
    "output strides": ({"x": X}, {"y": np.zeros(6, "f4")[::2]}, "dense"),
    "read-only": ({"x": X}, {"y": read_only()}, "read-only"),
    "output dtype": ({"x": X}, {"y": np.zeros(3)}, r"output 'y' is float32\[3\], not float64\[3\]"),
    "output shape": ({"x": X}, {"y": np.zeros(2, "f4")}, "output 'y' is"),
    "list": ({"x": [1, 2, 3]}, {}, "list has no fixed bytes"),
    "output list": ({"x": X}, {"y": [0, 0, 0]}, "list has no fixed bytes"),
    "number": ({"x": np.float32(3)}, {}, "input 'x'"),
    "outputs as list": ({"x": X}, [X], "mapping"),
}


@pytest.mark.parametrize("name", BAD_BIND)
def test_bad_bindings(name):
    inputs, outputs, match = BAD_BIND[name]
    model = compiled(models.twice())
    with pytest.raises(fg.InputError, match=match):
        model.bind(inputs, outputs)
    assert model.run({"x": X})[0].tolist() == [2, 4, 6]


def test_buffers_can_be_bound(device):
    ctx = fg.DeviceContext(device)
    x, y = ctx.to_device(X), ctx.create_buffer((3,), "float32")
    model = compiled(models.twice())
    step = model.bind({"x": x}, {"y": y})
    step()
    assert y.numpy().tolist() == [2, 4, 6]
    x.copy_from(X * 2)
    step()
    assert y.numpy().tolist() == [4, 8, 12]


def test_a_run_that_slips_in_before_the_handles_makes_them_stale(monkeypatch):
    model = compiled(models.twice())
    run_named = fg.CompiledGraph._run_named

    def then_another(self, inputs, scalars):
        number = run_named(self, inputs, scalars)
        run_named(self, {"x": X * 5}, scalars)
        return number

    monkeypatch.setattr(fg.CompiledGraph, "_run_named", then_another)
    (raw,) = model.run_raw({"x": X})
    with pytest.raises(fg.StaleOutputError):
        raw.array()


def test_raw_outputs_of_two_threads_are_never_mixed_up():
    """A raw output is its own run's, or stale: never the other thread's."""
    model = compiled(models.twice(), release_gil=True)
    wrong, fresh = [], []
    # The time is only so that nothing goes on for ever.
    until, enough = time.monotonic() + 60, 300

    def work(number):
        x = np.full(3, number, "f4")
        while min(map(fresh.count, (1, 2))) < enough and time.monotonic() < until:
            try:
                (raw,) = model.run_raw({"x": x})
                array = raw.array()
                found = array[0]
                raw.ptr  # noqa: B018  still ours after the read
            except fg.StaleOutputError:
                continue
            fresh.append(number)
            if found != 2 * number:
                wrong.append(found)

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert min(map(fresh.count, (1, 2))) >= enough


def test_copies():
    model, inputs, _ = ready("residuals")
    (wanted,) = model.run(inputs)
    assert copy.copy(model) is model
    other = copy.deepcopy(model)
    assert other is not model
    other.set_params({info.name: np.zeros(info.shape, "f4") for info in other.params})
    assert not other.run(inputs)[0].any()
    np.testing.assert_array_equal(model.run(inputs)[0], wanted)
    with pytest.raises(TypeError):
        pickle.dumps(model)
    with pytest.raises(TypeError, match=r"Session\.compile"):
        fg.CompiledGraph()


def test_words_about_a_model(device):
    model, inputs, _ = ready("mlp")
    where = model.device
    assert repr(model) == (
        f"<CompiledGraph 'mlp' on {where}: x: float32[1, 784] -> y: float32[1, 10]>"
    )
    text = model.summary()
    head = "mlp on cpu, 1 threads" if device == "cpu" else f"mlp on {where}, sm_"
    product = "fused_matmul" if device == "cpu" else "row_product"
    for part in (head, "w0: float32[784, 512]", product, "arena"):
        assert part in text
    profile = model.profile(inputs, 3)
    assert profile.runs == 3
    assert profile.total_us > 0
    found = {node.name: node.operator for node in profile.nodes if node.operator != "copy"}
    assert [name.partition(",")[0] for name in found.values()] == [product] * 3
    assert len(profile.slowest(2)) == 2
    assert len(profile.chrome_trace()["traceEvents"]) == len(profile.nodes)
    for n in (0, -1, 1.5, "2"):
        with pytest.raises(fg.InputError, match="profile over"):
            model.profile(inputs, n)
    with pytest.raises(fg.GraphError, match="compiled model 'mlp'"):
        model.graph.replay()


def test_close():
    """A closed model says so on every call; what views show stays."""
    graph = fg.Graph("closing")
    x, w = graph.input("x", (3,)), graph.param("w", (3,))
    graph.output(x * w, "y")
    model = compiled(graph)
    model.set_param("w", np.full(3, 2.0, "f4"))
    data = np.arange(3, dtype="f4")
    twin, step = model.clone(), model.bind({"x": data})
    (raw,) = model.run_raw({"x": data})
    view = model.output_view(0)
    model.close()
    model.close()
    calls = [
        lambda: model.run({"x": data}),
        lambda: model.run_slots([data]),
        lambda: model.run_raw({"x": data}),
        lambda: model.bind({"x": data}),
        lambda: model.output_view(0),
        lambda: model.arena_ptr,
        lambda: model.arena_nbytes,
        lambda: model.set_param("w", data),
        lambda: model.profile({"x": data}),
        lambda: model.graph,
        model.clone,
        model.summary,
        step,
    ]
    for call in calls:
        with pytest.raises(fg.GraphError, match="this model is closed"):
            call()
    with pytest.raises(fg.StaleOutputError):
        raw.array()
    assert "closed" in repr(model)
    assert view.tolist() == [0, 2, 4]
    np.testing.assert_array_equal(twin.run({"x": data})[0], [0, 2, 4])
