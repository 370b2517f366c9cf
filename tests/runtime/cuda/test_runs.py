"""Compiled graphs on cuda: one launch a run, arrays on the device, streams, faults, memory."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import time

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops
from fastgraph._core import counters
from fastgraph.device.cuda import compile as compiling
from fastgraph.device.cuda import disk
from fastgraph.lower.cuda import recorder
from fastgraph.lower.cuda.seam import move_code
from tests import conftest
from tests.interop.arrays import Dlpack, Interface
from tests.runtime import models
from tests.runtime.models import compiled, data_for

f4 = np.float32
X = f4([1, 2, 3])
FAKE = conftest.FAKE
pytestmark = pytest.mark.cuda

# All calls of the driver that put work on a stream.
ENQUEUE = (
    *("cuGraphLaunch", "cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel"),
    *("cuMemcpyAsync", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync"),
    *("cuMemcpyBatchAsync", "cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async"),
    *("cuLaunchHostFunc", "cuStreamWaitEvent", "cuGraphUpload"),
)
UPDATES = ("cuGraphExecKernelNodeSetParams", "cuGraphExecNodeSetParams", "cuGraphExecUpdate")


def enqueued(call):
    """The calls of the driver that enqueue, and that update, during `call`."""
    FAKE.forget_calls()
    call()
    counts = {name: FAKE.calls(name) for name in ENQUEUE if FAKE.calls(name)}
    return counts, sum(FAKE.calls(name) for name in UPDATES)


ONE_LAUNCH = {"cuGraphLaunch": 1}


def affine():
    """Elementwise work, a product and a scalar."""
    graph = fg.Graph("affine")
    x, w, s = graph.input("x", (2, 4)), graph.param("w", (4, 3)), graph.scalar("s", "float32", 2.0)
    graph.output((x + s) @ w, "y")
    graph.output(x * 2, "twice")
    return graph


def affine_ready(**options):
    model = compiled(affine(), **options)
    w = np.arange(12, dtype="f4").reshape(4, 3)
    model.set_param("w", w)
    x = np.arange(8, dtype="f4").reshape(2, 4)
    return model, x, lambda x, s=2.0: (x + f4(s)) @ w


# ---- one launch


@pytest.mark.fake
@pytest.mark.parametrize("name", ["twice", "two_inputs", "layer", "identities", "mlp"])
def test_a_run_is_one_launch_and_nothing_else(name):
    model = compiled(models.SUITE[name]())
    model.set_params(data_for(model.params))
    inputs = data_for(model.inputs, 1)
    slots = [inputs[info.name] for info in model.inputs]
    step = model.bind(inputs)
    model.run(inputs)
    for call in (
        lambda: model.run_slots(slots), lambda: model.run(inputs), lambda: model.run_raw(inputs),
        step,
    ):  # fmt: skip
        assert enqueued(call) == (ONE_LAUNCH, 0)


@pytest.mark.fake
def test_a_scalar_changes_one_node_and_only_when_it_changes():
    model, x, wanted = affine_ready()
    model.run({"x": x})
    for s, updates in ((3.0, 1), (3.0, 0), (2.0, 1), (None, 0), (4.0, 1), (None, 1)):
        given = {} if s is None else {"s": s}
        assert enqueued(lambda given=given: model.run({"x": x}, **given)) == (ONE_LAUNCH, updates)
        np.testing.assert_allclose(model.run({"x": x}, **given)[0], wanted(x, s or 2.0), rtol=1e-5)


def test_small_outputs_are_written_where_the_host_reads_them():
    """One that no kernel reads needs no copy; large ones and those that are read do."""
    names = {}
    for name, build in {
        "small": lambda g, x: {"y": x + 1},
        "read": lambda g, x: {"y": (x + 1), "z": ops.sum(x + 1)},
        "input": lambda g, x: {"x": x},
        "param": lambda g, x: {"p": g.param("p", (2,), initial=np.ones(2, "f4"))},
        "twice": lambda g, x: {"a": (y := ops.sum(x, axis=0, keepdims=True)), "b": y},
    }.items():
        graph = fg.Graph(name)
        for key, value in build(graph, graph.input("x", (3,))).items():
            graph.output(value, key)
        names[name] = [node.name for node in compiled(graph).graph.nodes]
    graph = fg.Graph("large")
    graph.output(graph.input("x", (1 << 15,)) + 1, "y")
    names["large"] = [node.name for node in compiled(graph).graph.nodes]
    assert "outputs" not in names["small"]
    for name in ("input", "param", "twice", "large"):
        assert names[name][-1] == "outputs", name
    assert names["param"] == ["outputs"]


@pytest.mark.fake
def test_a_tenth_of_the_parameters_is_an_update_and_most_of_them_another_executable():
    model = compiled(models.identities(12))
    eye = np.eye(64, dtype="f4")
    model.set_params({f"w{i}": eye for i in range(12)})
    x = {"x": np.ones((1, 64), "f4")}
    assert model.run(x)[0].tolist() == [[1] * 64]
    FAKE.forget_calls()
    model.set_param("w3", eye * 2)
    assert FAKE.calls("cuGraphInstantiateWithFlags") == 0
    assert sum(map(FAKE.calls, UPDATES)) == 1
    assert model.run(x)[0].tolist() == [[2] * 64]
    FAKE.forget_calls()
    model.set_params({f"w{i}": eye for i in range(12)})
    assert FAKE.calls("cuGraphInstantiateWithFlags") == 1
    assert sum(map(FAKE.calls, UPDATES)) == 0
    assert model.run(x)[0].tolist() == [[1] * 64]


# ---- arrays on the device


def test_inputs_and_outputs_on_the_device(ctx):
    model, x, wanted = affine_ready()
    on_device = ctx.to_device(x)
    out = [ctx.create_buffer((2, 3)), ctx.create_buffer((2, 4))]
    given = model.run({"x": on_device}, out=out)
    assert given == tuple(out)
    np.testing.assert_allclose(out[0].numpy(), wanted(x), rtol=1e-5)
    np.testing.assert_array_equal(out[1].numpy(), x * 2)
    # One of each kind, and back to the host.
    mixed = [np.zeros((2, 3), "f4"), out[1]]
    model.run({"x": x + 1}, out=mixed)
    np.testing.assert_allclose(mixed[0], wanted(x + 1), rtol=1e-5)
    np.testing.assert_array_equal(out[1].numpy(), (x + 1) * 2)
    found = model.run({"x": on_device})
    np.testing.assert_allclose(found[0], wanted(x), rtol=1e-5)
    np.testing.assert_array_equal(out[1].numpy(), (x + 1) * 2)
    model.run_slots([on_device])
    np.testing.assert_array_equal(model.output_view(1), x * 2)
    pinned = ctx.create_host_buffer((2, 4))
    np.asarray(pinned)[...] = 7
    np.testing.assert_array_equal(model.run({"x": pinned})[1], 14)


@pytest.mark.fake
def test_an_address_costs_an_update_once(ctx):
    model, x, _ = affine_ready()
    model.run({"x": x})
    a, b = ctx.to_device(x), ctx.to_device(x + 1)
    y = ctx.create_buffer((2, 3))
    ctx.synchronize()

    def updates(call):
        counts, found = enqueued(call)
        assert counts == ONE_LAUNCH
        return found

    assert updates(lambda: model.run({"x": a})) == 1
    assert updates(lambda: model.run({"x": a})) == 0
    assert updates(lambda: model.run({"x": ctx.create_buffer((2, 4)) if False else a})) == 0
    assert updates(lambda: model.run({"x": b})) == 1
    assert updates(lambda: model.run({"x": x})) == 1
    assert updates(lambda: model.run({"x": x + 5})) == 0
    step = model.bind({"x": a}, {"y": y})
    assert updates(step) == 2
    assert updates(step) == 0
    assert updates(lambda: model.run({"x": a})) == 1  # The output is at home again.


def test_no_array_is_kept_after_its_run(ctx):
    model, x, wanted = affine_ready()
    model.run({"x": x})
    gc.collect()
    before = counters.snapshot()
    model.run({"x": ctx.to_device(x)}, out=[ctx.create_buffer((2, 3)), ctx.create_buffer((2, 4))])
    gc.collect()
    assert counters.snapshot() == before
    # What comes to lie at the same address is read anew.
    for i in range(3):
        found = model.run({"x": ctx.to_device(x + i)})
        np.testing.assert_allclose(found[0], wanted(x + i), rtol=1e-5)


def test_inputs_and_outputs_of_many_bytes():
    """More than the threads of one kernel take at once, with an end that is not wide."""
    g = fg.Graph("many")
    x = g.input("x", (5, 620_003), "uint8")
    g.output(x, "same")
    g.output(x[4, -5:], "end")
    model = fg.Session("cuda").compile(g)
    given = np.random.default_rng(5).integers(0, 256, (5, 620_003), "u1")
    for one in (given, given[:, ::-1]):
        same, end = model.run({"x": one})
        assert (same == one).all()
        assert end.tolist() == one[4, -5:].tolist()


def test_inputs_that_are_long_are_moved_by_more_blocks(ctx):
    """Short ones leave room for other runs' kernels while they wait for the bus."""
    blocks = []
    for mib in (8, 9):
        g = fg.Graph("long")
        g.output(ops.max(g.input("x", (mib << 20,), "uint8")), "y")
        nodes = fg.Session("cuda").compile(g)._runner.owner.record.nodes
        blocks.append(next(node.call.grid[0] for node in nodes if node.label == "copy"))
    count = ctx.attributes["multiprocessor_count"]
    assert blocks == [count, 4 * count]


