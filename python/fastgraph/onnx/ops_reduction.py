"""Reductions, softmax and normalisations."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from fastgraph.ir import ops
from fastgraph.ir.graph import Value
from fastgraph.ir.types import is_float
from fastgraph.onnx.registry import NodeError, OnnxNode, normal_axis, of_kind, onnx_op

Array = np.ndarray[Any, Any]
Reduction = Callable[[Value, tuple[int, ...], bool], Value]


def _by(function: Callable[..., Value]) -> Reduction:
    return lambda x, axis, keepdims: function(x, axis=axis, keepdims=keepdims)


def _top(dtype: np.dtype[Any], sign: int) -> Any:
    """The largest (or with sign -1 the smallest) value of a dtype."""
    if is_float(dtype):
        return sign * np.inf
    if dtype.kind == "b":
        return sign > 0
    return np.iinfo(dtype).max if sign > 0 else np.iinfo(dtype).min


# Those whose results are fractions, which ONNX cuts off for integers.
_FLOAT_ONLY = ("ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp")

# Operator, first opset with axes as an input, reduction, and what an empty set gives.
_REDUCTIONS: tuple[tuple[str, int, Reduction, Callable[[np.dtype[Any]], Any]], ...] = (
    ("ReduceSum", 13, _by(ops.sum), lambda d: 0),
    ("ReduceMean", 18, _by(ops.mean), lambda d: np.nan),
    ("ReduceMax", 18, _by(ops.max), lambda d: _top(d, -1)),
    ("ReduceMin", 18, _by(ops.min), lambda d: _top(d, 1)),
    ("ReduceProd", 18, _by(ops.prod), lambda d: 1),
    ("ReduceSumSquare", 18, _by(ops.reduce_sum_square), lambda d: 0),
    ("ReduceL1", 18, _by(ops.reduce_l1), lambda d: 0),
    ("ReduceL2", 18, _by(ops.reduce_l2), lambda d: 0),
    ("ReduceLogSum", 18, _by(ops.reduce_log_sum), lambda d: -np.inf),
    ("ReduceLogSumExp", 18, _by(ops.reduce_log_sum_exp), lambda d: -np.inf),
)


def _reduce(
    node: OnnxNode,
    x: Value,
    axes: tuple[int, ...] | None,
    reduction: Reduction,
    empty: Callable[[np.dtype[Any]], Any],
) -> Value:
    keepdims = node.flag("keepdims", True)
    if node.op_type in _FLOAT_ONLY:
        of_kind("f", x)
    if not axes and node.flag("noop_with_empty_axes", False):
        axis: tuple[int, ...] = ()
    elif not axes:
        axis = tuple(range(x.ndim))
    else:
        axis = tuple(sorted({normal_axis(a, x.ndim) for a in axes}))
        if len(axis) != len(axes):
            raise NodeError(f"axes {axes} name an axis twice")
    if x.size == 0 and any(x.shape[a] == 0 for a in axis):
        kept = [1 if i in axis else d for i, d in enumerate(x.shape) if keepdims or i not in axis]
        return node.constant(np.full(kept, empty(x.dtype)), x.dtype)
    result = reduction(x, axis, keepdims)
    return result if result.dtype == x.dtype else ops.astype(result, x.dtype)


def _register_reduction(
    op_type: str, since_input: int, reduction: Reduction, empty: Callable[[np.dtype[Any]], Any]
) -> None:
    @onnx_op(op_type, until=since_input - 1)
    def by_attribute(node: OnnxNode, x: Value) -> Value:
        return _reduce(node, x, node.get_ints("axes"), reduction, empty)

    @onnx_op(op_type, since=since_input, static=(1,))
    def by_input(node: OnnxNode, x: Value, axes: Array | None = None) -> Value:
        given = None if axes is None else tuple(int(a) for a in axes.reshape(-1))
        return _reduce(node, x, given, reduction, empty)


for _row in _REDUCTIONS:
    _register_reduction(*_row)


@onnx_op("ArgMax", "ArgMin")
def arg_extreme(node: OnnxNode, x: Value) -> Value:
    """Index of the first (or last) largest or smallest element, as int64."""
    of_kind("fi", x)
    axis = node.axis(x.ndim, 0)
    last = node.flag("select_last_index", False)
    if last:
        x = x[(slice(None),) * axis + (slice(None, None, -1),)]
    function = ops.argmax if node.op_type == "ArgMax" else ops.argmin
    index = function(x, axis=axis, keepdims=node.flag("keepdims", True))
    return ops.subtract(x.shape[axis] - 1, index) if last else index


def _rowwise(node: OnnxNode, x: Value, function: Callable[[Value, int], Value]) -> Value:
    """Softmax and its kin: along one axis, before opset 13 along all axes from one on."""
    of_kind("f", x)
    if node.opset >= 13:
        return function(x, node.axis(x.ndim, -1))
    axis = node.get_int("axis", 1)
    axis = normal_axis(axis, x.ndim) if axis != x.ndim else axis
    if axis == x.ndim - 1:
        return function(x, axis)
    rows = ops.reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))
    return ops.reshape(function(rows, 1), x.shape)


@onnx_op("Softmax")
def softmax(node: OnnxNode, x: Value) -> Value:
    """Exponentials divided by their sum."""
    return _rowwise(node, x, lambda rows, axis: ops.softmax(rows, axis=axis))


@onnx_op("LogSoftmax")
def log_softmax(node: OnnxNode, x: Value) -> Value:
    """Logarithm of the softmax, without the underflow."""
    return _rowwise(node, x, lambda rows, axis: ops.log_softmax(rows, axis=axis))


@onnx_op("Hardmax")
def hardmax(node: OnnxNode, x: Value) -> Value:
    """1 at the first of the largest elements, 0 at the others."""

    def marked(rows: Value, axis: int) -> Value:
        largest = ops.argmax(rows, axis=axis)
        return ops.one_hot(largest, rows.shape[axis], axis=axis, dtype=rows.dtype)

    return _rowwise(node, x, marked)


@onnx_op("LpNormalization")
def lp_normalization(node: OnnxNode, x: Value) -> Value:
    """Divided by the norm along an axis; zeros stay zeros."""
    of_kind("f", x)
    p, axis = node.get_int("p", 2), node.axis(x.ndim, -1)
    if p not in (1, 2):
        raise NodeError(f"p is 1 or 2, found {p}")
    norm = (ops.reduce_l1 if p == 1 else ops.reduce_l2)(x, axis=axis, keepdims=True)
    return ops.divide(x, ops.where(ops.equal(norm, 0), 1, norm))


@onnx_op("MeanVarianceNormalization")
def mean_variance_normalization(node: OnnxNode, x: Value) -> Value:
    """Less the mean, over the deviation, both along ``axes``."""
    of_kind("f", x)
    axes = node.get_ints("axes") or (0, 2, 3)
    over = tuple(normal_axis(axis, x.ndim) for axis in axes)
    centred = ops.subtract(x, ops.mean(x, axis=over, keepdims=True))
    variance = ops.mean(ops.square(centred), axis=over, keepdims=True)
    # The definition adds so much to the deviation.
    return ops.divide(centred, ops.add(ops.sqrt(variance), 1e-9))


def _norm_axes(node: OnnxNode, x: Value) -> tuple[int, ...]:
    of_kind("f", x)
    if node.get_int("stash_type", 1) != 1:
        raise NodeError(
            f"computes in float32 (stash_type=1), not stash_type={node.get_int('stash_type', 1)}"
        )
    return tuple(range(node.axis(x.ndim, -1), x.ndim))


def _fitted(value: Value | None, shape: tuple[int, ...]) -> Value | None:
    """A scale or bias in exactly the normalised shape, if its elements are as many."""
    if value is None or value.shape == shape:
        return value
    if value.size == prod(shape) and value.shape[-len(shape) :] == shape:
        return ops.reshape(value, shape)
    if len(value.shape) > len(shape):
        return None
    return ops.broadcast_to(value, shape)


@onnx_op("LayerNormalization", since=17)
def layer_normalization(
    node: OnnxNode, x: Value, scale: Value, bias: Value | None = None
) -> tuple[Value | None, ...]:
    """Layer norm over the axes from ``axis`` on, with mean and deviation where they are used."""
    axes = _norm_axes(node, x)
    eps = node.get_float("epsilon", 1e-5)
    shape = x.shape[axes[0] :]
    weight, offset = _fitted(scale, shape), _fitted(bias, shape)
    if weight is None or (bias is not None and offset is None):
        y = ops.multiply(ops.layer_norm(x, axis=axes, eps=eps), scale)
        y = y if bias is None else ops.add(y, bias)
    else:
        y = ops.layer_norm(x, weight, offset, axis=axes, eps=eps)
    if not (node.wants(1) or node.wants(2)):
        return (y,)
    x = ops.astype(x, "float32")  # of which mean and deviation are, whatever x is
    mean = ops.mean(x, axis=axes, keepdims=True)
    if not node.wants(2):
        return y, mean
    centred = ops.subtract(x, mean)
    variance = ops.mean(ops.multiply(centred, centred), axis=axes, keepdims=True)
    return y, mean, ops.rsqrt(ops.add(variance, eps))


@onnx_op("RMSNormalization", since=23)
def rms_normalization(node: OnnxNode, x: Value, scale: Value) -> Value:
    """Division by the root of the mean square over the axes from ``axis`` on."""
    axes = _norm_axes(node, x)
    eps = node.get_float("epsilon", 1e-5)
    weight = _fitted(scale, x.shape[axes[0] :])
    if weight is None:
        return ops.multiply(ops.rms_norm(x, axis=axes, eps=eps), scale)
    return ops.rms_norm(x, weight, axis=axes, eps=eps)
