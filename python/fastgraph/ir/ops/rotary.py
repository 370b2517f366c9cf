"""Positions brought into queries and keys by rotation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastgraph.errors import GraphError, InputError
from fastgraph.ir.graph import Value
from fastgraph.ir.opdef import Attrs, register
from fastgraph.ir.ops.arguments import as_value, flag, float_only, integers, node, owner
from fastgraph.ir.ops.entry import public
from fastgraph.ir.ops.numerics import convert
from fastgraph.ir.types import INT32, INT64, Spec, is_float

__all__ = ["rotary_embedding"]

Array = np.ndarray[Any, np.dtype[Any]]


def infer(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Take x of four axes, cosines and sines of half as many elements, and perhaps positions.

    With ``rows_first`` x is (batch, positions, heads, elements), else (batch, heads, positions,
    elements). ``length`` elements of a head are rotated.
    """
    (x, dtype), (cos, _), (sin, _) = inputs[:3]
    if not is_float(dtype) or any(found != dtype for _, found in inputs[1:3]):
        names = ", ".join(found.name for _, found in inputs[:3])
        raise GraphError(
            f"rotary_embedding: takes x, cos and sin of one float dtype, found {names}"
        )
    if len(x) != 4:
        raise GraphError(
            f"rotary_embedding: x must have four axes (batch, heads, positions, elements), found "
            f"shape {x}; use reshape and transpose"
        )
    length = attrs["length"]
    if length % 2 or not 0 <= length <= x[3]:
        raise GraphError(
            f"rotary_embedding: {length} of {x[3]} elements cannot be rotated; the number must be "
            "even and no larger"
        )
    batch, count = x[0], x[1 if attrs["rows_first"] else 2]
    if len(inputs) == 3:
        wanted = f"({batch} or 1, {count}, {length // 2})"
        fits = len(cos) == 3 and cos[0] in (1, batch) and cos[1:] == (count, length // 2)
    else:
        wanted = f"(all positions, {length // 2})"
        fits = len(cos) == 2 and cos[1] == length // 2
        positions, kind = inputs[3]
        if kind not in (INT32, INT64):
            raise GraphError(
                f"rotary_embedding: position_ids must be int32 or int64, found {kind.name}"
            )
        if len(positions) != 2 or positions[0] not in (1, batch) or positions[1] != count:
            raise GraphError(
                f"rotary_embedding: position_ids must have shape ({batch} or 1, {count}), found "
                f"{positions}"
            )
    if not fits or sin != cos:
        raise GraphError(
            f"rotary_embedding: cos and sin must have shape {wanted}, found {cos} and {sin}"
        )
    return [(x, dtype)]


def reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Rotate pairs in float64."""
    x, cos, sin = (array.astype(np.float64) for array in arrays[:3])
    if len(arrays) == 4:
        outside = (arrays[3] < 0) | (arrays[3] >= len(cos))
        if outside.any():
            raise InputError(
                f"rotary_embedding: position {arrays[3][outside][0]} is out of range; cos and sin "
                f"have 0 to {len(cos) - 1}"
            )
        cos, sin = cos[arrays[3]], sin[arrays[3]]
    heads = 2 if attrs["rows_first"] else 1
    cos, sin = np.expand_dims(cos, heads), np.expand_dims(sin, heads)
    half = attrs["length"] // 2
    if attrs["interleaved"]:
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    else:
        first, second = slice(0, half), slice(half, 2 * half)
    out = x.copy()
    with np.errstate(all="ignore"):
        out[..., first] = x[..., first] * cos - x[..., second] * sin
        out[..., second] = x[..., first] * sin + x[..., second] * cos
        return [convert(out, arrays[0].dtype)]


register("rotary_embedding", "attention", infer, reference)


@public("ONNX", "float")
def rotary_embedding(
    x: Any,
    cos: Any,
    sin: Any,
    position_ids: Any = None,
    *,
    interleaved: bool = False,
    rotary_embedding_dim: int | None = None,
) -> Value:
    """Return `x` with pairs of elements rotated by angles that depend on the position.

    Parameters
    ----------
    x : Value
        Of shape (batch, heads, positions, elements).
    cos, sin : Value or numpy.ndarray
        Of the angles, half as many as elements are rotated: of shape (all positions, half) with
        `position_ids`, else of shape (batch or 1, positions, half).
    position_ids : Value or numpy.ndarray, optional
        int32 or int64 of shape (batch or 1, positions): the rows of `cos` and `sin`.
    interleaved : bool
        Whether pairs are neighbours; else an element's partner is half the rotated ones away.
    rotary_embedding_dim : int, optional
        How many elements are rotated, from the first on; the others stay. By default all.

    Returns
    -------
    Value
        Of the shape and dtype of `x`.

    Raises
    ------
    GraphError
        For shapes or dtypes that do not fit. A position that is out of range makes the run raise
        InputError.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> x = np.float32([[[[1, 2]]]])
    >>> quarter = np.zeros((1, 1, 1), "f4"), np.ones((1, 1, 1), "f4")
    >>> reference.apply(ops.rotary_embedding, x, *quarter)
    array([[[[-2.,  1.]]]], dtype=float32)
    """
    graph = owner("rotary_embedding", (x, cos, sin, position_ids))
    given = [as_value("rotary_embedding", graph, one) for one in (x, cos, sin)]
    values = float_only("rotary_embedding", *given)
    if position_ids is not None:
        values.append(as_value("rotary_embedding", graph, position_ids))
    length = values[0].shape[-1] if values[0].ndim else 0
    if rotary_embedding_dim is not None:
        (length,) = integers("rotary_embedding", "rotary_embedding_dim", rotary_embedding_dim)
    attrs = {
        "interleaved": flag("rotary_embedding", "interleaved", interleaved),
        "length": length,
        "rows_first": False,
    }
    return node("rotary_embedding", values, attrs).outputs[0]
