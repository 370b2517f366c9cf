"""Products whose rows choose their matrix, and places that a run computes."""

from __future__ import annotations

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops

f4 = np.float32


def model_of(m, k, n, experts, device, dtype="int64"):
    graph = fg.Graph("experts")
    x, w = graph.input("x", (m, k)), graph.param("w", (experts, k, n))
    graph.output(ops.grouped_matmul(x, w, graph.input("ids", (m,), dtype)), "y")
    return fg.Session(device).compile(graph)


@pytest.mark.parametrize(
    ("sizes", "ids"),
    [
        ((4, 3, 2, 3), [0, 1, 1, 2]),
        ((8, 5, 4, 4), [3, 0, 2, 0, 3, 3, 1, 0]),
        ((8, 5, 4, 4), [0, 0, 0, 1, 2, 3, 3, 3]),
        ((6, 4, 3, 3), [2, 2, 2, 2, 2, 2]),
        ((6, 4, 3, 3), [0, 2, 0, 2, 0, 2]),
        ((40, 70, 90, 2), [1, 0] * 20),
    ],
)
def test_each_row_has_its_expert(device, sizes, ids):
    m, k, n, experts = sizes
    random = np.random.default_rng(1)
    x, w = random.normal(size=(m, k)).astype("f4"), random.normal(size=(experts, k, n)).astype("f4")
    model = model_of(*sizes, device)
    model.set_param("w", w)
    (y,) = model.run({"x": x, "ids": np.array(ids)})
    np.testing.assert_allclose(y, np.einsum("mk,mkn->mn", x, w[ids]), atol=2e-5)


def test_two_experts(device):
    model = model_of(2, 2, 2, 2, device, "int32")
    model.set_param("w", np.stack([np.eye(2, dtype="f4"), 2 * np.eye(2, dtype="f4")]))
    (y,) = model.run({"x": f4([[1, 2], [3, 4]]), "ids": np.int32([0, 1])})
    assert y.tolist() == [[1, 2], [6, 8]]


@pytest.mark.parametrize("wrong", [3, -1, 2**40])
def test_an_expert_that_is_not_there(device, wrong):
    model = model_of(4, 3, 2, 3, device)
    model.set_param("w", np.ones((3, 3, 2), "f4"))
    x = np.ones((4, 3), "f4")
    with pytest.raises(fg.InputError, match="grouped_matmul"):
        model.run({"x": x, "ids": np.array([0, 1, wrong, 2])})
    (y,) = model.run({"x": x, "ids": np.array([0, 1, 1, 2])})
    assert y.tolist() == [[3, 3]] * 4


def scatters(device, x, indices, updates):
    graph = fg.Graph("scatter")
    values = [
        graph.input(name, array.shape, array.dtype)
        for name, array in zip("xiu", (x, indices, updates), strict=True)
    ]
    graph.output(ops.scatter_elements(*values, axis=1, reduction="add"), "y")
    return fg.Session(device).compile(graph)


@pytest.mark.parametrize("wrong", [3, -4])
def test_a_place_that_is_not_there(device, wrong):
    """Though the flat number of the place would be one of another row."""
    x, updates = np.zeros((2, 3), "f4"), np.ones((2, 2), "f4")
    good = np.array([[0, -1], [2, 2]])
    model = scatters(device, x, good, updates)
    bad = good.copy()
    bad[0, 0] = wrong
    with pytest.raises(fg.InputError):
        model.run({"x": x, "i": bad, "u": updates})
    (y,) = model.run({"x": x, "i": good, "u": updates})
    assert y.tolist() == [[1, 0, 1], [0, 0, 2]]


@pytest.mark.parametrize(
    ("build", "index"),
    [
        (lambda x, i: ops.take_along_axis(x, i, axis=1), [[3], [0]]),
        (lambda x, i: ops.gather_nd(x, i), [[1, 3], [0, 0]]),
        (lambda x, i: ops.gather_nd(x, i), [[-3, 0], [0, 0]]),
        (lambda x, i: ops.rotary_embedding(
            x.reshape(1, 1, 2, 3)[..., :2], x[:, :1], x[:, :1], i[:1, :2]), [[2, 0], [0, 0]]),
    ],
)  # fmt: skip
def test_what_is_taken_from_nowhere(device, build, index):
    graph = fg.Graph("places")
    x, i = graph.input("x", (2, 3)), graph.input("i", np.shape(index), "int64")
    graph.output(build(x, i), "y")
    model = fg.Session(device).compile(graph)
    with pytest.raises(fg.InputError):
        model.run({"x": np.ones((2, 3), "f4"), "i": np.array(index)})
    model.run({"x": np.ones((2, 3), "f4"), "i": np.zeros_like(index)})