@pytest.mark.parametrize("shift", [0, 1, 2, 3])
def test_outputs_at_any_address(ctx, shift):
    graph = fg.Graph("long")
    x = graph.input("x", (1001,))
    graph.output(x + 1, "y")
    graph.output(x, "x")
    model = compiled(graph)
    data = data_for(model.inputs)["x"]
    home = ctx.to_device(np.zeros(2010, "f4"))
    y, same = home[shift : shift + 1001], home[1004 + shift : 2005 + shift]
    for x in (data, ctx.to_device(np.r_[np.zeros(shift, "f4"), data])[shift:]):
        home.copy_from(np.zeros(2010, "f4"))
        model.run({"x": x}, out=[y, same])
        wanted = np.zeros(2010, "f4")
        wanted[shift : shift + 1001] = data + 1
        wanted[1004 + shift : 2005 + shift] = data
        np.testing.assert_array_equal(home.numpy(), wanted)
        model.bind({"x": x}, {"y": y, "x": same})()
        np.testing.assert_array_equal(home.numpy(), wanted)


@pytest.mark.parametrize("kind", [Dlpack, Interface])
def test_arrays_of_other_libraries(ctx, kind):
    model = compiled(models.twice())
    x, y = ctx.to_device(X), ctx.create_buffer((3,))
    assert model.run({"x": kind(x)})[0].tolist() == [2, 4, 6]
    there = kind(y)
    assert model.run({"x": kind(x)}, out=[there]) == (there,)
    assert y.numpy().tolist() == [2, 4, 6]
    step = model.bind({"x": kind(x)}, {"y": kind(y)})
    x.copy_from(X * 2)
    step()
    assert y.numpy().tolist() == [4, 8, 12]


