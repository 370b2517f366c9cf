"""Operators that move elements and compute nothing: their rules and their references."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from fastgraph.errors import GraphError, InputError
from fastgraph.ir.opdef import Attrs, register
from fastgraph.ir.types import (
    Spec,
    broadcast,
    check_axis,
    check_shape,
    is_integer,
)

__all__ = ["ALL"]

ALL = "float int uint bool"
"""The dtypes that movement takes."""

Array = np.ndarray[Any, np.dtype[Any]]


def infer_reshape(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Take a shape of as many elements."""
    ((shape, dtype),) = inputs
    wanted = attrs["shape"] = check_shape(attrs["shape"], "reshape", dtype)
    if prod(shape) != prod(wanted):
        raise GraphError(
            f"reshape: shape {shape} has {prod(shape)} elements, {wanted} has {prod(wanted)}; "
            "they must be equal"
        )
    return [(wanted, dtype)]


def infer_transpose(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Take a permutation of the axes."""
    ((shape, dtype),) = inputs
    axes = attrs["axes"] = tuple(check_axis(one, len(shape), "transpose") for one in attrs["axes"])
    if sorted(axes) != list(range(len(shape))):
        raise GraphError(
            f"transpose: axes {axes} must name each of the {len(shape)} axes of {shape} once"
        )
    return [(tuple(shape[axis] for axis in axes), dtype)]


def infer_slice(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Take one start, size and step per axis, all elements within the axis."""
    ((shape, dtype),) = inputs
    bounds = attrs["starts"], attrs["sizes"], attrs["steps"]
    if any(len(one) != len(shape) for one in bounds):
        raise GraphError(f"slice: one start, size and step per axis of {shape} are needed")
    for axis, (dim, start, size, step) in enumerate(zip(shape, *bounds, strict=True)):
        last = start + (size - 1) * step
        if size < 0 or step == 0 or (size > 0 and not (0 <= start < dim and 0 <= last < dim)):
            raise GraphError(
                f"slice: start {start}, size {size}, step {step} leave axis {axis} of {shape}"
            )
    return [(tuple(attrs["sizes"]), dtype)]


def slice_reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Index axis by axis, since a negative stop has no slice of its own."""
    (found,) = arrays
    bounds = zip(attrs["starts"], attrs["sizes"], attrs["steps"], strict=True)
    for axis, (start, size, step) in enumerate(bounds):
        found = np.take(found, start + step * np.arange(size), axis=axis)
    return [found]


def infer_concat(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Take operands that differ along the axis alone."""
    if not inputs:
        raise GraphError("concat: at least one operand is needed")
    shape, dtype = inputs[0]
    axis = attrs["axis"] = check_axis(attrs["axis"], len(shape), "concat")
    for other, found in inputs[1:]:
        if found != dtype:
            raise GraphError(f"concat: operands are {dtype.name} and {found.name}; use astype")
        if len(other) != len(shape) or any(
            a != b for i, (a, b) in enumerate(zip(shape, other, strict=True)) if i != axis
        ):
            raise GraphError(
                f"concat: shapes {shape} and {other} differ beyond axis {axis}; all other "
                "dimensions must be equal"
            )
    total = sum(other[axis] for other, _ in inputs)
    return [((*shape[:axis], total, *shape[axis + 1 :]), dtype)]


def infer_broadcast_to(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Take a shape that the operand broadcasts to."""
    ((shape, dtype),) = inputs
    wanted = attrs["shape"] = check_shape(attrs["shape"], "broadcast_to", dtype)
    if broadcast([shape, wanted], "broadcast_to") != wanted:
        raise GraphError(f"broadcast_to: shape {shape} does not broadcast to {wanted}")
    return [(wanted, dtype)]


def infer_take(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Put the indices' axes in the place of the axis."""
    (shape, dtype), (indices, found) = inputs
    if not is_integer(found):
        raise GraphError(f"take: indices must be integers, found {found.name}; use astype")
    axis = attrs["axis"] = check_axis(attrs["axis"], len(shape), "take")
    if shape[axis] == 0 and 0 not in indices:
        raise GraphError(f"take: axis {axis} of {shape} has no elements to take")
    return [((*shape[:axis], *indices, *shape[axis + 1 :]), dtype)]


def take_reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Raise InputError where a kernel would flag the run."""
    x, indices = arrays
    axis = attrs["axis"]
    dim = x.shape[axis]
    outside = (indices < -dim) | (indices >= dim)
    if outside.any():
        raise InputError(
            f"take: index {indices[outside].flat[0]} is out of range for axis {axis} of length "
            f"{dim}; allowed are {-dim} to {dim - 1}"
        )
    return [np.take(x, indices.astype(np.int64), axis=axis)]


register(
    "reshape", "movement", infer_reshape, lambda arrays, attrs: [arrays[0].reshape(attrs["shape"])]
)
register(
    "transpose",
    "movement",
    infer_transpose,
    lambda arrays, attrs: [np.transpose(arrays[0], attrs["axes"])],
)
register("slice", "movement", infer_slice, slice_reference)
register(
    "concat",
    "movement",
    infer_concat,
    lambda arrays, attrs: [np.concatenate(arrays, axis=attrs["axis"])],
)
register(
    "broadcast_to",
    "movement",
    infer_broadcast_to,
    lambda arrays, attrs: [np.broadcast_to(arrays[0], attrs["shape"])],
)
register("take", "movement", infer_take, take_reference)
