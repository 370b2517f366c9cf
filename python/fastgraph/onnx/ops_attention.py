"""Attention, and the rotation of positions into its operands."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fastgraph.ir import ops
from fastgraph.ir.graph import Value
from fastgraph.ir.types import is_float
from fastgraph.onnx.registry import NodeError, OnnxNode, onnx_op

Array = np.ndarray[Any, Any]

_MODES = range(4)
_AFTER_BIAS, _AFTER_SOFTMAX = 2, 3


@onnx_op("Attention", since=23)
def attention(
    node: OnnxNode,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    valid: Value | None = None,
) -> tuple[Value | None, ...]:
    """Scaled dot-product attention, with grouped heads, a cache, masks and a softcap."""
    flat = q.ndim == 3
    q = _apart(node, q, "q_num_heads")
    k, v = (_apart(node, x, "kv_num_heads") for x in (k, v))
    if (past_key is None) != (past_value is None):
        raise NodeError("past_key and past_value must be given together")
    if past_key is not None and past_value is not None:
        if valid is not None:
            raise NodeError("nonpad_kv_seqlen does not go with past_key and past_value")
        with node.aside("present"):
            k, v = ops.concat([past_key, k], axis=2), ops.concat([past_value, v], axis=2)
    queries, keys = q.shape[2], k.shape[2]
    offset = 0 if past_key is None else past_key.shape[2]
    causal = node.flag("is_causal", False)
    windows = [node.get_int(f"{side}_window_size", -1) for side in ("left", "right")]
    if min(windows) < -1:
        raise NodeError(f"window sizes must be -1 or more, found {windows}")
    bounds: dict[str, int | None] = {
        "lower": None if windows[0] < 0 else offset - windows[0],
        "upper": None if windows[1] < 0 else offset + windows[1],
    }
    if causal:
        bounds["upper"] = offset if bounds["upper"] is None else min(offset, bounds["upper"])
    with node.aside("mask"):
        if mask is not None and mask.shape[-1:] != (1,) and mask.shape[-1] < keys:
            fill = False if mask.dtype == np.bool_ else -np.inf
            widths = [(0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1])]
            mask = ops.pad(mask, widths, constant_values=fill)
        if valid is not None:
            mask = _both(mask, _valid_keys(node, valid, queries, keys, bounds))
            bounds = {"lower": None, "upper": None}
    scale = node.get_float("scale", 1.0 / math.sqrt(q.shape[3] or 1))
    softcap = node.get_float("softcap", 0.0)
    attrs = {"scale": scale, "softcap": softcap if softcap > 0 else None, **bounds}
    inputs = [q, k, v] if mask is None else [q, k, v, mask]
    y = node.graph.add_node("attention", inputs, attrs).outputs[0]
    if flat:
        y = ops.reshape(ops.transpose(y, (0, 2, 1, 3)), (y.shape[0], y.shape[2], -1))
    scores = _scores(node, q, k, mask, attrs) if node.wants(3) else None
    return y, k, v, scores


def _apart(node: OnnxNode, x: Value, heads: str) -> Value:
    """(batch, positions, heads * elements) as (batch, heads, positions, elements)."""
    if not is_float(x.dtype):
        raise NodeError(f"takes floats, found {x.dtype.name}")
    if x.ndim == 4:
        return x
    count = node.get_int(heads)
    if x.ndim != 3 or count < 1 or x.shape[2] % count:
        raise NodeError(f"shape {x.shape} does not hold {heads}={count} heads")
    batch, positions, width = x.shape
    return ops.transpose(ops.reshape(x, (batch, positions, count, width // count)), (0, 2, 1, 3))


def _both(mask: Value | None, seen: Value) -> Value:
    """`mask` with the keys hidden that are not `seen`."""
    if mask is None:
        return seen
    if mask.dtype == np.bool_:
        return ops.logical_and(mask, seen)
    return ops.where(seen, mask, -np.inf)


def _valid_keys(
    node: OnnxNode, valid: Value, queries: int, keys: int, bounds: dict[str, int | None]
) -> Value:
    """Which keys take part where each batch has its own number; its last query is its last key."""
    count = ops.reshape(valid, (valid.size, 1, 1, 1))
    step = node.constant(np.arange(keys) - np.arange(queries)[:, None], np.int64)
    seen = ops.less(node.constant(np.arange(keys), np.int64), count)
    behind = ops.subtract(step, ops.subtract(count, queries))
    if bounds["lower"] is not None:
        seen = ops.logical_and(seen, ops.greater_equal(behind, bounds["lower"]))
    if bounds["upper"] is not None:
        seen = ops.logical_and(seen, ops.less_equal(behind, bounds["upper"]))
    return seen


def _scores(node: OnnxNode, q: Value, k: Value, mask: Value | None, attrs: dict[str, Any]) -> Value:
    """The product of q and k at the stage that the model wants to see."""
    mode = node.get_int("qk_matmul_output_mode", 0)
    if mode not in _MODES:
        raise NodeError(f"qk_matmul_output_mode must be from 0 to 3, found {mode}")
    with node.aside("scores"):
        batch, heads, keys, length = k.shape
        group = q.shape[1] // max(heads, 1)
        spread = ops.broadcast_to(
            ops.reshape(k, (batch, heads, 1, keys, length)), (batch, heads, group, keys, length)
        )
        turned = ops.transpose(
            ops.reshape(spread, (batch, heads * group, keys, length)), (0, 1, 3, 2)
        )
        found = ops.multiply(ops.matmul(q, turned), attrs["scale"])
        if attrs["softcap"] is not None:
            cap = attrs["softcap"]
            found = ops.multiply(ops.tanh(ops.divide(found, cap)), cap)
        if mode < _AFTER_BIAS:
            return found
        step = np.arange(keys) - np.arange(q.shape[2])[:, None]
        seen = np.ones(step.shape, np.bool_)
        seen &= step >= (-np.inf if attrs["lower"] is None else attrs["lower"])
        seen &= step <= (np.inf if attrs["upper"] is None else attrs["upper"])
        hidden = None if seen.all() else node.constant(seen)
        if mask is not None and mask.dtype == np.bool_:
            hidden = mask if hidden is None else ops.logical_and(mask, hidden)
        elif mask is not None:
            found = ops.add(found, mask)
        if hidden is not None:
            found = ops.where(hidden, found, -np.inf)
        if mode == _AFTER_BIAS:
            return found
        largest = ops.max(found, axis=-1, keepdims=True)
        # A query that sees no key has weights of 0, where softmax would give nan.
        return ops.where(ops.equal(largest, -np.inf), 0.0, ops.softmax(found, axis=-1))


@onnx_op("RotaryEmbedding", since=23)
def rotary_embedding(
    node: OnnxNode, x: Value, cos: Value, sin: Value, positions: Value | None = None
) -> Value:
    """Pairs of elements rotated by the angles of their position."""
    if x.ndim not in (3, 4):
        raise NodeError(f"takes 3 or 4 dimensions, found shape {x.shape}")
    shape = x.shape
    flat = x.ndim == 3
    if flat:
        heads = node.get_int("num_heads", 0)
        if heads < 1 or shape[2] % heads:
            raise NodeError(f"shape {shape} does not hold num_heads={heads} heads")
        x = ops.reshape(x, (shape[0], shape[1], heads, shape[2] // heads))
    attrs = {
        "interleaved": node.flag("interleaved", False),
        "length": node.get_int("rotary_embedding_dim", 0) or x.shape[3],
        "rows_first": flat,
    }
    inputs = [x, cos, sin] if positions is None else [x, cos, sin, positions]
    y = node.graph.add_node("rotary_embedding", inputs, attrs).outputs[0]
    return ops.reshape(y, shape)
