"""Arithmetic, comparisons, logic and activations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from fastgraph.ir import ops
from fastgraph.ir.graph import Value
from fastgraph.onnx.registry import NodeError, OnnxNode, onnx_op


def _same_dtype(*values: Value) -> None:
    """ONNX never converts; what NumPy would convert silently is a broken model."""
    if len({value.dtype for value in values}) > 1:
        found = " and ".join(value.dtype.name for value in values)
        raise NodeError(f"its inputs must have one dtype, found {found}")


def _of_kind(kinds: str, *values: Value) -> None:
    names = {"f": "float32", "i": "int32 or int64", "b": "bool"}
    for value in values:
        if value.dtype.kind not in kinds:
            wanted = " or ".join(names[k] for k in kinds)
            raise NodeError(f"takes {wanted}, found {value.dtype.name}")


def _unary(op_type: str, function: Callable[[Value], Value], kinds: str) -> None:
    def translate(node: OnnxNode, x: Value) -> Value:
        _of_kind(kinds, x)
        return function(x)

    onnx_op(op_type)(translate)


def _binary(op_type: str, function: Callable[[Value, Value], Value], kinds: str) -> None:
    def translate(node: OnnxNode, a: Value, b: Value) -> Value:
        _same_dtype(a, b)
        _of_kind(kinds, a, b)
        return function(a, b)

    onnx_op(op_type)(translate)


_unary("Neg", ops.negative, "fi")
_unary("Abs", ops.abs, "fi")
_unary("Exp", ops.exp, "f")
_unary("Log", ops.log, "f")
_unary("Sqrt", ops.sqrt, "f")
_unary("Reciprocal", ops.reciprocal, "f")
_unary("Erf", ops.erf, "f")
_unary("Tanh", ops.tanh, "f")
_unary("Sigmoid", ops.sigmoid, "f")
_unary("Relu", ops.relu, "fi")
_unary("Sign", ops.sign, "fi")
_unary("Floor", ops.floor, "f")
_unary("Ceil", ops.ceil, "f")
_unary("Not", ops.logical_not, "b")

_binary("Add", ops.add, "fi")
_binary("Sub", ops.subtract, "fi")
_binary("Mul", ops.multiply, "fi")
_binary("Equal", ops.equal, "fib")
_binary("Less", ops.less, "fi")
_binary("LessOrEqual", ops.less_equal, "fi")
_binary("Greater", ops.greater, "fi")
_binary("GreaterOrEqual", ops.greater_equal, "fi")
_binary("And", ops.logical_and, "b")
_binary("Or", ops.logical_or, "b")
_binary("Xor", ops.not_equal, "b")


@onnx_op("Div")
def div(node: OnnxNode, a: Value, b: Value) -> Value:
    """True division of floats; of integers the quotient cut off towards zero, as in C."""
    _same_dtype(a, b)
    _of_kind("fi", a, b)
    if a.dtype.kind == "f":
        return ops.divide(a, b)
    floored = ops.floor_divide(a, b)
    inexact = ops.not_equal(ops.remainder(a, b), 0)
    opposed = ops.not_equal(ops.less(a, 0), ops.less(b, 0))
    return ops.add(floored, ops.astype(ops.logical_and(inexact, opposed), a.dtype))


@onnx_op("Mod")
def mod(node: OnnxNode, a: Value, b: Value) -> Value:
    """The remainder with the divisor's sign, or with ``fmod=1`` the dividend's."""
    _same_dtype(a, b)
    _of_kind("fi", a, b)
    if not node.flag("fmod", False):
        if a.dtype.kind == "f" and node.opset < 28:
            raise NodeError("fmod=0 takes integers before opset 28, found float32")
        return ops.remainder(a, b)
    # On magnitudes both remainders agree, without rounding.
    magnitude = ops.remainder(ops.abs(a), ops.abs(b))
    return ops.where(ops.less(a, 0), ops.negative(magnitude), magnitude)


@onnx_op("Pow")
def power(node: OnnxNode, base: Value, exponent: Value) -> Value:
    """Power in the dtype of the base."""
    _of_kind("fi", base, exponent)
    if base.dtype.kind == "i" and exponent.dtype.kind == "f":
        raise NodeError(
            f"a power of {base.dtype.name} with a float32 exponent needs float64, which is not "
            "supported: cast the base to float32 in the model"
        )
    if exponent.dtype != base.dtype:
        exponent = ops.astype(exponent, base.dtype)
    return ops.power(base, exponent)


def _variadic(op_type: str, function: Callable[[Value, Value], Value], kinds: str) -> None:
    def translate(node: OnnxNode, *values: Value) -> Value:
        _same_dtype(*values)
        _of_kind(kinds, *values)
        return functools.reduce(function, values)

    onnx_op(op_type)(translate)


_variadic("Max", ops.maximum, "fi")
_variadic("Min", ops.minimum, "fi")
_variadic("Sum", ops.add, "f")


@onnx_op("Mean")
def mean_of(node: OnnxNode, *values: Value) -> Value:
    """The mean of the inputs, element by element."""
    _same_dtype(*values)
    _of_kind("f", *values)
    return ops.divide(functools.reduce(ops.add, values), float(len(values)))


@onnx_op("Where")
def where(node: OnnxNode, condition: Value, x: Value, y: Value) -> Value:
    """Elements of `x` where the condition holds, else of `y`."""
    _of_kind("b", condition)
    _same_dtype(x, y)
    return ops.where(condition, x, y)


@onnx_op("Clip", since=11)
def clip(node: OnnxNode, x: Value, low: Value | None = None, high: Value | None = None) -> Value:
    """Between two bounds; the upper one wins where they cross."""
    _of_kind("fi", x)
    for bound in (low, high):
        if bound is not None:
            _same_dtype(x, bound)
            if bound.size != 1:
                raise NodeError(f"its bounds must be scalars, found shape {bound.shape}")
    if low is not None:
        x = ops.maximum(x, ops.reshape(low, ()))
    if high is not None:
        x = ops.minimum(x, ops.reshape(high, ()))
    return x


@onnx_op("Clip", until=10)
def clip_6(node: OnnxNode, x: Value) -> Value:
    """The form with the bounds as attributes."""
    _of_kind("f", x)
    if node.has("min"):
        x = ops.maximum(x, node.get_float("min", 0.0))
    if node.has("max"):
        x = ops.minimum(x, node.get_float("max", 0.0))
    return x


@onnx_op("Gelu", since=20)
def gelu(node: OnnxNode, x: Value) -> Value:
    """Gaussian error linear unit, exact or by tanh."""
    _of_kind("f", x)
    approximate = node.get_string("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise NodeError(f"attribute 'approximate' must be 'none' or 'tanh', not {approximate!r}")
    return ops.gelu(x, approximate=approximate)


@onnx_op("Swish", since=24)
def swish(node: OnnxNode, x: Value) -> Value:
    """``x * sigmoid(alpha * x)``."""
    _of_kind("f", x)
    alpha = node.get_float("alpha", 1.0)
    return ops.silu(x) if alpha == 1.0 else ops.multiply(x, ops.sigmoid(ops.multiply(x, alpha)))


@onnx_op("LeakyRelu")
def leaky_relu(node: OnnxNode, x: Value) -> Value:
    """``alpha * x`` below zero."""
    _of_kind("f", x)
    return ops.where(ops.less(x, 0.0), ops.multiply(x, node.get_float("alpha", 0.01)), x)


@onnx_op("PRelu")
def prelu(node: OnnxNode, x: Value, slope: Value) -> Value:
    """``slope * x`` below zero, with a slope that broadcasts to `x`."""
    _same_dtype(x, slope)
    _of_kind("fi", x)
    if slope.ndim > x.ndim:
        raise NodeError(f"slope of shape {slope.shape} does not broadcast to {x.shape}")
    return ops.where(ops.less(x, 0), ops.multiply(x, slope), x)


@onnx_op("HardSigmoid")
def hard_sigmoid(node: OnnxNode, x: Value) -> Value:
    """``alpha * x + beta`` between 0 and 1."""
    _of_kind("f", x)
    line = ops.add(ops.multiply(x, node.get_float("alpha", 0.2)), node.get_float("beta", 0.5))
    return ops.minimum(ops.maximum(line, 0.0), 1.0)


@onnx_op("HardSwish", since=14)
def hard_swish(node: OnnxNode, x: Value) -> Value:
    """``x`` times a hard sigmoid of slope 1/6."""
    _of_kind("f", x)
    line = ops.add(ops.multiply(x, 1.0 / 6.0), 0.5)
    return ops.multiply(x, ops.minimum(ops.maximum(line, 0.0), 1.0))


@onnx_op("Softsign")
def softsign(node: OnnxNode, x: Value) -> Value:
    """``x / (1 + |x|)``."""
    _of_kind("f", x)
    return ops.divide(x, ops.add(ops.abs(x), 1.0))


@onnx_op("IsNaN", since=9)
def is_nan(node: OnnxNode, x: Value) -> Value:
    """Where `x` is not a number."""
    _of_kind("f", x)
    return ops.not_equal(x, x)


@onnx_op("Cast", raw=True)
def cast(node: OnnxNode, x: Value | np.ndarray[Any, Any]) -> Value | np.ndarray[Any, Any]:
    """Conversion to the element type ``to``."""
    return node.convert(x, node.get_int("to"))


@onnx_op("CastLike", since=15, raw=True)
def cast_like(
    node: OnnxNode, x: Value | np.ndarray[Any, Any], like: Value | np.ndarray[Any, Any]
) -> Value | np.ndarray[Any, Any]:
    """Conversion to the dtype of the second input."""
    if isinstance(x, np.ndarray):
        return x.astype(like.dtype)
    return ops.astype(x, like.dtype)
