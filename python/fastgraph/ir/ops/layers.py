"""Recurrent layers: the products of all steps at once, then one step after another."""

from __future__ import annotations

from typing import Any

from fastgraph.errors import GraphError
from fastgraph.ir.graph import Value
from fastgraph.ir.opdef import Attrs
from fastgraph.ir.ops.arguments import as_value, convert, flag, float_only, node, number, owner
from fastgraph.ir.ops.arithmetic import add
from fastgraph.ir.ops.entry import public
from fastgraph.ir.ops.indexing import concat
from fastgraph.ir.ops.joining import part
from fastgraph.ir.ops.matmul import matmul
from fastgraph.ir.ops.recurrence import ACTIVATIONS, DIRECTIONS, GATES, OPTIONAL
from fastgraph.ir.ops.shaping import reshape, transpose
from fastgraph.ir.types import FLOAT32, is_half

__all__ = ["gru", "lstm", "rnn"]

DEFAULTS = {"lstm": ("sigmoid", "tanh", "tanh"), "gru": ("sigmoid", "tanh"), "rnn": ("tanh",)}


def activation_names(kind: str, given: Any, ways: int) -> tuple[tuple[str, ...], ...]:
    """Return the names of the activations of each direction."""
    usual = DEFAULTS[kind]
    names = usual * ways if given is None else tuple(given)
    if len(names) != len(usual) * ways or not all(name in ACTIVATIONS for name in names):
        raise GraphError(
            f"{kind}: activations must be {len(usual) * ways} of {', '.join(ACTIVATIONS)}, found "
            f"{given!r}"
        )
    return tuple(names[i : i + len(usual)] for i in range(0, len(names), len(usual)))


def layer(
    kind: str,
    x: Any,
    w: Any,
    r: Any,
    b: Any,
    sequence_lens: Any,
    states: dict[str, Any],
    direction: Any,
    activations: Any,
    clip: Any,
    attrs: Attrs,
) -> tuple[Value, ...]:
    """Write out a layer: one product for all steps, then the recurrence."""
    if direction not in DIRECTIONS:
        raise GraphError(
            f"{kind}: direction must be one of {', '.join(DIRECTIONS)}, found {direction!r}"
        )
    ways, count = DIRECTIONS[direction], GATES[kind]
    graph = owner(kind, (x, w, r, b, *states.values()))
    named = {"x": x, "w": w, "r": r, "b": b, **states}
    some = {name: as_value(kind, graph, one) for name, one in named.items() if one is not None}
    values = dict(zip(some, float_only(kind, *some.values()), strict=True))
    dtype = values["x"].dtype
    if is_half(dtype):
        values = {name: convert(value, FLOAT32) for name, value in values.items()}
    shape, wide = values["x"].shape, values["r"].shape
    hidden = wide[-1] if wide else 0
    if len(shape) != 3 or shape[0] == 0:
        raise GraphError(
            f"{kind}: x must be (steps, batch, size) with a step or more, found {shape}"
        )
    rows = count * hidden
    wanted = {
        "w": (ways, rows, shape[2]),
        "r": (ways, rows, hidden),
        "b": (ways, 2 * rows),
        "initial_h": (ways, shape[1], hidden),
        "initial_c": (ways, shape[1], hidden),
        "peephole": (ways, 3 * hidden),
    }
    for name, right in wanted.items():
        if name in values and values[name].shape != right:
            told = {"peephole": "p"}.get(name, name)
            raise GraphError(
                f"{kind}: {told} must have shape {right} for x {shape}, {direction} and a hidden "
                f"size of {hidden}, found {values[name].shape}"
            )
    weights = reshape(values["w"], (ways * rows, shape[2]))
    gates = matmul(values["x"], transpose(weights, (1, 0)))
    operands = [gates, values["r"]]
    places: Attrs = dict.fromkeys(OPTIONAL)
    if "b" in values:
        bias, recurrent = parted_bias(values["b"], rows, hidden, attrs["linear_before_reset"])
        operands[0] = add(gates, reshape(bias, (ways * rows,)))
        if recurrent is not None:
            places["recurrent_bias"] = len(operands)
            operands.append(recurrent)
    for name in ("initial_h", "initial_c", "peephole"):
        if name in values:
            places[name] = len(operands)
            operands.append(values[name])
    if sequence_lens is not None:
        places["lengths"] = len(operands)
        operands.append(as_value(kind, graph, sequence_lens))
    limit = 0.0 if clip is None else number(kind, "clip", clip)
    if limit < 0:
        raise GraphError(f"{kind}: clip must be 0 or more, found {clip!r}")
    names = activation_names(kind, activations, ways)
    options: Attrs = {"kind": kind, "direction": direction, "activations": names, "clip": limit}
    found = node("recurrence", operands, {**options, **attrs, **places}).outputs
    return tuple(convert(value, dtype) for value in found)


