"""Graphs for the tests of passes: random ones, and small models."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
from fastgraph.ir import Graph, Value, ops

SHAPES = ((), (1,), (4,), (3, 4), (1, 4), (3, 1), (4, 4), (2, 3, 4), (2, 1, 4), (0, 4))
UNARY = (
    ops.relu, ops.gelu, ops.tanh, ops.sigmoid, ops.silu, ops.negative, ops.abs, ops.square,
    lambda x: ops.gelu(x, "tanh"), lambda x: x * ops.sigmoid(x), lambda x: x**2,
    lambda x: ops.astype(x, "int32").astype("float32"), lambda x: x * 0.5, lambda x: 1 - x,
)  # fmt: skip
BINARY = (ops.add, ops.subtract, ops.multiply, ops.maximum, lambda a, b: ops.where(a > b, a, b * 2))


def shaped(draw: Any, x: Value) -> Value:
    """Apply one operator that moves or reduces elements."""
    kind = draw(st.sampled_from("reshape transpose slice broadcast take sum norm softmax".split()))
    if kind == "reshape":
        flat = x.reshape(x.size)
        return flat.reshape(2, x.size // 2) if x.size and x.size % 2 == 0 else flat
    if kind == "transpose":
        return x.transpose(tuple(draw(st.permutations(range(x.ndim)))))
    if kind == "slice" and x.ndim:
        return x[..., :: draw(st.sampled_from((1, -1, 2)))]
    if kind == "broadcast" and x.ndim < 3:
        return ops.broadcast_to(x, (draw(st.sampled_from((1, 2))), *x.shape))
    if kind == "take" and x.ndim and x.shape[0]:
        index = draw(st.sampled_from((0, -1, np.array([0, -1]))))
        return ops.take(x, index, axis=0)
    if kind == "sum":
        axis = draw(st.integers(-x.ndim, x.ndim - 1)) if x.ndim else None
        return ops.sum(x, axis=axis, keepdims=draw(st.booleans()))
    if kind == "norm" and x.size:
        axes = tuple(sorted(draw(st.sets(st.integers(0, x.ndim - 1)))) if x.ndim else ())
        return ops.layer_norm(x, axis=axes) if draw(st.booleans()) else ops.rms_norm(x, axis=axes)
    if kind == "softmax" and x.ndim:
        return ops.softmax(x, axis=draw(st.integers(-x.ndim, x.ndim - 1)))
    return ops.relu(x)


@st.composite
def graphs(draw: Any) -> Graph:
    """Draw a graph of up to 20 operators upon inputs, parameters, constants and a scalar."""
    graph = Graph("random")
    random = np.random.default_rng(draw(st.integers(0, 99)))
    values = [graph.scalar("s", "float32", 0.5), graph.input("square", (4, 4))]
    for i, shape in enumerate(draw(st.lists(st.sampled_from(SHAPES), min_size=2, max_size=5))):
        make = draw(st.sampled_from(("input", "param", "constant")))
        if make == "constant":
            values.append(graph.constant(random.normal(size=shape).astype("f4")))
        else:
            values.append(getattr(graph, make)(f"{make}{i}", shape))
    for _ in range(draw(st.integers(1, 20))):
        x = draw(st.sampled_from(values))
        kind = draw(st.sampled_from(("unary", "binary", "binary", "matmul", "shaped")))
        found = None
        if kind == "unary":
            found = draw(st.sampled_from(UNARY))(x)
        elif kind == "shaped":
            found = shaped(draw, x)
        else:
            fits = [y for y in values if multiplies(x, y)] if kind == "matmul" else []
            if fits:
                found = x @ draw(st.sampled_from(fits))
            else:
                fits = [y for y in values if broadcasts(x, y)]
                found = draw(st.sampled_from(BINARY))(x, draw(st.sampled_from(fits)))
        if found.size < 4096 and found.ndim < 5:
            values.append(found)
    last = values[-1]
    graph.output(last, "last")
    for i, value in enumerate(draw(st.lists(st.sampled_from(values), max_size=2))):
        graph.output(value, f"more{i}")
    return graph


def broadcasts(x: Value, y: Value) -> bool:
    """Whether the shapes broadcast."""
    return all(a == b or 1 in (a, b) for a, b in zip(x.shape[::-1], y.shape[::-1], strict=False))


def multiplies(x: Value, y: Value) -> bool:
    """Whether ``x @ y`` is defined."""
    if not x.ndim or not y.ndim or x.shape[-1] != y.shape[-2 if y.ndim > 1 else -1]:
        return False
    batch = zip(x.shape[-3::-1], y.shape[-3::-1], strict=False)
    return all(a == b or 1 in (a, b) for a, b in batch)


def arguments(graph: Graph) -> dict[str, dict[str, np.ndarray[Any, Any]]]:
    """Return data for the graph's inputs and parameters."""
    random = np.random.default_rng(7)

    def some(values: list[Value]) -> dict[str, np.ndarray[Any, Any]]:
        made = {}
        for value in values:
            if value.dtype.kind == "f":
                made[value.name] = random.normal(size=value.shape).astype("f4")
            else:
                made[value.name] = random.integers(0, 2, size=value.shape).astype(value.dtype)
        return made

    return {"inputs": some(graph.inputs), "params": some(graph.params)}


def mlp(sizes: tuple[int, ...] = (784, 512, 512, 10), rows: int = 1) -> Graph:
    """Return a perceptron with gelu between its layers."""
    graph = Graph("mlp")
    x = graph.input("x", (rows, sizes[0]))
    for i, (k, n) in enumerate(zip(sizes, sizes[1:], strict=False)):
        x = x @ graph.param(f"w{i}", (k, n)) + graph.param(f"b{i}", (n,))
        if i + 2 < len(sizes):
            x = ops.gelu(x)
    graph.output(x, "y")
    return graph


def encoder(tokens: int = 8, width: int = 16, heads: int = 4) -> Graph:
    """Return one layer of a post-norm transformer encoder."""
    graph = Graph("encoder")
    x = graph.input("x", (1, tokens, width))
    size = width // heads

    def linear(value: Value, name: str, n: int) -> Value:
        w, b = graph.param(f"{name}.w", (n, value.shape[-1])), graph.param(f"{name}.b", (n,))
        return value @ w.T + b

    def split(value: Value) -> Value:
        return value.reshape(1, tokens, heads, size).transpose(0, 2, 1, 3)

    def norm(value: Value, name: str) -> Value:
        w, b = graph.param(f"{name}.w", (width,)), graph.param(f"{name}.b", (width,))
        return ops.layer_norm(value, w, b)

    q, k, v = (split(linear(x, name, width)) for name in "qkv")
    weights = ops.softmax(q @ k.transpose(0, 1, 3, 2) / size**0.5)
    mixed = (weights @ v).transpose(0, 2, 1, 3).reshape(1, tokens, width)
    x = norm(x + linear(mixed, "o", width), "norm1")
    hidden = ops.gelu(linear(x, "up", 4 * width))
    graph.output(norm(x + linear(hidden, "down", width), "norm2"), "y")
    return graph
