"""Handles: what an input is in runs that are not given it."""

from __future__ import annotations

import copy
import gc
import threading
import weakref

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops
from tests.runtime.models import compiled

f4 = np.float32


def accumulate(shape=(3,), dtype="float32"):
    """acc + delta, beside a sum that reads acc after it."""
    graph = fg.Graph("accumulate")
    acc, delta = graph.input("acc", shape, dtype), graph.input("delta", shape, dtype)
    graph.output(acc + delta, "next")
    return graph


def by_run(model, inputs):
    return model.run(inputs)[0]


def by_out(model, inputs):
    out = np.empty(model.outputs[0].shape, model.outputs[0].dtype)
    model.run(inputs, out=[out])
    return out


def by_raw(model, inputs):
    return model.run_raw(inputs)[0].array().copy()


def by_slots(model, inputs):
    model.run_slots([inputs.get(info.name) for info in model.inputs])
    return model.output_view(0).copy()


def by_shorter_slots(model, inputs):
    given = [inputs.get(info.name) for info in model.inputs]
    while given and given[-1] is None:
        given.pop()
    model.run_slots(given)
    return model.output_view(0).copy()


def by_typed(model, inputs):
    ((data, dtype),) = model.run_typed([(k, v.tobytes(), v.dtype.name) for k, v in inputs.items()])
    return np.frombuffer(data, dtype).reshape(model.outputs[0].shape)


def by_step(model, inputs):
    out = np.empty(model.outputs[0].shape, model.outputs[0].dtype)
    model.bind(inputs, {model.outputs[0].name: out})()
    return out


def by_step_at_home(model, inputs):
    model.bind(inputs)()
    return model.output_view(0).copy()


def by_profile(model, inputs):
    model.profile(inputs, n=1)
    return model.output_view(0).copy()


def by_commit(model, inputs):
    model.commit_no_wait(inputs)
    model.sync_pending()
    return model.output_view(0).copy()


def by_submit(model, inputs):
    return model.submit(inputs).result(60)[0]


def by_pipeline(model, inputs):
    return next(model.pipeline([inputs]))[0]


def by_pipelined(model, inputs):
    return model.run_pipelined([inputs])[0][0]


METHODS = {
    function.__name__[3:]: function
    for function in (
        by_run, by_out, by_raw, by_slots, by_shorter_slots, by_typed, by_step, by_step_at_home,
        by_profile, by_commit, by_submit, by_pipeline, by_pipelined,
    )
}  # fmt: skip


@pytest.fixture(params=METHODS)
def method(request):
    """Each way to run; gives the first output."""
    return METHODS[request.param]


@pytest.mark.parametrize("form", ["bind_handle", "bind_gpu_handle"])
def test_explicit_beats_handle_beats_error(method, form):
    model = compiled(accumulate())
    one, ten = np.ones(3, "f4"), np.full(3, 10, "f4")
    getattr(model, form)("delta", ten)
    assert method(model, {"acc": one}).tolist() == [11] * 3
    assert method(model, {"acc": one, "delta": one}).tolist() == [2] * 3
    getattr(model, form)("acc", one)
    assert method(model, {}).tolist() == [11] * 3
    assert method(model, {"acc": ten}).tolist() == [20] * 3
    model.unbind_handle("acc")
    with pytest.raises(fg.InputError, match=r"'acc'.*(not given|NoneType|not bound|no handle)"):
        method(model, {})
    assert method(model, {"acc": one}).tolist() == [11] * 3


def test_an_array_is_copied_and_a_buffer_is_not(method):
    model = compiled(accumulate())
    array = np.ones(3, "f4")
    held = model.context.to_device(array)
    model.bind_handle("acc", array)
    model.bind_handle("delta", held)
    array[:] = 50
    assert method(model, {}).tolist() == [2] * 3
    held.copy_from(np.full(3, 5, "f4"))
    assert method(model, {}).tolist() == [6] * 3
    assert model.read_handle("acc").tolist() == [1] * 3
    assert model.read_handle("delta").tolist() == [5] * 3


