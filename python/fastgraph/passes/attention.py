"""Recognises attention in what exporters and users write out.

``softmax(q @ k.T * scale + mask) @ v``: with the factor before or behind the product, on either
operand or both; with a cap; with a mask that is added or chosen by ``where``; with the heads of k
and v repeated; with batch and heads in one axis. What lies between the two products goes with them,
so it may have no other reader and be no output.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf, prod
from typing import Any

import numpy as np

from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.ir.ops.fused_attention import fused_attention_attrs
from fastgraph.ir.types import Shape, broadcast
from fastgraph.passes.rewrite import Rewriter, constant_of, use_counts

__all__ = ["run"]

HIDDEN = -1e30
"""A score that is set to less than this is as good as added to: nothing else is left of it."""


def run(graph: Graph) -> Graph:
    """Return `graph` with ``fused_attention`` for each attention that is written out."""
    if not any(node.op == "softmax" for node in graph.nodes):
        return graph
    uses = use_counts(graph)
    found = {node: match(node, uses) for node in graph.nodes if node.op == "fused_matmul"}
    if not any(found.values()):
        return graph
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        attention = found.get(node)
        if attention is None:
            rewriter.keep(node)
        else:
            rewriter.replace_value(node.outputs[0], attention.emit(rewriter, node))
    return rewriter.finish()


@dataclass(frozen=True)
class Operand:
    """q, k or v: a value, the order of its axes, and how often each head is repeated."""

    value: Value
    axes: tuple[int, ...] | None = None
    repeats: int = 1

    @property
    def shape(self) -> Shape:
        """The shape in the order of the axes; without that along which heads are repeated."""
        shape = self.value.shape
        if self.repeats > 1:
            return shape[:2] + shape[3:]
        return shape if self.axes is None else tuple(shape[axis] for axis in self.axes)

    def emit(self, rewriter: Rewriter, like: Node, lead: tuple[int, int]) -> Value:
        """Emit what brings the operand to (batch, heads, positions, elements)."""
        value = rewriter[self.value]
        if self.axes is not None:
            value = rewriter.emit(like, "transpose", [value], {"axes": self.axes})
        wanted = (lead[0], lead[1] // self.repeats, *self.shape[-2:])
        if value.shape != wanted:
            value = rewriter.emit(like, "reshape", [value], {"shape": wanted})
        return value


@dataclass(frozen=True)
class Mask:
    """What is added to the scores, or where they count: `hidden` is what others become."""

    value: Value
    hidden: float | None = None
    inverted: bool = False

    def emit(self, rewriter: Rewriter, like: Node, dtype: np.dtype[Any]) -> Value:
        """Emit the mask: bool, or in the dtype of the scores."""
        value = rewriter[self.value]
        if self.hidden is None:
            return value
        if self.hidden == -inf:
            return rewriter.emit(like, "logical_not", [value]) if self.inverted else value
        sides = [np.zeros((), dtype), np.asarray(self.hidden, dtype)]
        seen, hidden = (rewriter.constant(like, side) for side in sides)
        chosen = [hidden, seen] if self.inverted else [seen, hidden]
        return rewriter.emit(like, "where", [value, *chosen])


@dataclass(frozen=True)
class Scores:
    """What is found between the softmax and the product of q and k."""

    scale: float = 1.0
    softcap: float | None = None
    masks: tuple[Mask, ...] = ()
    lead: tuple[int, int] | None = None
    product: Node | None = field(default=None)

    @property
    def untouched(self) -> bool:
        """Whether what is met next is met by the scores as the softmax sees them."""
        return self.scale == 1.0 and self.softcap is None


@dataclass(frozen=True)
class Attention:
    """All parts of one attention."""

    q: Operand
    k: Operand
    v: Operand
    scores: Scores
    lead: tuple[int, int]

    def emit(self, rewriter: Rewriter, like: Node) -> Value:
        """Emit the node, and a reshape to what stood there."""
        inputs = [one.emit(rewriter, like, self.lead) for one in (self.q, self.k, self.v)]
        q, k, v = (value.shape for value in inputs)
        attrs = fused_attention_attrs(q, k, v)
        attrs |= {"scale": self.scores.scale, "softcap": self.scores.softcap}
        attrs |= {"lower": None, "upper": None}
        masks = [one.emit(rewriter, like, inputs[0].dtype) for one in self.scores.masks]
        if masks:
            mask = masks[0]
            for other in masks[1:]:
                op = "logical_and" if mask.dtype == other.dtype == np.bool_ else "add"
                mask = rewriter.emit(like, op, [mask, other])
            attrs["mask"] = len(inputs)
            inputs.append(mask)
        found = rewriter.emit(like, "fused_attention", inputs, attrs)
        wanted = like.outputs[0].shape
        if found.shape == wanted:
            return found
        return rewriter.emit(like, "reshape", [found], {"shape": wanted})


def match(node: Node, uses: dict[Value, int]) -> Attention | None:
    """Return the attention whose last product `node` is."""
    weights, v = node.inputs[:2]
    attrs = node.attrs
    if attrs["packed"] or attrs["transpose_a"] or attrs["transpose_b"] or uses[weights] != 1:
        return None
    weights, lead = unfolded(weights, uses, None)
    softmax = weights.node
    if softmax.op != "softmax" or softmax.attrs["axis"] != weights.ndim - 1:
        return None
    scores = follow(softmax.inputs[0], uses, Scores(lead=lead))
    if scores is None or scores.product is None:
        return None
    found = operands(scores.product, scores)
    if found is None:
        return None
    q, k, scores = found
    return joined(q, k, repeated(Operand(v)), scores)


def joined(q: Operand, k: Operand, v: Operand, scores: Scores) -> Attention | None:
    """Return the operands as one attention, where their shapes are those of one."""
    rank = len(q.shape)
    if not len(k.shape) == len(v.shape) == rank or rank not in (3, 4):
        return None
    batch = prod(q.shape[:-2])
    lead = scores.lead or ((q.shape[0], q.shape[1]) if rank == 4 else (1, q.shape[0]))
    if prod(lead) != batch or k.repeats != v.repeats or lead[1] % k.repeats:
        return None
    # Products broadcast along batch and heads; attention does not.
    if rank == 4 and q.shape[:2] != lead:
        return None
    heads = lead[1] // k.repeats
    for one in (k, v):
        if prod(one.shape[:-2]) != lead[0] * heads or (rank == 4 and one.shape[0] != lead[0]):
            return None
    if any(one.repeats > 1 and rank == 3 for one in (k, v)):
        return None
    if {mask.value.dtype == np.bool_ and mask.hidden == -inf for mask in scores.masks} == {
        True,
        False,
    }:
        return None
    whole = (*lead, q.shape[-2], k.shape[-2])
    for mask in scores.masks:
        if mask.value.ndim > 4 or broadcast([mask.value.shape, whole], "attention") != whole:
            return None
    return Attention(q, k, v, scores, lead)


def unfolded(
    value: Value, uses: dict[Value, int], lead: tuple[int, int] | None
) -> tuple[Value, tuple[int, int] | None]:
    """Return `value` before reshapes of batch and heads, and these two where they are apart."""
    while value.node.op == "reshape" and uses[value] == 1:
        source = value.node.inputs[0]
        if source.shape[-2:] != value.shape[-2:]:
            break
        value = source
        if value.ndim == 4:
            lead = lead or (value.shape[0], value.shape[1])
    return value, lead


def follow(value: Value, uses: dict[Value, int], found: Scores) -> Scores | None:
    """Return what lies between `value` and the product of q and k; None for anything else."""
    if uses[value] != 1:
        return None
    value, lead = unfolded(value, uses, found.lead)
    found = replace(found, lead=lead)
    node, inputs = value.node, value.node.inputs
    if uses[value] != 1:
        return None
    if node.op == "fused_matmul":
        return replace(found, product=node)
    if node.op == "add" and found.untouched:
        for scores, other in (inputs, inputs[::-1]):
            if scores.shape == value.shape and fits(other, value.shape, lead):
                rest = follow(scores, uses, replace(found, masks=(*found.masks, Mask(other))))
                if rest is not None:
                    return rest
        return None
    if node.op == "where" and found.untouched:
        return chosen(value, uses, found)
    capped = cap_of(value, uses)
    if capped is not None and found.softcap is None and found.scale == 1.0:
        return follow(capped[0], uses, replace(found, softcap=capped[1]))
    factor = factor_of(value)
    if factor is not None:
        return follow(factor[0], uses, replace(found, scale=found.scale * factor[1]))
    return None


def fits(mask: Value, shape: Shape, lead: tuple[int, int] | None) -> bool:
    """Whether `mask` means the same to scores of `shape` and to those of four axes."""
    if mask.ndim > len(shape):
        return False
    return len(shape) == 4 or lead is None or mask.ndim < 3 or mask.shape[0] == 1


def chosen(value: Value, uses: dict[Value, int], found: Scores) -> Scores | None:
    """Follow the scores through a ``where`` that hides some of them."""
    condition, *sides = value.node.inputs
    for i, (scores, other) in enumerate((sides, sides[::-1])):
        hidden = constant_of(other)
        if hidden is None or hidden > HIDDEN or scores.shape != value.shape:
            continue
        if not fits(condition, value.shape, found.lead):
            continue
        mask = Mask(condition, float(hidden), inverted=i == 1)
        return follow(scores, uses, replace(found, masks=(*found.masks, mask)))
    return None


def factor_of(value: Value) -> tuple[Value, float] | None:
    """Return (y, c) where `value` is ``y * c`` or ``y / (1 / c)``, of one shape."""
    node = value.node
    if node.op not in ("multiply", "divide"):
        return None
    a, b = node.inputs
    for y, other in ((a, b), (b, a)) if node.op == "multiply" else ((a, b),):
        number = constant_of(other)
        if number is not None and number != 0 and y.shape == value.shape:
            return y, float(number) if node.op == "multiply" else 1.0 / number
    return None


def cap_of(value: Value, uses: dict[Value, int]) -> tuple[Value, float] | None:
    """Return (y, c) where `value` is ``tanh(y / c) * c``."""
    outer = factor_of(value)
    if outer is None or outer[0].node.op != "tanh" or uses[outer[0]] != 1:
        return None
    inner = outer[0].node.inputs[0]
    scaled = factor_of(inner)
    if scaled is None or uses[inner] != 1 or outer[1] <= 0:
        return None
    # Another factor within is the scores' own.
    rest = scaled[1] * outer[1]
    return (scaled[0], outer[1]) if abs(rest - 1.0) < 2e-5 else None


def operands(product: Node, scores: Scores) -> tuple[Operand, Operand, Scores] | None:
    """Return q and k of the first product, without the factors on them."""
    attrs = product.attrs
    q, k = product.inputs[:2]
    if attrs["packed"] or attrs["transpose_a"]:
        return None
    scale = scores.scale
    if not attrs["transpose_b"]:
        # The factor stands behind the transpose, which is then no part of the product.
        factor = factor_of(k)
        if factor is None or factor[0].node.op != "transpose":
            return None
        axes = factor[0].node.attrs["axes"]
        key = Operand(factor[0].node.inputs[0], (*axes[:-2], axes[-1], axes[-2]))
        scale *= factor[1]
        if key.axes == tuple(range(len(axes))):
            key = Operand(key.value)
    else:
        key = Operand(k)
    for which in range(2):
        while True:
            one = key if which else Operand(q)
            factor = factor_of(one.value)
            if factor is None:
                break
            scale *= factor[1]
            if which:
                key = Operand(factor[0], key.axes)
            else:
                q = factor[0]
    return Operand(q), repeated(key), replace(scores, scale=scale)


def repeated(one: Operand) -> Operand:
    """Return k or v before its heads are repeated for those of q."""
    node = one.value.node
    if one.axes is not None or node.op != "reshape" or len(one.shape) != 4:
        return one
    spread = node.inputs[0]
    if spread.node.op != "broadcast_to" or spread.ndim != 5:
        return one
    source = spread.node.inputs[0]
    batch, heads, times, *rest = spread.shape
    if source.shape != (batch, heads, 1, *rest) or one.shape != (batch, heads * times, *rest):
        return one
    return Operand(source, None, times) if times > 1 else one
