"""Arithmetic, comparisons, logic and activations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from fastgraph.ir import ops
from fastgraph.ir.graph import Value
from fastgraph.ir.ops.numerics import convert
from fastgraph.ir.types import FLOAT64, UNSIGNED, is_float, is_integer
from fastgraph.onnx.registry import NodeError, OnnxNode, of_kind, onnx_op


def _same_dtype(*values: Value) -> None:
    """ONNX never converts; what NumPy would convert silently is a broken model."""
    if len({value.dtype for value in values}) > 1:
        found = " and ".join(value.dtype.name for value in values)
        raise NodeError(f"its inputs must have one dtype, found {found}")


def _unary(op_type: str, function: Callable[[Value], Value], kinds: str) -> None:
    def translate(node: OnnxNode, x: Value) -> Value:
        of_kind(kinds, x)
        return function(x)

    onnx_op(op_type)(translate)


def _binary(op_type: str, function: Callable[[Value, Value], Value], kinds: str) -> None:
    def translate(node: OnnxNode, a: Value, b: Value) -> Value:
        _same_dtype(a, b)
        of_kind(kinds, a, b)
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
_unary("Round", ops.round, "f")
_unary("Not", ops.logical_not, "b")
_unary("BitwiseNot", ops.invert, "i")
_unary("Sin", ops.sin, "f")
_unary("Cos", ops.cos, "f")
_unary("Tan", ops.tan, "f")
_unary("Asin", ops.arcsin, "f")
_unary("Acos", ops.arccos, "f")
_unary("Atan", ops.arctan, "f")
_unary("Sinh", ops.sinh, "f")
_unary("Cosh", ops.cosh, "f")
_unary("Asinh", ops.arcsinh, "f")
_unary("Acosh", ops.arccosh, "f")
_unary("Atanh", ops.arctanh, "f")
_unary("Softsign", ops.softsign, "f")
_unary("Mish", ops.mish, "f")

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
_binary("Xor", ops.logical_xor, "b")
_binary("BitwiseAnd", ops.bitwise_and, "i")
_binary("BitwiseOr", ops.bitwise_or, "i")
_binary("BitwiseXor", ops.bitwise_xor, "i")


@onnx_op("Div")
def div(node: OnnxNode, a: Value, b: Value) -> Value:
    """True division of floats; of integers the quotient cut off towards zero, as in C."""
    _same_dtype(a, b)
    of_kind("fi", a, b)
    if is_float(a.dtype):
        return ops.divide(a, b)
    if a.dtype in UNSIGNED:
        return ops.floor_divide(a, b)
    floored = ops.floor_divide(a, b)
    inexact = ops.not_equal(ops.remainder(a, b), 0)
    opposed = ops.not_equal(ops.less(a, 0), ops.less(b, 0))
    return ops.add(floored, ops.astype(ops.logical_and(inexact, opposed), a.dtype))


@onnx_op("Mod")
def mod(node: OnnxNode, a: Value, b: Value) -> Value:
    """The remainder with the divisor's sign, or with ``fmod=1`` the dividend's."""
    _same_dtype(a, b)
    of_kind("fi", a, b)
    if not node.flag("fmod", False):
        if is_float(a.dtype) and node.opset < 28:
            raise NodeError(f"fmod=0 takes integers before opset 28, found {a.dtype.name}")
        return ops.remainder(a, b)
    return ops.fmod(a, b)


@onnx_op("Pow")
def power(node: OnnxNode, base: Value, exponent: Value) -> Value:
    """Power in the dtype of the base."""
    of_kind("fi", base, exponent)
    if is_float(base.dtype) and exponent.dtype != FLOAT64:
        return ops.power(base, ops.astype(exponent, base.dtype))
    if is_integer(base.dtype) and is_integer(exponent.dtype):
        return ops.astype(ops.power(base, exponent), base.dtype)
    wide = ops.power(ops.astype(base, FLOAT64), ops.astype(exponent, FLOAT64))
    return ops.astype(wide, base.dtype)


@onnx_op("BitShift", since=11)
def bit_shift(node: OnnxNode, x: Value, by: Value) -> Value:
    """Bits moved by a number of places; to the right the sign is kept."""
    _same_dtype(x, by)
    of_kind("i", x)
    direction = node.get_string("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        raise NodeError(f"attribute 'direction' must be 'LEFT' or 'RIGHT', not {direction!r}")
    return ops.left_shift(x, by) if direction == "LEFT" else ops.right_shift(x, by)


def _variadic(op_type: str, function: Callable[[Value, Value], Value], kinds: str) -> None:
    def translate(node: OnnxNode, *values: Value) -> Value:
        _same_dtype(*values)
        of_kind(kinds, *values)
        return functools.reduce(function, values)

    onnx_op(op_type)(translate)


_variadic("Max", ops.maximum, "fi")
_variadic("Min", ops.minimum, "fi")
_variadic("Sum", ops.add, "f")


@onnx_op("Mean")
def mean_of(node: OnnxNode, *values: Value) -> Value:
    """The mean of the inputs, element by element."""
    _same_dtype(*values)
    of_kind("f", *values)
    return ops.divide(functools.reduce(ops.add, values), float(len(values)))


@onnx_op("Where")
def where(node: OnnxNode, condition: Value, x: Value, y: Value) -> Value:
    """Elements of `x` where the condition holds, else of `y`."""
    of_kind("b", condition)
    _same_dtype(x, y)
    return ops.where(condition, x, y)


@onnx_op("Clip", since=11)
def clip(node: OnnxNode, x: Value, low: Value | None = None, high: Value | None = None) -> Value:
    """Between two bounds; the upper one wins where they cross."""
    of_kind("fi", x)
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
    of_kind("f", x)
    if node.has("min"):
        x = ops.maximum(x, node.get_float("min", 0.0))
    if node.has("max"):
        x = ops.minimum(x, node.get_float("max", 0.0))
    return x


@onnx_op("Gelu", since=20)
def gelu(node: OnnxNode, x: Value) -> Value:
    """Gaussian error linear unit, exact or by tanh."""
    of_kind("f", x)
    approximate = node.get_string("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise NodeError(f"attribute 'approximate' must be 'none' or 'tanh', not {approximate!r}")
    return ops.gelu(x, approximate=approximate)


@onnx_op("Swish", since=24)
def swish(node: OnnxNode, x: Value) -> Value:
    """``x * sigmoid(alpha * x)``."""
    of_kind("f", x)
    alpha = node.get_float("alpha", 1.0)
    return ops.silu(x) if alpha == 1.0 else ops.multiply(x, ops.sigmoid(ops.multiply(x, alpha)))


@onnx_op("SwiGLU", since=28)
def swiglu(node: OnnxNode, gate: Value, x: Value) -> Value:
    """The swish of a gate times what it lets through."""
    return ops.multiply(swish(node, gate), x)


@onnx_op("LeakyRelu")
def leaky_relu(node: OnnxNode, x: Value) -> Value:
    """``alpha * x`` below zero."""
    of_kind("f", x)
    return ops.leaky_relu(x, node.get_float("alpha", 0.01))


@onnx_op("PRelu")
def prelu(node: OnnxNode, x: Value, slope: Value) -> Value:
    """``slope * x`` below zero, with a slope that broadcasts to `x`."""
    _same_dtype(x, slope)
    of_kind("fi", x)
    return ops.prelu(x, slope)


@onnx_op("Elu")
def elu(node: OnnxNode, x: Value) -> Value:
    """``alpha * (exp(x) - 1)`` below zero."""
    of_kind("f", x)
    return ops.elu(x, node.get_float("alpha", 1.0))


@onnx_op("Celu", since=12)
def celu(node: OnnxNode, x: Value) -> Value:
    """``alpha * (exp(x / alpha) - 1)`` below zero."""
    of_kind("f", x)
    return ops.celu(x, node.get_float("alpha", 1.0))


@onnx_op("Selu")
def selu(node: OnnxNode, x: Value) -> Value:
    """``gamma * elu(x, alpha)``."""
    of_kind("f", x)
    # The defaults of the definition, which are float32 numbers.
    alpha, gamma = node.get_float("alpha", 1.67326319217681884765625), 1.05070102214813232421875
    return ops.selu(x, alpha, node.get_float("gamma", gamma))


@onnx_op("HardSigmoid")
def hard_sigmoid(node: OnnxNode, x: Value) -> Value:
    """``alpha * x + beta`` between 0 and 1."""
    of_kind("f", x)
    return ops.hard_sigmoid(x, node.get_float("alpha", 0.2), node.get_float("beta", 0.5))


@onnx_op("HardSwish", since=14)
def hard_swish(node: OnnxNode, x: Value) -> Value:
    """``x`` times a hard sigmoid of slope 1/6."""
    of_kind("f", x)
    return ops.hard_swish(x)


@onnx_op("Softplus")
def softplus(node: OnnxNode, x: Value) -> Value:
    """``log(1 + exp(x))``."""
    of_kind("f", x)
    return ops.softplus(x)


@onnx_op("ThresholdedRelu", since=10)
def thresholded_relu(node: OnnxNode, x: Value) -> Value:
    """`x` where it is above ``alpha``, else 0."""
    of_kind("f", x)
    return ops.thresholded_relu(x, node.get_float("alpha", 1.0))


@onnx_op("Shrink", since=9)
def shrink(node: OnnxNode, x: Value) -> Value:
    """Moved towards 0 by ``bias`` beyond ``lambd`` on either side, 0 between."""
    of_kind("f", x)
    limit, bias = node.get_float("lambd", 0.5), node.get_float("bias", 0.0)
    above = ops.where(ops.greater(x, limit), ops.subtract(x, bias), 0.0)
    return ops.where(ops.less(x, -limit), ops.add(x, bias), above)


@onnx_op("IsNaN", since=9)
def is_nan(node: OnnxNode, x: Value) -> Value:
    """Where `x` is not a number."""
    of_kind("f", x)
    return ops.isnan(x)


@onnx_op("IsInf", since=10)
def is_inf(node: OnnxNode, x: Value) -> Value:
    """Where `x` is infinite, on the sides that the attributes ask for."""
    of_kind("f", x)
    above, below = node.flag("detect_positive", True), node.flag("detect_negative", True)
    if above and below:
        return ops.isinf(x)
    if above or below:
        return ops.equal(x, float("inf") if above else float("-inf"))
    return ops.less(ops.abs(x), 0.0)  # nowhere


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
        return convert(x, like.dtype)
    return ops.astype(x, like.dtype)
