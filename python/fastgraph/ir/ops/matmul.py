"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastgraph.errors import GraphError
from fastgraph.ir.graph import Value
from fastgraph.ir.opdef import Attrs, register
from fastgraph.ir.ops.arguments import as_value, is_weak, node, owner
from fastgraph.ir.ops.entry import public
from fastgraph.ir.types import FLOAT32, Shape, Spec, broadcast

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


def check_float(op: str, inputs: Sequence[Spec]) -> None:
    """Raise GraphError unless all `inputs` are float32."""
    if any(dtype != FLOAT32 for _, dtype in inputs):
        names = " and ".join(dtype.name for _, dtype in inputs)
        raise GraphError(f"{op}: takes float32, found {names}; use x.astype('float32')")


def infer(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Give NumPy's shape; float32 alone."""
    check_float("matmul", inputs)
    return [(matmul_shape("matmul", inputs[0][0], inputs[1][0]), FLOAT32)]


def reference(arrays: Sequence[np.ndarray[Any, Any]], attrs: Attrs) -> list[np.ndarray[Any, Any]]:
    """Accumulate in float64, so that the oracle loses one rounding alone."""
    with np.errstate(all="ignore"):
        wide = np.matmul(arrays[0].astype(np.float64), arrays[1].astype(np.float64))
        return [np.asarray(wide).astype(np.float32)]


register("matmul", "matmul", infer, reference)


@public("NumPy 2", "float32")
def matmul(x1: Any, x2: Any) -> Value:
    """Return the matrix product over the last axis of `x1` and the last but one of `x2`.

    Parameters
    ----------
    x1, x2 : Value or numpy.ndarray
        float32, of shapes ``[..., M, K]`` and ``[..., K, N]``; leading axes broadcast. A 1-d
        operand is a row on the left and a column on the right, and its axis is dropped.

    Returns
    -------
    Value
        float32, of shape ``[..., M, N]``.

    Raises
    ------
    GraphError
        For another dtype, a 0-d operand, or shapes that do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> a = np.arange(1, 7, dtype="f4").reshape(2, 3)
    >>> reference.apply(ops.matmul, a, np.arange(7, 13, dtype="f4").reshape(3, 2))
    array([[ 58.,  64.],
           [139., 154.]], dtype=float32)
    """
    graph = owner("matmul", (x1, x2))
    if is_weak(x1) or is_weak(x2):
        raise GraphError("matmul: a Python number has no rows; use multiply")
    values = [as_value("matmul", graph, x1), as_value("matmul", graph, x2)]
    return node("matmul", values).outputs[0]
