"""Dimensions of ONNX files as dimensions of active extents."""

from __future__ import annotations

import numpy as np
import pytest

import fastgraph as fg
from tests.onnx.build import in_bytes, model, node


def attention() -> bytes:
    """Attention written out, whose shapes are computed, copied, and told in numbers."""
    nodes = [
        node("MatMul", "x w", "q"),
        node("Shape", "x", "s"),
        node("Gather", "s one", "n", axis=0),
        node("Unsqueeze", "n zero", "n1"),
        node("Concat", "rest n1 four four", "wanted", axis=0),
        node("Reshape", "q wanted", "heads"),
        node("Transpose", "heads", "a", perm=[0, 2, 1, 3]),
        node("Transpose", "heads", "b", perm=[0, 2, 3, 1]),
        node("MatMul", "a b", "scores"),
        node("Softmax", "scores", "weights", axis=-1),
        node("MatMul", "weights a", "o"),
        node("Transpose", "o", "t", perm=[0, 2, 1, 3]),
        node("Reshape", "t back", "y"),
    ]
    initialisers = {
        "w": np.random.default_rng(0).standard_normal((16, 16)).astype("f4"),
        "one": np.array(1),
        "zero": np.array([0]),
        "rest": np.array([-1]),
        "four": np.array([4]),
        "back": np.array([0, 0, 16]),
    }
    return in_bytes(model(nodes, {"x": ["batch", "seq", 16]}, ["y"], initialisers))


def test_symbols_of_a_file_are_dimensions(device: str) -> None:
    file = attention()
    x = np.random.default_rng(1).standard_normal((2, 12, 16)).astype("f4")
    loaded = fg.load(file, device, dims={"batch": 2, "seq": 12})

    def check(batch: int, seq: int) -> None:
        few = np.ascontiguousarray(x[:batch, :seq])
        (wanted,) = fg.load(file, dims={"batch": batch, "seq": seq}).run({"x": few})
        poisoned = np.full_like(x, np.nan)
        poisoned[:batch, :seq] = few
        (found,) = loaded.run({"x": poisoned})
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)

    for seq in (12, 5, 1):
        loaded.set_active_extent((seq, 12), dim="seq")
        check(2, seq)
    loaded.set_active_extent((1, 2), dim="batch")
    check(1, 1)
    loaded.set_active_extent((7, 12), dim="seq")
    check(1, 7)
    loaded.set_active_extent(None, dim="seq")
    check(1, 12)


def test_a_size_of_ones_own_keeps_its_name() -> None:
    loaded = fg.load(attention(), dims={"batch": 1, "seq": fg.dim("tokens", 8)})
    with pytest.raises(fg.InputError, match="no dimension 'seq'"):
        loaded.set_active_extent((3, 8), dim="seq")
    loaded.set_active_extent((3, 8), dim="tokens")
    assert loaded.run({"x": np.ones((1, 8, 16), "f4")})[0].shape == (1, 3, 16)


def test_numbers_that_could_be_either_are_refused() -> None:
    nodes = [node("Reshape", "x wanted", "y")]
    file = in_bytes(model(nodes, {"x": ["n", 16]}, ["y"], {"wanted": np.array([8, 8])}))
    loaded = fg.load(file, dims={"n": 4})
    with pytest.raises(fg.UnsupportedError, match=r"\(reshape, .*cannot follow"):
        loaded.set_active_extent((2, 4), dim="n")
    nodes = [node("Reshape", "x wanted", "y")]
    file = in_bytes(model(nodes, {"x": ["n", 6]}, ["y"], {"wanted": np.array([24])}))
    loaded = fg.load(file, dims={"n": 4})
    loaded.set_active_extent((2, 4), dim="n")
    assert loaded.run({"x": np.ones((4, 6), "f4")})[0].shape == (12,)