def test_reading():
    model = compiled(accumulate())
    with pytest.raises(fg.InputError, match="no handle is bound to input 'acc'; bind_handle does"):
        model.read_handle("acc")
    model.bind_handle("acc", np.arange(3, dtype="f4"))
    first = model.read_handle("acc")
    first[:] = 9
    assert model.read_handle("acc").tolist() == [0, 1, 2]
    assert not model.has_gpu_handle("acc")
    with pytest.raises(fg.InputError, match=r"no handle.*'acc'; bind_gpu_handle does that"):
        model.read_gpu_handle("acc")
    model.bind_gpu_handle("acc", np.ones(3, "f4"))
    assert model.has_gpu_handle("acc")
    assert model.read_handle("acc").tolist() == model.read_gpu_handle("acc").tolist() == [1] * 3
    assert not model.has_gpu_handle("delta")
    model.unbind_handle("acc")
    assert not model.has_gpu_handle("acc")
    for read in (model.read_handle, model.read_gpu_handle, model.unbind_handle):
        with pytest.raises(fg.InputError, match="no handle is bound to input 'acc'"):
            read("acc")


BAD = {
    "unknown": ("b", np.zeros(3, "f4"), r"no input 'b'; handles stand in for inputs, .*'acc'"),
    "param": ("w", np.zeros(3, "f4"), "'w' is a parameter, which set_param sets"),
    "scalar": ("s", np.zeros((), "f4"), "'s' is a scalar, which runs take by keyword"),
    "output": ("y", np.zeros(3, "f4"), "no input 'y'"),
    "no name": (0, np.zeros(3, "f4"), "no input 0"),
    "list as name": (["acc"], np.zeros(3, "f4"), "no input"),
    "shape": ("acc", np.zeros(4, "f4"), r"handle 'acc' was given float32\[4\]; .* float32\[3\]"),
    "rank": ("acc", np.zeros((1, 3), "f4"), r"handle 'acc' was given float32\[1, 3\]"),
    "broadcastable": ("acc", np.zeros(1, "f4"), r"handle 'acc' was given float32\[1\]"),
    "dtype": ("acc", np.zeros(3), r"handle 'acc' was given float64\[3\]; .*nothing is cast"),
    "masked": ("acc", np.ma.masked_array(np.zeros(3, "f4"), [0, 1, 0]), "masked"),
    "none": ("acc", None, "handle 'acc' is a NoneType"),
    "list": ("acc", [0.0] * 3, "handle 'acc' is a list"),
    "number": ("acc", 1.0, "handle 'acc' is a float"),
}


def mixed():
    graph = fg.Graph("mixed")
    acc, w, s = graph.input("acc", (3,)), graph.param("w", (3,)), graph.scalar("s", "float32", 1.0)
    graph.output(acc + w * s, "y")
    return graph


@pytest.mark.parametrize("form", ["bind_handle", "bind_gpu_handle"])
@pytest.mark.parametrize("case", BAD)
def test_a_refused_handle_changes_nothing(case, form):
    name, array, match = BAD[case]
    model = compiled(mixed())
    model.set_param("w", np.ones(3, "f4"))
    model.bind_gpu_handle("acc", np.full(3, 4, "f4"))
    with pytest.raises(fg.InputError, match=match):
        getattr(model, form)(name, array)
    assert model.has_gpu_handle("acc")
    assert model.run({})[0].tolist() == [5] * 3


def test_buffers_that_do_not_fit():
    model = compiled(accumulate())
    context = model.context
    for bad in (context.create_buffer((4,), "f4"), context.create_buffer((3,), "i4")):
        with pytest.raises(fg.InputError, match="handle 'acc' was given"):
            model.bind_handle("acc", bad)
    rows = context.to_device(np.arange(12, dtype="f4").reshape(4, 3))
    with pytest.raises(fg.InputError, match=r"float32\[1, 3\]"):
        model.bind_handle("acc", rows[:1])


def test_memory_of_the_host_is_copied_to_where_the_graph_runs():
    model = compiled(accumulate())
    for given in (
        np.arange(6, dtype="f4")[::-2],
        np.arange(3, dtype="f4")[:, None].T[0],
        fg.DeviceContext("cpu").to_device(np.float32([5, 3, 1])).numpy(),
    ):
        model.bind_handle("acc", given)
        assert model.read_handle("acc").tolist() == np.asarray(given).tolist()


