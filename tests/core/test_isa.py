"""Every instruction set that the machine runs gives the same results, to rounding."""

from __future__ import annotations

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import isa


def test_names():
    assert set(isa.offered()) <= set(isa.compiled())
    assert isa.chosen() == isa.offered()[-1]


def test_has_kernel():
    assert isa.has_kernel("copy_bytes", isa.chosen())
    assert not isa.has_kernel("no_such", isa.chosen())
    for name in isa.compiled():
        if name not in isa.offered():
            with pytest.raises(ValueError, match="does not run"):
                isa.has_kernel("copy_bytes", name)
    with pytest.raises(ValueError, match="no kernels for instruction set"):
        isa.has_kernel("copy_bytes", "z80")
    for bad in (None, 5):
        with pytest.raises((TypeError, AttributeError)):
            isa.has_kernel(bad, isa.chosen())


def model():
    g = fg.Graph("mixed")
    x = g.input("x", (7, 37))
    w, b = g.param("w", (37, 19)), g.param("b", (19,))
    h = fg.ops.gelu(x @ w + b)
    g.output(fg.ops.softmax(h, axis=-1), "softmax")
    g.output(fg.ops.layer_norm(fg.ops.exp(h) + fg.ops.tanh(h)), "norm")
    g.output(fg.ops.sum(h, axis=0), "sum")
    g.output(fg.ops.argmax(h, axis=1), "argmax")
    g.output(fg.ops.transpose(h)[::-1, 1:], "moved")
    return g


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(7)
    return {
        name: rng.standard_normal(shape).astype("f4")
        for name, shape in {"x": (7, 37), "w": (37, 19), "b": (19,)}.items()
    }


@pytest.mark.parametrize("name", isa.offered())
@pytest.mark.parametrize("fuse", [True, False])
def test_same_results(name, fuse, data):
    g = model()
    results = []
    for options in (fg.CompileOptions(isa=name, fuse=fuse), fg.CompileOptions()):
        compiled = fg.Session("cpu", threads=1).compile(g, options)
        compiled.set_params({"w": data["w"], "b": data["b"]})
        results.append(compiled.run({"x": data["x"]}))
    for mine, best in zip(*results, strict=True):
        np.testing.assert_allclose(mine, best, rtol=2e-5, atol=2e-5)


def test_unknown_isa():
    with pytest.raises(fg.InputError, match="z80"):
        fg.Session("cpu").compile(model(), fg.CompileOptions(isa="z80"))
