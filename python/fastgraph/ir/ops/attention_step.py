"""A step of decoding as lowerings see it: one position is turned, is kept, and attends."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from fastgraph.errors import GraphError
from fastgraph.ir.opdef import Attrs, register
from fastgraph.ir.ops.fused_attention import infer as infer_attention
from fastgraph.ir.ops.fused_attention import reference as attend
from fastgraph.ir.ops.rotary import infer as infer_turn
from fastgraph.ir.ops.rotary import reference as turn
from fastgraph.ir.ops.scattering import infer_scatter_pair, scatter_pair_reference
from fastgraph.ir.types import Spec

__all__ = ["CACHES", "INDICES", "KEY", "VALUE", "attention_attrs"]

Array = np.ndarray[Any, np.dtype[Any]]

X, KEYS, VALUES, COS, SIN, POSITIONS, INDICES, KEY, VALUE, MASK = range(10)
CACHES = (KEYS, VALUES)
"""Which inputs the second and the third output are the next state of."""
PUT: Attrs = {"reduction": "none"}


def attention_attrs(attrs: Attrs) -> Attrs:
    """Return the attributes of the attention in it, over x, keys, values and perhaps a mask."""
    found = {name: attr for name, attr in attrs.items() if name != "new_key"}
    return found | {"mask": None if attrs["mask"] is None else 3}


def heads_of(attrs: Attrs) -> tuple[int, int, int, int]:
    """The shape of a new key: one position of all heads."""
    return 1, attrs["sizes"].key_heads, 1, attrs["sizes"].length


def turn_attrs(attrs: Attrs) -> Attrs:
    """The attributes of the rotations in it."""
    return {"interleaved": False, "rows_first": False, "length": attrs["sizes"].length}


def infer(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Check x, the caches, the angles and the new rows of one position.

    The inputs are x of (1, heads, 1, elements); keys and values of (rows, elements of all heads);
    cosines and sines by position; the position and the row's number; the new row of keys before it
    is turned, and that of values; and perhaps a mask. The attributes are those of
    ``fused_attention`` over x, keys, values and the mask, and ``new_key``: from which element on
    the new keys lie in theirs.
    """
    x, (keys, dtype), values, *angles, numbers, (key, found), value = inputs[:MASK]
    new = heads_of(attrs)
    if x[0][0:1] + x[0][2:] != new[::2] + new[3:] or numbers[0] != (1,):
        raise GraphError(f"attention_step: x is {x[0]}, numbers {numbers[0]}: not one position")
    if found != dtype or not 0 <= attrs["new_key"] <= prod(key) - prod(new):
        raise GraphError(f"attention_step: no keys from {attrs['new_key']} on in {key} {found}")
    (turned,), (row,) = (infer_turn([one, *angles], turn_attrs(attrs)) for one in (x, (new, dtype)))
    put = [(keys, dtype), numbers, ((1, prod(row[0])), dtype), values, value]
    caches = infer_scatter_pair(put, PUT)
    return [*infer_attention([turned, *caches, *inputs[MASK:]], attention_attrs(attrs)), *caches]


def reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """One after the other."""
    x, keys, values, *angles, numbers, key, value = arrays[:MASK]
    new, first = heads_of(attrs), attrs["new_key"]
    row = key.reshape(-1)[first : first + prod(new)].reshape(new)
    (turned,), (row,) = (turn([one, *angles], turn_attrs(attrs)) for one in (x, row))
    caches = scatter_pair_reference([keys, numbers, row.reshape(1, -1), values, value], PUT)
    return [*attend([turned, *caches, *arrays[MASK:]], attention_attrs(attrs)), *caches]


register("attention_step", "lowered", infer, reference)