def test_slots_say_what_is_missing():
    model = compiled(accumulate())
    x = np.ones(3, "f4")
    model.bind_handle("delta", x)
    assert model.run_slots([x]) is model.run_slots([x, None]) is model.run_slots([x, x])
    with pytest.raises(fg.InputError, match=r"0 inputs were given; the graph takes 2"):
        model.run_slots([])
    with pytest.raises(fg.InputError, match="input 'acc' is a NoneType"):
        model.run_slots([None, x])
    with pytest.raises(fg.InputError, match=r"3 inputs were given; the graph takes 2"):
        model.run_slots([x, None, None])
    with pytest.raises(fg.InputError, match="input 'delta' is a NoneType"):
        model.run({"acc": x, "delta": None})
    with pytest.raises(fg.InputError, match="not inputs of the graph"):
        model.run({"acc": x, "gamma": x})
    model.unbind_handle("delta")
    with pytest.raises(fg.InputError, match=r"1 inputs were given.*\['delta'\] have no handle"):
        model.run_slots([x])


def test_a_step_follows_its_handle():
    model = compiled(accumulate())
    x, y = np.ones(3, "f4"), np.empty(3, "f4")
    with pytest.raises(fg.InputError, match=r"\['delta'\] were not bound and have no handle"):
        model.bind({"acc": x})
    model.bind_handle("delta", x)
    step = model.bind({"acc": x}, {"next": y})
    step()
    assert y.tolist() == [2] * 3
    model.bind_handle("delta", np.full(3, 4, "f4"))
    step()
    assert y.tolist() == [5] * 3
    model.unbind_handle("delta")
    with pytest.raises(fg.InputError, match=r"'delta'.* has no handle"):
        step()
    model.bind_handle("delta", x)
    step()
    assert y.tolist() == [2] * 3


def test_an_output_may_be_given_the_memory_of_a_handle():
    """What is written there is written last, whichever way it was given."""
    graph = fg.Graph("softened")
    acc = graph.input("acc", (4, 4))
    graph.output(ops.softmax(acc, 0) + acc @ acc, "y")
    model = compiled(graph)
    start = np.arange(16, dtype="f4").reshape(4, 4)
    (wanted,) = model.run({"acc": start})
    held = model.context.to_device(start)
    model.bind_handle("acc", held)
    for _ in range(2):
        held.copy_from(start)
        model.run({}, out=[held if model.device != "cpu" else np.asarray(held)])
        assert held.numpy().tobytes() == wanted.tobytes()
        held.copy_from(start)
        step = model.bind({}, {"y": held if model.device != "cpu" else np.asarray(held)})
        step()
        assert held.numpy().tobytes() == wanted.tobytes()


def test_one_buffer_in_several_places():
    model = compiled(accumulate())
    other = compiled(accumulate())
    held = model.context.to_device(np.full(3, 3, "f4"))
    model.bind_handle("acc", held)
    model.bind_handle("delta", held)
    other.bind_handle("acc", held)
    assert model.run({})[0].tolist() == [6] * 3
    assert other.run({"delta": np.ones(3, "f4")})[0].tolist() == [4] * 3
    if model.device != "cpu":
        assert model.run({"acc": held})[0].tolist() == [6] * 3
    held.copy_from(np.zeros(3, "f4"))
    assert model.run({})[0].tolist() == [0] * 3
    assert other.run({"delta": np.ones(3, "f4")})[0].tolist() == [1] * 3


def test_clones_have_copies():
    model = compiled(accumulate())
    held = model.context.to_device(np.ones(3, "f4"))
    model.bind_gpu_handle("acc", held)
    model.bind_handle("delta", np.ones(3, "f4"))
    one, two = model.clone(), copy.deepcopy(model)
    assert copy.copy(model) is model
    held.copy_from(np.full(3, 7, "f4"))
    one.bind_handle("delta", np.full(3, 20, "f4"))
    assert one.has_gpu_handle("acc")
    assert not one.has_gpu_handle("delta")
    assert [m.run({})[0][0] for m in (model, one, two)] == [8, 21, 2]
    one.unbind_handle("acc")
    assert two.read_gpu_handle("acc").tolist() == [1] * 3
    del model
    assert two.run({})[0].tolist() == [2] * 3