def test_parameters_from_the_device(ctx):
    model, x, wanted = affine_ready()
    w = np.arange(12, dtype="f4").reshape(4, 3)
    for kind in (lambda buffer: buffer, Dlpack, Interface):
        model.set_param("w", np.zeros((4, 3), "f4"))
        model.set_param("w", kind(ctx.to_device(w)))
        np.testing.assert_allclose(model.run({"x": x})[0], wanted(x), rtol=1e-5)
    with pytest.raises(fg.InputError, match=r"'w' was given float32\[3\]"):
        model.set_param("w", ctx.create_buffer((3,)))
    assert model.stream.device is ctx.stream.device


def test_an_output_over_its_input_on_the_device(ctx):
    graph = fg.Graph("turned")
    x = graph.input("x", (1000,))
    graph.output(x[::-1] + 1, "y")
    graph.output(x * 2, "z")
    model = compiled(graph)
    data = data_for(graph.inputs)["x"]
    x, z = ctx.to_device(data), ctx.create_buffer((1000,))
    model.bind({"x": x}, {"y": x, "z": z})()
    np.testing.assert_array_equal(x.numpy(), data[::-1] + 1)
    np.testing.assert_array_equal(z.numpy(), data * 2)


BAD_DEVICE_ARRAYS = {
    "shape": (lambda ctx: ctx.create_buffer((2,)), r"input 'x' is float32\[3\], not"),
    "dtype": (lambda ctx: ctx.create_buffer((3,), "int32"), r"input 'x' is float32\[3\], not"),
    "other device": (lambda ctx: fg.DeviceContext("cuda:1").create_buffer((3,)), "not on cuda:0"),
    "foreign shape": (lambda ctx: Interface(ctx.create_buffer((3, 1))), r"float32\[3\], not"),
    "strides": (lambda ctx: Interface(ctx.create_buffer((3,)), strides=(8,)), "not dense"),
}


