"""Shapes, slices, joins, constants: what moves or makes data and computes none."""

from __future__ import annotations

from math import ceil, prod
from typing import Any

import numpy as np

from fastgraph.ir import ops
from fastgraph.ir.graph import Value
from fastgraph.ir.types import NUMBERS, check_table, is_integer
from fastgraph.onnx.registry import NodeError, OnnxNode, normal_axis, onnx_op

Array = np.ndarray[Any, Any]


def _integers(array: Array, what: str) -> tuple[int, ...]:
    if array.dtype.kind not in "iu":
        raise NodeError(f"{what} must be integers, found {array.dtype.name}")
    return tuple(int(i) for i in array.reshape(-1))


@onnx_op("Identity", raw=True)
def identity(node: OnnxNode, x: Value | Array) -> Value | Array:
    """The input itself."""
    return x


@onnx_op("Dropout", until=11)
def dropout_7(node: OnnxNode, x: Value) -> tuple[Value | None, ...]:
    """Nothing, in inference, when the mask is "not filled"."""
    if node.wants(1):
        raise NodeError("its mask has no contents in inference before opset 12")
    return (x,)


@onnx_op("Dropout", since=12, static=(1, 2))
def dropout(
    node: OnnxNode, x: Value, ratio: Array | None = None, training: Array | None = None
) -> tuple[Value | None, ...]:
    """Nothing, in inference; training is refused."""
    if training is not None and bool(training.any()) and (ratio is None or bool(ratio.any())):
        raise NodeError("training_mode is true: export the model for inference")
    return (x, node.constant(np.ones(x.shape, bool))) if node.wants(1) else (x,)


@onnx_op("Reshape", static=(1,))
def reshape(node: OnnxNode, x: Value, shape: Array) -> Value:
    """Another shape of the same elements; 0 copies a dimension, -1 takes what is left."""
    wanted = list(_integers(shape, "shape"))
    if not node.flag("allowzero", False):
        for axis, size in enumerate(wanted):
            if size == 0:
                if axis >= x.ndim:
                    raise NodeError(
                        f"shape {tuple(wanted)} copies dimension {axis} of an input of {x.ndim}"
                    )
                wanted[axis] = x.shape[axis]
    if wanted.count(-1) > 1 or min(wanted, default=0) < -1:
        raise NodeError(f"shape {tuple(wanted)} has more than one unknown or a negative size")
    if -1 in wanted:
        known = prod(d for d in wanted if d != -1)
        if known == 0 or x.size % known:
            raise NodeError(f"shape {x.shape} cannot become {tuple(wanted)}")
        wanted[wanted.index(-1)] = x.size // known
    if prod(wanted) != x.size:
        raise NodeError(f"shape {x.shape} of {x.size} elements cannot become {tuple(wanted)}")
    return ops.reshape(x, tuple(wanted))


@onnx_op("Flatten")
def flatten(node: OnnxNode, x: Value) -> Value:
    """Two dimensions: what is before ``axis``, and the rest."""
    axis = node.get_int("axis", 1)
    if not -x.ndim <= axis <= x.ndim:
        raise NodeError(f"axis {axis} is outside a tensor of {x.ndim} dimensions")
    axis = axis + x.ndim if axis < 0 else axis
    return ops.reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


@onnx_op("Squeeze", until=12)
def squeeze_1(node: OnnxNode, x: Value) -> Value:
    """The form with the axes as an attribute."""
    return _squeeze(x, node.get_ints("axes"))


@onnx_op("Squeeze", since=13, static=(1,))
def squeeze(node: OnnxNode, x: Value, axes: Array | None = None) -> Value:
    """Without the named dimensions of size 1, or without all of them."""
    return _squeeze(x, None if axes is None else _integers(axes, "axes"))


def _squeeze(x: Value, axes: tuple[int, ...] | None) -> Value:
    if axes is None:
        drop = {axis for axis, size in enumerate(x.shape) if size == 1}
    else:
        drop = {normal_axis(axis, x.ndim) for axis in axes}
        for axis in drop:
            if x.shape[axis] != 1:
                raise NodeError(f"axis {axis} has size {x.shape[axis]}, not 1")
    return ops.reshape(x, tuple(size for axis, size in enumerate(x.shape) if axis not in drop))


