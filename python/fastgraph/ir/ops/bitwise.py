"""fg.ops functions of bits."""

from __future__ import annotations

from typing import Any

from fastgraph.ir.graph import Value
from fastgraph.ir.ops.arguments import convert, node, one, operands
from fastgraph.ir.ops.entry import public
from fastgraph.ir.types import BOOL, INT8

__all__ = [
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "invert",
    "left_shift",
    "right_shift",
]


ON_BOOLS = {
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "not_equal",
}


def bits(op: str, x1: Any, x2: Any) -> Value:
    """Build the node of `op` on promoted operands."""
    values = operands(op, x1, x2)
    return node(ON_BOOLS[op] if values[0].dtype == BOOL else op, values).outputs[0]


def shift(op: str, x1: Any, x2: Any) -> Value:
    """Build a shift; NumPy's of bools is one of int8."""
    values = operands(op, x1, x2)
    if values[0].dtype == BOOL:
        values = [convert(value, INT8) for value in values]
    return node(op, values).outputs[0]


@public("NumPy 2", "int uint bool")
def bitwise_and(x1: Any, x2: Any) -> Value:
    """Return ``x1 & x2``, bit by bit.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        Integers or bools, at least one a Value; they broadcast, and dtypes are promoted as in
        NumPy 2.

    Returns
    -------
    Value
        Of the result dtype and the broadcast shape; for bools logical and.

    Raises
    ------
    GraphError
        For floats, or shapes that do not broadcast.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.bitwise_and, np.array([6, 3]), 5)
    array([4, 1])
    """
    return bits("bitwise_and", x1, x2)


@public("NumPy 2", "int uint bool")
def bitwise_or(x1: Any, x2: Any) -> Value:
    """Return ``x1 | x2``, bit by bit.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        Integers or bools, at least one a Value; they broadcast, and dtypes are promoted as in
        NumPy 2.

    Returns
    -------
    Value
        Of the result dtype and the broadcast shape; for bools logical or.

    Raises
    ------
    GraphError
        For floats, or shapes that do not broadcast.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.bitwise_or, np.array([6, 3]), 3)
    array([7, 3])
    """
    return bits("bitwise_or", x1, x2)


@public("NumPy 2", "int uint bool")
def bitwise_xor(x1: Any, x2: Any) -> Value:
    """Return ``x1 ^ x2``, bit by bit.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        Integers or bools, at least one a Value; they broadcast, and dtypes are promoted as in
        NumPy 2.

    Returns
    -------
    Value
        Of the result dtype and the broadcast shape; for bools logical xor.

    Raises
    ------
    GraphError
        For floats, or shapes that do not broadcast.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.bitwise_xor, np.array([6, 3]), np.array([5, 1]))
    array([3, 2])
    """
    return bits("bitwise_xor", x1, x2)


@public("NumPy 2", "int uint")
def left_shift(x1: Any, x2: Any) -> Value:
    """Return ``x1 << x2``.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        Integers, at least one a Value; bools become int8. They broadcast, and dtypes are promoted
        as in NumPy 2.

    Returns
    -------
    Value
        Of the result dtype and the broadcast shape; 0 where `x2` is negative or not less than the
        number of bits.

    Raises
    ------
    GraphError
        For floats, or shapes that do not broadcast.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.left_shift, np.array([5, -8]), 2)
    array([ 20, -32])
    """
    return shift("left_shift", x1, x2)


@public("NumPy 2", "int uint")
def right_shift(x1: Any, x2: Any) -> Value:
    """Return ``x1 >> x2``.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        Integers, at least one a Value; bools become int8. They broadcast, and dtypes are promoted
        as in NumPy 2.

    Returns
    -------
    Value
        Of the result dtype and the broadcast shape; the sign is kept.

    Raises
    ------
    GraphError
        For floats, or shapes that do not broadcast.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.right_shift, np.array([5, -8]), 2)
    array([ 1, -2])
    """
    return shift("right_shift", x1, x2)


@public("NumPy 2", "int uint bool")
def invert(x: Any) -> Value:
    """Return ``~x``, bit by bit.

    Parameters
    ----------
    x : Value
        Integers or bools.

    Returns
    -------
    Value
        Of the shape and dtype of `x`; for bools logical not.

    Raises
    ------
    GraphError
        For floats.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.invert, np.array([0, 5]))
    array([-1, -6])
    """
    value = one("invert", x)
    return node("logical_not" if value.dtype == BOOL else "invert", [value]).outputs[0]
