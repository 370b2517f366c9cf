"""fg.ops functions that compare, combine truths and choose by them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastgraph.ir.graph import Value
from fastgraph.ir.literals import scalar_array
from fastgraph.ir.ops.arguments import as_value, convert, is_weak, node, operands, owner
from fastgraph.ir.ops.entry import public
from fastgraph.ir.types import BOOL, SIGNED, UINT64, result_dtype

__all__ = [
    "equal",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
    "where",
]


def compare(op: str, x1: Any, x2: Any) -> Value:
    """Build the node of the comparison `op` on promoted operands."""
    kinds = [x.dtype for x in (x1, x2) if hasattr(x, "dtype")]
    if len(kinds) == 2 and UINT64 in kinds and (kinds[0] in SIGNED or kinds[1] in SIGNED):
        return compare_exactly(op, x1, x2)
    return node(op, operands(op, x1, x2)).outputs[0]


def compare_exactly(op: str, x1: Any, x2: Any) -> Value:
    """Compare a signed integer with a uint64, for which NumPy has no common integer dtype."""
    graph = owner(op, (x1, x2))
    values = [as_value(op, graph, x) for x in (x1, x2)]
    first = values[0].dtype in SIGNED
    negative = values[0 if first else 1] < 0
    plain = node(op, [convert(value, UINT64) for value in values]).outputs[0]
    # A negative number is the smaller, whatever the other one is.
    if op == "not_equal" or op.startswith("less" if first else "greater"):
        return logical_or(negative, plain)
    return logical_and(logical_not(negative), plain)


def truths(op: str, *args: Any) -> list[Value]:
    """Return `args` as bool values."""
    graph = owner(op, args)
    arrays = [np.asarray(bool(arg)) if is_weak(arg) else arg for arg in args]
    return [convert(as_value(op, graph, arg), BOOL) for arg in arrays]


@public("NumPy 2", "float int uint bool")
def equal(x1: Any, x2: Any) -> Value:
    """Return whether ``x1 == x2``.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        At least one a Value; they broadcast, and dtypes are promoted as in NumPy 2.

    Returns
    -------
    Value
        bool, of the broadcast shape.

    Raises
    ------
    GraphError
        For shapes that do not broadcast, or dtypes without a common one in NumPy.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.equal, np.int64([1, 2, 3]), 2)
    array([False,  True, False])
    """
    return compare("equal", x1, x2)


@public("NumPy 2", "float int uint bool")
def not_equal(x1: Any, x2: Any) -> Value:
    """Return whether ``x1 != x2``.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        At least one a Value; they broadcast, and dtypes are promoted as in NumPy 2.

    Returns
    -------
    Value
        bool, of the broadcast shape.

    Raises
    ------
    GraphError
        For shapes that do not broadcast, or dtypes without a common one in NumPy.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.not_equal, np.int64([1, 2, 3]), 2)
    array([ True, False,  True])
    """
    return compare("not_equal", x1, x2)


@public("NumPy 2", "float int uint bool")
def less(x1: Any, x2: Any) -> Value:
    """Return whether ``x1 < x2``.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        At least one a Value; they broadcast, and dtypes are promoted as in NumPy 2.

    Returns
    -------
    Value
        bool, of the broadcast shape.

    Raises
    ------
    GraphError
        For shapes that do not broadcast, or dtypes without a common one in NumPy.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.less, np.int64([1, 2, 3]), 2)
    array([ True, False, False])
    """
    return compare("less", x1, x2)


@public("NumPy 2", "float int uint bool")
def less_equal(x1: Any, x2: Any) -> Value:
    """Return whether ``x1 <= x2``.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        At least one a Value; they broadcast, and dtypes are promoted as in NumPy 2.

    Returns
    -------
    Value
        bool, of the broadcast shape.

    Raises
    ------
    GraphError
        For shapes that do not broadcast, or dtypes without a common one in NumPy.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.less_equal, np.int64([1, 2, 3]), 2)
    array([ True,  True, False])
    """
    return compare("less_equal", x1, x2)


@public("NumPy 2", "float int uint bool")
def greater(x1: Any, x2: Any) -> Value:
    """Return whether ``x1 > x2``.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        At least one a Value; they broadcast, and dtypes are promoted as in NumPy 2.

    Returns
    -------
    Value
        bool, of the broadcast shape.

    Raises
    ------
    GraphError
        For shapes that do not broadcast, or dtypes without a common one in NumPy.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.greater, np.int64([1, 2, 3]), 2)
    array([False, False,  True])
    """
    return compare("greater", x1, x2)


@public("NumPy 2", "float int uint bool")
def greater_equal(x1: Any, x2: Any) -> Value:
    """Return whether ``x1 >= x2``.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        At least one a Value; they broadcast, and dtypes are promoted as in NumPy 2.

    Returns
    -------
    Value
        bool, of the broadcast shape.

    Raises
    ------
    GraphError
        For shapes that do not broadcast, or dtypes without a common one in NumPy.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.greater_equal, np.int64([1, 2, 3]), 2)
    array([False,  True,  True])
    """
    return compare("greater_equal", x1, x2)


@public("NumPy 2", "float int uint bool")
def logical_and(x1: Any, x2: Any) -> Value:
    """Return whether ``x1 and x2`` holds.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        At least one a Value; what is not bool counts as True unless it is 0.

    Returns
    -------
    Value
        bool, of the broadcast shape.

    Raises
    ------
    GraphError
        For shapes that do not broadcast.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.logical_and, np.array([True, False]), True)
    array([ True, False])
    """
    return node("logical_and", truths("logical_and", x1, x2)).outputs[0]


@public("NumPy 2", "float int uint bool")
def logical_or(x1: Any, x2: Any) -> Value:
    """Return whether ``x1 or x2`` holds.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        At least one a Value; what is not bool counts as True unless it is 0.

    Returns
    -------
    Value
        bool, of the broadcast shape.

    Raises
    ------
    GraphError
        For shapes that do not broadcast.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.logical_or, np.array([True, False]), True)
    array([ True,  True])
    """
    return node("logical_or", truths("logical_or", x1, x2)).outputs[0]


@public("NumPy 2", "float int uint bool")
def logical_xor(x1: Any, x2: Any) -> Value:
    """Return whether one of `x1` and `x2` holds, and not both.

    Parameters
    ----------
    x1, x2 : Value, number or numpy.ndarray
        At least one a Value; what is not bool counts as True unless it is 0.

    Returns
    -------
    Value
        bool, of the broadcast shape.

    Raises
    ------
    GraphError
        For shapes that do not broadcast.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.logical_xor, np.array([True, False]), True)
    array([False,  True])
    """
    return node("not_equal", truths("logical_xor", x1, x2)).outputs[0]


@public("NumPy 2", "float int uint bool")
def logical_not(x: Any) -> Value:
    """Return whether `x` is False.

    Parameters
    ----------
    x : Value
        What is not bool counts as True unless it is 0.

    Returns
    -------
    Value
        bool, of the shape of `x`.

    Raises
    ------
    GraphError
        For what is no Value.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.logical_not, np.array([True, False]))
    array([False,  True])
    """
    return node("logical_not", truths("logical_not", x)).outputs[0]


@public("NumPy 2", "float int uint bool")
def where(condition: Any, x1: Any, x2: Any) -> Value:
    """Return `x1` where `condition` holds, else `x2`.

    Parameters
    ----------
    condition : Value, bool or numpy.ndarray
        What is not bool counts as True unless it is 0.
    x1, x2 : Value, number or numpy.ndarray
        They broadcast with the condition, and dtypes are promoted as in NumPy 2.

    Returns
    -------
    Value
        Of the result dtype of `x1` and `x2` and the broadcast shape.

    Raises
    ------
    GraphError
        For shapes that do not broadcast, or dtypes without a common one in NumPy.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.where, np.array([True, False]), np.float32([1, 2]), 0)
    array([1., 0.], dtype=float32)
    """
    graph = owner("where", (condition, x1, x2))
    if is_weak(condition):
        condition = np.asarray(bool(condition))
    chosen = convert(as_value("where", graph, condition), BOOL)
    found = [x if is_weak(x) else as_value("where", graph, x) for x in (x1, x2)]
    dtype = result_dtype([x if is_weak(x) else x.dtype for x in found], "where")
    values = [
        graph.constant(scalar_array(x, dtype, "where: operand"))
        if is_weak(x)
        else convert(x, dtype)
        for x in found
    ]
    return node("where", [chosen, *values]).outputs[0]
