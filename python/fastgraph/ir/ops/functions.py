"""fg.ops functions on float32: transcendental ones and activations."""

from __future__ import annotations

from typing import Any

from fastgraph.ir.graph import Value
from fastgraph.ir.ops.arguments import float_only, node, one, operands
from fastgraph.ir.ops.entry import public
from fastgraph.ir.types import INT32, INT64

__all__ = [
    "erf",
    "exp",
    "gelu",
    "log",
    "reciprocal",
    "relu",
    "rsqrt",
    "sigmoid",
    "silu",
    "sqrt",
    "tanh",
]


@public("NumPy 2", "float32")
def exp(x: Any) -> Value:
    """Return ``e ** x``.

    Parameters
    ----------
    x : Value
        float32.

    Returns
    -------
    Value
        float32, of the shape of `x`.

    Raises
    ------
    GraphError
        For another dtype, which NumPy would compute in float64.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.exp, np.float32([0, 1]))
    array([1.       , 2.7182817], dtype=float32)
    """
    return node("exp", float_only("exp", x)).outputs[0]


@public("NumPy 2", "float32")
def log(x: Any) -> Value:
    """Return the natural logarithm; -inf for 0, nan below.

    Parameters
    ----------
    x : Value
        float32.

    Returns
    -------
    Value
        float32, of the shape of `x`.

    Raises
    ------
    GraphError
        For another dtype, which NumPy would compute in float64.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.log, np.float32([1, 0]))
    array([  0., -inf], dtype=float32)
    """
    return node("log", float_only("log", x)).outputs[0]


@public("NumPy 2", "float32")
def sqrt(x: Any) -> Value:
    """Return the square root; nan below 0.

    Parameters
    ----------
    x : Value
        float32.

    Returns
    -------
    Value
        float32, of the shape of `x`.

    Raises
    ------
    GraphError
        For another dtype, which NumPy would compute in float64.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.sqrt, np.float32([4, 9]))
    array([2., 3.], dtype=float32)
    """
    return node("sqrt", float_only("sqrt", x)).outputs[0]


@public("own", "float32")
def rsqrt(x: Any) -> Value:
    """Return ``1 / sqrt(x)``; inf for 0, nan below.

    Parameters
    ----------
    x : Value
        float32.

    Returns
    -------
    Value
        float32, of the shape of `x`.

    Raises
    ------
    GraphError
        For another dtype, which NumPy would compute in float64.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.rsqrt, np.float32([4, 0]))
    array([0.5, inf], dtype=float32)
    """
    return node("rsqrt", float_only("rsqrt", x)).outputs[0]


@public("NumPy 2", "float32")
def reciprocal(x: Any) -> Value:
    """Return ``1 / x``.

    Parameters
    ----------
    x : Value
        float32.

    Returns
    -------
    Value
        float32, of the shape of `x`.

    Raises
    ------
    GraphError
        For another dtype, which NumPy would compute in float64.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.reciprocal, np.float32([4, 0]))
    array([0.25,  inf], dtype=float32)
    """
    return node("reciprocal", float_only("reciprocal", x)).outputs[0]


@public("ONNX", "float32")
def erf(x: Any) -> Value:
    """Return the error function.

    Parameters
    ----------
    x : Value
        float32.

    Returns
    -------
    Value
        float32, of the shape of `x`.

    Raises
    ------
    GraphError
        For another dtype, which NumPy would compute in float64.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.erf, np.float32([0, 1]))
    array([0.       , 0.8427008], dtype=float32)
    """
    return node("erf", float_only("erf", x)).outputs[0]


@public("NumPy 2", "float32")
def tanh(x: Any) -> Value:
    """Return the hyperbolic tangent.

    Parameters
    ----------
    x : Value
        float32.

    Returns
    -------
    Value
        float32, of the shape of `x`.

    Raises
    ------
    GraphError
        For another dtype, which NumPy would compute in float64.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.tanh, np.float32([0, 1]))
    array([0.       , 0.7615942], dtype=float32)
    """
    return node("tanh", float_only("tanh", x)).outputs[0]


@public("torch.nn.functional", "float32")
def sigmoid(x: Any) -> Value:
    """Return ``1 / (1 + exp(-x))``.

    Parameters
    ----------
    x : Value
        float32.

    Returns
    -------
    Value
        float32, of the shape of `x`.

    Raises
    ------
    GraphError
        For another dtype, which NumPy would compute in float64.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.sigmoid, np.float32([0, 1]))
    array([0.5      , 0.7310586], dtype=float32)
    """
    return node("sigmoid", float_only("sigmoid", x)).outputs[0]


@public("torch.nn.functional", "float32")
def silu(x: Any) -> Value:
    """Return ``x * sigmoid(x)``.

    Parameters
    ----------
    x : Value
        float32.

    Returns
    -------
    Value
        float32, of the shape of `x`.

    Raises
    ------
    GraphError
        For another dtype, which NumPy would compute in float64.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.silu, np.float32([0, 1]))
    array([0.       , 0.7310586], dtype=float32)
    """
    return node("silu", float_only("silu", x)).outputs[0]


@public("torch.nn.functional", "float32 int32 int64")
def relu(x: Any) -> Value:
    """Return `x` where it is above 0, else 0.

    Parameters
    ----------
    x : Value
        float32, int32 or int64.

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
    if value.dtype in (INT32, INT64):
        return node("maximum", operands("relu", value, 0)).outputs[0]
    return node("relu", float_only("relu", value)).outputs[0]


@public("torch.nn.functional", "float32")
def gelu(x: Any, approximate: str = "none") -> Value:
    """Return ``x`` times the normal distribution function at ``x``.

    Parameters
    ----------
    x : Value
        float32.
    approximate : {"none", "tanh"}
        Exact by erf, or torch's formula with tanh.

    Returns
    -------
    Value
        float32, of the shape of `x`.

    Raises
    ------
    GraphError
        For another dtype or an unknown `approximate`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.gelu, np.float32([1.5, -.5, 0]))
    array([ 1.3997892 , -0.15426877,  0.        ], dtype=float32)
    """
    return node("gelu", float_only("gelu", x), {"approximate": approximate}).outputs[0]
