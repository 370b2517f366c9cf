"""fg.ops functions that are written out in others, which passes fuse."""

from __future__ import annotations

from typing import Any

from fastgraph.errors import GraphError
from fastgraph.ir.graph import Value
from fastgraph.ir.ops.arguments import as_value, convert, float_only, in_float32, integers, owner
from fastgraph.ir.ops.arithmetic import add, multiply, subtract
from fastgraph.ir.ops.entry import public
from fastgraph.ir.ops.functions import exp, log
from fastgraph.ir.ops.normalization import layer_norm
from fastgraph.ir.ops.reduction import max, sum
from fastgraph.ir.ops.shaping import reshape
from fastgraph.ir.types import check_axis

__all__ = ["group_norm", "log_softmax"]


@public("torch.nn.functional", "float")
def log_softmax(x: Any, axis: int = -1) -> Value:
    """Return the logarithm of `softmax`, without its underflow.

    Parameters
    ----------
    x : Value
        Of any float dtype, with at least one axis.
    axis : int

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For another dtype or an axis out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.log_softmax, np.float32([1, 2, 3])).round(5)
    array([-2.40761, -1.40761, -0.40761], dtype=float32)
    """
    (value,) = float_only("log_softmax", x)
    axis = check_axis(axis, value.ndim, "log_softmax")
    if value.size == 0:
        return value

    def build(x: Value) -> Value:
        shifted = subtract(x, max(x, axis=axis, keepdims=True))
        return subtract(shifted, log(sum(exp(shifted), axis=axis, keepdims=True)))

    return in_float32(value, build)


@public("torch.nn.functional", "float")
def group_norm(
    x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Value:
    """Return `x` with mean 0 and variance 1 over groups of channels, scaled and moved by channel.

    Parameters
    ----------
    x : Value
        Of any float dtype and of shape (batch, channels, ...).
    num_groups : int
        Into how many groups of successive channels; as many as channels is instance norm.
    weight, bias : Value or numpy.ndarray, optional
        Of shape (channels,) and the dtype of `x`.
    eps : float
        Added to the variance.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For another dtype, channels that do not divide into the groups, a weight or bias of another
        shape.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.group_norm, np.float32([[1, 3, 10, 30]]), 2).round(3)
    array([[-1.,  1., -1.,  1.]], dtype=float32)
    """
    graph = owner("group_norm", (x, weight, bias))
    (value,) = float_only("group_norm", as_value("group_norm", graph, x))
    (groups,) = integers("group_norm", "num_groups", num_groups)
    if value.ndim < 2:
        raise GraphError(f"group_norm: (batch, channels, ...) is needed, found shape {value.shape}")
    batch, channels, *rest = value.shape
    if groups < 1 or channels % groups:
        raise GraphError(
            f"group_norm: {channels} channels do not divide into {groups} groups; the first must "
            "be a multiple of the second"
        )
    factors = []
    for name, factor in (("weight", weight), ("bias", bias)):
        if factor is None:
            continue
        operand = as_value("group_norm", graph, factor)
        if operand.shape != (channels,) or operand.dtype != value.dtype:
            raise GraphError(
                f"group_norm: {name} must be {value.dtype.name}[{channels}], found "
                f"{operand.dtype.name}{list(operand.shape)}"
            )
        factors.append((name, reshape(operand, (channels, *(1 for _ in rest)))))
    size = value.size // (batch * groups) if batch else 0

    def build(x: Value) -> Value:
        found = layer_norm(reshape(x, (batch, groups, size)), eps=eps)
        found = reshape(found, x.shape)
        for name, factor in factors:
            factor = convert(factor, found.dtype)
            found = multiply(found, factor) if name == "weight" else add(found, factor)
        return found

    return in_float32(value, build)
