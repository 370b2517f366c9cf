"""Graphs for the tests of passes: random ones, and small models."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import numpy as np

from fastgraph.ir import Graph, Value, ops
from fastgraph.ir.types import is_float

SHAPES = ((), (1,), (4,), (3, 4), (1, 4), (3, 1), (4, 4), (2, 3, 4), (2, 1, 4), (0, 4))
UNARY = (
    ops.relu, ops.gelu, ops.tanh, ops.sigmoid, ops.silu, ops.negative, ops.abs, ops.square,
    lambda x: ops.gelu(x, "tanh"), lambda x: x * ops.sigmoid(x), lambda x: x**2,
    lambda x: ops.astype(x, "int32").astype(x.dtype), lambda x: x * 0.5, lambda x: 1 - x,
)  # fmt: skip
MOVES = ("reshape", "transpose", "slice", "broadcast", "take", "sum", "norm", "softmax")
BINARY = (ops.add, ops.subtract, ops.multiply, ops.maximum, lambda a, b: ops.where(a > b, a, b * 2))


def shaped(draw: Any, x: Value) -> Value:
    """Apply one operator that moves or reduces elements."""
    kind = draw(st.sampled_from(MOVES))
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


def layered(draw: Any, values: list[Value]) -> Value:
    """Apply what models are made of: a product with its epilogue, a norm with its residual."""
    graph = values[0].graph
    x = draw(st.sampled_from([value for value in values if value.shape[-1:] == (4,)]))
    same = [value for value in values if value.shape == x.shape]
    count = len(graph.params)
    row = graph.param(f"row{count}", draw(st.sampled_from(((4,), (1, 4)))), x.dtype)
    kind = draw(st.sampled_from(("product", "norm", "written norm")))
    if kind == "product":
        w = draw(st.sampled_from([value for value in values if value.shape == (4, 4)]))
        found = x @ draw(st.sampled_from((w, w.T, w * 2)))
        for step in draw(st.lists(st.sampled_from(("bias", "activation", "residual")), max_size=3)):
            if step == "activation":
                found = draw(st.sampled_from(UNARY))(found)
            else:
                found = found + (row if step == "bias" else draw(st.sampled_from(same)))
        return found
    x = draw(st.sampled_from((x, x + draw(st.sampled_from(same)))))
    if kind == "norm":
        return ops.layer_norm(x, row.reshape(4)) if draw(st.booleans()) else ops.rms_norm(x)
    d = x - ops.mean(x, axis=-1, keepdims=True)
    return d / ops.sqrt(ops.mean(d * d, axis=-1, keepdims=True) + 0.1) * row + 1


@st.composite
def graphs(draw: Any, kinds: tuple[str, ...] = ("float32",)) -> Graph:
    """Draw a graph of up to 15 steps upon inputs, parameters, constants and a scalar of one dtype.

    What nothing reads is an output, so that no step is dead; some that are read are outputs too.
    """
    graph = Graph("random")
    random = np.random.default_rng(draw(st.integers(0, 99)))
    kind = draw(st.sampled_from(kinds))
    values = [graph.scalar("s", kind, 0.5), graph.input("square", (4, 4), kind)]
    values.append(graph.param("weight", (4, 4), kind))
    for i, shape in enumerate(draw(st.lists(st.sampled_from(SHAPES), max_size=3))):
        make = draw(st.sampled_from(("input", "param", "constant")))
        if make == "constant":
            values.append(graph.constant(random.normal(size=shape).astype(kind)))
        else:
            values.append(getattr(graph, make)(f"{make}{i}", shape, kind))
    for _ in range(draw(st.integers(1, 15))):
        x = draw(st.sampled_from(values[-4:] * 3 + values))
        kind = draw(st.sampled_from(("unary", "binary", "layered", "matmul", "shaped")))
        if kind == "unary":
            found = draw(st.sampled_from(UNARY))(x)
        elif kind == "shaped":
            found = shaped(draw, x)
        elif kind == "layered":
            found = layered(draw, values)
        else:
            fits = [y for y in values if multiplies(x, y)] if kind == "matmul" else []
            if fits:
                found = x @ draw(st.sampled_from(fits))
            else:
                fits = [y for y in values if broadcasts(x, y)]
                found = draw(st.sampled_from(BINARY))(x, draw(st.sampled_from(fits)))
        if found.size < 4096 and found.ndim < 5:
            values.append(ops.tanh(found) if draw(st.integers(0, 3)) == 0 else found)
    read = {value for node in graph.nodes for value in node.inputs}
    for i, value in enumerate(values):
        if (value not in read and not value.node.is_leaf) or draw(st.integers(0, 9)) == 0:
            graph.output(value, f"y{i}")
    if not graph.outputs:
        graph.output(values[-1], "y")
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
            if is_float(value.dtype):
                made[value.name] = np.asarray(random.normal(size=value.shape)).astype(value.dtype)
            else:
                made[value.name] = random.integers(0, 2, size=value.shape).astype(value.dtype)
        return made

    return {"inputs": some(graph.inputs), "params": some(graph.params)}


def mlp(sizes: tuple[int, ...] = (784, 512, 512, 10), rows: int = 1) -> Graph:
    """Return a perceptron with gelu between its layers."""
    graph = Graph("mlp")
    x = graph.input("x", (rows, sizes[0]))
    for i, (k, n) in enumerate(pairwise(sizes)):
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
