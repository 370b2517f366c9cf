"""Scalars of a call: exact, by keyword, never another call's."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import fastgraph as fg
from tests.runtime import models
from tests.runtime.models import compiled

f4 = np.float32
X = f4([1, 2])


def given_to(model, **scalars):
    """What every run method gives: all the same."""
    found = [[y.tolist() for y in model.run({"x": X}, **scalars)]]
    found.append([y.array().tolist() for y in model.run_raw({"x": X}, **scalars)])
    views = [model.output_view(i) for i in range(len(model.outputs))]
    model.run_slots([X], **scalars)
    found.append([view.tolist() for view in views])
    model.bind({"x": X})(**scalars)
    found.append([view.tolist() for view in views])
    assert all(one == found[0] for one in found)
    return found[0]


def test_values_and_defaults():
    model = compiled(models.with_scalars())
    assert given_to(model, shift=5) == [[2, 4], [5, 6]]
    assert given_to(model, shift=-(2**63), scale=0.5) == [[0.5, 1], [-(2**63), 1 - 2**63]]
    assert given_to(model, shift=np.int64(2**53 + 1), scale=f4(3)) == [
        [3, 6],
        [2**53 + 1, 2**53 + 2],
    ]
    assert given_to(model, shift=np.array(7)) == [[2, 4], [7, 8]]
    assert given_to(model, shift=1, scale=float("inf"))[0] == [float("inf")] * 2
    assert given_to(model, shift=1, scale=3) == [[3, 6], [1, 2]]
    assert given_to(model, shift=1) == [[2, 4], [1, 2]]


BAD = {
    "missing": ({}, r"scalar 'shift' \(int64\) has no default and was not given"),
    "none": ({"shift": None}, "scalar 'shift'"),
    "unknown": ({"shift": 1, "size": 2}, r"no scalar 'size'; its scalars are \['scale', 'shift'\]"),
    "an input": ({"shift": 1, "x": X}, "no scalar 'x'"),
    "float for an integer": ({"shift": 1.0}, "'shift' is int64 and takes an int from .*, not 1.0"),
    "too large": ({"shift": 2**63}, "takes an? .*, not "),
    "too small": ({"shift": -(2**63) - 1}, "takes an? .*, not "),
    "bool": ({"shift": True}, "takes an int from .*, not True"),
    "bool as float": ({"shift": 1, "scale": False}, "takes a float up to .*, not False"),
    "inexact": ({"shift": 1, "scale": 2**24 + 1}, "takes an? .*, not "),
    "inexact float": ({"shift": 1, "scale": 1e300}, "takes an? .*, not "),
    "too large for a float": ({"shift": 1, "scale": 2**200}, "takes an? .*, not "),
    "enormous": ({"shift": 1, "scale": 10**400}, "takes an? .*, not "),
    "other int": ({"shift": np.int32(1)}, r"scalar 'shift' is int64, not int32\[\]"),
    "other float": ({"shift": 1, "scale": np.float64(1)}, "scalar 'scale' is float32"),
    "array": ({"shift": np.array([1])}, r"not an array of shape \(1,\)"),
    "text": ({"shift": "1"}, "takes an? .*, not "),
    "complex": ({"shift": 1, "scale": 1j}, "takes an? .*, not "),
    "list": ({"shift": [1]}, "takes an? .*, not "),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_scalars_change_nothing(name):
    scalars, match = BAD[name]
    model = compiled(models.with_scalars())
    raw = model.run_raw({"x": X}, shift=3, scale=9.0)
    for call in (
        lambda: model.run({"x": X}, **scalars),
        lambda: model.run_slots([X], **scalars),
        lambda: model.bind({"x": X})(**scalars),
    ):
        with pytest.raises(fg.InputError, match=match):
            call()
    assert raw[0].array().tolist() == [9, 18]
    assert given_to(model, shift=1) == [[2, 4], [1, 2]]


@pytest.mark.parametrize("name", ["inputs", "out", "stream", "n", "self"])
def test_names_that_mean_something_else_to_a_run(name):
    with pytest.raises(fg.GraphError, match=f"scalar '{name}'.*argument"):
        fg.Graph("names").scalar(name, "float32")


def test_a_graph_without_scalars_takes_none():
    model = compiled(models.twice())
    with pytest.raises(fg.InputError, match=r"no scalar 'a'; its scalars are \[\]"):
        model.run_slots([f4([1, 2, 3])], a=1)


@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float32"])
def test_dtypes(dtype):
    graph = fg.Graph("typed")
    s = graph.scalar("s", dtype)
    graph.output(fg.ops.broadcast_to(s, (2,)), "y")
    graph.output(s, "s")
    model = compiled(graph)
    value = {"bool": True, "int32": -(2**31), "int64": 2**62, "float32": 0.1}[dtype]
    for one in (value, np.dtype(dtype).type(value)):
        y, s = model.run({}, s=one)
        assert y.dtype == s.dtype == dtype
        assert y.tolist() == [np.dtype(dtype).type(value).item()] * 2
        assert s.shape == ()


def test_bfloat16_holds_large_ints():
    graph = fg.Graph("large")
    graph.output(fg.ops.broadcast_to(graph.scalar("s", "bfloat16", 2**70), (1,)), "y")
    model = compiled(graph)
    assert model.run({})[0].astype("f8").tolist() == [2.0**70]
    assert model.run({}, s=-(2**80))[0].astype("f8").tolist() == [-(2.0**80)]
    with pytest.raises(fg.InputError, match="'s' is bfloat16 and takes a float"):
        model.run({}, s=2**80 + 1)


@pytest.mark.parametrize("release_gil", [True, False])
def test_threads_never_see_each_others_scalars(release_gil, device):
    model = compiled(models.with_scalars(), release_gil=release_gil)
    step = model.bind({"x": X})
    wrong = []

    def work(number):
        for i in range(300 if device == "cpu" else 40):
            y, z = model.run({"x": X}, scale=f4(number), shift=number)
            if y.tolist() != [number, 2 * number] or z.tolist() != [number, number + 1]:
                wrong.append((number, y, z))
            if i % 10 == 0:
                step(shift=99)

    threads = [threading.Thread(target=work, args=(number,)) for number in (3, 4, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