def test_a_handle_keeps_memory_alive_as_long_as_it_is_bound():
    model = compiled(accumulate())
    held = model.context.to_device(np.full(3, 2, "f4"))
    gone = weakref.ref(held)
    model.bind_handle("acc", held)
    del held
    gc.collect()
    assert gone() is not None
    assert model.run({"delta": np.zeros(3, "f4")})[0].tolist() == [2] * 3
    model.bind_handle("acc", np.zeros(3, "f4"))
    model.run({"delta": np.zeros(3, "f4")})
    gc.collect()
    assert gone() is None


def test_parameters_are_no_handles():
    model = compiled(mixed())
    model.bind_handle("acc", np.ones(3, "f4"))
    with pytest.raises(fg.InputError, match="parameters"):
        model.run({})
    for value in (1, 2, 3):
        model.set_param("w", np.full(3, value, "f4"))
        assert model.run({}, s=2.0)[0].tolist() == [1 + 2 * value] * 3
    with pytest.raises(fg.InputError, match="'acc' is an input"):
        model.set_param("acc", np.ones(3, "f4"))


def test_all_inputs_may_be_of_any_dtype_and_shape():
    graph = fg.Graph("kinds")
    made = {}
    for dtype in ("bool", "int8", "uint16", "int64", "float16", "float64"):
        value = graph.input(dtype, (2, 0, 3) if dtype == "int8" else (2, 3), dtype)
        graph.output(value.reshape(-1 if value.size else 0), f"{dtype}.out")
        made[dtype] = np.ones(value.shape, dtype)
    number = graph.input("number", (), "int32")
    graph.output(number + 1, "number.out")
    made["number"] = np.int32(4)
    model = compiled(graph)
    for name, array in made.items():
        model.bind_handle(name, array)
        assert model.read_handle(name).tolist() == array.tolist()
    found = model.run({})
    for array, output in zip(made.values(), found[:-1], strict=False):
        assert output.ravel().tolist() == array.ravel().tolist()
    assert found[-1] == 5


def test_closed():
    model = compiled(accumulate())
    held = model.context.to_device(np.ones(3, "f4"))
    gone = weakref.ref(held)
    model.bind_handle("acc", held)
    model.bind_handle("delta", np.ones(3, "f4"))
    model.run({})
    del held
    model.close()
    gc.collect()
    assert gone() is None
    for call in (
        lambda: model.bind_handle("acc", np.ones(3, "f4")),
        lambda: model.bind_gpu_handle("acc", np.ones(3, "f4")),
        lambda: model.read_handle("acc"),
        lambda: model.read_gpu_handle("acc"),
        lambda: model.has_gpu_handle("acc"),
        lambda: model.unbind_handle("acc"),
        lambda: model.set_gpu_handle_feed("acc", "next"),
        lambda: model.run_feed_gpu_handle({}, "acc", "next"),
        lambda: model.run({}),
        lambda: model.run_slots([]),
    ):
        with pytest.raises(fg.GraphError, match="closed"):
            call()


def test_threads_swap_while_others_run():
    """A run sees one conversation or the other, never a part of each."""
    graph = fg.Graph("pair")
    a, b = graph.input("a", (64,)), graph.input("b", (64,))
    graph.output(a - b, "y")
    model = compiled(graph)
    held = [model.context.to_device(np.full(64, i, "f4")) for i in range(2)]
    model.bind_handle("a", held[0])
    model.bind_handle("b", held[0])
    wrong, stop = [], threading.Event()

    def run():
        try:
            while not stop.is_set():
                (y,) = model.run({"b": np.zeros(64, "f4")})
                if len(set(y.tolist())) != 1:
                    wrong.append(y)
        except fg.FastGraphError as error:
            wrong.append(error)

    runners = [threading.Thread(target=run) for _ in range(2)]
    for thread in runners:
        thread.start()
    for step in range(60):
        model.bind_handle("a", held[step % 2])
    stop.set()
    for thread in runners:
        thread.join()
    assert not wrong
