"""Elementwise regions: which operators go into one loop, and the loop's instructions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.ir.ops.registry import ELEMENTWISE, Instr
from fastgraph.ir.types import Shape, broadcast
from fastgraph.passes.rewrite import Rewriter, constant_of

__all__ = ["MAX_INPUTS", "MAX_INSTRUCTIONS", "Region", "emit", "grow"]

MAX_INSTRUCTIONS = 64
MAX_INPUTS = 16


class Region:
    """Nodes that are computed together; only the result of `root`, the last, is seen outside."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.nodes = [root]  # From the root up, so in reverse order.
        self.inputs: set[Value] = set()
        self.numbers: set[Value] = set()
        self._add_inputs(root)

    def takes(self, node: Node, taken: bool) -> bool:
        """Add `node`, all of whose readers are inside, unless the limits forbid; say whether."""
        if not taken:
            return False
        inputs = self.inputs.difference(node.outputs)
        numbers = set(self.numbers)
        for value in node.inputs:
            (inputs if constant_of(value) is None else numbers).add(value)
        if len(inputs) > MAX_INPUTS or len(self.nodes) + 1 + len(numbers) > MAX_INSTRUCTIONS:
            return False
        self.nodes.append(node)
        self.inputs, self.numbers = inputs, numbers
        return True

    def _add_inputs(self, node: Node) -> None:
        for value in node.inputs:
            (self.inputs if constant_of(value) is None else self.numbers).add(value)


def work_shape(shape: Shape) -> Shape:
    """Return `shape` without leading ones, which add no work."""
    lead = 0
    while lead < len(shape) and shape[lead] == 1:
        lead += 1
    return shape[lead:]


def grow(
    graph: Graph,
    readers: Mapping[Value, list[Node]],
    visible: set[Value],
    absorbed: Mapping[Node, Any],
    is_set: set[Node],
) -> list[Region]:
    """Return regions that hold each elementwise node that is not in `absorbed`.

    A node joins the region of its readers where that region holds all of them, so that its result
    need not be seen, and where it has the region's shape, so that nothing is computed more often
    than before. Since a region's only way out is its root, no path leaves it and comes back.
    """
    region_of: dict[Node, Region] = {}
    regions: list[Region] = []
    for node in reversed(graph.nodes):
        if node.op not in ELEMENTWISE or node in absorbed:
            continue
        (result,) = node.outputs
        found = {region_of.get(reader) for reader in readers.get(result, ())}
        region = found.pop() if len(found) == 1 and result not in visible else None
        if region is not None and region.takes(
            node,
            (node in is_set) == (region.root in is_set)
            and work_shape(result.shape) == work_shape(region.root.outputs[0].shape),
        ):
            region_of[node] = region
            continue
        region_of[node] = Region(node)
        regions.append(region_of[node])
    return regions


def emit(rewriter: Rewriter, region: Region) -> None:
    """Emit the region's one node; constants of one element become instructions."""
    nodes = region.nodes[::-1]
    shape = region.root.outputs[0].shape
    inside = {node.outputs[0] for node in nodes}
    read = dict.fromkeys(v for node in nodes for v in node.inputs if v not in inside)
    outside = [v for v in read if constant_of(v) is None]
    if not outside:  # A region reads something, be it constants.
        outside = list(read)
    place = {value: i for i, value in enumerate(outside)}
    body: list[Instr] = []

    def number(value: Value) -> int:
        if value not in place:
            body.append(Instr("const", (), {"value": constant_of(value)}, value.dtype))
            place[value] = len(outside) + len(body) - 1
        return place[value]

    for node in nodes:
        args = tuple([number(value) for value in node.inputs])
        (result,) = node.outputs
        body.append(Instr(node.op, args, dict(node.attrs), result.dtype))
        place[result] = len(outside) + len(body) - 1
    attrs: dict[str, Any] = {"body": tuple(body), "results": (len(outside) + len(body) - 1,)}
    if broadcast([value.shape for value in outside], "region") != shape:
        attrs["shape"] = shape
    inputs = [rewriter[value] for value in outside]
    specs = [(shape, region.root.outputs[0].dtype)]
    rewriter.replace(region.root, [rewriter.emit(region.root, "region", inputs, attrs, specs)])
