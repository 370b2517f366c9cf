"""The steps of recurrent layers, upon what one product gave for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any

import numpy as np

from fastgraph.errors import GraphError, InputError
from fastgraph.ir.opdef import Attrs, register
from fastgraph.ir.ops.numerics import convert, sigmoid
from fastgraph.ir.types import FLOAT32, FLOAT64, INT32, INT64, Shape, Spec

__all__ = ["ACTIVATIONS", "DIRECTIONS", "GATES", "OPTIONAL"]

Array = np.ndarray[Any, np.dtype[Any]]

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
"""How many vectors of the hidden size a step works out."""
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
}
OPTIONAL = ("initial_h", "initial_c", "peephole", "recurrent_bias", "lengths")
"""The operands that may be missing: each is an attribute that holds its place, or None."""


def infer(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Take the projected steps and the recurrent weights; give all steps and the last state."""
    (gates, dtype), (r, found) = inputs[:2]
    kind, ways = attrs["kind"], DIRECTIONS[attrs["direction"]]
    hidden, count = r[-1], GATES[kind]
    wide = ways * count * hidden
    if dtype not in (FLOAT32, FLOAT64) or found != dtype:
        raise GraphError(f"{kind}: a recurrence is float32 or float64, found {dtype.name}")
    if r != (ways, count * hidden, hidden) or len(gates) != 3 or gates[2] != wide:
        raise GraphError(f"{kind}: steps {gates} and recurrent weights {r} do not fit")
    steps, batch, _ = gates
    state = (ways, batch, hidden)
    shapes: dict[str, Shape] = {
        "initial_h": state,
        "initial_c": state,
        "peephole": (ways, 3 * hidden),
        "recurrent_bias": (ways, hidden),
        "lengths": (batch,),
    }
    for name, wanted in shapes.items():
        if attrs[name] is None:
            continue
        shape, other = inputs[attrs[name]]
        right = other in (INT32, INT64) if name == "lengths" else other == dtype
        if shape != wanted or not right:
            raise GraphError(f"{kind}: {name} must be {wanted}, found {other.name} {shape}")
    outs = [((steps, ways, batch, hidden), dtype), (state, dtype)]
    return [*outs, (state, dtype)] if kind == "lstm" else outs


def reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Walk the steps in float64, row by row where rows have lengths of their own."""
    gates, r = (array.astype(FLOAT64) for array in arrays[:2])
    kind, ways = attrs["kind"], DIRECTIONS[attrs["direction"]]
    (steps, batch, _), hidden = gates.shape, r.shape[-1]
    given = {
        name: None if attrs[name] is None else arrays[attrs[name]].astype(FLOAT64)
        for name in OPTIONAL
    }
    lengths = np.full(batch, steps)
    if given["lengths"] is not None:
        lengths = given["lengths"].astype(np.int64)
        outside = (lengths < 0) | (lengths > steps)
        if outside.any():
            raise InputError(
                f"{kind}: sequence length {lengths[outside][0]} is out of range 0 to {steps}"
            )
    y = np.zeros((steps, ways, batch, hidden))
    h, c = np.zeros((2, ways, batch, hidden))
    if given["initial_h"] is not None:
        h[...] = given["initial_h"]
    if given["initial_c"] is not None:
        c[...] = given["initial_c"]
    count = GATES[kind]
    parted = gates.reshape(steps, batch, ways, count, hidden)
    with np.errstate(all="ignore"):
        for way in range(ways):
            back = attrs["direction"] == "reverse" or way == 1
            weights = r[way].reshape(count, hidden, hidden)
            for row in range(batch):
                order = range(lengths[row])
                for at in reversed(order) if back else order:
                    step = STEPS[kind](
                        parted[at, row, way], weights, h[way, row], c[way, row], way, given, attrs
                    )
                    h[way, row], c[way, row] = step
                    y[at, way, row] = h[way, row]
    dtype = arrays[0].dtype
    outs = [y, h, c] if kind == "lstm" else [y, h]
    return [convert(out, dtype) for out in outs]


def functions(attrs: Attrs, way: int) -> list[Callable[[Array], Array]]:
    """Return the activations of one direction, each upon what is clipped first."""
    bound = attrs["clip"] or inf
    return [partial(bounded, ACTIVATIONS[name], bound) for name in attrs["activations"][way]]


def bounded(function: Callable[[Array], Array], bound: float, x: Array) -> Array:
    """Return the function of what lies within the bound."""
    return function(np.clip(x, -bound, bound))


Step = Callable[..., tuple[Array, Array]]


def lstm_step(
    x: Array, r: Array, h: Array, c: Array, way: int, given: dict[str, Any], attrs: Attrs
) -> tuple[Array, Array]:
    """Return the next state: gates are input, output, forget and cell."""
    f, g, last = functions(attrs, way)
    i, o, forget, cell = x + r @ h
    peep = np.zeros((3, len(h)))
    if given["peephole"] is not None:
        peep = given["peephole"][way].reshape(3, -1)
    i = f(i + peep[0] * c)
    forget = 1 - i if attrs["input_forget"] else f(forget + peep[2] * c)
    c = forget * c + i * g(cell)
    o = f(o + peep[1] * c)
    return o * last(c), c


def gru_step(
    x: Array, r: Array, h: Array, c: Array, way: int, given: dict[str, Any], attrs: Attrs
) -> tuple[Array, Array]:
    """Return the next state: gates are update, reset and hidden."""
    f, g = functions(attrs, way)
    z, reset = f(x[0] + r[0] @ h), f(x[1] + r[1] @ h)
    if attrs["linear_before_reset"]:
        inner = r[2] @ h
        if given["recurrent_bias"] is not None:
            inner = inner + given["recurrent_bias"][way]
        new = g(x[2] + reset * inner)
    else:
        new = g(x[2] + r[2] @ (reset * h))
    return (1 - z) * new + z * h, c


def rnn_step(
    x: Array, r: Array, h: Array, c: Array, way: int, given: dict[str, Any], attrs: Attrs
) -> tuple[Array, Array]:
    """Return the next state of the simplest layer."""
    (f,) = functions(attrs, way)
    return f(x[0] + r[0] @ h), c


STEPS: dict[str, Step] = {"lstm": lstm_step, "gru": gru_step, "rnn": rnn_step}

register("recurrence", "recurrence", infer, reference)
