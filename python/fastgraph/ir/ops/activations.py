"""fg.ops functions that are activations of neural networks."""

from __future__ import annotations

from typing import Any

from fastgraph.errors import GraphError
from fastgraph.ir.graph import Value
from fastgraph.ir.ops.arguments import float_only, in_float32, node, number, one, operands
from fastgraph.ir.ops.arithmetic import maximum, minimum
from fastgraph.ir.ops.comparison import where
from fastgraph.ir.ops.entry import public
from fastgraph.ir.ops.functions import exp, expm1, log1p
from fastgraph.ir.ops.trigonometry import tanh
from fastgraph.ir.ops.unary import abs, clip
from fastgraph.ir.types import BOOL, broadcast, is_integer

__all__ = [
    "celu",
    "elu",
    "gelu",
    "hard_sigmoid",
    "hard_swish",
    "leaky_relu",
    "mish",
    "prelu",
    "relu",
    "selu",
    "sigmoid",
    "silu",
    "softplus",
    "softsign",
    "thresholded_relu",
]

SELU_ALPHA = 1.6732632423543772
SELU_GAMMA = 1.0507009873554805


@public("torch.nn.functional", "float")
def sigmoid(x: Any) -> Value:
    """Return ``1 / (1 + exp(-x))``.

    Parameters
    ----------
    x : Value
        Of a float dtype.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For integers and bools.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.sigmoid, np.float32([0, 1]))
    array([0.5      , 0.7310586], dtype=float32)
    """
    return node("sigmoid", float_only("sigmoid", x)).outputs[0]


@public("torch.nn.functional", "float")
def silu(x: Any) -> Value:
    """Return ``x * sigmoid(x)``.

    Parameters
    ----------
    x : Value
        Of a float dtype.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For integers and bools.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.silu, np.float32([0, 1]))
    array([0.       , 0.7310586], dtype=float32)
    """
    return node("silu", float_only("silu", x)).outputs[0]


@public("torch.nn.functional", "float int uint")
def relu(x: Any) -> Value:
    """Return `x` where it is above 0, else 0.

    Parameters
    ----------
    x : Value
        Of a float dtype, or integers.

    Returns
    -------
    Value
        Of the shape and dtype of `x`; nan for nan.

    Raises
    ------
    GraphError
        For bools.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.relu, np.float32([-2, -.5, 0, 1, 3]))
    array([0., 0., 0., 1., 3.], dtype=float32)
    """
    value = one("relu", x)
    if is_integer(value.dtype):
        return node("maximum", operands("relu", value, 0)).outputs[0]
    return node("relu", float_only("relu", value)).outputs[0]


@public("torch.nn.functional", "float")
def gelu(x: Any, approximate: str = "none") -> Value:
    """Return ``x`` times the normal distribution function at ``x``.

    Parameters
    ----------
    x : Value
        Of a float dtype.
    approximate : {"none", "tanh"}
        Exact by erf, or torch's formula with tanh.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For integers and bools, or an unknown `approximate`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.gelu, np.float32([1.5, -.5, 0]))
    array([ 1.3997892 , -0.15426877,  0.        ], dtype=float32)
    """
    return node("gelu", float_only("gelu", x), {"approximate": approximate}).outputs[0]


@public("torch.nn.functional", "float")
def leaky_relu(x: Any, negative_slope: float = 0.01) -> Value:
    """Return `x` where it is above 0, else ``negative_slope * x``.

    Parameters
    ----------
    x : Value
        Of a float dtype.
    negative_slope : float
        What negative elements are multiplied by.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For integers and bools.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.leaky_relu, np.float32([-2, 3]))
    array([-0.02,  3.  ], dtype=float32)
    """
    slope = number("leaky_relu", "negative_slope", negative_slope)
    (value,) = float_only("leaky_relu", x)
    return in_float32(value, lambda v: where(v < 0, v * slope, v))


@public("torch.nn.functional", "float int uint")
def prelu(x: Any, weight: Any) -> Value:
    """Return `x` where it is above 0, else ``weight * x``.

    Parameters
    ----------
    x : Value
        Of a float dtype, or integers.
    weight : Value or numpy.ndarray
        Broadcasts to `x`; dtypes are promoted as in NumPy.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For bools, or a weight that does not broadcast to `x`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.prelu, np.float32([-2, 3]), np.float32(0.25))
    array([-0.5,  3. ], dtype=float32)
    """
    value, slope = operands("prelu", x, weight)
    if value.dtype == BOOL:
        raise GraphError("prelu: takes numbers, found bool; use astype")
    if broadcast([value.shape, slope.shape], "prelu") != value.shape:
        raise GraphError(
            f"prelu: weight of shape {slope.shape} does not broadcast to x of {value.shape}"
        )
    return where(value < 0, value * slope, value)


@public("torch.nn.functional", "float")
def elu(x: Any, alpha: float = 1.0) -> Value:
    """Return `x` where it is above 0, else ``alpha * (exp(x) - 1)``.

    Parameters
    ----------
    x : Value
        Of a float dtype.
    alpha : float
        The negative end of the range.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For integers and bools.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.elu, np.float32([-1, 3]))
    array([-0.63212055,  3.        ], dtype=float32)
    """
    scale = number("elu", "alpha", alpha)
    (value,) = float_only("elu", x)
    return in_float32(value, lambda v: where(v > 0, v, expm1(v) * scale))


