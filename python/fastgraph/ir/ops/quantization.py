"""fg.ops functions between integers of few bits and the numbers that they stand for.

The meaning is that of ONNX's DequantizeLinear and QuantizeLinear: one scale for the whole, for each
index of an axis, or for each block of indices along it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fastgraph.errors import GraphError
from fastgraph.ir.graph import Value
from fastgraph.ir.ops.arguments import as_value, convert, integers, owner
from fastgraph.ir.ops.arithmetic import add, divide, multiply, subtract
from fastgraph.ir.ops.entry import public
from fastgraph.ir.ops.shaping import broadcast_to, reshape
from fastgraph.ir.ops.unary import round
from fastgraph.ir.types import check_axis, check_dtype, computed_in, is_float, is_integer

__all__ = ["dequantize", "quantize"]

# Whose numbers are exact in float32, and so their limits.
STORED = tuple(np.dtype(name) for name in ("int8", "uint8", "int16", "uint16"))


@public("ONNX", "int uint")
def dequantize(
    x: Any, scale: Any, zero_point: Any = None, axis: int = 1, block_size: int = 0
) -> Value:
    """Return ``(x - zero_point) * scale``: what quantised integers stand for.

    Parameters
    ----------
    x : Value
        Of any integer dtype.
    scale : Value or numpy.ndarray
        Of a float dtype. Of shape () or (1,): for all of `x`; with one axis as long as `axis` of
        `x`: for each index of that; of the rank of `x`: for each block along `axis`.
    zero_point : Value or numpy.ndarray, optional
        Of the dtype of `x` and the shape of `scale`; what stands for 0.
    axis : int
        Along which scales differ.
    block_size : int
        How many successive indices along `axis` share a scale, where `scale` has the rank of `x`;
        the last block may be shorter.

    Returns
    -------
    Value
        Of the shape of `x` and the dtype of `scale`; computed in float32 for half types.

    Raises
    ------
    GraphError
        For another dtype, or shapes that do not fit each other; the graph is as it was.

    Notes
    -----
    ONNX operator DequantizeLinear. Where `x` and `scale` are parameters, the set program computes
    this once.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> weight, scale = np.int8([[2, 3, 4, 5]]), np.float32([[1, 10]])
    >>> reference.apply(ops.dequantize, weight, scale, block_size=2)
    array([[ 2.,  3., 40., 50.]], dtype=float32)
    """
    what = "dequantize"
    graph = owner(what, (x, scale, zero_point))
    value, factor = as_value(what, graph, x), as_value(what, graph, scale)
    if not is_integer(value.dtype):
        raise GraphError(f"{what}: {value.label} is {value.dtype.name}; integers are dequantised")
    zero = _zero(what, graph, zero_point, value.dtype, factor)

    def build(values: Value, spread: Callable[[Value], Value]) -> Value:
        wide = computed_in(factor.dtype)
        found = convert(values, wide)
        if zero is not None:
            found = subtract(found, spread(convert(zero, wide)))
        return convert(multiply(found, spread(convert(factor, wide))), factor.dtype)

    return _by_scale(what, value, factor, axis, block_size, build)


@public("ONNX", "float")
def quantize(
    x: Any,
    scale: Any,
    zero_point: Any = None,
    axis: int = 1,
    block_size: int = 0,
    dtype: Any = "uint8",
) -> Value:
    """Return ``round(x / scale) + zero_point`` as integers, cut at the limits of their dtype.

    Parameters
    ----------
    x : Value
        Of any float dtype. What is not a number becomes 0.
    scale : Value or numpy.ndarray
        As for `dequantize`, of the dtype of `x`.
    zero_point : Value or numpy.ndarray, optional
        As for `dequantize`; gives the dtype of the result.
    axis, block_size : int
        As for `dequantize`.
    dtype : dtype
        Of the result where there is no `zero_point`: int8, uint8, int16 or uint16.

    Returns
    -------
    Value
        Of the shape of `x`. Halves are rounded to the even number.

    Raises
    ------
    GraphError
        For another dtype, or shapes that do not fit each other; the graph is as it was.

    Notes
    -----
    ONNX operator QuantizeLinear; computed in float32, or in float64 for that.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.quantize, np.float32([0.5, 1.5, 3, 900]), np.float32(1), axis=0)
    array([  0,   2,   3, 255], dtype=uint8)
    """
    what = "quantize"
    graph = owner(what, (x, scale, zero_point))
    value, factor = as_value(what, graph, x), as_value(what, graph, scale)
    if not is_float(value.dtype) or factor.dtype != value.dtype:
        raise GraphError(
            f"{what}: {value.label} is {value.dtype.name} and scale {factor.dtype.name}; both must "
            "be of one float dtype"
        )
    wanted = check_dtype(dtype, what)
    if zero_point is not None:
        wanted = as_value(what, graph, zero_point).dtype
    if wanted not in STORED:
        raise GraphError(
            f"{what}: the result can be {', '.join(one.name for one in STORED)}, not {wanted.name}"
        )
    zero = _zero(what, graph, zero_point, wanted, factor)

    def build(values: Value, spread: Callable[[Value], Value]) -> Value:
        wide = computed_in(value.dtype)
        found = round(divide(convert(values, wide), spread(convert(factor, wide))))
        if zero is not None:
            found = add(found, spread(convert(zero, wide)))
        return convert(found, wanted)  # which cuts at the limits

    return _by_scale(what, value, factor, axis, block_size, build)


def _zero(what: str, graph: Any, given: Any, dtype: Any, scale: Value) -> Value | None:
    if not is_float(scale.dtype):
        raise GraphError(f"{what}: scale is {scale.dtype.name}, but it must be of a float dtype")
    if given is None:
        return None
    zero = as_value(what, graph, given)
    if zero.dtype != dtype or zero.shape != scale.shape:
        raise GraphError(
            f"{what}: zero_point must be {dtype.name}{list(scale.shape)}, found "
            f"{zero.dtype.name}{list(zero.shape)}"
        )
    return zero


def _by_scale(
    what: str,
    x: Value,
    scale: Value,
    axis: int,
    block_size: int,
    build: Callable[[Value, Callable[[Value], Value]], Value],
) -> Value:
    """Return ``build(x, spread)``; `spread` lets what has the shape of `scale` meet `x`."""
    (size,) = integers(what, "block_size", block_size)
    if size < 0:
        raise GraphError(f"{what}: block_size must be 0 or more, found {size}")
    if size == 0 and scale.shape in ((), (1,)):
        return build(x, lambda one: reshape(one, ()))
    axis = check_axis(axis, x.ndim, what)
    count = x.shape[axis]
    if size == 0:
        if scale.shape != (count,):
            raise GraphError(
                f"{what}: scale must have shape () or ({count},), as axis {axis} of "
                f"{list(x.shape)} has it, found {list(scale.shape)}; blocks need a block_size"
            )
        shape = tuple(count if i == axis else 1 for i in range(x.ndim))
        return build(x, lambda one: reshape(one, shape))
    n_blocks = -(-count // size)
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    if scale.shape != (*before, n_blocks, *after):
        raise GraphError(
            f"{what}: for blocks of {size} along axis {axis} of {list(x.shape)} scale must have "
            f"shape {[*before, n_blocks, *after]}, found {list(scale.shape)}"
        )
    if count == n_blocks * size:
        apart = reshape(x, (*before, n_blocks, size, *after))
        found = build(apart, lambda one: reshape(one, (*before, n_blocks, 1, *after)))
        return reshape(found, x.shape)
    key = (*(slice(None) for _ in before), slice(0, count))

    def spread(one: Value) -> Value:
        each = reshape(one, (*before, n_blocks, 1, *after))
        each = broadcast_to(each, (*before, n_blocks, size, *after))
        return reshape(each, (*before, n_blocks * size, *after))[key]

    return build(x, spread)
