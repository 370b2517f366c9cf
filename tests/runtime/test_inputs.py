"""What a run is given: refused by name before anything changes, or read as it is."""

from __future__ import annotations

import ctypes
import threading
from collections import UserDict

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops
from tests.runtime import models
from tests.runtime.models import compiled, data_for, ready

f4 = np.float32
X = f4([1, 2, 3])


class Arraylike:
    """Something that gives an array when asked, and runs Python code for it."""

    def __init__(self, array, meanwhile=lambda: None):
        self.array = array
        self.meanwhile = meanwhile

    def __array__(self, dtype=None, copy=None):
        self.meanwhile()
        return self.array


BAD = {
    "missing": ({}, r"input 'x' \(float32\[3\]\) was not given"),
    "unknown": ({"x": X, "z": X}, r"\['z'\] are not inputs of the graph"),
    "shape": ({"x": X[:2]}, r"input 'x' has shape \(2,\), not \(3,\)"),
    "rank": ({"x": X[None]}, r"input 'x' has shape \(1, 3\)"),
    "broadcastable": ({"x": X[:1]}, r"input 'x' has shape \(1,\)"),
    "dtype": ({"x": X.astype("f8")}, r"input 'x' has dtype float64, not float32"),
    "integer": ({"x": np.arange(3, dtype="i4")}, r"input 'x' has dtype int32"),
    "byte order": ({"x": X.astype(">f4")}, r"input 'x' has dtype >f4"),
    "masked": ({"x": np.ma.masked_array(X, [0, 1, 0])}, r"input 'x' is a masked array"),
    "list": ({"x": [1.0, 2.0, 3.0]}, r"input 'x' is a list"),
    "number": ({"x": 1.0}, r"input 'x' is a float"),
    "none": ({"x": None}, r"input 'x' is a NoneType"),
    "text": ({"x": "abc"}, r"input 'x' is a str"),
    "object": ({"x": X.astype(object)}, r"input 'x' has dtype object"),
    "arraylike of another dtype": ({"x": Arraylike(np.zeros(3))}, r"input 'x' has dtype float64"),
    "no mapping": ([X], r"run takes a mapping"),
    "nothing": (None, r"run takes a mapping"),
    "number as key": ({"x": X, 0: X}, r"\['0'\] are not inputs"),
}
BAD_SLOTS = {
    "too few": ([], r"0 inputs were given; the graph takes 1: \['x'\]"),
    "too many": ([X, X], r"2 inputs were given"),
    "mapping": ({"x": X}, r"run_slots takes a list"),
    "text": ("x", r"run_slots takes a list"),
    "no sequence": (3, r"run_slots takes a list"),
    **{name: ([given["x"]], match) for name, (given, match) in BAD.items()
       if isinstance(given, dict) and set(given) == {"x"}},
}  # fmt: skip


def snapshot(model):
    """What a refused call must leave alone."""
    (raw,) = model.run_raw({"x": X})
    return raw, raw.array()


@pytest.mark.parametrize("method", ["run", "run_raw", "bind", "profile"])
@pytest.mark.parametrize("name", BAD)
def test_bad_inputs_by_name(name, method):
    given_, match = BAD[name]
    model = compiled(models.twice())
    raw, array = snapshot(model)
    if method == "bind":
        match = "input"
        if name in ("nothing", "arraylike of another dtype", "no mapping"):
            match = "input"
    with pytest.raises(fg.InputError, match=match):
        getattr(model, method)(given_)
    assert raw.array().tolist() == array.tolist() == [2, 4, 6]
    assert model.run({"x": X})[0].tolist() == [2, 4, 6]


@pytest.mark.parametrize("name", BAD_SLOTS)
def test_bad_inputs_by_position(name):
    given_, match = BAD_SLOTS[name]
    model = compiled(models.twice())
    raw, array = snapshot(model)
    with pytest.raises(fg.InputError, match=match):
        model.run_slots(given_)
    assert raw.array().tolist() == array.tolist() == [2, 4, 6]
    model.run_slots([X])


def unaligned(array):
    raw = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype)
    raw[:] = array
    return raw


