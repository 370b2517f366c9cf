"""Attention as lowerings see it: operands in place, wherever they lie in larger arrays."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from fastgraph.errors import GraphError
from fastgraph.ir.opdef import Attrs, register
from fastgraph.ir.ops.attention import attention_of, check_mask, check_score
from fastgraph.ir.types import Spec, is_float

__all__ = ["AttentionSizes", "Place", "extents", "fused_attention_attrs"]

Array = np.ndarray[Any, np.dtype[Any]]


class Place(NamedTuple):
    """Where q, k or v lie: in which input, from which element on, how far apart.

    The elements of one position lie side by side.
    """

    input: int
    offset: int
    batch: int
    head: int
    position: int


class AttentionSizes(NamedTuple):
    """The extents of attention."""

    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    length: int
    """Elements of a head of q and k."""
    value_length: int
    """Elements of a head of v and of the result."""


def fused_attention_attrs(q: Sequence[int], k: Sequence[int], v: Sequence[int]) -> Attrs:
    """Return sizes, places and output form for dense operands of these shapes."""

    def dense(i: int, shape: Sequence[int]) -> Place:
        return Place(i, 0, prod(shape[1:]), prod(shape[2:]), shape[3])

    return {
        "sizes": AttentionSizes(q[0], q[1], k[1], q[2], k[2], q[3], v[3]),
        "q": dense(0, q),
        "k": dense(1, k),
        "v": dense(2, v),
        "mask": None,
        "rows_first": False,
    }


def extents(sizes: AttentionSizes, name: str) -> tuple[int, int, int, int]:
    """Return the four sizes of q, k or v."""
    heads = sizes.heads if name == "q" else sizes.key_heads
    positions = sizes.queries if name == "q" else sizes.keys
    return sizes.batch, heads, positions, sizes.value_length if name == "v" else sizes.length


def infer(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Check that each operand lies within its input.

    Attributes: ``sizes`` (AttentionSizes), ``q``, ``k``, ``v`` (Place), ``mask`` (index of the
    input, or None), ``scale``, ``softcap``, ``lower``, ``upper`` as for ``attention``, and
    ``rows_first``: whether the result is (batch, queries, heads, elements) instead of (batch,
    heads, queries, elements).
    """
    sizes = attrs["sizes"]
    mask = attrs["mask"]
    check_score("fused_attention", attrs)
    dtype = inputs[attrs["q"].input][1]
    for i, (_, found) in enumerate(inputs):
        if i != mask and (found != dtype or not is_float(found)):
            raise GraphError(f"fused_attention: input {i} is {found.name}, q is {dtype.name}")
    for name in "qkv":
        place = attrs[name]
        whole = extents(sizes, name)
        steps = (place.batch, place.head, place.position, 1)
        if 0 in whole:
            continue
        last = place.offset + sum((n - 1) * step for n, step in zip(whole, steps, strict=True))
        if place.offset < 0 or min(steps) < 0 or last >= prod(inputs[place.input][0]):
            raise GraphError(f"fused_attention: {name} at {place} leaves input {place.input}")
    if mask is not None:
        scores = (sizes.batch, sizes.heads, sizes.queries, sizes.keys)
        check_mask("fused_attention", inputs[mask], scores, dtype)
    middle = (sizes.heads, sizes.queries)
    middle = middle[::-1] if attrs["rows_first"] else middle
    return [((sizes.batch, *middle, sizes.value_length), dtype)]


def picked(array: Array, place: Place, shape: tuple[int, ...]) -> Array:
    """Return the operand at `place` in `array`."""
    if 0 in shape:
        return np.zeros(shape, array.dtype)
    flat = np.ascontiguousarray(array).reshape(-1)[place.offset :]
    steps = [step * array.itemsize for step in (place.batch, place.head, place.position, 1)]
    return np.lib.stride_tricks.as_strided(flat, shape, steps, writeable=False)


def reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Pick the operands out, and attend."""
    q, k, v = (
        picked(arrays[attrs[name].input], attrs[name], extents(attrs["sizes"], name))
        for name in "qkv"
    )
    mask = None if attrs["mask"] is None else arrays[attrs["mask"]]
    found = attention_of(q, k, v, mask, attrs)
    return [np.ascontiguousarray(np.swapaxes(found, 1, 2)) if attrs["rows_first"] else found]


register("fused_attention", "lowered", infer, reference)
