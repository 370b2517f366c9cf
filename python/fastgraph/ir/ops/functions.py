"""fg.ops functions of one float: exponentials, logarithms, roots."""

from __future__ import annotations

from typing import Any

from fastgraph.ir.graph import Value
from fastgraph.ir.ops.arguments import float_only, floats, node
from fastgraph.ir.ops.entry import public

__all__ = [
    "erf",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "log2",
    "reciprocal",
    "rsqrt",
    "sqrt",
]


@public("NumPy 2", "float int uint bool")
def exp(x: Any) -> Value:
    """Return ``e ** x``.

    Parameters
    ----------
    x : Value
        Integers and bools become floats as in NumPy: of 8 bits float16, of 16 float32, of more
        float64.

    Returns
    -------
    Value
        Of the shape and float dtype of `x`.

    Raises
    ------
    GraphError
        For what is no Value.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.exp, np.float32([0, 1]))
    array([1.       , 2.7182817], dtype=float32)
    """
    return node("exp", [floats("exp", x)]).outputs[0]


@public("NumPy 2", "float int uint bool")
def exp2(x: Any) -> Value:
    """Return ``2 ** x``.

    Parameters
    ----------
    x : Value
        Integers and bools become floats as in NumPy: of 8 bits float16, of 16 float32, of more
        float64.

    Returns
    -------
    Value
        Of the shape and float dtype of `x`.

    Raises
    ------
    GraphError
        For what is no Value.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.exp2, np.float32([0, 3]))
    array([1., 8.], dtype=float32)
    """
    return node("exp2", [floats("exp2", x)]).outputs[0]


@public("NumPy 2", "float int uint bool")
def expm1(x: Any) -> Value:
    """Return ``e ** x - 1``, precise near 0.

    Parameters
    ----------
    x : Value
        Integers and bools become floats as in NumPy: of 8 bits float16, of 16 float32, of more
        float64.

    Returns
    -------
    Value
        Of the shape and float dtype of `x`.

    Raises
    ------
    GraphError
        For what is no Value.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.expm1, np.float32([0, 1e-6]))
    array([0.0000000e+00, 1.0000005e-06], dtype=float32)
    """
    return node("expm1", [floats("expm1", x)]).outputs[0]


@public("NumPy 2", "float int uint bool")
def log(x: Any) -> Value:
    """Return the natural logarithm; -inf for 0, nan below.

    Parameters
    ----------
    x : Value
        Integers and bools become floats as in NumPy: of 8 bits float16, of 16 float32, of more
        float64.

    Returns
    -------
    Value
        Of the shape and float dtype of `x`.

    Raises
    ------
    GraphError
        For what is no Value.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.log, np.float32([1, 0]))
    array([  0., -inf], dtype=float32)
    """
    return node("log", [floats("log", x)]).outputs[0]


@public("NumPy 2", "float int uint bool")
def log1p(x: Any) -> Value:
    """Return ``log(1 + x)``, precise near 0; -inf for -1, nan below.

    Parameters
    ----------
    x : Value
        Integers and bools become floats as in NumPy: of 8 bits float16, of 16 float32, of more
        float64.

    Returns
    -------
    Value
        Of the shape and float dtype of `x`.

    Raises
    ------
    GraphError
        For what is no Value.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.log1p, np.float32([0, 1e-6]))
    array([0.000000e+00, 9.999995e-07], dtype=float32)
    """
    return node("log1p", [floats("log1p", x)]).outputs[0]


@public("NumPy 2", "float int uint bool")
def log2(x: Any) -> Value:
    """Return the logarithm to base 2; -inf for 0, nan below.

    Parameters
    ----------
    x : Value
        Integers and bools become floats as in NumPy: of 8 bits float16, of 16 float32, of more
        float64.

    Returns
    -------
    Value
        Of the shape and float dtype of `x`.

    Raises
    ------
    GraphError
        For what is no Value.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.log2, np.float32([8, 0]))
    array([  3., -inf], dtype=float32)
    """
    return node("log2", [floats("log2", x)]).outputs[0]


@public("NumPy 2", "float int uint bool")
def sqrt(x: Any) -> Value:
    """Return the square root; nan below 0.

    Parameters
    ----------
    x : Value
        Integers and bools become floats as in NumPy: of 8 bits float16, of 16 float32, of more
        float64.

    Returns
    -------
    Value
        Of the shape and float dtype of `x`.

    Raises
    ------
    GraphError
        For what is no Value.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.sqrt, np.float32([4, 9]))
    array([2., 3.], dtype=float32)
    """
    return node("sqrt", [floats("sqrt", x)]).outputs[0]


@public("own", "float")
def rsqrt(x: Any) -> Value:
    """Return ``1 / sqrt(x)``; inf for 0, nan below.

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
    >>> reference.apply(ops.rsqrt, np.float32([4, 0]))
    array([0.5, inf], dtype=float32)
    """
    return node("rsqrt", float_only("rsqrt", x)).outputs[0]


@public("NumPy 2", "float")
def reciprocal(x: Any) -> Value:
    """Return ``1 / x``.

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
    >>> reference.apply(ops.reciprocal, np.float32([4, 0]))
    array([0.25,  inf], dtype=float32)
    """
    return node("reciprocal", float_only("reciprocal", x)).outputs[0]


@public("ONNX", "float")
def erf(x: Any) -> Value:
    """Return the error function.

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
    >>> reference.apply(ops.erf, np.float32([0, 1]))
    array([0.       , 0.8427008], dtype=float32)
    """
    return node("erf", float_only("erf", x)).outputs[0]