def parted_bias(
    b: Value, rows: int, hidden: int, linear_before_reset: bool
) -> tuple[Value, Value | None]:
    """Return what is added once for all, and what only the hidden gate of each step adds."""
    first, second = part(b, 1, 0, rows), part(b, 1, rows, rows)
    if not linear_before_reset:
        return add(first, second), None
    gates, recurrent = part(second, 1, 0, 2 * hidden), part(second, 1, 2 * hidden, hidden)
    both = add(part(first, 1, 0, 2 * hidden), gates)
    return concat([both, part(first, 1, 2 * hidden, hidden)], axis=1), recurrent


PLAIN: Attrs = {"input_forget": False, "linear_before_reset": False}


@public("ONNX", "float")
def lstm(
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    sequence_lens: Any = None,
    initial_h: Any = None,
    initial_c: Any = None,
    p: Any = None,
    direction: str = "forward",
    activations: Any = None,
    clip: Any = None,
    input_forget: bool = False,
) -> tuple[Value, ...]:
    """Return all steps, the last state and the last cell of a long short-term memory.

    Parameters
    ----------
    x : Value
        Of shape (steps, batch, size).
    w, r : Value or numpy.ndarray
        Of shapes (directions, 4 * hidden, size) and (directions, 4 * hidden, hidden): the weights
        of the input, output, forget and cell gate for a step and for the state before it.
    b : Value or numpy.ndarray, optional
        Of shape (directions, 8 * hidden): what goes with `w`, then what goes with `r`.
    sequence_lens : Value or numpy.ndarray, optional
        int32 or int64 of shape (batch,): how many steps each row has. Without it, all.
    initial_h, initial_c : Value or numpy.ndarray, optional
        Of shape (directions, batch, hidden). Without them, zeros.
    p : Value or numpy.ndarray, optional
        Of shape (directions, 3 * hidden): how the cell acts upon input, output and forget gate.
    direction : str
        ``"forward"``, ``"reverse"`` or ``"bidirectional"``, which is both.
    activations : sequence of str, optional
        Three for each direction, of ``"sigmoid"``, ``"tanh"`` and ``"relu"``.
    clip : float, optional
        What activations are given lies within this bound.
    input_forget : bool
        Whether the forget gate is 1 less the input gate.

    Returns
    -------
    tuple of Value
        Of shapes (steps, directions, batch, hidden), (directions, batch, hidden) and the same.

    Raises
    ------
    GraphError
        For shapes or dtypes that do not fit. A length out of range makes the run raise InputError.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> w, r = np.ones((1, 8, 3), "f4"), np.zeros((1, 8, 2), "f4")
    >>> x = np.ones((2, 1, 3), "f4")
    >>> reference.apply(lambda x: ops.lstm(x, w, r)[1], x).round(3)
    array([[[0.907, 0.907]]], dtype=float32)
    """
    attrs = {**PLAIN, "input_forget": flag("lstm", "input_forget", input_forget)}
    states = {"initial_h": initial_h, "initial_c": initial_c, "peephole": p}
    return layer(
        "lstm", x, w, r, b, sequence_lens, states, direction, activations, clip, attrs
    )  # fmt: skip


