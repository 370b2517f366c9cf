"""Softmax and the norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastgraph.errors import GraphError
from fastgraph.ir.graph import Value
from fastgraph.ir.opdef import Attrs, register
from fastgraph.ir.ops.arguments import as_value, float_only, node, number, owner
from fastgraph.ir.ops.entry import public
from fastgraph.ir.ops.numerics import convert, widened
from fastgraph.ir.types import FLOAT64, Shape, Spec, check_axes, check_axis, is_float

__all__ = ["layer_norm", "rms_norm", "softmax"]

Array = np.ndarray[Any, np.dtype[Any]]


def infer_softmax(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Keep the shape; floats alone."""
    ((shape, dtype),) = inputs
    if not is_float(dtype):
        raise GraphError(f"softmax: takes floats, found {dtype.name}; use x.astype('float32')")
    attrs["axis"] = check_axis(attrs["axis"], len(shape), "softmax")
    return [(shape, dtype)]


def softmax_reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Subtract the maximum, in float64."""
    x, axis = arrays[0].astype(FLOAT64), attrs["axis"]
    if x.size == 0:
        return [arrays[0].copy()]
    with np.errstate(all="ignore"):
        found = np.exp(x - np.max(x, axis=axis, keepdims=True))
        return [convert(found / np.sum(found, axis=axis, keepdims=True), arrays[0].dtype)]


def norm_shape(shape: Shape, axes: Sequence[int]) -> Shape:
    """Return the shape of a norm's weight and bias."""
    return tuple(shape[axis] for axis in axes)


def infer_norm(op: str, inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Take x, then residual, weight and bias as the attributes say."""
    shape, kind = inputs[0]
    if not is_float(kind):
        raise GraphError(f"{op}: takes floats, found {kind.name}; use x.astype('float32')")
    attrs["axis"] = check_axes(tuple(attrs["axis"]), len(shape), op)
    attrs["eps"] = number(op, "eps", attrs["eps"])
    if attrs["eps"] < 0:
        raise GraphError(f"{op}: eps must be 0 or more, found {attrs['eps']}")
    residual = attrs.setdefault("residual", False)
    names = ["x"] + ["residual"] * residual
    names += ["weight"] * attrs["weight"] + ["bias"] * attrs["bias"]
    if len(inputs) != len(names):
        raise GraphError(f"{op}: {len(names)} operands are needed, found {len(inputs)}")
    if op == "rms_norm" and attrs["bias"]:
        raise GraphError("rms_norm: takes no bias")
    for name, (found, dtype) in zip(names, inputs, strict=True):
        wanted = shape if name in ("x", "residual") else norm_shape(shape, attrs["axis"])
        if dtype != kind:
            raise GraphError(f"{op}: {name} must be {kind.name}, found {dtype.name}; use astype")
        if found != wanted:
            raise GraphError(
                f"{op}: {name} must have shape {wanted}, that of x {shape} over axis "
                f"{attrs['axis']}, found {found}"
            )
    return [(shape, kind)] * (2 if residual and attrs.setdefault("sum", False) else 1)


def norm_reference(op: str, arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Compute in float64; a residual is added in the kernel's dtype, half types in float32."""
    dtype = arrays[0].dtype
    operands = [widened(array) for array in arrays]
    x = operands.pop(0)
    axes: tuple[int, ...] = attrs["axis"]
    with np.errstate(all="ignore"):
        if attrs.get("residual"):
            x = x + operands.pop(0)
        outputs = [convert(x, dtype)] if attrs.get("residual") and attrs.get("sum") else []
        wide = x.astype(FLOAT64)
        if x.size and axes:
            if op == "layer_norm":
                wide = wide - np.mean(wide, axis=axes, keepdims=True)
            power = np.mean(wide * wide, axis=axes, keepdims=True)
        else:
            wide = wide * 0.0 if op == "layer_norm" else wide
            power = wide * wide
        wide = wide / np.sqrt(power + attrs["eps"])
        inner = tuple(dim if axis in axes else 1 for axis, dim in enumerate(x.shape))
        if attrs["weight"]:
            wide = wide * operands.pop(0).reshape(inner)
        if attrs["bias"]:
            wide = wide + operands.pop(0).reshape(inner)
        return [convert(wide, dtype), *outputs]


register("softmax", "normalization", infer_softmax, softmax_reference)
register(
    "layer_norm",
    "normalization",
    lambda inputs, attrs: infer_norm("layer_norm", inputs, attrs),
    lambda arrays, attrs: norm_reference("layer_norm", arrays, attrs),
)
register(
    "rms_norm",
    "normalization",
    lambda inputs, attrs: infer_norm("rms_norm", inputs, attrs),
    lambda arrays, attrs: norm_reference("rms_norm", arrays, attrs),
)


def norm(op: str, x: Any, weight: Any, bias: Any, axis: Any, eps: Any) -> Value:
    """Build the node of a norm."""
    graph = owner(op, (x, weight, bias))
    values = [*float_only(op, as_value(op, graph, x))]
    values += [as_value(op, graph, one) for one in (weight, bias) if one is not None]
    attrs = {
        "axis": check_axes(axis, values[0].ndim, op),
        "eps": number(op, "eps", eps),
        "weight": weight is not None,
        "bias": bias is not None,
    }
    return node(op, values, attrs).outputs[0]


@public("torch.nn.functional", "float")
def softmax(x: Any, axis: int = -1) -> Value:
    """Return ``exp(x) / sum(exp(x))`` along `axis`, safe from overflow.

    Parameters
    ----------
    x : Value
        Of a float dtype, of any shape with at least one axis.
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
    >>> reference.apply(ops.softmax, np.float32([1, 2, 3])).round(5)
    array([0.09003, 0.24473, 0.66524], dtype=float32)
    """
    (value,) = float_only("softmax", x)
    return node("softmax", [value], {"axis": axis}).outputs[0]


@public("torch.nn.functional", "float")
def layer_norm(
    x: Any, weight: Any = None, bias: Any = None, axis: Any = -1, eps: float = 1e-5
) -> Value:
    """Return `x` with mean 0 and variance 1 over `axis`, scaled by `weight`, moved by `bias`.

    Parameters
    ----------
    x : Value
        Of a float dtype.
    weight, bias : Value or numpy.ndarray, optional
        Of the dtype of `x`, with its shape over `axis`.
    axis : int or tuple of int
        The axes that are normalised together.
    eps : float
        Added to the variance.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For another dtype, a weight or bias of another shape, an axis out of range, a negative
        `eps`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.layer_norm, np.float32([1, 2, 3, 4])).round(4)
    array([-1.3416, -0.4472,  0.4472,  1.3416], dtype=float32)
    """
    return norm("layer_norm", x, weight, bias, axis, eps)


@public("torch.nn.functional", "float")
def rms_norm(x: Any, weight: Any = None, axis: Any = -1, eps: float = 1e-6) -> Value:
    """Return `x` divided by its root mean square over `axis`, scaled by `weight`.

    Parameters
    ----------
    x : Value
        Of a float dtype.
    weight : Value or numpy.ndarray, optional
        Of the dtype of `x`, with its shape over `axis`.
    axis : int or tuple of int
        The axes that are normalised together.
    eps : float
        Added to the mean square. The default is that of Llama models; torch's is the dtype's
        epsilon, 1.19e-7.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        As for `layer_norm`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.rms_norm, np.float32([3, 4])).round(4)
    array([0.8485, 1.1314], dtype=float32)
    """
    return norm("rms_norm", x, weight, None, axis, eps)