@onnx_op("Unsqueeze", until=12)
def unsqueeze_1(node: OnnxNode, x: Value) -> Value:
    """The form with the axes as an attribute."""
    return _unsqueeze(x, node.get_ints("axes") or ())


@onnx_op("Unsqueeze", since=13, static=(1,))
def unsqueeze(node: OnnxNode, x: Value, axes: Array) -> Value:
    """With dimensions of size 1 at the named places of the result."""
    return _unsqueeze(x, _integers(axes, "axes"))


def _unsqueeze(x: Value, axes: tuple[int, ...]) -> Value:
    rank = x.ndim + len(axes)
    places = {normal_axis(axis, rank) for axis in axes}
    if len(places) != len(axes):
        raise NodeError(f"axes {axes} name a place twice")
    rest = iter(x.shape)
    return ops.reshape(x, tuple(1 if axis in places else next(rest) for axis in range(rank)))


@onnx_op("Expand", since=8, static=(1,))
def expand(node: OnnxNode, x: Value, shape: Array) -> Value:
    """Broadcast of the input and a shape against each other."""
    wanted = _integers(shape, "shape")
    try:
        target = np.broadcast_shapes(x.shape, wanted)
    except ValueError as error:
        raise NodeError(f"shape {x.shape} does not broadcast with {wanted}") from error
    return x if target == x.shape else ops.broadcast_to(x, target)


@onnx_op("Transpose")
def transpose(node: OnnxNode, x: Value) -> Value:
    """Permuted axes, by default reversed."""
    perm = node.get_ints("perm")
    if perm is not None and sorted(perm) != list(range(x.ndim)):
        raise NodeError(f"perm {perm} is no permutation of {x.ndim} axes")
    return ops.transpose(x, perm)


@onnx_op("Concat")
def concat(node: OnnxNode, *values: Value) -> Value:
    """The inputs one after the other along ``axis``."""
    if len({value.dtype for value in values}) > 1:
        found = ", ".join(value.dtype.name for value in values)
        raise NodeError(f"its inputs must have one dtype, found {found}")
    axis = node.axis(values[0].ndim)
    return values[0] if len(values) == 1 else ops.concat(list(values), axis=axis)


@onnx_op("Split", until=12)
def split_2(node: OnnxNode, x: Value) -> tuple[Value, ...]:
    """The form with the sizes as an attribute."""
    return _split(node, x, node.get_ints("split"))


@onnx_op("Split", since=13, static=(1,))
def split(node: OnnxNode, x: Value, sizes: Array | None = None) -> tuple[Value, ...]:
    """Consecutive parts along ``axis``, equal ones where no sizes are given."""
    return _split(node, x, None if sizes is None else _integers(sizes, "split"))


def _split(node: OnnxNode, x: Value, sizes: tuple[int, ...] | None) -> tuple[Value, ...]:
    axis = node.axis(x.ndim, 0)
    length, count = x.shape[axis], len(node.outputs)
    if sizes is None:
        if node.get_int("num_outputs", count) != count:
            raise NodeError(f"num_outputs is {node.get_int('num_outputs')}, but it has {count}")
        if length % count and node.opset < 18:
            raise NodeError(f"axis {axis} of size {length} does not divide into {count} parts")
        part = ceil(length / count)
        sizes = (*([part] * (count - 1)), length - part * (count - 1))
    if len(sizes) != count or sum(sizes) != length or min(sizes) < 0:
        raise NodeError(f"parts {sizes} are not {count} parts of axis {axis} of size {length}")
    parts, start = [], 0
    for size in sizes:
        parts.append(x[(slice(None),) * axis + (slice(start, start + size),)])
        start += size
    return tuple(parts)


@onnx_op("Slice", until=9)
def slice_1(node: OnnxNode, x: Value) -> Value:
    """The form with the bounds as attributes."""
    starts, ends = node.get_ints("starts"), node.get_ints("ends")
    if starts is None or ends is None:
        raise NodeError("attributes 'starts' and 'ends' are needed")
    return _slice(x, starts, ends, node.get_ints("axes"), None)


