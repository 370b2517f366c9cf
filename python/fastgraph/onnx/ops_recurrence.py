"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastgraph.ir import ops
from fastgraph.ir.graph import Value
from fastgraph.onnx.registry import NodeError, OnnxNode, onnx_op

_ACTIVATIONS = {"sigmoid": "sigmoid", "tanh": "tanh", "relu": "relu"}


@onnx_op("LSTM")
def lstm(
    node: OnnxNode,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    lengths: Value | None = None,
    initial_h: Value | None = None,
    initial_c: Value | None = None,
    p: Value | None = None,
) -> tuple[Value, ...]:
    """A long short-term memory."""
    options = {"p": p, "input_forget": node.flag("input_forget", False)}
    return _layer(node, ops.lstm, x, w, r, b, lengths, initial_h, initial_c, options=options)


@onnx_op("GRU")
def gru(
    node: OnnxNode,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    lengths: Value | None = None,
    initial_h: Value | None = None,
) -> tuple[Value, ...]:
    """A layer of gated recurrent units."""
    options = {"linear_before_reset": node.flag("linear_before_reset", False)}
    return _layer(node, ops.gru, x, w, r, b, lengths, initial_h, options=options)


@onnx_op("RNN")
def rnn(
    node: OnnxNode,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    lengths: Value | None = None,
    initial_h: Value | None = None,
) -> tuple[Value, ...]:
    """The simplest recurrent layer."""
    return _layer(node, ops.rnn, x, w, r, b, lengths, initial_h, options={})


def _layer(
    node: OnnxNode,
    build: Callable[..., tuple[Value, ...]],
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    lengths: Value | None,
    *states: Value | None,
    options: dict[str, Any],
) -> tuple[Value, ...]:
    hidden = node.get_int("hidden_size", r.shape[-1] if r.ndim else 0)
    if r.shape[-1:] != (hidden,):
        raise NodeError(f"hidden_size {hidden} does not fit R of shape {r.shape}")
    rows_first = node.flag("layout", False)
    if rows_first:
        if x.ndim != 3 or any(s is not None and s.ndim != 3 for s in states):
            raise NodeError("X and the initial states must have three axes")
        with node.aside("layout"):
            x = ops.transpose(x, (1, 0, 2))
            states = tuple(s if s is None else ops.transpose(s, (1, 0, 2)) for s in states)
    found = build(
        x, w, r, b, lengths, *states,
        direction=node.get_string("direction", "forward"),
        activations=_activations(node),
        clip=node.get_float("clip", 0.0),
        **options,
    )  # fmt: skip
    if not rows_first:
        return found
    y, *last = found
    return ops.transpose(y, (2, 0, 1, 3)), *(ops.transpose(s, (1, 0, 2)) for s in last)


def _activations(node: OnnxNode) -> list[str] | None:
    if not node.has("activations"):
        return None
    found = node.attributes["activations"]
    text = [str(name) for name in (found if isinstance(found, list) else [found])]
    unknown = [n for n in text if n.lower() not in _ACTIVATIONS]
    if unknown:
        raise NodeError(f"activations {', '.join(unknown)}: only Sigmoid, Tanh and Relu are known")
    return [_ACTIVATIONS[n.lower()] for n in text]