@pytest.mark.parametrize("name", BAD_DEVICE_ARRAYS)
def test_bad_arrays_on_the_device(ctx, name):
    make, match = BAD_DEVICE_ARRAYS[name]
    if name == "other device" and FAKE is None:
        pytest.skip("the fake driver has two devices")
    model = compiled(models.twice())
    bad = make(ctx)
    for call in (
        lambda: model.run({"x": bad}), lambda: model.run_slots([bad]),
        lambda: model.bind({"x": bad}), lambda: model.run_raw({"x": bad}),
    ):  # fmt: skip
        with pytest.raises(fg.InputError, match=match):
            call()
    with pytest.raises(fg.InputError, match=match.replace("input 'x'", "output 'y'")):
        model.run({"x": X}, out=[bad])
    with pytest.raises(fg.InputError, match=match.replace("input 'x'", "output 'y'")):
        model.bind({"x": X}, {"y": bad})
    assert model.run({"x": X})[0].tolist() == [2, 4, 6]


def test_outputs_that_share_bytes_of_the_device(ctx):
    graph = fg.Graph("pair")
    x = graph.input("x", (3,))
    graph.output(x + 1, "a")
    graph.output(x + 2, "b")
    model = compiled(graph)
    home = ctx.create_buffer((5,))
    for pair in ([home[:3], home[:3]], [home[:3], home[2:]]):
        with pytest.raises(fg.InputError, match="outputs 'a' and 'b' were given the same bytes"):
            model.run({"x": X}, out=pair)
        with pytest.raises(fg.InputError, match="outputs 'a' and 'b' were given the same bytes"):
            model.bind({"x": X}, dict(zip("ab", pair, strict=True)))
    assert not home.numpy().any()


# ---- streams


@pytest.mark.fake
def test_a_step_on_a_stream_returns_before_it_is_done(ctx):
    model = compiled(models.twice())
    stream = ctx.create_stream()
    x, y = ctx.to_device(X), ctx.create_buffer((3,))
    step = model.bind({"x": x}, {"y": y}, stream=stream)
    ctx.synchronize()
    with FAKE.held():
        assert enqueued(step)[0] == ONE_LAUNCH
        step()
        assert not stream.query()
    stream.synchronize()
    assert y.numpy().tolist() == [2, 4, 6]


def test_runs_on_a_stream_come_after_what_is_there(ctx):
    model = compiled(models.twice())
    other = fg.DeviceContext("cuda")
    x, y = other.create_buffer((3,)), other.create_buffer((3,))
    for factor in range(3):
        other.copy(x, other.to_device(X * f4(factor)))
        assert model.run({"x": x}, out=[y], stream=other.stream) == (y,)
        other.copy(x, other.to_device(-X))
        assert y.numpy().tolist() == (2 * factor * X).tolist()
    # Without a stream a run waits for the work of ours on all streams.
    other.copy(x, other.to_device(X * 5))
    assert model.run({"x": x})[0].tolist() == [10, 20, 30]


@pytest.mark.fake
def test_a_run_on_a_stream_with_arrays_of_the_host_waits(ctx):
    model = compiled(models.twice())
    stream = ctx.create_stream()
    x = X.copy()
    step = model.bind({"x": x}, {"y": (y := ctx.create_buffer((3,)))}, stream=stream)
    step()
    x[:] = 0  # It has been read.
    stream.synchronize()
    assert y.numpy().tolist() == [2, 4, 6]
    assert model.run({"x": X}, stream=stream)[0].tolist() == [2, 4, 6]
    out = [np.zeros(3, "f4")]
    model.run({"x": X * 2}, out=out, stream=stream)
    assert out[0].tolist() == [4, 8, 12]
    with pytest.raises(fg.InputError, match="output 'y': a step on a stream does not wait"):
        model.bind({"x": x}, {"y": out[0]}, stream=stream)


def test_scalars_of_runs_that_are_under_way_stay(ctx):
    graph = fg.Graph("scaled")
    graph.output(graph.input("x", (3,)) * graph.scalar("s", "float32"), "y")
    model = compiled(graph)
    stream = ctx.create_stream()
    x = ctx.to_device(X)
    outs = [ctx.create_buffer((3,)) for _ in range(5)]
    steps = [model.bind({"x": x}, {"y": y}, stream=stream) for y in outs]
    for number, step in enumerate(steps):
        step(s=float(number))
    stream.synchronize()
    for number, y in enumerate(outs):
        assert y.numpy().tolist() == (X * f4(number)).tolist()