@onnx_op("Slice", since=10, static=(1, 2, 3, 4))
def slice_10(
    node: OnnxNode,
    x: Value,
    starts: Array,
    ends: Array,
    axes: Array | None = None,
    steps: Array | None = None,
) -> Value:
    """A part of every named axis, with steps of either sign."""
    return _slice(
        x,
        _integers(starts, "starts"),
        _integers(ends, "ends"),
        None if axes is None else _integers(axes, "axes"),
        None if steps is None else _integers(steps, "steps"),
    )


def _slice(
    x: Value,
    starts: tuple[int, ...],
    ends: tuple[int, ...],
    axes: tuple[int, ...] | None,
    steps: tuple[int, ...] | None,
) -> Value:
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise NodeError(
            f"starts {starts}, ends {ends}, axes {axes} and steps {steps} differ in length"
        )
    key = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0:
            raise NodeError("a step is 0")
        axis = normal_axis(axis, x.ndim)
        # Clamping is Python's own, except that ONNX lets a start before the first element of a
        # backward slice stand for that element.
        dim = x.shape[axis]
        if step < 0 and start < -dim:
            start = 0
        taken = range(*slice(start, end, step).indices(dim))
        stop: int | None = taken.start + len(taken) * step
        key[axis] = slice(taken.start, None if stop is not None and stop < 0 else stop, step)
        if not taken:
            key[axis] = slice(0, 0)
    return x[tuple(key)]


@onnx_op("Gather")
def gather(node: OnnxNode, x: Value, indices: Value) -> Value:
    """Entries along ``axis`` by index, from the end where the index is negative."""
    if not is_integer(indices.dtype):
        raise NodeError(f"indices must be integers, found {indices.dtype.name}")
    return ops.take(x, indices, axis=node.axis(x.ndim, 0))


@onnx_op("Shape", raw=True, shape_only=True)
def shape_of(node: OnnxNode, x: Value | Array) -> Array:
    """The shape, or a part of it."""
    start = node.get_int("start", 0)
    end = node.get_int("end", len(x.shape))
    return np.array(x.shape[start:end], np.int64)


@onnx_op("Size", raw=True, shape_only=True)
def size_of(node: OnnxNode, x: Value | Array) -> Array:
    """The number of elements."""
    return np.array(prod(x.shape), np.int64)


@onnx_op("Constant", raw=True)
def constant(node: OnnxNode) -> Array:
    """The array given by whichever attribute there is."""
    if len(node.attributes) != 1:
        raise NodeError(f"needs exactly one attribute, found {sorted(node.attributes) or 'none'}")
    (name, found), *_ = node.attributes.items()
    if name == "value":
        return node.tensor("value")
    if name in ("value_float", "value_floats"):
        return np.array(found, np.float32)
    if name in ("value_int", "value_ints"):
        return np.array(found, np.int64)
    raise NodeError(f"a constant by attribute '{name}' is not supported")


@onnx_op("ConstantOfShape", since=9, raw=True, static=(0,))
def constant_of_shape(node: OnnxNode, shape: Array) -> Array:
    """One value in every place of a shape."""
    value = node.tensor("value") if node.has("value") else np.zeros(1, np.float32)
    sizes = _integers(shape, "shape")
    if value.size != 1 or min(sizes, default=0) < 0:
        raise NodeError(f"needs one value and sizes of 0 or more, found {value.size} and {sizes}")
    check_table(sizes, value.dtype, "constant_of_shape")
    return np.full(sizes, value.reshape(-1)[0])


@onnx_op("Range", since=11, raw=True, static=(0, 1, 2))
def range_of(node: OnnxNode, start: Array, limit: Array, delta: Array) -> Array:
    """``start, start + delta, …`` up to `limit`, which must be known at import."""
    if any(array.size != 1 for array in (start, limit, delta)):
        raise NodeError("start, limit and delta must be scalars")
    if len({array.dtype for array in (start, limit, delta)}) > 1 or start.dtype not in NUMBERS:
        raise NodeError("start, limit and delta must be numbers of one dtype")
    first, last, step = (array.reshape(-1)[0].item() for array in (start, limit, delta))
    if step == 0 or not np.isfinite([first, last, step]).all():
        raise NodeError(f"start {first}, limit {last} and delta {step} make no sequence")
    count = max(ceil((last - first) / step), 0)
    check_table((count,), start.dtype, "range")
    sequence: Array = (first + np.arange(count) * step).astype(start.dtype)
    return sequence
