"""fg.ops functions of arithmetic, element by element."""

from __future__ import annotations

from typing import Any

from fastgraph.errors import GraphError
from fastgraph.ir.graph import Value
from fastgraph.ir.ops.arguments import convert, is_weak, node, operands
from fastgraph.ir.ops.entry import public
from fastgraph.ir.types import BOOL, FLOAT64, INT8, is_float

__all__ = [
    "add",
    "divide",
    "floor_divide",
    "fmod",
    "maximum",
    "minimum",
    "multiply",
    "power",
    "remainder",
    "subtract",
]


ON_BOOLS = {
    "add": "logical_or",
    "multiply": "logical_and",
    "maximum": "logical_or",
    "minimum": "logical_and",
}
"""What NumPy does for bools."""
IN_INT8 = frozenset({"floor_divide", "remainder", "fmod", "power"})
"""What NumPy computes in int8 for bools."""


def binary(op: str, x1: Any, x2: Any) -> Value:
    """Build the node of `op` on promoted operands."""
    values = operands(op, x1, x2)
    if values[0].dtype == BOOL:
        op = ON_BOOLS.get(op, op)
        if op in IN_INT8:
            values = [convert(value, INT8) for value in values]
    return node(op, values).outputs[0]


@public("NumPy 2", "float int uint bool")
def add(x1: Any, x2: Any) -> Value:
    """Return ``x1 + x2``.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        At least one a Value; they broadcast, and dtypes are promoted as in NumPy 2.

    Returns
    -------
    Value
        Of the result dtype and the broadcast shape; for bools, logical or.

    Raises
    ------
    GraphError
        For shapes that do not broadcast, or dtypes without a common one in NumPy.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.add, np.float32([1, 2, 3, 4]), np.float32([10, 20, 30, 40]))
    array([11., 22., 33., 44.], dtype=float32)
    """
    return binary("add", x1, x2)


@public("NumPy 2", "float int uint")
def subtract(x1: Any, x2: Any) -> Value:
    """Return ``x1 - x2``.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        At least one a Value; they broadcast, and dtypes are promoted as in NumPy 2.

    Returns
    -------
    Value
        Of the result dtype and the broadcast shape.

    Raises
    ------
    GraphError
        For bools, as in NumPy; else as for `add`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.subtract, np.float32([3, 2]), 1)
    array([2., 1.], dtype=float32)
    """
    return binary("subtract", x1, x2)


@public("NumPy 2", "float int uint bool")
def multiply(x1: Any, x2: Any) -> Value:
    """Return ``x1 * x2``.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        At least one a Value; they broadcast, and dtypes are promoted as in NumPy 2.

    Returns
    -------
    Value
        Of the result dtype and the broadcast shape; for bools, logical and.

    Raises
    ------
    GraphError
        For shapes that do not broadcast, or dtypes without a common one in NumPy.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.multiply, np.float32([[1], [2]]), np.float32([3, 4]))
    array([[3., 4.],
           [6., 8.]], dtype=float32)
    """
    return binary("multiply", x1, x2)


@public("NumPy 2", "float int uint bool")
def divide(x1: Any, x2: Any) -> Value:
    """Return ``x1 / x2``.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        At least one a Value; they broadcast, and dtypes are promoted as in NumPy 2.

    Returns
    -------
    Value
        Of the result dtype, for integers and bools float64, and of the broadcast shape. Division
        by 0 gives inf, -inf or nan.

    Raises
    ------
    GraphError
        As for `add`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.divide, np.float32([1, -1, 0]), np.float32([2, 0, 0]))
    array([ 0.5, -inf,  nan], dtype=float32)
    """
    values = operands("divide", x1, x2)
    if not is_float(values[0].dtype):
        values = [convert(value, FLOAT64) for value in values]
    return node("divide", values).outputs[0]


@public("NumPy 2", "float int uint bool")
def floor_divide(x1: Any, x2: Any) -> Value:
    """Return ``x1 // x2``, rounded down.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        At least one a Value; they broadcast, and dtypes are promoted as in NumPy 2.

    Returns
    -------
    Value
        Of the result dtype, int8 for bools, and the broadcast shape. Integers divided by 0 give 0.

    Raises
    ------
    GraphError
        As for `add`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.floor_divide, np.int64([7, -7, 7]), np.int64([2, 2, 0]))
    array([ 3, -4,  0])
    """
    return binary("floor_divide", x1, x2)


@public("NumPy 2", "float int uint bool")
def remainder(x1: Any, x2: Any) -> Value:
    """Return ``x1 % x2``, with the sign of `x2`.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        At least one a Value; they broadcast, and dtypes are promoted as in NumPy 2.

    Returns
    -------
    Value
        Of the result dtype, int8 for bools, and the broadcast shape. Integers modulo 0 give 0.

    Raises
    ------
    GraphError
        As for `add`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.remainder, np.int64([7, -7, 7]), np.int64([2, 2, 0]))
    array([1, 1, 0])
    """
    return binary("remainder", x1, x2)


@public("NumPy 2", "float int uint bool")
def fmod(x1: Any, x2: Any) -> Value:
    """Return the remainder of ``x1 / x2`` with the sign of `x1`, as in C.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        At least one a Value; they broadcast, and dtypes are promoted as in NumPy 2.

    Returns
    -------
    Value
        Of the result dtype, int8 for bools, and the broadcast shape. Integers modulo 0 give 0.

    Raises
    ------
    GraphError
        As for `add`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.fmod, np.int64([7, -7, 7]), np.int64([2, 2, 0]))
    array([ 1, -1,  0])
    """
    return binary("fmod", x1, x2)


@public("NumPy 2", "float int uint bool")
def power(x1: Any, x2: Any) -> Value:
    """Return ``x1 ** x2``.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        At least one a Value; they broadcast, and dtypes are promoted as in NumPy 2.

    Returns
    -------
    Value
        Of the result dtype and the broadcast shape.

    Raises
    ------
    GraphError
        For integers to a negative number; else as for `add`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.power, np.float32([2, 3]), 2)
    array([4., 9.], dtype=float32)
    """
    values = operands("power", x1, x2)
    if not is_float(values[0].dtype) and is_weak(x2) and x2 < 0:
        raise GraphError(
            f"power: {values[0].dtype.name} to the power {x2} is no integer; "
            "use x.astype('float32')"
        )
    if values[0].dtype == BOOL:
        values = [convert(value, INT8) for value in values]
    return node("power", values).outputs[0]


@public("NumPy 2", "float int uint bool")
def maximum(x1: Any, x2: Any) -> Value:
    """Return the larger of two elements.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        At least one a Value; they broadcast, and dtypes are promoted as in NumPy 2.

    Returns
    -------
    Value
        Of the result dtype and the broadcast shape; nan where an operand is.

    Raises
    ------
    GraphError
        For shapes that do not broadcast, or dtypes without a common one in NumPy.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.maximum, np.float32([1, np.nan, 5]), 3)
    array([ 3., nan,  5.], dtype=float32)
    """
    return binary("maximum", x1, x2)


@public("NumPy 2", "float int uint bool")
def minimum(x1: Any, x2: Any) -> Value:
    """Return the smaller of two elements.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        At least one a Value; they broadcast, and dtypes are promoted as in NumPy 2.

    Returns
    -------
    Value
        Of the result dtype and the broadcast shape; nan where an operand is.

    Raises
    ------
    GraphError
        For shapes that do not broadcast, or dtypes without a common one in NumPy.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.minimum, np.float32([1, np.nan, 5]), 3)
    array([ 1., nan,  3.], dtype=float32)
    """
    return binary("minimum", x1, x2)
