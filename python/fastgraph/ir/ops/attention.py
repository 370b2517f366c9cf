"""Attention: the operator that users write."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastgraph.errors import GraphError
from fastgraph.ir.graph import Value
from fastgraph.ir.opdef import Attrs, register
from fastgraph.ir.ops.arguments import as_value, flag, float_only, integers, node, number, owner
from fastgraph.ir.ops.entry import public
from fastgraph.ir.ops.numerics import convert
from fastgraph.ir.types import BOOL, Shape, Spec, broadcast, is_float

__all__ = ["attention", "attention_of", "check_mask", "check_score"]

Array = np.ndarray[Any, np.dtype[Any]]


def check_score(op: str, attrs: Attrs) -> None:
    """Normalise what the attributes say of a score: factor, cap, and the band of keys.

    Query i sees the keys j with ``lower <= j - i <= upper``; None is no bound.
    """
    attrs["scale"] = number(op, "scale", attrs["scale"])
    if attrs["softcap"] is not None:
        attrs["softcap"] = number(op, "softcap", attrs["softcap"])
        if attrs["softcap"] <= 0:
            raise GraphError(
                f"{op}: softcap must be above 0, found {attrs['softcap']}; None leaves scores as "
                "they are"
            )
    for bound in ("lower", "upper"):
        if attrs[bound] is not None:
            (attrs[bound],) = integers(op, bound, attrs[bound])


def check_mask(op: str, mask: Spec, scores: Shape, dtype: np.dtype[Any]) -> None:
    """Raise GraphError unless `mask` is bool or of the operands' dtype, and broadcasts."""
    shape, found = mask
    if found not in (BOOL, dtype):
        raise GraphError(
            f"{op}: mask must be bool (True: the key takes part) or {dtype.name} (added to the "
            f"scores), found {found.name}; use astype"
        )
    if len(shape) > 4 or broadcast([shape, scores], f"{op}: mask and scores") != scores:
        raise GraphError(
            f"{op}: mask of shape {shape} does not broadcast to the scores, {scores}: "
            "(batch, heads, queries, keys)"
        )


