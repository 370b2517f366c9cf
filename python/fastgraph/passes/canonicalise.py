"""Brings equal computations into one form, so that later passes have fewer forms to know.

Rules are local: each looks at one node of the old graph and at the new values that it reads, which
are canonical already, and emits what stands for it. One walk does, since a rule's results are
canonical too.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.ir.ops.fused_attention import fused_attention_attrs
from fastgraph.ir.ops.registry import ELEMENTWISE
from fastgraph.ir.types import Shape, broadcast
from fastgraph.passes.patterns import Match, match_product, match_quotient
from fastgraph.passes.rewrite import Rewriter, constant_of, use_counts

__all__ = ["EPILOGUE", "run"]

EPILOGUE = {
    "packed": False,
    "bias": None,
    "residual": None,
    "residual_first": False,
    "activation": None,
}
"""The attributes of a fused_matmul that computes the product alone."""


def run(graph: Graph) -> Graph:
    """Return `graph` in canonical form: a matmul is a fused_matmul, norms have trailing axes."""
    rewriter = Rewriter(graph)
    uses = use_counts(graph)
    for node in graph.nodes:
        if node.is_leaf:
            rewriter.keep(node)
            continue
        rule = RULES.get(node.op)
        inputs = [rewriter[value] for value in node.inputs]
        found = rule(rewriter, node, inputs) if rule else None
        if found is None and node.op in ELEMENTWISE:
            found = elementwise(rewriter, node, inputs, uses)
        if found is None:
            rewriter.keep(node)
        else:
            rewriter.replace_value(node.outputs[0], found)
    return rewriter.finish()


def reshaped(rewriter: Rewriter, node: Node, value: Value, shape: Shape) -> Value:
    """Return `value` in `shape`, through at most one reshape."""
    while value.node.op == "reshape":
        value = value.node.inputs[0]
    if value.shape == shape:
        return value
    return rewriter.emit(node, "reshape", [value], {"shape": shape})


def transposed(rewriter: Rewriter, node: Node, value: Value, axes: tuple[int, ...]) -> Value:
    """Return `value` with its axes in the order `axes`, through at most one transpose."""
    if value.node.op == "transpose":
        inner = value.node.attrs["axes"]
        value, axes = value.node.inputs[0], tuple(inner[axis] for axis in axes)
    long = [axis for axis in axes if value.shape[axis] != 1]
    if long == sorted(long):  # Only axes of length 1 move, so no element does.
        return reshaped(rewriter, node, value, tuple(value.shape[axis] for axis in axes))
    return rewriter.emit(node, "transpose", [value], {"axes": axes})


def reshape(rewriter: Rewriter, node: Node, inputs: list[Value]) -> Value | None:
    """Skip reshapes of reshapes and those that change nothing."""
    return reshaped(rewriter, node, inputs[0], node.outputs[0].shape)


def transpose(rewriter: Rewriter, node: Node, inputs: list[Value]) -> Value | None:
    """Join transposes; one that moves no element is a reshape."""
    return transposed(rewriter, node, inputs[0], node.attrs["axes"])


def slice_(rewriter: Rewriter, node: Node, inputs: list[Value]) -> Value | None:
    """Drop a slice that takes all in order."""
    attrs = node.attrs
    whole = inputs[0].shape == node.outputs[0].shape
    in_order = all(step > 0 for step in attrs["steps"])  # And so 1, where all is taken.
    return inputs[0] if whole and in_order else None


def broadcast_to(rewriter: Rewriter, node: Node, inputs: list[Value]) -> Value | None:
    """Join broadcasts; drop one that repeats nothing."""
    (value,) = inputs
    if value.node.op == "broadcast_to":
        (value,) = value.node.inputs
    shape = node.outputs[0].shape
    if prod(shape) == value.size:  # Only axes of length 1 are new.
        return reshaped(rewriter, node, value, shape)
    return rewriter.emit(node, "broadcast_to", [value], {"shape": shape})


def concat(rewriter: Rewriter, node: Node, inputs: list[Value]) -> Value | None:
    """Leave out operands without elements."""
    axis = node.attrs["axis"]
    some = [value for value in inputs if value.shape[axis]]
    if len(some) == len(inputs) > 1:
        return None
    if len(some) < 2:
        return some[0] if some else inputs[0]
    return rewriter.emit(node, "concat", some, node.attrs)


def take(rewriter: Rewriter, node: Node, inputs: list[Value]) -> Value | None:
    """Turn a take of one constant index into a slice."""
    value, indices = inputs
    index = constant_of(indices)
    if index is None:
        return None
    axis = node.attrs["axis"]
    dim = value.shape[axis]
    if not -dim <= index < dim:
        return None  # A data fault belongs to the run, which reports it.
    attrs = {
        "starts": tuple(index % dim if i == axis else 0 for i in range(value.ndim)),
        "sizes": tuple(1 if i == axis else n for i, n in enumerate(value.shape)),
        "steps": (1,) * value.ndim,
    }
    if attrs["sizes"] != value.shape:
        value = rewriter.emit(node, "slice", [value], attrs)
    return reshaped(rewriter, node, value, node.outputs[0].shape)


def reduction(rewriter: Rewriter, node: Node, inputs: list[Value]) -> Value | None:
    """Turn a reduction over axes of length 1 into a reshape."""
    if all(inputs[0].shape[axis] == 1 for axis in node.attrs["axis"]):
        return reshaped(rewriter, node, inputs[0], node.outputs[0].shape)
    return None


def matmul(rewriter: Rewriter, node: Node, inputs: list[Value]) -> Value | None:
    """Give 1-d operands a second axis, and take transposes of operands into the product."""
    a, b = inputs
    if a.ndim == 1:
        a = reshaped(rewriter, node, a, (1, *a.shape))
    if b.ndim == 1:
        b = reshaped(rewriter, node, b, (*b.shape, 1))
    k, n = b.shape[-2:]
    b, transpose_b = absorbed(rewriter, node, b)
    transpose_a = False
    # A packed weight has a kernel that reads its other operand along rows alone.
    if not (b.ndim == 2 and rewriter.is_set(b)):
        a, transpose_a = absorbed(rewriter, node, a)
    attrs = {
        "k": k,
        "n": n,
        "transpose_a": transpose_a,
        "transpose_b": transpose_b,
        **EPILOGUE,
    }
    product = rewriter.emit(node, "fused_matmul", [a, b], attrs)
    return reshaped(rewriter, node, product, node.outputs[0].shape)


def absorbed(rewriter: Rewriter, node: Node, value: Value) -> tuple[Value, bool]:
    """Return an operand without the swap of its last two axes, and whether there was one.

    What is left of the transpose moves whole rows, or is nothing at all.
    """
    if value.node.op != "transpose":
        return value, False
    axes = value.node.attrs["axes"]
    if axes[-2] != value.ndim - 1:
        return value, False
    rest = (*axes[:-2], axes[-1], axes[-2])
    return transposed(rewriter, node, value.node.inputs[0], rest), True


def norm(rewriter: Rewriter, node: Node, inputs: list[Value]) -> Value | None:
    """Move the axes of a norm to the end."""
    axes, shape = node.attrs["axis"], inputs[0].shape
    rank = len(shape)
    if axes and axes == tuple(range(rank - len(axes), rank)):
        return None
    if not axes:  # Each element by itself.
        x = reshaped(rewriter, node, inputs[0], (*shape, 1))
        rest = [reshaped(rewriter, node, value, (1,)) for value in inputs[1:]]
        found = rewriter.emit(node, node.op, [x, *rest], {**node.attrs, "axis": (rank,)})
        return reshaped(rewriter, node, found, shape)
    order = (*(axis for axis in range(rank) if axis not in axes), *axes)
    back = tuple(order.index(axis) for axis in range(rank))
    x = transposed(rewriter, node, inputs[0], order)
    attrs = {**node.attrs, "axis": tuple(range(rank - len(axes), rank))}
    found = rewriter.emit(node, node.op, [x, *inputs[1:]], attrs)
    return transposed(rewriter, node, found, back)


def attention(rewriter: Rewriter, node: Node, inputs: list[Value]) -> Value | None:
    """Say where the operands lie, which fusing may change."""
    q, k, v = (value.shape for value in inputs[:3])
    attrs = {**node.attrs, **fused_attention_attrs(q, k, v)}
    if len(inputs) > 3:
        attrs["mask"] = 3
    return rewriter.emit(node, "fused_attention", inputs, attrs)


def astype(rewriter: Rewriter, node: Node, inputs: list[Value]) -> Value | None:
    """Drop a conversion to the same dtype."""
    return inputs[0] if inputs[0].dtype == node.outputs[0].dtype else None


def power(rewriter: Rewriter, node: Node, inputs: list[Value]) -> Value | None:
    """Name the common exponents."""
    base, exponent = inputs
    if base.shape != node.outputs[0].shape:
        return None
    number = constant_of(exponent)
    if number == 1:
        return base
    if number == 2:
        return rewriter.emit(node, "square", [base])
    return None


def multiply(rewriter: Rewriter, node: Node, inputs: list[Value]) -> Value | None:
    """Recognise activations and norms that end in a product."""
    return recognised(rewriter, node, inputs, match_product)


def divide(rewriter: Rewriter, node: Node, inputs: list[Value]) -> Value | None:
    """Recognise norms that end in a quotient."""
    return recognised(rewriter, node, inputs, match_quotient)


def recognised(
    rewriter: Rewriter, node: Node, inputs: list[Value], match: Callable[[Node], Match | None]
) -> Value | None:
    """Emit what `match` finds in the node upon its new inputs."""
    found = match(Node(rewriter.graph, node.op, tuple(inputs), {}, "", ""))
    if found is None or found[1][0].shape != node.outputs[0].shape:
        return None
    return rewriter.emit(node, *found)


def elementwise(
    rewriter: Rewriter, node: Node, inputs: list[Value], uses: dict[Value, int]
) -> Value | None:
    """Put weight and bias into a norm; let operands broadcast by themselves."""
    if node.op in ("multiply", "add"):
        found = affine(rewriter, node, inputs, uses)
        if found is not None:
            return found
    shape = node.outputs[0].shape
    changed = False
    for i, value in enumerate(inputs):
        if value.node.op != "broadcast_to":
            continue
        source = value.node.inputs[0]
        shapes = [source.shape, *(v.shape for j, v in enumerate(inputs) if j != i)]
        if broadcast(shapes, node.op) == shape:
            inputs[i], changed = source, True
    return rewriter.emit(node, node.op, inputs, node.attrs) if changed else None


def affine(
    rewriter: Rewriter, node: Node, inputs: list[Value], uses: dict[Value, int]
) -> Value | None:
    """Put a factor into a norm without weight, or a summand into one without bias."""
    for i, value in enumerate(inputs):
        one, other = value.node, inputs[1 - i]
        if one.op not in ("layer_norm", "rms_norm") or uses[node.inputs[i]] != 1:
            continue
        part = "weight" if node.op == "multiply" else "bias"
        if one.attrs[part] or one.attrs["bias"] or (part == "bias" and one.op == "rms_norm"):
            continue
        wanted = tuple(value.shape[axis] for axis in one.attrs["axis"])
        lead = other.ndim - len(wanted)
        if lead < 0 or other.shape[lead:] != wanted or prod(other.shape[:lead]) != 1:
            continue
        if node.outputs[0].shape != value.shape:
            continue
        attrs: dict[str, Any] = {**one.attrs, part: True}
        operand = reshaped(rewriter, node, other, wanted)
        return rewriter.emit(node, one.op, [*one.inputs, operand], attrs)
    return None


Rule = Callable[[Rewriter, Node, list[Value]], Value | None]

RULES: dict[str, Rule] = {
    "reshape": reshape,
    "transpose": transpose,
    "slice": slice_,
    "broadcast_to": broadcast_to,
    "concat": concat,
    "take": take,
    "matmul": matmul,
    "layer_norm": norm,
    "rms_norm": norm,
    "attention": attention,
    "astype": astype,
    "power": power,
    "multiply": multiply,
    "divide": divide,
    **dict.fromkeys(("sum", "mean", "max", "min", "prod"), reduction),
}
