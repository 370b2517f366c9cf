"""Products whose rows choose their matrix: layers of a mixture of experts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastgraph.errors import GraphError, InputError
from fastgraph.ir.graph import Value
from fastgraph.ir.opdef import Attrs, register
from fastgraph.ir.ops.arguments import as_value, float_only, node, owner
from fastgraph.ir.ops.entry import public
from fastgraph.ir.ops.numerics import convert
from fastgraph.ir.ops.ordering import layer_of
from fastgraph.ir.types import INT32, INT64, Spec, is_float

__all__ = ["grouped_matmul"]

Array = np.ndarray[Any, np.dtype[Any]]


def infer(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Take rows, a matrix per expert, and each row's expert."""
    (x, dtype), (w, found), (ids, kind) = inputs
    if not is_float(dtype) or found != dtype:
        raise GraphError(
            f"grouped_matmul: takes x and w of one float dtype, found {dtype.name} and {found.name}"
        )
    if kind not in (INT32, INT64):
        raise GraphError(f"grouped_matmul: ids must be int32 or int64, found {kind.name}")
    if len(x) != 2 or len(w) != 3 or x[1] != w[1]:
        raise GraphError(
            f"grouped_matmul: x must be (rows, k) and w (experts, k, n), found {x} and {w}"
        )
    if ids != x[:1]:
        raise GraphError(f"grouped_matmul: ids must have shape {x[:1]}, one a row, found {ids}")
    if w[0] == 0 and x[0]:
        raise GraphError("grouped_matmul: w has no experts to choose from")
    return [((x[0], w[2]), dtype)]


def reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Multiply row by row in float64."""
    x, w, ids = arrays
    outside = (ids < 0) | (ids >= len(w))
    if outside.any():
        raise InputError(
            f"grouped_matmul: expert {ids[outside][0]} is out of range; there are 0 to {len(w) - 1}"
        )
    out = np.zeros((len(x), w.shape[2]))
    with np.errstate(all="ignore"):
        for expert in np.unique(ids):
            rows = ids == expert
            out[rows] = x[rows].astype(np.float64) @ w[expert].astype(np.float64)
        return [convert(out, x.dtype)]


register("grouped_matmul", "matmul", infer, reference)


@public("own", "float")
def grouped_matmul(x: Any, w: Any, ids: Any, layer: int | None = None) -> Value:
    """Return the product of each row of `x` with the matrix of its expert.

    Parameters
    ----------
    x : Value
        Of shape (rows, k).
    w : Value or numpy.ndarray
        Of shape (experts, k, n).
    ids : Value or numpy.ndarray
        int32 or int64 of shape (rows,): each row's expert, in any order.
    layer : int, optional
        Which layer of a mixture of experts this belongs to: the place of its mask in
        `CompiledGraph.set_moe_resident_experts_per_layer`. Several products may share one. Without
        it, the one after that of the `grouped_matmul` written before, from 0 on.

    Returns
    -------
    Value
        Of shape (rows, n).

    Raises
    ------
    GraphError
        For shapes or dtypes that do not fit. An expert that is out of range, also a negative one,
        makes the run raise InputError.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> w = np.stack([np.eye(2, dtype="f4"), 2 * np.eye(2, dtype="f4")])
    >>> reference.apply(ops.grouped_matmul, np.float32([[1, 2], [3, 4]]), w, np.array([0, 1]))
    array([[1., 2.],
           [6., 8.]], dtype=float32)
    """
    graph = owner("grouped_matmul", (x, w, ids))
    values = float_only("grouped_matmul", *(as_value("grouped_matmul", graph, v) for v in (x, w)))
    values.append(as_value("grouped_matmul", graph, ids))
    attrs = {"layer": layer_of(graph, "grouped_matmul", layer)}
    return node("grouped_matmul", values, attrs).outputs[0]
