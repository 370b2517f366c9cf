"""fg.ops functions of angles and hyperbolic functions, with their inverses."""

from __future__ import annotations

from typing import Any

from fastgraph.ir.graph import Value
from fastgraph.ir.ops.arguments import floats, node
from fastgraph.ir.ops.entry import public

__all__ = [
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctanh",
    "cos",
    "cosh",
    "sin",
    "sinh",
    "tan",
    "tanh",
]


@public("NumPy 2", "float int uint bool")
def sin(x: Any) -> Value:
    """Return the sine of `x`, in radians.

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
    >>> reference.apply(ops.sin, np.float32([0, 1])).round(4)
    array([0.    , 0.8415], dtype=float32)
    """
    return node("sin", [floats("sin", x)]).outputs[0]


@public("NumPy 2", "float int uint bool")
def cos(x: Any) -> Value:
    """Return the cosine of `x`, in radians.

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
    >>> reference.apply(ops.cos, np.float32([0, 1])).round(4)
    array([1.    , 0.5403], dtype=float32)
    """
    return node("cos", [floats("cos", x)]).outputs[0]


@public("NumPy 2", "float int uint bool")
def tan(x: Any) -> Value:
    """Return the tangent of `x`, in radians.

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
    >>> reference.apply(ops.tan, np.float32([0, 1])).round(4)
    array([0.    , 1.5574], dtype=float32)
    """
    return node("tan", [floats("tan", x)]).outputs[0]


@public("NumPy 2", "float int uint bool")
def arcsin(x: Any) -> Value:
    """Return the angle in radians whose sine is `x`; nan beyond -1 and 1.

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
    >>> reference.apply(ops.arcsin, np.float32([0, 1])).round(4)
    array([0.    , 1.5708], dtype=float32)
    """
    return node("arcsin", [floats("arcsin", x)]).outputs[0]


@public("NumPy 2", "float int uint bool")
def arccos(x: Any) -> Value:
    """Return the angle in radians whose cosine is `x`; nan beyond -1 and 1.

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
    >>> reference.apply(ops.arccos, np.float32([1, 0])).round(4)
    array([0.    , 1.5708], dtype=float32)
    """
    return node("arccos", [floats("arccos", x)]).outputs[0]


@public("NumPy 2", "float int uint bool")
def arctan(x: Any) -> Value:
    """Return the angle in radians whose tangent is `x`.

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
    >>> reference.apply(ops.arctan, np.float32([0, 1])).round(4)
    array([0.    , 0.7854], dtype=float32)
    """
    return node("arctan", [floats("arctan", x)]).outputs[0]


@public("NumPy 2", "float int uint bool")
def sinh(x: Any) -> Value:
    """Return the hyperbolic sine.

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
    >>> reference.apply(ops.sinh, np.float32([0, 1])).round(4)
    array([0.    , 1.1752], dtype=float32)
    """
    return node("sinh", [floats("sinh", x)]).outputs[0]


@public("NumPy 2", "float int uint bool")
def cosh(x: Any) -> Value:
    """Return the hyperbolic cosine.

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
    >>> reference.apply(ops.cosh, np.float32([0, 1])).round(4)
    array([1.    , 1.5431], dtype=float32)
    """
    return node("cosh", [floats("cosh", x)]).outputs[0]


@public("NumPy 2", "float int uint bool")
def tanh(x: Any) -> Value:
    """Return the hyperbolic tangent.

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
    >>> reference.apply(ops.tanh, np.float32([0, 1])).round(4)
    array([0.    , 0.7616], dtype=float32)
    """
    return node("tanh", [floats("tanh", x)]).outputs[0]


@public("NumPy 2", "float int uint bool")
def arcsinh(x: Any) -> Value:
    """Return the inverse of `sinh`.

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
    >>> reference.apply(ops.arcsinh, np.float32([0, 1])).round(4)
    array([0.    , 0.8814], dtype=float32)
    """
    return node("arcsinh", [floats("arcsinh", x)]).outputs[0]


@public("NumPy 2", "float int uint bool")
def arccosh(x: Any) -> Value:
    """Return the inverse of `cosh`; nan below 1.

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
    >>> reference.apply(ops.arccosh, np.float32([1, 2])).round(4)
    array([0.   , 1.317], dtype=float32)
    """
    return node("arccosh", [floats("arccosh", x)]).outputs[0]


@public("NumPy 2", "float int uint bool")
def arctanh(x: Any) -> Value:
    """Return the inverse of `tanh`; nan beyond -1 and 1.

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
    >>> reference.apply(ops.arctanh, np.float32([0, 0.5])).round(4)
    array([0.    , 0.5493], dtype=float32)
    """
    return node("arctanh", [floats("arctanh", x)]).outputs[0]
