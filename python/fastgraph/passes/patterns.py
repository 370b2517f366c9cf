"""Recognises what exporters and users write out: gelu, silu, layer_norm and rms_norm.

Matchers look at values of the new graph, whose inputs are canonical already, and give what the
value is, or None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastgraph.ir.graph import Node, Value
from fastgraph.ir.types import is_float
from fastgraph.passes.rewrite import constant_of

__all__ = ["Match", "match_product", "match_quotient"]

Match = tuple[str, tuple[Value, ...], dict[str, Any]]
"""An operator, its inputs and its attributes."""

TANH_SCALE = math.sqrt(2.0 / math.pi)
TANH_CUBE = 0.044715


def near(value: Value, number: float) -> bool:
    """Whether `value` is the constant `number`, as far as its dtype and printed digits can say."""
    found = constant_of(value)
    if found is None or not is_float(value.dtype):
        return False
    rounded = float(np.asarray(number).astype(value.dtype))
    return found == rounded or math.isclose(found, number, rel_tol=2e-5)


def factors(node: Node, limit: int = 4) -> list[Value]:
    """Return what multiplications, nested to any side, multiply; at most `limit` values."""
    found = list(node.inputs)
    i = 0
    while i < len(found):
        inner = found[i].node
        if inner.op == "multiply" and len(found) < limit:
            found[i : i + 1] = inner.inputs
        elif inner.op == "square" and len(found) < limit:
            found[i : i + 1] = [inner.inputs[0], inner.inputs[0]]
        else:
            i += 1
    return found


def without(values: Sequence[Value], number: float) -> list[Value] | None:
    """Return `values` without one that is the constant `number`; None if none is."""
    for i, value in enumerate(values):
        if near(value, number):
            return [*values[:i], *values[i + 1 :]]
    return None


def one_plus(value: Value) -> Value | None:
    """Return y where `value` is ``1 + y``."""
    if value.node.op == "add":
        a, b = value.node.inputs
        if near(a, 1.0):
            return b
        if near(b, 1.0):
            return a
    return None


def scaled_by(value: Value, number: float) -> Value | None:
    """Return y where `value` is ``y * number`` or ``y / (1 / number)``."""
    node = value.node
    if node.op == "multiply":
        rest = without(node.inputs, number)
        return rest[0] if rest else None
    if node.op == "divide" and near(node.inputs[1], 1.0 / number):
        return node.inputs[0]
    return None


def is_cube(values: Sequence[Value], x: Value) -> bool:
    """Whether the product of `values` is ``x ** 3``."""
    if len(values) == 1:
        node = values[0].node
        return node.op == "power" and node.inputs[0] is x and near(node.inputs[1], 3.0)
    return len(values) == 3 and all(value is x for value in values)


def is_tanh_argument(value: Value, x: Value) -> bool:
    """Whether `value` is ``sqrt(2 / pi) * (x + 0.044715 * x ** 3)``, or with x put outside."""
    if value.node.op != "multiply":
        return False
    rest = without(factors(value.node, 3), TANH_SCALE)
    if rest is None:
        return False
    if len(rest) == 1 and rest[0].node.op == "add":
        terms = rest[0].node.inputs
        other = terms[1] if terms[0] is x else terms[0] if terms[1] is x else None
        if other is None or other.node.op != "multiply":
            return False
        cube = without(factors(other.node), TANH_CUBE)
        return cube is not None and is_cube(cube, x)
    if len(rest) == 2 and (rest[0] is x or rest[1] is x):
        inner = one_plus(rest[1] if rest[0] is x else rest[0])
        if inner is None or inner.node.op != "multiply":
            return False
        square = without(factors(inner.node), TANH_CUBE)
        return square is not None and len(square) == 2 and all(value is x for value in square)
    return False


def match_gelu(values: Sequence[Value]) -> Match | None:
    """Match ``x * 0.5 * (1 + erf(x / sqrt(2)))`` and the tanh form, in any order."""
    rest = without(values, 0.5)
    if rest is None or len(rest) != 2:
        return None
    for x, sum_ in (rest, rest[::-1]):
        inner = one_plus(sum_)
        if inner is None:
            continue
        (argument,) = inner.node.inputs if inner.node.op in ("erf", "tanh") else (None,)
        if argument is None:
            continue
        if inner.node.op == "erf" and scaled_by(argument, math.sqrt(0.5)) is x:
            return "gelu", (x,), {"approximate": "none"}
        if inner.node.op == "tanh" and is_tanh_argument(argument, x):
            return "gelu", (x,), {"approximate": "tanh"}
    return None


def match_norm(x: Value, variance: Value) -> Match | None:
    """Match ``x / sqrt(variance)``, variance ``mean(x ** 2) + eps``; x may be ``y - mean(y)``."""
    if variance.node.op != "add":
        return None
    for power, added in (variance.node.inputs, variance.node.inputs[::-1]):
        eps = constant_of(added)
        if eps is None or not eps >= 0 or power.node.op != "mean":
            continue
        if not power.node.attrs["keepdims"] or not is_square(power.node.inputs[0], x):
            return None
        axes = power.node.attrs["axis"]
        if axes != tuple(range(x.ndim - len(axes), x.ndim)) or not axes:
            return None
        attrs = {"axis": axes, "eps": eps, "weight": False, "bias": False}
        if x.node.op == "subtract":
            whole, mean = x.node.inputs
            if is_mean(mean, whole, axes):
                return "layer_norm", (whole,), attrs
        return "rms_norm", (x,), attrs
    return None


def is_square(value: Value, x: Value) -> bool:
    """Whether `value` is ``x * x``."""
    node = value.node
    if node.op == "square":
        return node.inputs[0] is x
    return node.op == "multiply" and node.inputs[0] is x and node.inputs[1] is x


def is_mean(value: Value, x: Value, axes: tuple[int, ...]) -> bool:
    """Whether `value` is the mean of `x` over `axes`, which stay."""
    node = value.node
    if node.op != "mean" or node.inputs[0] is not x:
        return False
    return bool(node.attrs["axis"] == axes and node.attrs["keepdims"])


def inverse_root(value: Value) -> Value | None:
    """Return v where `value` is ``1 / sqrt(v)``, however it is written."""
    node = value.node
    if node.op == "rsqrt":
        return node.inputs[0]
    root = None
    if node.op == "reciprocal":
        root = node.inputs[0]
    elif node.op == "divide" and near(node.inputs[0], 1.0):
        root = node.inputs[1]
    return root.node.inputs[0] if root is not None and root.node.op == "sqrt" else None


def match_product(node: Node) -> Match | None:
    """Match what the multiplication `node` stands for."""
    for x, y in (node.inputs, node.inputs[::-1]):
        if y.node.op == "sigmoid" and y.node.inputs[0] is x:
            return "silu", (x,), {}
        variance = inverse_root(y)
        if variance is not None:
            found = match_norm(x, variance)
            if found:
                return found
    return match_gelu(factors(node, 3))


def match_quotient(node: Node) -> Match | None:
    """Match what the division `node` stands for."""
    x, root = node.inputs
    return match_norm(x, root.node.inputs[0]) if root.node.op == "sqrt" else None