def infer(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Take q, k, v and perhaps a mask, each of four axes: batch, heads, positions, elements."""
    (q, dtype), (k, _), (v, _) = inputs[:3]
    for name, (shape, found) in zip("qkv", inputs[:3], strict=True):
        if found != dtype or not is_float(dtype):
            raise GraphError(
                f"attention: q, k and v must be of one float dtype, q is {dtype.name} and {name} "
                f"{found.name}; use astype"
            )
        if len(shape) != 4:
            raise GraphError(
                f"attention: {name} must have four axes (batch, heads, positions, elements), found "
                f"shape {shape}; use reshape and transpose"
            )
    if not q[0] == k[0] == v[0]:
        raise GraphError(
            f"attention: q, k and v have batches of {q[0]}, {k[0]} and {v[0]}; they must be equal"
        )
    if k[1:3] != v[1:3]:
        raise GraphError(
            f"attention: k {k} and v {v} must have the same heads and positions (axes 1 and 2)"
        )
    if q[3] != k[3]:
        raise GraphError(f"attention: q {q} and k {k} must have equally long heads (axis 3)")
    if k[1] == 0 or q[1] % k[1]:
        raise GraphError(
            f"attention: {q[1]} heads of q cannot share {k[1]} heads of k and v; the first must be "
            "a multiple of the second"
        )
    check_score("attention", attrs)
    if len(inputs) > 3:
        check_mask("attention", inputs[3], (*q[:3], k[2]), dtype)
    return [((*q[:3], v[3]), dtype)]


def attention_of(q: Array, k: Array, v: Array, mask: Array | None, attrs: Attrs) -> Array:
    """Return attention in float64, rounded once; a query that sees no key gives 0."""
    group = q.shape[1] // k.shape[1]
    wide = [np.asarray(one, np.float64) for one in (q, k, v)]
    queries, keys = q.shape[2], k.shape[2]
    with np.errstate(all="ignore"):
        k_of, v_of = (np.repeat(one, group, axis=1) for one in wide[1:])
        scores = np.matmul(wide[0], np.swapaxes(k_of, 2, 3)) * attrs["scale"]
        if attrs["softcap"] is not None:
            scores = np.tanh(scores / attrs["softcap"]) * attrs["softcap"]
        step = np.arange(keys) - np.arange(queries)[:, None]
        seen = np.ones((queries, keys), np.bool_)
        if attrs["lower"] is not None:
            seen &= step >= attrs["lower"]
        if attrs["upper"] is not None:
            seen &= step <= attrs["upper"]
        if mask is not None and mask.dtype == np.bool_:
            seen = seen & mask
        elif mask is not None:
            scores = scores + mask.astype(np.float64)
        scores = np.where(seen, scores, -np.inf)
        largest = np.max(scores, axis=3, keepdims=True, initial=-np.inf)
        weights = np.exp(scores - np.where(np.isneginf(largest), 0.0, largest))
        total = np.sum(weights, axis=3, keepdims=True)
        weights = weights / np.where(total == 0.0, 1.0, total)
        return convert(np.matmul(weights, v_of), q.dtype)


def reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Attend."""
    q, k, v, *rest = arrays
    return [attention_of(q, k, v, rest[0] if rest else None, attrs)]


register("attention", "attention", infer, reference)


@public("ONNX", "float")
def attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    *,
    is_causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
) -> Value:
    """Return ``softmax(q @ k.T * scale + mask) @ v``, head by head.

    Parameters
    ----------
    q : Value
        Of shape (batch, heads, queries, elements).
    k, v : Value or numpy.ndarray
        Of shapes (batch, key heads, keys, elements) and (batch, key heads, keys, value elements).
        `heads` is a multiple of the key heads: so many successive heads of `q` share one.
    mask : Value or numpy.ndarray, optional
        Broadcast to (batch, heads, queries, keys). Of bool: where it is True the key takes part.
        Of the dtype of `q`: added to the scores.
    is_causal : bool
        Whether a query sees no key behind its own. Queries are the last positions: where keys
        outnumber them, the last query still sees all keys.
    window : int, optional
        How many keys a query sees up to its own, itself included; without `is_causal` as many
        behind it. Without it, all.
    scale : float, optional
        The factor of the scores; by default 1 / sqrt(elements).
    softcap : float, optional
        Brings scores into -softcap to softcap, by ``softcap * tanh(score / softcap)``, before the
        mask.

    Returns
    -------
    Value
        Of shape (batch, heads, queries, value elements). 0 for a query that sees no key.

    Raises
    ------
    GraphError
        For shapes that do not fit, another dtype, a window below 1, a softcap not above 0.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> q = k = np.zeros((1, 1, 3, 4), "f4")
    >>> v = np.float32([[[[0], [6], [3]]]])
    >>> reference.apply(ops.attention, q, k, v, is_causal=True)[0, 0].T
    array([[0., 3., 3.]], dtype=float32)
    """
    graph = owner("attention", (q, k, v, mask))
    values = float_only("attention", *(as_value("attention", graph, one) for one in (q, k, v)))
    if mask is not None:
        values.append(as_value("attention", graph, mask))
    if any(value.ndim != 4 for value in values[:3]):  # Only to read the sizes; `infer` says it.
        offset, length = 0, 1
    else:
        offset, length = values[1].shape[2] - values[0].shape[2], values[0].shape[3]
    lower: int | None = None
    upper = offset if flag("attention", "is_causal", is_causal) else None
    if window is not None:
        (size,) = integers("attention", "window", window)
        if size < 1:
            raise GraphError(f"attention: window must be 1 or more, found {size}; None has no end")
        lower = offset - size + 1
        upper = offset + size - 1 if upper is None else upper
    attrs = {
        "scale": 1.0 / math.sqrt(length or 1) if scale is None else scale,
        "softcap": softcap,
        "lower": lower,
        "upper": upper,
    }
    return node("attention", values, attrs).outputs[0]