@public("torch.nn.functional", "float")
def celu(x: Any, alpha: float = 1.0) -> Value:
    """Return ``max(0, x) + min(0, alpha * (exp(x / alpha) - 1))``.

    Parameters
    ----------
    x : Value
        Of a float dtype.
    alpha : float
        The negative end of the range; not 0.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For integers and bools, or an `alpha` of 0.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.celu, np.float32([-1, 3]))
    array([-0.63212055,  3.        ], dtype=float32)
    """
    scale = number("celu", "alpha", alpha)
    if scale == 0:
        raise GraphError("celu: alpha must not be 0")
    (value,) = float_only("celu", x)

    def build(v: Value) -> Value:
        return maximum(v, 0.0) + minimum(expm1(v / scale) * scale, 0.0)

    return in_float32(value, build)


@public("torch.nn.functional", "float")
def selu(x: Any, alpha: float = SELU_ALPHA, gamma: float = SELU_GAMMA) -> Value:
    """Return ``gamma * x`` where `x` is above 0, else ``gamma * alpha * (exp(x) - 1)``.

    Parameters
    ----------
    x : Value
        Of a float dtype.
    alpha, gamma : float
        By default those that keep mean 0 and variance 1 from layer to layer.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For integers and bools.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.selu, np.float32([-1, 3]))
    array([-1.1113307,  3.152103 ], dtype=float32)
    """
    below, scale = number("selu", "alpha", alpha), number("selu", "gamma", gamma)
    (value,) = float_only("selu", x)
    return in_float32(value, lambda v: where(v > 0, v, expm1(v) * below) * scale)


@public("ONNX", "float")
def hard_sigmoid(x: Any, alpha: float = 0.2, beta: float = 0.5) -> Value:
    """Return ``alpha * x + beta``, cut to the range from 0 to 1.

    Parameters
    ----------
    x : Value
        Of a float dtype.
    alpha, beta : float
        Slope, and value at 0.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For integers and bools.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.hard_sigmoid, np.float32([-5, 0, 1]))
    array([0. , 0.5, 0.7], dtype=float32)
    """
    slope, offset = number("hard_sigmoid", "alpha", alpha), number("hard_sigmoid", "beta", beta)
    (value,) = float_only("hard_sigmoid", x)
    return in_float32(value, lambda v: clip(v * slope + offset, 0.0, 1.0))


@public("ONNX", "float")
def hard_swish(x: Any) -> Value:
    """Return ``x * hard_sigmoid(x, 1 / 6, 0.5)``.

    Parameters
    ----------
    x : Value
        Of a float dtype.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For integers and bools.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.hard_swish, np.float32([-4, 0, 3]))
    array([-0.,  0.,  3.], dtype=float32)
    """
    (value,) = float_only("hard_swish", x)
    return in_float32(value, lambda v: v * clip(v * (1.0 / 6.0) + 0.5, 0.0, 1.0))


@public("torch.nn.functional", "float")
def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Value:
    """Return ``log(1 + exp(beta * x)) / beta``, safe from overflow.

    Parameters
    ----------
    x : Value
        Of a float dtype.
    beta : float
        Sharpness; not 0.
    threshold : float
        Where ``beta * x`` is above it, the result is `x`.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For integers and bools, or a `beta` of 0.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.softplus, np.float32([-1, 0, 30]))
    array([ 0.3132617,  0.6931472, 30.       ], dtype=float32)
    """
    scale, limit = number("softplus", "beta", beta), number("softplus", "threshold", threshold)
    if scale == 0:
        raise GraphError("softplus: beta must not be 0")
    (value,) = float_only("softplus", x)

    def build(v: Value) -> Value:
        scaled = v if scale == 1 else v * scale
        found = log_one_plus_exp(scaled)
        return where(scaled > limit, v, found if scale == 1 else found / scale)

    return in_float32(value, build)


def log_one_plus_exp(x: Value) -> Value:
    """Return ``log(1 + exp(x))`` without overflow on either side."""
    return maximum(x, 0.0) + log1p(exp(-abs(x)))


@public("torch.nn.functional", "float")
def mish(x: Any) -> Value:
    """Return ``x * tanh(log(1 + exp(x)))``.

    Parameters
    ----------
    x : Value
        Of a float dtype.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For integers and bools.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.mish, np.float32([-1, 0, 2]))
    array([-0.30340147,  0.        ,  1.943959  ], dtype=float32)
    """
    (value,) = float_only("mish", x)
    return in_float32(value, lambda v: v * tanh(log_one_plus_exp(v)))


@public("torch.nn.functional", "float")
def softsign(x: Any) -> Value:
    """Return ``x / (1 + abs(x))``.

    Parameters
    ----------
    x : Value
        Of a float dtype.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For integers and bools.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.softsign, np.float32([-1, 0, 3]))
    array([-0.5 ,  0.  ,  0.75], dtype=float32)
    """
    (value,) = float_only("softsign", x)
    return in_float32(value, lambda v: v / (abs(v) + 1.0))


@public("ONNX", "float")
def thresholded_relu(x: Any, alpha: float = 1.0) -> Value:
    """Return `x` where it is above `alpha`, else 0.

    Parameters
    ----------
    x : Value
        Of a float dtype.
    alpha : float
        The threshold.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For integers and bools.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.thresholded_relu, np.float32([-1, 0.5, 3]))
    array([0., 0., 3.], dtype=float32)
    """
    limit = number("thresholded_relu", "alpha", alpha)
    (value,) = float_only("thresholded_relu", x)
    return where(value > limit, value, 0.0)
