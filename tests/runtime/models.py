"""Small models for the tests of runs, and the suite on which plans are checked."""

from __future__ import annotations

from typing import Any

import numpy as np

import fastgraph as fg
from fastgraph import ops
from fastgraph.ir.types import is_float
from tests.passes.graphs import encoder, mlp

Array = np.ndarray[Any, Any]


# Of the test that runs.
DEVICE = "cpu"


def compiled(graph: fg.Graph, threads: int = 1, release_gil: Any = "auto", **options: Any) -> Any:
    """A model of `graph` on the device under test."""
    session = fg.Session(DEVICE, threads=threads, release_gil=release_gil)
    return session.compile(graph, fg.CompileOptions(**options))


def twice() -> fg.Graph:
    """One input of three floats, doubled."""
    graph = fg.Graph("twice")
    x = graph.input("x", (3,))
    graph.output(x + x, "y")
    return graph


def two_inputs() -> fg.Graph:
    """Two used inputs, an unused and a folded one between them, two outputs."""
    graph = fg.Graph("two_inputs")
    a = graph.input("a", (2, 3))
    graph.input("unused", (5,), "int64")
    b = graph.input("b", (3,))
    folded = graph.input("folded", (2, 3))
    graph.output(a * b + folded * 0, "y")
    graph.output(ops.sum(a, axis=1), "s")
    return graph


def layer() -> fg.Graph:
    """SCENARIOS B1: x[2,4] @ w[4,3] + b and exact gelu."""
    graph = fg.Graph("layer")
    x, w, b = graph.input("x", (2, 4)), graph.param("w", (4, 3)), graph.param("b", (3,))
    graph.output(ops.gelu(x @ w + b), "y")
    return graph


def identities(layers: int = 6, width: int = 64) -> fg.Graph:
    """A chain of square weights."""
    graph = fg.Graph("identities")
    x = graph.input("x", (1, width))
    for i in range(layers):
        x = x @ graph.param(f"w{i}", (width, width))
    graph.output(x, "y")
    return graph


def diamond() -> fg.Graph:
    """Two branches of two steps, joined; reductions keep them from fusing into one region."""
    graph = fg.Graph("diamond")
    x = graph.input("x", (40, 40))
    a = ops.softmax(ops.softmax(x, 0), 1)
    b = ops.softmax(ops.softmax(x, 1), 0)
    graph.output(a + b, "y")
    return graph


def chain(steps: int = 12) -> fg.Graph:
    """Softmaxes one after another: two slots are enough for any number of them."""
    graph = fg.Graph("chain")
    x = graph.input("x", (32, 32))
    for i in range(steps):
        x = ops.softmax(x, i % 2)
    graph.output(x, "y")
    return graph


def residuals() -> fg.Graph:
    """Residual inputs that live together across a product and a norm."""
    graph = fg.Graph("residuals")
    x = graph.input("x", (8, 32))
    for i in range(4):
        w, scale = graph.param(f"w{i}", (32, 32)), graph.param(f"s{i}", (32,))
        x = ops.rms_norm(x + ops.gelu(x @ w), scale)
    graph.output(x, "y")
    return graph


def several_outputs() -> fg.Graph:
    """Outputs early and late, some read by later nodes, some the same bytes as others."""
    graph = fg.Graph("several_outputs")
    x, p = graph.input("x", (6, 4)), graph.param("p", (4,))
    y = ops.softmax(x * p)
    z = y @ y.T
    for name, value in {
        "x": x, "p": p, "c": graph.constant(np.arange(3)), "y": y, "flat": y.reshape(24),
        "again": y, "z": z, "z.reshaped": z.reshape(6, 6, 1), "row": y[2], "p2": p * 2,
        "x.flat": x.reshape(24),
    }.items():  # fmt: skip
        graph.output(value, name)
    return graph


def conv_like() -> fg.Graph:
    """A patch product with a bias, a gate and a pooled head."""
    graph = fg.Graph("conv_like")
    x = graph.input("x", (8, 8, 3))
    patches = ops.concat([x[i : 8 - 2 + i, j : 8 - 2 + j] for i in range(3) for j in range(3)], -1)
    h = ops.relu(patches.reshape(36, 27) @ graph.param("k", (27, 16)) + graph.param("kb", (16,)))
    pooled = ops.mean(h, axis=0, keepdims=True)
    graph.output(ops.softmax(pooled @ graph.param("head", (16, 5))), "y")
    return graph


