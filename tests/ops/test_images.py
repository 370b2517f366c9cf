"""Convolutions, pools and recurrent layers of sizes at which work is cut into parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops
from fastgraph.ir import reference
from tests.ops.agreement import agree, graph_of

RANDOM = np.random.default_rng(5)


def normal(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype("f4")


def check(call: Any, *arrays: Any, scale: float = 8.0) -> None:
    graph = graph_of(call, list(arrays), ["input", *["param"] * (len(arrays) - 1)])
    agree(graph, {f"x{i}": array for i, array in enumerate(arrays)}, scale=scale)


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((1, 4, 3000), (16, 4, 7), {}),
        ((2, 1, 2000), (33, 1, 80), {"strides": 40}),
        ((1, 3, 40, 50), (19, 3, 3, 3), {"pads": 1, "strides": 2}),
        ((1, 64, 14, 14), (70, 64, 3, 3), {"pads": 1}),
        ((2, 20, 23, 31), (40, 20, 3, 3), {"pads": 1}),
        ((1, 70, 30, 40), (30, 70, 1, 1), {}),
        ((1, 24, 30, 30), (24, 1, 3, 3), {"pads": 1, "group": 24}),
        ((3, 40, 9, 9), (1, 40, 1, 1), {}),
        ((1, 8, 9, 10, 11), (13, 8, 2, 3, 3), {"dilations": 2}),
    ],
)
def test_convolution(x: Any, w: Any, options: Any) -> None:
    small = normal(*w) / np.float32(np.sqrt(np.prod(w[1:])))
    check(lambda *v: ops.relu(ops.conv(*v, **options)), normal(*x), small, normal(w[0]))


def test_transposed_convolution() -> None:
    w = normal(20, 12, 4, 4) / np.float32(9)
    check(lambda *v: ops.conv_transpose(*v, 2, 1), normal(1, 20, 30, 30), w, normal(12))


@pytest.mark.parametrize("name", ["max_pool", "average_pool"])
def test_pool(name: str) -> None:
    check(lambda x: getattr(ops, name)(x, 3, 2, 1), normal(2, 7, 60, 61))


@pytest.mark.parametrize(
    ("name", "steps", "batch", "hidden", "direction"),
    [
        # Steps that threads share, one call for rows of many, and one for all steps.
        ("lstm", 3, 1, 256, "bidirectional"),
        ("gru", 3, 2, 300, "reverse"),
        ("lstm", 40, 30, 17, "bidirectional"),
        ("gru", 300, 1, 20, "forward"),
        ("rnn", 300, 5, 33, "bidirectional"),
    ],
)
def test_recurrent_layer(name: str, steps: int, batch: int, hidden: int, direction: str) -> None:
    ways, gates = 1 + (direction == "bidirectional"), {"lstm": 4, "gru": 3, "rnn": 1}[name]
    size = np.float32(0.5 / np.sqrt(hidden))
    arrays = [
        normal(steps, batch, 6),
        normal(ways, gates * hidden, 6),
        normal(ways, gates * hidden, hidden) * size,
        normal(ways, 2 * gates * hidden),
    ]
    for linear in (False, True) if name == "gru" else (None,):
        options = {"direction": direction}
        if linear is not None:
            options["linear_before_reset"] = linear
        check(lambda *v, o=options: getattr(ops, name)(*v, **o)[0], *arrays, scale=40.0)


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize("bad", [-1, 4])
def test_a_length_out_of_range(name: str, bad: int, device: str) -> None:
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[name]
    graph = fg.Graph("lengths")
    x, lengths = graph.input("x", (3, 2, 5)), graph.input("lengths", (2,), "int32")
    w, r = normal(1, gates * 4, 5), normal(1, gates * 4, 4)
    graph.output(getattr(ops, name)(x, w, r, None, lengths)[1], "h")
    model = fg.Session(device).compile(graph)
    data = {"x": normal(3, 2, 5)}
    (wanted,) = model.run({**data, "lengths": np.int32([3, 0])})
    assert not wanted[0, 1].any() and wanted[0, 0].any()
    with pytest.raises(fg.InputError, match=name):
        model.run({**data, "lengths": np.int32([3, bad])})
    (again,) = model.run({**data, "lengths": np.int32([3, 0])})
    np.testing.assert_array_equal(again, wanted)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_only_neighbours_are_looked_at(mode: str) -> None:
    x = np.float32([np.inf, *range(1, 12)])

    def build(x: fg.Value) -> fg.Value:
        return ops.resize(x, 23, mode=mode, coordinate_transformation_mode="align_corners")

    found = reference.apply(build, x)
    reached = [0, 1] if mode == "linear" else [0, 1, 3]
    assert np.flatnonzero(~np.isfinite(found)).tolist() == reached
    assert found[0] == np.inf
    rest = np.delete(np.arange(23), reached)
    np.testing.assert_allclose(found[rest], rest / 2, atol=0.1)


@pytest.mark.parametrize(
    ("after", "options"),
    [(400_000, {}), (250_000, {"mode": "cubic"}), (60_000, {"mode": "linear", "antialias": True})],
)
def test_a_long_axis_takes_no_matrix(after: int, options: Any) -> None:
    x = np.arange(200_000, dtype="f4")
    found = reference.apply(lambda x: ops.resize(x, after, **options), x)
    step = len(x) / after
    np.testing.assert_allclose(found[9:-9], (np.arange(after) + 0.5)[9:-9] * step - 0.5, atol=0.6)


def refusal(build: Any) -> str:
    graph = fg.Graph("refused")
    with pytest.raises(fg.GraphError) as caught:
        build(graph)
    return str(caught.value)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda g: ops.conv(g.input("x", (1, 4)), normal(2, 4, 3)), "one to three spatial axes"),
        (lambda g: ops.conv(g.input("x", (1, 4, 9)), normal(2, 3, 3)), r"channels of x / group"),
        (lambda g: ops.conv(g.input("x", (1, 4, 2)), normal(2, 4, 3)), "window of 3 elements"),
        (lambda g: ops.conv(g.input("x", (1, 4, 9)), normal(2, 4, 3), pads=(1, 2, 3)), "pads must"),
        (lambda g: ops.conv(g.input("x", (1, 4, 9)), normal(2, 4, 3), strides=0), "strides must"),
        (lambda g: ops.conv(g.input("x", (1, 4, 9), "int32"), normal(2, 4, 3)), "takes floats"),
        (lambda g: ops.conv_transpose(g.input("x", (1, 4, 1)), normal(4, 2, 3), pads=2), "sizes"),
        (lambda g: ops.max_pool(g.input("x", (1, 4, 9)), 2, pads=2), "whole windows"),
        (lambda g: ops.resize(g.input("x", (4,)), 3, scales=2.0), "either sizes or scales"),
        (lambda g: ops.resize(g.input("x", (4,), "int8"), 3, mode="linear"), "takes floats"),
        (lambda g: ops.resize(g.input("x", (4,)), 3, mode="sinc"), "mode must be one of nearest"),
        (lambda g: ops.resize(g.input("x", (4, 4)), 3), "sizes must be 2"),
        (lambda g: ops.resize(g.input("x", (4,)), scales=0.1), "leave nothing"),
        (lambda g: ops.lstm(g.input("x", (1, 1, 4)), normal(1, 8, 4), normal(1, 8, 3)), "w must"),
        (
            lambda g: ops.gru(
                g.input("x", (1, 1, 4)), normal(1, 6, 4), normal(1, 6, 2), direction="back"
            ),
            "direction must be one of",
        ),
        (
            lambda g: ops.rnn(
                g.input("x", (1, 1, 4)), normal(1, 2, 4), normal(1, 2, 2), activations=["exp"]
            ),
            "activations must be 1 of",
        ),
    ],
)
def test_what_does_not_fit_is_refused(build: Any, text: str) -> None:
    assert text in refusal(build)
