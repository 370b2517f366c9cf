"""What a product or a convolution takes in after itself, and a norm before itself."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from fastgraph.ir.graph import Node, Value
from fastgraph.ir.ops.registry import ACTIVATIONS
from fastgraph.ir.types import FLOAT64
from fastgraph.passes.rewrite import Rewriter

__all__ = ["Chain", "ResidualNorm", "follow", "has_epilogue", "residual_norm"]

NAMES = {(op, attrs.get("approximate")): name for name, (op, attrs) in ACTIVATIONS.items()}


def has_epilogue(node: Node) -> bool:
    """Whether the operator's kernels take in what follows it."""
    if node.op == "conv":
        return node.outputs[0].dtype != FLOAT64
    return node.op == "fused_matmul"


class Chain:
    """A product or convolution and what follows: bias, residual, activation, reshapes between."""

    def __init__(self, product: Node) -> None:
        self.product = product
        self.nodes = [product]
        self.bias: Value | None = None
        self.residual: Value | None = None
        self.residual_first = False
        self.activation: str | None = None

    @property
    def last(self) -> Node:
        """The node whose result the chain gives."""
        return self.nodes[-1]

    def takes(self, node: Node, value: Value) -> bool:
        """Put the reader `node` of the chain's `value` into the epilogue; say whether it fits."""
        if node.op == "add":
            a, b = node.inputs
            other = b if a is value else a
            return self._takes_bias(other, value) or self._takes_residual(other, value)
        name = NAMES.get((node.op, node.attrs.get("approximate")))
        if name is None or self.activation is not None:
            return False
        # A residual that is there already was added before the activation.
        self.residual_first = self.residual is not None
        self.activation = name
        return True

    def _takes_bias(self, other: Value, value: Value) -> bool:
        taken = self.bias is not None or self.product.attrs["bias"] is not None
        if taken or self.activation is not None:
            return False
        if self.product.op == "conv":
            return self._takes_channel_bias(other, value)
        n = self.product.attrs["n"]
        if value.shape[-1:] != (n,) or other.shape[-1:] != (n,) or prod(other.shape[:-1]) != 1:
            return False
        self.bias = other
        return True

    def _takes_channel_bias(self, other: Value, value: Value) -> bool:
        full = self.product.outputs[0].shape
        wanted = (full[1], *(1 for _ in full[2:]))
        lead = (1,) * (len(full) - other.ndim)
        if value.shape != full:
            return False
        if other.ndim > len(full) or (*lead, *other.shape)[1:] != wanted or other.size != full[1]:
            return False
        self.bias = other
        return True

    def _takes_residual(self, other: Value, value: Value) -> bool:
        if self.residual is not None or other.shape != value.shape:
            return False
        self.residual = other
        return True

    def emit(self, rewriter: Rewriter) -> None:
        """Emit the product with its epilogue, and a reshape where the chain has one."""
        product = self.product
        shape = product.outputs[0].shape
        inputs = [rewriter[value] for value in product.inputs]
        attrs: dict[str, Any] = dict(product.attrs)
        columns = shape[1:2] if product.op == "conv" else shape[-1:]
        for name, value, wanted in (
            ("bias", self.bias, columns),
            ("residual", self.residual, shape),
        ):
            if value is None:
                continue
            operand = rewriter[value]
            if operand.shape != wanted:
                operand = rewriter.emit(product, "reshape", [operand], {"shape": wanted})
            attrs[name] = len(inputs)
            inputs.append(operand)
        attrs |= {"residual_first": self.residual_first, "activation": self.activation}
        result = rewriter.emit(product, product.op, inputs, attrs)
        wanted = self.last.outputs[0].shape
        if wanted != shape:
            result = rewriter.emit(product, "reshape", [result], {"shape": wanted})
        rewriter.replace(self.last, [result])


def follow(
    product: Node,
    readers: Mapping[Value, list[Node]],
    visible: set[Value],
    absorbed: Mapping[Node, Any],
    is_set: set[Node],
) -> Chain:
    """Return the longest chain from `product` whose inner results nobody else reads."""
    chain = Chain(product)
    nodes = [product]
    value = product.outputs[0]
    while value not in visible and len(readers.get(value, ())) == 1:
        (node,) = readers[value]
        if node in absorbed or (node in is_set) != (product in is_set):
            break
        nodes.append(node)
        if node.op != "reshape":
            if not chain.takes(node, value):
                break
            chain.nodes = list(nodes)  # A reshape at the end stays outside.
        value = node.outputs[0]
    return chain


class ResidualNorm:
    """A sum and the norm of it; the sum is an output too where others read it."""

    def __init__(self, sum_: Node, norm: Node, sum_seen: bool) -> None:
        self.sum = sum_
        self.norm = norm
        self.sum_seen = sum_seen

    @property
    def place(self) -> Node:
        """The node at whose place it is emitted: before all that read one of its results."""
        return self.sum if self.sum_seen else self.norm

    def emit(self, rewriter: Rewriter) -> None:
        """Emit the norm with its residual."""
        inputs = [rewriter[v] for v in (*self.sum.inputs, *self.norm.inputs[1:])]
        attrs = {**self.norm.attrs, "residual": True, "sum": self.sum_seen}
        outputs = rewriter.emit(self.norm, self.norm.op, inputs, attrs).node.outputs
        rewriter.replace(self.norm, outputs[:1])
        if self.sum_seen:
            rewriter.replace(self.sum, outputs[1:])


def residual_norm(
    norm: Node,
    readers: Mapping[Value, list[Node]],
    visible: set[Value],
    absorbed: Mapping[Node, Any],
    is_set: set[Node],
) -> ResidualNorm | None:
    """Return `norm` with the sum that it reads, where one can be fused with the other."""
    total = norm.inputs[0]
    sum_ = total.node
    if sum_.op != "add" or sum_ in absorbed or (sum_ in is_set) != (norm in is_set):
        return None
    if any(value.shape != total.shape for value in sum_.inputs):
        return None
    seen = total in visible or len(readers[total]) > 1
    # Emitted at the sum's place, it needs weight and bias there, and neither may come of the sum.
    if seen and any(not v.node.is_leaf and v.node not in is_set for v in norm.inputs[1:]):
        return None
    if seen and norm in is_set and any(not v.node.is_leaf for v in norm.inputs[1:]):
        return None
    return ResidualNorm(sum_, norm, seen)
