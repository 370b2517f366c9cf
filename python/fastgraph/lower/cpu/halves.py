"""Half types where kernels compute in float32: operands are converted before, results after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import wraps

from fastgraph.ir.graph import Node, Value
from fastgraph.ir.types import FLOAT32, is_half
from fastgraph.lower.call import Alias, Call, Temp
from fastgraph.lower.cpu.elementwise import cast_call
from fastgraph.lower.cpu.registry import Lowering, Target

__all__ = ["in_float32"]


def in_float32(lowering: Lowering) -> Lowering:
    """Lower nodes with operands in half types as if those were float32, around conversions."""

    @wraps(lowering)
    def lower(node: Node, target: Target) -> list[Call | Alias]:
        if not any(is_half(value.dtype) for value in (*node.inputs, *node.outputs)):
            return lowering(node, target)
        return Converted(node, target).lower(lowering)

    return lower


class Converted:
    """A node and its twin, whose values in half types are float32."""

    def __init__(self, node: Node, target: Target) -> None:
        self.node = node
        self.target = target
        self.operands: dict[Value, Value] = {}
        self.results: dict[Value, Value] = {}
        # Where the kernels find the twins' values.
        self.places: dict[Value, Value | Temp] = {}
        inputs = tuple([self._operand(value) for value in node.inputs])
        self.twin = Node(node.graph, node.op, inputs, dict(node.attrs), node.name, node.site)
        self.twin.outputs = tuple([self._result(value) for value in node.outputs])

    def lower(self, lowering: Lowering) -> list[Call | Alias]:
        """Convert, compute, convert back."""
        found = lowering(self.twin, self.target)
        if not found:
            return []
        items: list[Call | Alias] = []
        for item in found:
            if isinstance(item, Call):
                outs, ins = self._placed(item.outs), self._placed(item.ins)
                items.append(replace(item, outs=outs, ins=ins))
            elif item.out in self.places:
                self.places[item.out] = self.places[item.source]
            else:
                items.append(item)
        before = [self._converted(value) for value in self.operands if value.size]
        after = [self._stored(value) for value in self.results if value.size]
        return [*before, *items, *after]

    def _operand(self, value: Value) -> Value:
        """The twin of an operand: what an astype of it would give."""
        if not is_half(value.dtype):
            return value
        if value not in self.operands:
            site, name = self.node.site, f"{value.label}.float32"
            astype = Node(value.graph, "astype", (value,), {"dtype": FLOAT32}, name, site)
            twin = Value(astype, 0, value.shape, FLOAT32)
            astype.outputs = (twin,)
            self.operands[value] = twin
            self.places[twin] = twin if value.size else value
        return self.operands[value]

    def _result(self, value: Value) -> Value:
        if not is_half(value.dtype):
            return value
        twin = Value(self.twin, value.index, value.shape, FLOAT32)
        self.results[value] = twin
        self.places[twin] = Temp(twin.nbytes, "sums in float32") if value.size else value
        return twin

    def _placed(self, places: Sequence[Value | Temp]) -> tuple[Value | Temp, ...]:
        return tuple(
            [self.places.get(place, place) if isinstance(place, Value) else place
             for place in places]
        )  # fmt: skip

    def _converted(self, value: Value) -> Call:
        """Bring an operand into float32: once for all runs where parameters alone decide it."""
        twin = self.operands[value]
        call = cast_call(value, value.dtype, twin, FLOAT32, value.shape, self.target)
        return replace(call, early=True)

    def _stored(self, value: Value) -> Call:
        """Round a result to the type that it is stored in."""
        home = self.places[self.results[value]]
        return cast_call(home, FLOAT32, value, value.dtype, value.shape, self.target)