class Interface:
    """An array of another library, known by its address."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


class Exchange:
    """An array of another library that knows DLPack alone."""

    def __init__(self, array, fault=None):
        self.array = array
        self.fault = fault

    def __dlpack__(self, **options):
        if self.fault:
            raise self.fault
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Sub(np.ndarray):
    """A subclass without behaviour."""


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


GOOD = {
    "dense": X,
    "reversed": X[::-1].copy()[::-1],
    "stepped": np.repeat(X, 2)[::2],
    "column": np.stack([X, X * 9], axis=1)[:, 0],
    "unaligned": unaligned(X),
    "read-only": read_only(X),
    "subclass": X.view(Sub),
    "arraylike": Arraylike(X),
    "array interface": Interface(X),
    "dlpack": Exchange(X),
    "memoryview": memoryview(X),
    "buffer": None,
}


@pytest.mark.parametrize("name", GOOD)
def test_good_inputs(name):
    value = fg.DeviceContext("cpu").to_device(X) if name == "buffer" else GOOD[name]
    model = compiled(models.twice())
    assert model.run({"x": value})[0].tolist() == [2, 4, 6]
    assert model.run(UserDict(x=value))[0].tolist() == [2, 4, 6]
    model.run_slots((value,))
    assert model.output_view(0).tolist() == [2, 4, 6]
    model.run_slots(iter([value]))
    assert model.run({"x": X * 2})[0].tolist() == [4, 8, 12]


@pytest.mark.parametrize("kind", [Interface, Exchange, memoryview])
def test_arrays_of_other_libraries(kind):
    x, y = X.copy(), np.zeros(3, "f4")
    graph = models.twice()
    graph.output(graph.inputs[0] * graph.param("p", (3,)), "p")
    model = compiled(graph)
    model.set_param("p", kind(X))
    step = model.bind({"x": kind(x)}, {"y": kind(y)})
    for factor in (1, 2):
        x[:] = X * factor
        step()
        assert y.tolist() == (X * 2 * factor).tolist()
        assert model.output_view(1).tolist() == (X * X * factor).tolist()


def test_what_another_device_holds_is_refused():
    model = compiled(models.twice())
    there = Exchange(X, BufferError("on another device"))
    for call in (lambda: model.run({"x": there}), lambda: model.bind({"x": there})):
        with pytest.raises(fg.InputError, match=r"input 'x': this Exchange .*: on another device"):
            call()


def test_zero_strides_and_zero_axes():
    graph = fg.Graph("broadcast")
    graph.output(graph.input("x", (2, 3)) + graph.input("s", ()), "y")
    model = compiled(graph)
    for s in (f4(1), np.float32(1).reshape(()), np.array(1, "f4")):
        (y,) = model.run({"x": np.broadcast_to(X, (2, 3)), "s": s})
        assert y.tolist() == [[2, 3, 4]] * 2
    with pytest.raises(fg.InputError, match=r"input 's' has shape \(1,\), not \(\)"):
        model.run({"x": np.zeros((2, 3), "f4"), "s": f4([1])})


def test_the_other_int64():
    """NumPy has two types of eight bytes; both are int64."""
    graph = fg.Graph("ints")
    graph.output(graph.input("x", (2,), "int64") + graph.param("p", (2,), "int64"), "y")
    model = compiled(graph)
    for kind in (np.int64, np.longlong, np.dtype("l"), np.dtype("q")):
        model.set_param("p", np.array([1, 2], kind))
        (y,) = model.run({"x": np.array([10, 20], kind)})
        assert y.tolist() == [11, 22]
        out = [np.zeros(2, kind)]
        model.run({"x": np.array([10, 20], kind)}, out=out)
        assert out[0].tolist() == [11, 22]
        model.bind({"x": np.array([1, 1], kind)}, {"y": out[0]})()
        assert out[0].tolist() == [2, 3]


def test_slots_keep_the_declared_order():
    model, inputs, _ = ready("two_inputs")
    assert [info.name for info in model.inputs] == ["a", "unused", "b", "folded"]
    slots = [inputs[info.name] for info in model.inputs]
    first = model.run_slots(slots)
    wanted = [y.tolist() for y in model.run(inputs)]
    assert model.run_slots(slots) is first
    assert [model.output_view(i).tolist() for i in range(2)] == wanted
    slots[1] = np.zeros(4, "i8")
    with pytest.raises(fg.InputError, match="input 'unused' has shape"):
        model.run_slots(slots)


@pytest.mark.parametrize("name", [*models.SUITE])
def test_the_arena_holds_what_run_gives(name, device):
    model, inputs, scalars = ready(name)
    wanted = model.run(inputs, **scalars)
    slots = model.run_slots([inputs[info.name] for info in model.inputs], **scalars)
    for (offset, count), y, info in zip(slots, wanted, model.outputs, strict=True):
        assert count == y.size
        assert device != "cpu" or offset + y.nbytes <= model.arena_nbytes
        held = ctypes.string_at(model.arena_ptr + offset, count * info.dtype.itemsize)
        assert held == y.tobytes()


def test_inputs_never_leak_into_the_next_run():
    model = compiled(models.two_inputs())
    inputs = data_for(model.inputs)
    wanted = model.run(inputs)[0].tolist()
    model.run({name: np.full_like(array, 7) for name, array in inputs.items()})
    with pytest.raises(fg.InputError, match="'b'"):
        model.run({name: array for name, array in inputs.items() if name != "b"})
    assert model.run(inputs)[0].tolist() == wanted


def test_the_models_own_views_as_inputs():
    graph = fg.Graph("feed")
    a, b = graph.input("a", (400,)), graph.input("b", (400,))
    graph.output(a + 1, "x")
    graph.output(b * 2 + a, "y")
    model = compiled(graph)
    a, b = (data_for(model.inputs)[name] for name in "ab")
    model.run({"a": a, "b": b})
    for _ in range(3):
        a, b = b * 2 + a, a + 1  # What the views show, crossed.
        model.run_slots([model.output_view(1), model.output_view(0)])
        np.testing.assert_array_equal(model.output_view(0), a + 1)
        np.testing.assert_array_equal(model.output_view(1), b * 2 + a)
    a = b = b * 2 + a
    model.run({"a": model.output_view(1), "b": model.output_view(1)})
    np.testing.assert_array_equal(model.output_view(1), b * 2 + a)
    a = (b * 2 + a)[::-1]
    model.run({"a": model.output_view(1)[::-1], "b": b})
    np.testing.assert_array_equal(model.output_view(1), b * 2 + a)
    a, b = a + 1, b * 2 + a
    model.bind({"a": model.output_view(0), "b": model.output_view(1)})()
    np.testing.assert_array_equal(model.output_view(1), b * 2 + a)


def test_python_code_of_an_input_may_not_enter_the_model():
    model = compiled(models.twice())
    seen = []

    def enter():
        for call in (lambda: model.run({"x": X}), lambda: model.run_slots([X])):
            with pytest.raises(fg.GraphError, match="running in this very thread"):
                call()
            seen.append(call)

    assert model.run({"x": Arraylike(X, enter)})[0].tolist() == [2, 4, 6]
    assert len(seen) == 2

    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        model.run({"x": Arraylike(X, fail)})
    assert model.run({"x": X})[0].tolist() == [2, 4, 6]


def test_an_input_that_dies_with_the_run_may_enter_the_model():
    """The last reference goes when the model is free again."""
    model = compiled(models.twice(), release_gil=True)
    found = []

    class Dying(np.ndarray):
        def __del__(self):
            if self.base is not None:
                found.append(model.run({"x": X})[0].tolist())

    class Once(dict):
        """Forgets what it gave."""

    def arrays():
        yield X.copy().view(Dying)

    model.run_slots(arrays())
    assert found == [[2, 4, 6]]


@pytest.mark.parametrize("container", ["list", "dict"])
@pytest.mark.parametrize("release_gil", [True, False])
def test_a_container_that_changes_under_the_run(container, release_gil, device):
    """Arrays that another thread takes out of the caller's list or dict live as long as the run."""
    n, times = (200_000, 60) if device == "cpu" else (4000, 20)
    graph = fg.Graph("sums")
    a, b = graph.input("a", (n,)), graph.input("b", (2, n // 2))
    for i in range(3):
        a = a + ops.sum(a) * 0 + i
    graph.output(a, "a")
    graph.output(b + 1, "b")
    model = compiled(graph, release_gil=release_gil)
    stop = threading.Event()
    # Copied in: the copy lets other threads go on.
    turned = np.asfortranarray(np.ones((2, n // 2), "f4"))
    given_ = [None, turned] if container == "list" else {"a": None, "b": turned}
    key = 0 if container == "list" else "a"

    def change():
        while not stop.is_set():
            given_[key] = np.zeros(n, "f4")
            junk = np.full(n, 7, "f4")
            del junk

    given_[key] = np.zeros(n, "f4")
    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(times):
            if container == "list":
                model.run_slots(given_)
                y = model.output_view(0)
            else:
                y = model.run(given_)[0]
            assert y.min() == y.max() == 3
    finally:
        stop.set()
        thread.join()


def test_nan_goes_through():
    model = compiled(models.layer())
    model.set_params(data_for(model.params))
    x = data_for(model.inputs)["x"]
    clean = model.run({"x": x})[0]
    bad = x.copy()
    bad[0, 0] = np.nan
    y = model.run({"x": bad})[0]
    assert np.isnan(y[0]).all()
    np.testing.assert_array_equal(y[1], clean[1])
    np.testing.assert_array_equal(model.run({"x": x})[0], clean)


class Raising:
    """Says that it is an array of another library, and is none."""

    def __dlpack__(self, **kwargs):
        return 3

    def __dlpack_device__(self):
        return (1, 0)


@pytest.mark.parametrize("value", [Arraylike(3), Arraylike([1, 2]), Raising()])
def test_what_only_seems_to_be_an_array(value):
    g = fg.Graph("g")
    g.output(g.input("x", (3,)) + g.param("p", (3,), initial=X), "y")
    model = compiled(g)
    for call in (lambda: model.run({"x": value}), lambda: model.set_params({"p": value})):
        with pytest.raises(fg.InputError, match=r"cannot be read|is no capsule"):
            call()


def test_options_of_a_kind_that_nobody_expects():
    g, many = fg.Graph("g"), np.array([1, 0])
    g.output(g.input("x", (3,)) + 1, "y")
    for options in ({"isa": ""}, {"isa": []}, {"isa": many}, {"fuse": "no"}, {"fuse": many}):
        with pytest.raises(fg.InputError, match=next(iter(options))):
            fg.Session(threads=1).compile(g, fg.CompileOptions(**options))
    with pytest.raises(fg.InputError, match="release_gil"):
        fg.Session(release_gil=many)
    with pytest.raises(fg.InputError, match="check"):
        fg.DeviceGraph.create(fg.DeviceContext("cpu"), lambda b: None, check=many)
