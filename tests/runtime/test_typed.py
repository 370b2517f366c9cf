"""Tensors as bytes: run_typed and set_param_typed."""

from __future__ import annotations

import numpy as np
import pytest

import fastgraph as fg
from fastgraph.errors import InputError
from tests.runtime.models import compiled


def typed():
    graph = fg.Graph("typed")
    x, i = graph.input("x", (2, 3), "bfloat16"), graph.input("i", (2,), "uint16")
    w = graph.param("w", (3,), "bfloat16")
    p = graph.param("p", (2,), "int32")
    graph.output(x * w, "y")
    graph.output(i + 1, "j")
    graph.output(p, "p")
    found = compiled(graph)
    found.set_params({"w": np.ones(3, "bfloat16"), "p": np.zeros(2, "i4")})
    return found


X = np.arange(6).reshape(2, 3).astype("bfloat16")
INDEX = np.array([1, 65534], "u2")
GIVEN = [("i", memoryview(INDEX), "uint16"), ("x", bytearray(X.tobytes()), "bfloat16")]


def outputs(model):
    return [np.frombuffer(raw, kind).tolist() for raw, kind in model.run_typed(GIVEN)]


def test_bytes_in_any_order_of_names():
    model = typed()
    found = model.run_typed(GIVEN)
    assert [kind for _, kind in found] == ["bfloat16", "uint16", "int32"]
    assert [raw for raw, _ in found] == [y.tobytes() for y in model.run({"x": X, "i": INDEX})]
    assert outputs(model)[1] == [2, 65535]


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
def test_floats_are_converted_for_parameters(kind):
    model = typed()
    model.set_param_typed("w", np.array([2, 0.5, 1 + 2**-7]).astype(kind).tobytes(), kind)
    assert outputs(model)[0][:3] == [0, 0.5, 2 + 2**-6]


def test_a_conversion_rounds_once():
    model = typed()
    # By way of float32 this would be a tie, and go down to the even neighbour.
    model.set_param_typed("w", np.full(3, 1 + 2**-8 + 2**-40).tobytes(), "float64")
    assert outputs(model)[0][1] == 1 + 2**-7


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.run_typed(GIVEN[:1]), "'x'.*not given"),
        (lambda m: m.run_typed([*GIVEN, GIVEN[0]]), "'i' was given twice"),
        (lambda m: m.run_typed([*GIVEN, ("k", b"", "int8")]), "no input 'k'"),
        (lambda m: m.run_typed([GIVEN[0], ("x", X.tobytes(), "float16")]), "float16, not bfloat16"),
        (
            lambda m: m.run_typed([GIVEN[0], ("x", b"123", "bfloat16")]),
            r"3 bytes.*\[2, 3\] has 12",
        ),
        (lambda m: m.run_typed([GIVEN[0], ("x", "text", "bfloat16")]), "'x': dense bytes"),
        (lambda m: m.run_typed([GIVEN[0], ("x", X.tobytes(), "half")]), "float16, not bfloat16"),
        (lambda m: m.run_typed([GIVEN[0], ("x", X.tobytes(), "brain")]), "'brain' is not a dtype"),
        (lambda m: m.run_typed([GIVEN[0], ("x", X.tobytes(), 3)]), "by its name"),
        (lambda m: m.run_typed([GIVEN[0], ("x", X.tobytes())]), r"\(name, bytes, dtype\)"),
        (lambda m: m.run_typed({"x": X}), "list of"),
        (lambda m: m.run_typed([(1, b"", "int8")]), "name of a typed input"),
        (lambda m: m.set_param_typed("q", b"", "int8"), "no parameter 'q'"),
        (lambda m: m.set_param_typed("x", b"", "int8"), "'x' is an input"),
        (lambda m: m.set_param_typed("w", bytes(3), "int8"), "int8.*declared is bfloat16"),
        (lambda m: m.set_param_typed("p", bytes(8), "float32"), "float32.*declared is int32"),
        (lambda m: m.set_param_typed("p", bytes(16), "int64"), "int64.*declared is int32"),
        (lambda m: m.set_param_typed("w", bytes(7), "float32"), "7 bytes.*has 12"),
    ],
)
def test_what_does_not_fit_changes_nothing(call, words):
    model = typed()
    before = outputs(model)
    with pytest.raises(InputError, match=words):
        call(model)
    assert outputs(model) == before


def test_a_closed_model():
    model = typed()
    model.close()
    for call in (lambda: model.run_typed(GIVEN), lambda: model.set_param_typed("w", b"", "int8")):
        with pytest.raises(fg.GraphError, match="closed"):
            call()
