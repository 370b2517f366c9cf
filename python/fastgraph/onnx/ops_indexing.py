"""Places that a run computes: gathers, scatters, the largest elements; and classes as rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastgraph.ir import ops
from fastgraph.ir.graph import Value
from fastgraph.ir.ops.scattering import check_places, gather_elements
from fastgraph.ir.types import INT64, is_integer
from fastgraph.onnx.registry import NodeError, OnnxNode, onnx_op

Array = np.ndarray[Any, Any]

_REDUCTIONS = {
    "none": "none", "add": "add", "mul": "multiply", "max": "maximum", "min": "minimum",
}  # fmt: skip


def _indices(value: Value) -> Value:
    if not is_integer(value.dtype):
        raise NodeError(f"indices must be integers, found {value.dtype.name}")
    return ops.astype(value, INT64)


def _reduction(node: OnnxNode) -> str:
    name = node.get_string("reduction", "none")
    if name not in _REDUCTIONS:
        raise NodeError(f"reduction must be one of {', '.join(_REDUCTIONS)}, found {name!r}")
    return _REDUCTIONS[name]


@onnx_op("GatherElements", since=11)
def gather_each(node: OnnxNode, x: Value, indices: Value) -> Value:
    """Elements by their index along ``axis``."""
    axis = check_places("GatherElements", x, indices, node.get_int("axis", 0))
    if x.shape[axis] == 0 and indices.size:
        raise NodeError(f"axis {axis} of {x.shape} has no elements to take")
    return gather_elements(x, _indices(indices), axis)


@onnx_op("GatherND", since=11)
def gather_nd(node: OnnxNode, x: Value, indices: Value) -> Value:
    """Parts by tuples of indices."""
    return ops.gather_nd(x, _indices(indices), node.get_int("batch_dims", 0))


@onnx_op("Scatter", since=9, until=10)
@onnx_op("ScatterElements", since=11)
def scatter_elements(node: OnnxNode, x: Value, indices: Value, updates: Value) -> Value:
    """Elements put to, or joined with, places by their index along ``axis``."""
    axis = node.get_int("axis", 0)
    return ops.scatter_elements(x, _indices(indices), updates, axis, _reduction(node))


@onnx_op("ScatterND", since=11)
def scatter_nd(node: OnnxNode, x: Value, indices: Value, updates: Value) -> Value:
    """Parts put to, or joined with, places by tuples of indices."""
    return ops.scatter_nd(x, _indices(indices), updates, _reduction(node))


@onnx_op("TopK", until=9)
def top_k_1(node: OnnxNode, x: Value) -> tuple[Value, ...]:
    """The form with k as an attribute."""
    return ops.top_k(x, node.get_int("k"), node.axis(x.ndim, -1))


@onnx_op("TopK", since=10, static=(1,))
def top_k(node: OnnxNode, x: Value, k: Array) -> tuple[Value, ...]:
    """The k largest or smallest elements in order, which also serves where none is asked for."""
    if k.size != 1 or k.dtype.kind not in "iu":
        raise NodeError(f"k must be one integer, found {k.dtype.name}{list(k.shape)}")
    largest = node.flag("largest", True)
    node.flag("sorted", True)
    return ops.top_k(x, int(k.reshape(-1)[0]), node.axis(x.ndim, -1), largest=largest)


@onnx_op("OneHot", since=9, static=(1,))
def one_hot(node: OnnxNode, indices: Value, depth: Array, values: Value) -> Value:
    """The second of `values` where the index says, the first elsewhere."""
    if depth.size != 1 or values.shape != (2,):
        raise NodeError(f"needs one depth and two values, found {depth.size} and {values.shape}")
    count = int(depth.reshape(-1)[0])
    if count < 1:
        raise NodeError(f"depth must be 1 or more, found {count}")
    index = ops.astype(indices, INT64)
    index = ops.where(ops.less(index, 0), ops.add(index, count), index)
    axis = node.axis(indices.ndim, -1, extra=1)
    return ops.where(ops.one_hot(index, count, axis, "bool"), values[1], values[0])


@onnx_op("CumSum", since=11, static=(1,))
def cumulative_sum(node: OnnxNode, x: Value, axis: Array) -> Value:
    """Running sums, in the dtype of the input."""
    if axis.size != 1:
        raise NodeError(f"axis must be one integer, found shape {axis.shape}")
    options = {name: node.flag(name, False) for name in ("exclusive", "reverse")}
    found = ops.cumulative_sum(x, int(axis.reshape(-1)[0]), **options)
    return ops.astype(found, x.dtype)