@public("ONNX", "float")
def gru(
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    sequence_lens: Any = None,
    initial_h: Any = None,
    direction: str = "forward",
    activations: Any = None,
    clip: Any = None,
    linear_before_reset: bool = False,
) -> tuple[Value, ...]:
    """Return all steps and the last state of a layer of gated recurrent units.

    Parameters
    ----------
    x : Value
        Of shape (steps, batch, size).
    w, r : Value or numpy.ndarray
        Of shapes (directions, 3 * hidden, size) and (directions, 3 * hidden, hidden): the weights
        of the update, reset and hidden gate for a step and for the state before it.
    b : Value or numpy.ndarray, optional
        Of shape (directions, 6 * hidden): what goes with `w`, then what goes with `r`.
    sequence_lens : Value or numpy.ndarray, optional
        int32 or int64 of shape (batch,): how many steps each row has. Without it, all.
    initial_h : Value or numpy.ndarray, optional
        Of shape (directions, batch, hidden). Without it, zeros.
    direction : str
        ``"forward"``, ``"reverse"`` or ``"bidirectional"``, which is both.
    activations : sequence of str, optional
        Two for each direction, of ``"sigmoid"``, ``"tanh"`` and ``"relu"``.
    clip : float, optional
        What activations are given lies within this bound.
    linear_before_reset : bool
        Whether the reset gate acts upon the product with `r` and not upon the state before it.

    Returns
    -------
    tuple of Value
        Of shapes (steps, directions, batch, hidden) and (directions, batch, hidden).

    Raises
    ------
    GraphError
        For shapes or dtypes that do not fit. A length out of range makes the run raise InputError.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> w, r = np.ones((1, 6, 3), "f4"), np.zeros((1, 6, 2), "f4")
    >>> x = np.ones((2, 1, 3), "f4")
    >>> reference.apply(lambda x: ops.gru(x, w, r)[1], x).round(3)
    array([[[0.092, 0.092]]], dtype=float32)
    """
    before = flag("gru", "linear_before_reset", linear_before_reset)
    attrs = {**PLAIN, "linear_before_reset": before}
    states = {"initial_h": initial_h}
    return layer("gru", x, w, r, b, sequence_lens, states, direction, activations, clip, attrs)


@public("ONNX", "float")
def rnn(
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    sequence_lens: Any = None,
    initial_h: Any = None,
    direction: str = "forward",
    activations: Any = None,
    clip: Any = None,
) -> tuple[Value, ...]:
    """Return all steps and the last state of the simplest recurrent layer.

    Parameters
    ----------
    x : Value
        Of shape (steps, batch, size).
    w, r : Value or numpy.ndarray
        Of shapes (directions, hidden, size) and (directions, hidden, hidden): the weights for a
        step and for the state before it.
    b : Value or numpy.ndarray, optional
        Of shape (directions, 2 * hidden): what goes with `w`, then what goes with `r`.
    sequence_lens : Value or numpy.ndarray, optional
        int32 or int64 of shape (batch,): how many steps each row has. Without it, all.
    initial_h : Value or numpy.ndarray, optional
        Of shape (directions, batch, hidden). Without it, zeros.
    direction : str
        ``"forward"``, ``"reverse"`` or ``"bidirectional"``, which is both.
    activations : sequence of str, optional
        One for each direction, of ``"sigmoid"``, ``"tanh"`` and ``"relu"``.
    clip : float, optional
        What activations are given lies within this bound.

    Returns
    -------
    tuple of Value
        Of shapes (steps, directions, batch, hidden) and (directions, batch, hidden).

    Raises
    ------
    GraphError
        For shapes or dtypes that do not fit. A length out of range makes the run raise InputError.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> w, r = np.ones((1, 2, 3), "f4"), np.eye(2, dtype="f4")[None]
    >>> x = np.ones((2, 1, 3), "f4")
    >>> reference.apply(lambda x: ops.rnn(x, w, r)[1], x).round(4)
    array([[[0.9993, 0.9993]]], dtype=float32)
    """
    states = {"initial_h": initial_h}
    return layer("rnn", x, w, r, b, sequence_lens, states, direction, activations, clip, PLAIN)