def with_scalars() -> fg.Graph:
    """A scalar with and one without default."""
    graph = fg.Graph("with_scalars")
    x = graph.input("x", (2,))
    scale, shift = graph.scalar("scale", "float32", 2.0), graph.scalar("shift", "int64")
    graph.output(x * scale, "y")
    graph.output(shift + graph.constant(np.int64([0, 1])), "z")
    return graph


def gather() -> fg.Graph:
    """Rows by indices of the run, then more work."""
    graph = fg.Graph("gather")
    table, index = graph.param("table", (5, 4)), graph.input("index", (3,), "int64")
    rows = ops.take(table, index, axis=0)
    graph.output(ops.softmax(rows), "y")
    graph.output(index + 1, "next")
    return graph


def half_layers() -> fg.Graph:
    """A norm, a product and a sum in half types, which convert, beside float64 and bytes."""
    graph = fg.Graph("half_layers")
    x, w = graph.input("x", (4, 8), "float16"), graph.param("w", (8, 6), "float16")
    b, scale = graph.param("b", (6,), "float16"), graph.param("scale", (8,), "float16")
    y = ops.rms_norm(x, scale) @ w + b
    graph.output(ops.softmax(y), "y")
    graph.output(ops.sum(x, axis=0).astype("bfloat16") * 2, "s")
    wide = graph.input("wide", (6, 6), "float64")
    graph.output(wide @ wide + ops.astype(y[:1], "float64"), "wide")
    graph.output(graph.input("bytes", (5,), "uint8") + 250, "bytes")
    return graph


def branches() -> fg.Graph:
    """A choice that writes an output, one inside it, weights in both; one that gives its input."""
    graph = fg.Graph("branches")
    x, flag = graph.input("x", (2, 16)), graph.input("flag", (), "bool")
    w, b = graph.param("w", (16, 16)), graph.param("b", (16,))

    def other(x: fg.Value) -> fg.Value:
        return ops.cond(ops.sum(x) > 0, lambda: ops.softmax(x @ w), lambda: x - b)

    graph.output(ops.cond(flag, lambda x: ops.relu(x @ w + b), other, x), "y")
    graph.output(ops.cond(flag, lambda: (x, b), lambda: (x * 2, b + 1))[0], "z")
    return graph


def loop() -> fg.Graph:
    """Turns that read a weight, a value from before the loop and a choice inside; two change
    places, and one stays as it is.
    """
    graph = fg.Graph("loop")
    x, n = graph.input("x", (4, 16)), graph.input("n", (), "int32")
    w = graph.param("w", (16, 16))
    before = ops.softmax(x)

    def turn(i: fg.Value, a: fg.Value, b: fg.Value, w: fg.Value) -> tuple[fg.Value, ...]:
        c = ops.cond(i % 2 == 0, lambda: ops.tanh(a @ w), lambda: a + before)
        return i + 1, b, ops.softmax(c) - b, w

    i, a, b, _ = ops.while_loop(lambda i, *_: i < n + 3, turn, np.int32(0), x, before, w)
    graph.output(a, "a")
    graph.output(ops.relu(b) + before, "b")
    graph.output(i, "i")
    return graph


SUITE = {
    function.__name__: function
    for function in (
        twice, two_inputs, layer, identities, diamond, chain, residuals, several_outputs,
        conv_like, with_scalars, gather, mlp, encoder, half_layers,
        branches, loop,
    )
}  # fmt: skip


def data_for(values: Any, seed: int = 0) -> dict[str, Array]:
    """Arrays by name for inputs or parameters; indices stay small."""
    random = np.random.default_rng(seed)
    made = {}
    for value in values:
        if is_float(value.dtype):
            made[value.name] = np.asarray(random.normal(size=value.shape)).astype(value.dtype)
        else:
            made[value.name] = random.integers(0, 2, value.shape).astype(value.dtype)
    return made


SCALARS = {"with_scalars": {"shift": 3}}


def ready(name: str, **options: Any) -> tuple[Any, dict[str, Array], dict[str, Any]]:
    """A compiled model of the suite with its parameters set, inputs and scalars for it."""
    model = compiled(SUITE[name](), **options)
    model.set_params(data_for(model.params))
    return model, data_for(model.inputs, 1), SCALARS.get(name, {})