def test_what_is_no_stream_of_the_device(ctx):
    model = compiled(models.twice())
    for bad in (1, "s", object()):
        for call in (
            lambda bad=bad: model.run({"x": X}, stream=bad),
            lambda bad=bad: model.bind({"x": X}, stream=bad),
        ):
            with pytest.raises(fg.InputError, match="stream"):
                call()


@pytest.mark.fake
def test_clones_run_at_once(ctx):
    model = compiled(models.twice())
    other = model.clone()
    y, z = ctx.create_buffer((3,)), ctx.create_buffer((3,))
    streams = [ctx.create_stream() for _ in range(2)]
    x = ctx.to_device(X)
    steps = [
        model.bind({"x": x}, {"y": y}, stream=streams[0]),
        other.bind({"x": x}, {"y": z}, stream=streams[1]),
    ]
    ctx.synchronize()
    FAKE.forget_calls()
    with FAKE.held():
        for step in steps:
            step()
        assert FAKE.calls("cuStreamWaitEvent") == 0
    ctx.synchronize()
    assert y.numpy().tolist() == z.numpy().tolist() == [2, 4, 6]


# ---- faults


def rows():
    graph = fg.Graph("rows")
    graph.output(ops.take(graph.param("t", (5, 4)), graph.input("i", (3,), "int64"), axis=0), "y")
    return graph


def test_an_index_out_of_range_is_an_error_of_its_own_run(ctx):
    model = compiled(rows())
    table = np.arange(20, dtype="f4").reshape(5, 4)
    model.set_param("t", table)
    good, bad = np.int64([1, -1, 4]), np.int64([1, 5, 0])
    out = [np.full((3, 4), 9, "f4")]
    for call in (
        lambda: model.run({"i": bad}), lambda: model.run_slots([bad]),
        lambda: model.run_raw({"i": bad}), lambda: model.run({"i": bad}, out=out),
        model.bind({"i": bad}), lambda: model.profile({"i": bad}, 1),
    ):  # fmt: skip
        with pytest.raises(fg.InputError, match=r"'take'.*index out of range in this run's data"):
            call()
        np.testing.assert_array_equal(model.run({"i": good})[0], table[good])
    assert (out[0] == 9).all()
    stream, y = ctx.create_stream(), ctx.create_buffer((3, 4))
    model.bind({"i": bad}, {"y": y}, stream=stream)()
    stream.synchronize()
    with pytest.raises(fg.InputError, match="of a run that was enqueued before"):
        model.run({"i": good})
    np.testing.assert_array_equal(model.run({"i": good})[0], table[good])


@pytest.mark.fake
def test_an_interrupted_run_leaves_the_model_usable():
    model = compiled(models.twice())
    assert model.run({"x": X})[0].tolist() == [2, 4, 6]

    def interrupt():
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        FAKE.hold(False)

    thread = threading.Thread(target=interrupt)
    FAKE.hold(True)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            model.run({"x": X * 2})
        # It waits for the run that goes on, whose input it may not overwrite.
        assert model.run({"x": X * 3})[0].tolist() == [6, 12, 18]
    finally:
        thread.join()
        FAKE.hold(False)


# ---- memory


@pytest.mark.fake
def test_memory_that_runs_out_anywhere_leaves_nothing():
    """Each allocation of compiling and of setting parameters fails in turn."""
    graph = affine()
    w = np.zeros((4, 3), "f4")
    model = compiled(graph)
    for _ in range(8):
        model.set_param("w", w)  # every slot of staging is there now, whose turn it ever is
    model = None
    gc.collect()
    before, live = counters.snapshot(), FAKE.settled()
    del live["events"]  # the device keeps them for whoever needs one next
    texts = set()
    for name in ("cuMemAlloc", "cuMemHostAlloc"):
        for count in range(1, 20):
            FAKE.fail(name, 2, count)
            try:
                model = compiled(graph)
                model.set_param("w", w)
                model.clone()
                break
            except fg.OutOfMemoryError as error:
                texts.add(str(error).partition(":")[0])
            finally:
                FAKE.reset()
            model = None
            gc.collect()
            assert counters.snapshot() == before, (name, count)
            assert {k: v for k, v in FAKE.live().items() if k in live} == live, (name, count)
        del model
        gc.collect()
    assert any("the arena of the compiled model 'affine'" in text for text in texts), texts
    assert any("pinned memory for inputs and outputs of" in text for text in texts), texts
    assert any("parameter 'w'" in text for text in texts), texts
    assert not any(text.startswith("allocating") for text in texts), texts


