"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastgraph.errors import GraphError
from fastgraph.ir.graph import Value
from fastgraph.ir.opdef import Attrs, register
from fastgraph.ir.ops.arguments import convert, is_weak, node, operands
from fastgraph.ir.ops.entry import public
from fastgraph.ir.ops.numerics import convert as converted
from fastgraph.ir.types import BOOL, FLOAT64, INT32, NUMBERS, Shape, Spec, broadcast, is_float

__all__ = ["matmul", "matmul_shape"]


def matmul_shape(op: str, left: Shape, right: Shape) -> Shape:
    """Return the shape of NumPy's matmul; GraphError where the operands do not fit."""
    if not left or not right:
        raise GraphError(
            f"{op}: shapes {left} and {right}: a 0-d operand has no rows; use multiply"
        )
    rows = left if len(left) > 1 else (1, *left)
    columns = right if len(right) > 1 else (*right, 1)
    if rows[-1] != columns[-2]:
        raise GraphError(
            f"{op}: shapes {left} and {right} do not fit: the last axis of the first is "
            f"{rows[-1]}, the {'last but one' if len(right) > 1 else 'only'} axis of the second "
            f"is {columns[-2]}; they must be equal"
        )
    batch = broadcast([rows[:-2], columns[:-2]], f"{op}: batch axes")
    return batch + (rows[-2:-1] if len(left) > 1 else ()) + (columns[-1:] if len(right) > 1 else ())


def check_numbers(op: str, inputs: Sequence[Spec]) -> np.dtype[Any]:
    """Return the one dtype of `inputs`; GraphError unless they are numbers of one dtype."""
    dtypes = [dtype for _, dtype in inputs]
    if any(dtype != dtypes[0] for dtype in dtypes) or dtypes[0] not in NUMBERS:
        names = " and ".join(dtype.name for dtype in dtypes)
        raise GraphError(f"{op}: takes numbers of one dtype, found {names}; use astype")
    return dtypes[0]


def infer(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Give NumPy's shape."""
    dtype = check_numbers("matmul", inputs)
    return [(matmul_shape("matmul", inputs[0][0], inputs[1][0]), dtype)]


def reference(arrays: Sequence[np.ndarray[Any, Any]], attrs: Attrs) -> list[np.ndarray[Any, Any]]:
    """Accumulate floats in float64, so that the oracle loses one rounding alone."""
    x, y = arrays
    with np.errstate(all="ignore"):
        if is_float(x.dtype):
            return [converted(np.matmul(x.astype(FLOAT64), y.astype(FLOAT64)), x.dtype)]
        return [np.asarray(np.matmul(x, y))]


register("matmul", "matmul", infer, reference)


@public("NumPy 2", "float int uint bool")
def matmul(x1: Any, x2: Any) -> Value:
    """Return the matrix product over the last axis of `x1` and the last but one of `x2`.

    Parameters
    ----------
    x1, x2 : Value or numpy.ndarray
        Of shapes ``[..., M, K]`` and ``[..., K, N]``; leading axes broadcast, and dtypes are
        promoted as in NumPy 2. A 1-d operand is a row on the left and a column on the right, and
        its axis is dropped.

    Returns
    -------
    Value
        Of the result dtype, in which integers wrap, and shape ``[..., M, N]``; of bools, whether
        any product is True.

    Raises
    ------
    GraphError
        For dtypes without a common one, a 0-d operand, or shapes that do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> a = np.arange(1, 7, dtype="f4").reshape(2, 3)
    >>> reference.apply(ops.matmul, a, np.arange(7, 13, dtype="f4").reshape(3, 2))
    array([[ 58.,  64.],
           [139., 154.]], dtype=float32)
    """
    if is_weak(x1) or is_weak(x2):
        raise GraphError("matmul: a Python number has no rows; use multiply")
    values = operands("matmul", x1, x2)
    if values[0].dtype != BOOL:
        return node("matmul", values).outputs[0]
    counts = node("matmul", [convert(value, INT32) for value in values]).outputs[0]
    return convert(counts, BOOL)
