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
    """A node and its twin, whose values in half types are float32 and live in scratch."""

    def __init__(self, node: Node, target: Target) -> None:
        self.node = node
        self.target = target
        self.twins: dict[Value, Value] = {}
        self.scratch: dict[Value, Value | Temp] = {}
        inputs = tuple([self._twin(value) for value in node.inputs])
        self.twin = Node(node.graph, node.op, inputs, dict(node.attrs), node.name, node.site)
        self.twin.outputs = tuple([self._twin(value) for value in node.outputs])

    def lower(self, lowering: Lowering) -> list[Call | Alias]:
        """Convert, compute, convert back."""
        found = lowering(self.twin, self.target)
        if not found:
            return []
        items: list[Call | Alias] = []
        for item in found:
            if isinstance(item, Call):
                items.append(
                    replace(item, outs=self._places(item.outs), ins=self._places(item.ins))
                )
            elif item.out in self.scratch and item.source in self.scratch:
                self.scratch[item.out] = self.scratch[item.source]
            else:
                items.append(item)
        before = [self._cast(value, True) for value in dict.fromkeys(self.node.inputs)]
        after = [self._cast(value, False) for value in self.node.outputs]
        return [item for item in (*before, *items, *after) if item is not None]

    def _twin(self, value: Value) -> Value:
        if not is_half(value.dtype):
            return value
        if value not in self.twins:
            twin = Value(value.node, value.index, value.shape, FLOAT32, value.name)
            self.twins[value] = twin
            # What has no bytes stays as it is.
            some = twin.size > 0
            self.scratch[twin] = Temp(twin.nbytes, f"{value.label} as float32") if some else value
        return self.twins[value]

    def _places(self, places: Sequence[Value | Temp]) -> tuple[Value | Temp, ...]:
        return tuple(
            [self.scratch.get(place, place) if isinstance(place, Value) else place
             for place in places]
        )  # fmt: skip

    def _cast(self, value: Value, before: bool) -> Call | None:
        """The conversion of `value` into its scratch, or from it."""
        if value not in self.twins or value.size == 0:
            return None
        home = self.scratch[self.twins[value]]
        if before:
            return cast_call(value, value.dtype, home, FLOAT32, value.shape, self.target)
        return cast_call(home, FLOAT32, value, value.dtype, value.shape, self.target)