@pytest.mark.fake
def test_a_failing_call_of_a_run_leaves_the_model_usable(ctx):
    # A run that does not say itself when it is over is waited for by an event.
    model, x, wanted = affine_ready(release_gil=True)
    model.run({"x": x})
    on_device = ctx.to_device(x + 1)
    for name in ("cuGraphLaunch", "cuGraphExecNodeSetParams", "cuEventRecord"):
        FAKE.fail(name, 2)
        try:
            with pytest.raises(fg.OutOfMemoryError):
                model.run({"x": on_device}, s=5.0)
        finally:
            FAKE.reset()
        np.testing.assert_allclose(model.run({"x": x})[0], wanted(x), rtol=1e-5)
        found = model.run({"x": on_device}, s=5.0)[0]
        np.testing.assert_allclose(found, wanted(x + 1, 5.0), rtol=1e-5)
        np.testing.assert_allclose(model.run({"x": x})[0], wanted(x), rtol=1e-5)


# What waits for a run by way of the driver.
WAITS = ("cuEventRecord", "cuEventQuery", "cuStreamQuery", "cuStreamSynchronize")


def waited(call):
    """The calls of the driver that wait, during `call`."""
    FAKE.forget_calls()
    call()
    return {name for name in WAITS if FAKE.calls(name)}


def kernels_of(model, x):
    """How many kernels a run has."""
    before = FAKE.kernels_run()
    model.run_slots([x])
    return FAKE.kernels_run() - before


@pytest.mark.fake
def test_a_short_run_says_itself_that_it_is_over(ctx):
    model, x, wanted = affine_ready()
    nodes = len(model.graph.nodes)
    for one in (model, model.clone()):
        assert kernels_of(one, x) == nodes + 1
        for i in range(50):
            one.run_slots([x + i])
            np.testing.assert_allclose(one.output_view(0), wanted(x + i), rtol=1e-5)
    for found in (model.graph.nodes, model.profile({"x": x}, 1).nodes):
        assert "finish" not in [node.name for node in found]
    # A run that nobody has waited for leaves the number of an earlier one.
    step = model.bind({"x": ctx.to_device(x)}, stream=ctx.stream)
    for _ in range(20):
        with FAKE.held():
            step()
        model.run_slots([x + 7])
        np.testing.assert_allclose(model.output_view(0), wanted(x + 7), rtol=1e-5)


@pytest.mark.fake
def test_a_run_that_does_not_say_so_in_time_is_waited_for():
    model, x, wanted = affine_ready()
    model.run({"x": x})
    seen = set()
    with FAKE.held():
        thread = threading.Thread(target=lambda: seen.update(waited(lambda: model.run_slots([x]))))
        thread.start()
        FAKE.wait_for_polls(1)
    thread.join()
    assert {"cuEventRecord", "cuEventQuery"} <= seen
    np.testing.assert_allclose(model.output_view(0), wanted(x), rtol=1e-5)


@pytest.mark.fake
def test_an_error_of_the_driver_is_told_where_the_word_does_not_come():
    model, x, wanted = affine_ready()
    model.run({"x": x})
    FAKE.fail("cuEventRecord", 2)
    try:
        with FAKE.held(), pytest.raises(fg.OutOfMemoryError):
            model.run_slots([x])
    finally:
        FAKE.reset()
    model.run_slots([x + 1])
    np.testing.assert_allclose(model.output_view(0), wanted(x + 1), rtol=1e-5)


@pytest.mark.fake
def test_what_lets_other_threads_go_on_is_waited_for():
    model, x, _ = affine_ready(release_gil=True)
    for _ in range(20):
        assert "cuEventQuery" in waited(lambda: model.run_slots([x]))
    assert kernels_of(model, x) == len(model.graph.nodes)


@pytest.mark.fake
def test_more_than_the_device_has_names_arena_parameters_and_what_is_free():
    graph = fg.Graph("big")
    x = graph.input("x", (1 << 20,))
    graph.output(ops.sum(x.reshape(1 << 10, 1 << 10) @ x.reshape(1 << 10, 1 << 10)), "y")
    FAKE.memory_total(1 << 22)
    try:
        with pytest.raises(fg.OutOfMemoryError, match=r"the arena of .* 'big' \(its parameters"):
            compiled(graph)
    finally:
        FAKE.reset()


# ---- graphs in graphs


def test_a_model_inside_a_graph_of_the_users_own(ctx):
    model, x, wanted = affine_ready()
    model.run({"x": x})

    def build(b, stable):
        s = b.scalar("k", "float32", 3.0, where="memory")
        node = b.add_child_graph(model, inputs={"x": stable, "s": s})
        for output in node.outputs:
            b.add_output(output)

    graph = fg.DeviceGraph.create(ctx, build, x)
    np.testing.assert_allclose(graph.run(x + 1)[0], wanted(x + 1, 3.0), rtol=1e-5)
    found = graph.run(x + 2, k=7.0)
    np.testing.assert_allclose(found[0], wanted(x + 2, 7.0), rtol=1e-5)
    np.testing.assert_array_equal(found[1], (x + 2) * 2)
    np.testing.assert_allclose(model.run({"x": x})[0], wanted(x), rtol=1e-5)


def test_many_scalars_and_inputs():
    graph = fg.Graph("many")
    x = graph.input("x", (2,))
    total = x
    for i in range(70):
        total = total + graph.scalar(f"s{i}", "float32", float(i)) * graph.input(f"x{i}", (2,))
    graph.output(total, "y")
    model = compiled(graph)
    data = {f"x{i}": np.full(2, i, "f4") for i in range(70)}
    (y,) = model.run({"x": np.zeros(2, "f4"), **data}, s69=1.0)
    assert y.tolist() == [sum(i * i for i in range(69)) + 69] * 2


# ---- compiling


@pytest.mark.fake
def test_kernels_are_compiled_once_with_their_progress_told(
    compile_all, monkeypatch, tmp_path, caplog
):
    """By the real compiler; a second start finds all of them and calls no compiler."""
    monkeypatch.setattr(disk, "_place", tmp_path)
    monkeypatch.setattr(disk, "_is_set", True)
    monkeypatch.setattr(compiling, "_kept", type(compiling._kept)())
    codes = [move_code(1, 0), move_code(2, 1), move_code(1, 0)]
    with caplog.at_level(logging.INFO, "fastgraph"):
        first = compile_all(codes, "sm_90")
    assert len(first) == 2
    told = [record.getMessage() for record in caplog.records]
    assert told[0] == "compiling 2 of 2 kernels for sm_90"
    assert (
        sorted(told[1:])
        == [
            f"compiled {number} of 2: move fg_move_{kind}"
            for number, kind in zip((1, 2), sorted(t[-3:] for t in told[1:]), strict=True)
        ]
        or len(told) == 3
    )
    caplog.clear()
    monkeypatch.setattr(compiling, "_run", None)
    monkeypatch.setattr(compiling, "_kept", type(compiling._kept)())
    with caplog.at_level(logging.INFO, "fastgraph"):
        assert compile_all(codes, "sm_90") == first
    assert not caplog.records
    with pytest.raises(fg.GraphError, match="fg_move_4_0"):
        compile_all([move_code(4, 0)], "sm_90")  # There is no compiler any more.


def test_options_of_the_other_device():
    with pytest.raises(fg.InputError, match="isa"):
        compiled(models.twice(), isa="x86-64-v2")
    with pytest.raises(fg.InputError, match="tf32"):
        compiled(models.twice(), tf32=1)
    assert compiled(models.twice(), tf32=True).run({"x": X})[0].tolist() == [2, 4, 6]


def test_what_the_device_says_of_itself(ctx):
    model = compiled(models.twice())
    assert "compiled_graphs" in ctx.capabilities
    assert model.capabilities == ctx.capabilities
    assert (model.device, model.context.api) == ("cuda:0", "cuda")
    assert repr(fg.Session("cuda")) == "<Session cuda:0>"


def test_operators_that_a_device_lacks_are_listed_together(monkeypatch):
    gone = ("fused_matmul", "row_product")
    few = {op: lower for op, lower in recorder.LOWERINGS.items() if op not in gone}
    monkeypatch.setattr(recorder, "LOWERINGS", few)
    with pytest.raises(fg.CompileError, match=r"(?s)row_product.*row_product.*not on cuda \(sm_"):
        compiled(models.identities(2))
