"""Turns convolutions with few positions into products, which stream their weights once.

Their images are kept with the channels last, where the elements of a window lie side by side, and
so is what follows element by element, until something asks for the other order.
"""

from __future__ import annotations

from math import prod

from fastgraph._core.sizes import activated
from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.ir.ops.registry import ELEMENTWISE, Windows
from fastgraph.passes.canonicalise import EPILOGUE
from fastgraph.passes.rewrite import Rewriter

__all__ = ["few_positions", "run"]

# Columns of a tile of the kernels that read images as they are.
TILE = 16
# Patches are written and read once more: worth it where tiles would be emptier than this.
LEAST_FILLED = 0.7


def run(graph: Graph) -> Graph:
    """Return `graph` with products for the convolutions that have few positions."""
    if not any(few_positions(node) for node in graph.nodes):
        return graph
    turned = _Turned(graph)
    for node in graph.nodes:
        turned.add(node)
    for _, value in graph.outputs:
        turned.usual(value)
    return turned.rewriter.finish()


def few_positions(node: Node) -> bool:
    """Whether a convolution would fill tiles of positions badly."""
    if node.op != "conv" or node.attrs["group"] != 1 or node.outputs[0].size == 0:
        return False
    windows: Windows = node.attrs["windows"]
    positions = prod(windows.counts)
    # As the kernels walk: along rows that are as long as those of the image around the windows.
    walked, step = 1, 1
    for i in reversed(range(len(windows.counts))):
        walked += (windows.counts[i] - 1) * step
        step *= windows.counts[i] + (windows.spans[i] - 1) // windows.strides[i]
    # As many as there can be: a program for extents has the weights of the model's own.
    positions, walked = activated(positions, ()), activated(walked, ())
    return positions < LEAST_FILLED * (-(-walked // TILE) * TILE)


def takes_all_in_order(windows: Windows) -> bool:
    """Whether each element of an image is a window of its own."""
    steps = zip(windows.strides, windows.counts, strict=True)
    return (
        prod(windows.kernel) == 1
        and windows.counts == windows.sizes
        and not any(windows.begins)
        and all(step == 1 or count == 1 for step, count in steps)
    )


class _Turned:
    """The new graph, and which values of the old one lie in it with their channels last."""

    def __init__(self, graph: Graph) -> None:
        self.rewriter = Rewriter(graph)
        self.last: dict[Value, Value] = {}
        self.is_usual: set[Value] = {*graph.inputs, *graph.params, *graph.scalars}

    def add(self, node: Node) -> None:
        """Emit what stands for the old `node`."""
        if few_positions(node):
            self._product(node)
        elif node.op in ELEMENTWISE and self._pointwise(node):
            pass
        elif node.op == "slice" and node.inputs[0] in self.last:
            self._slice(node)
        else:
            for value in node.inputs:
                self.usual(value)
            self.rewriter.keep(node)
            self.is_usual.update(node.outputs)

    def usual(self, value: Value) -> Value:
        """Return the new value in the usual order, turned back where there is only the other."""
        if value not in self.is_usual:
            last = self.last[value]
            axes = (0, last.ndim - 1, *range(1, last.ndim - 1))
            found = self.rewriter.emit(value.node, "transpose", [last], {"axes": axes})
            self.rewriter.replace_value(value, found)
            self.is_usual.add(value)
        return self.rewriter[value]

    def channels_last(self, value: Value) -> Value:
        """Return the new value with its channels last."""
        if value not in self.last:
            axes = (0, *range(2, value.ndim), 1)
            usual = self.usual(value)
            found = self.rewriter.emit(value.node, "transpose", [usual], {"axes": axes})
            self.last[value] = found
        return self.last[value]

    def _product(self, node: Node) -> None:
        emit = self.rewriter.emit
        windows: Windows = node.attrs["windows"]
        x, w = self.channels_last(node.inputs[0]), self.usual(node.inputs[1])
        outs, k = w.shape[0], prod(w.shape[1:])
        rows = x.shape[0] * prod(windows.counts)
        if takes_all_in_order(windows):
            patches = emit(node, "reshape", [x], {"shape": (rows, k)})
        else:
            patches = emit(node, "patches", [x], {"windows": windows})
        axes = (0, *range(2, w.ndim), 1)
        w = emit(node, "transpose", [w], {"axes": axes})
        operands = [patches, emit(node, "reshape", [w], {"shape": (outs, k)})]
        attrs = {**EPILOGUE, "k": k, "n": outs, "transpose_a": False, "transpose_b": True}
        if node.attrs["bias"] is not None:
            attrs["bias"] = len(operands)
            operands.append(self.usual(node.inputs[node.attrs["bias"]]))
        y = emit(node, "fused_matmul", operands, attrs)
        y = emit(node, "reshape", [y], {"shape": (x.shape[0], *windows.counts, outs)})
        self.last[node.outputs[0]] = y

    def _pointwise(self, node: Node) -> bool:
        """Work on images with their channels last, if all operands are such or single numbers."""
        shape = node.outputs[0].shape
        images = [value for value in node.inputs if value.size != 1]
        if not any(value in self.last for value in images):
            return False
        if any(value not in self.last or value.shape != shape for value in images):
            return False
        inputs = [
            self.last[value] if value.size != 1 else self._number(value) for value in node.inputs
        ]
        self.last[node.outputs[0]] = self.rewriter.emit(node, node.op, inputs, node.attrs)
        return True

    def _number(self, value: Value) -> Value:
        usual = self.usual(value)
        if usual.ndim == 0:
            return usual
        return self.rewriter.emit(value.node, "reshape", [usual], {"shape": ()})

    def _slice(self, node: Node) -> None:
        attrs = {
            name: (found[0], *found[2:], found[1]) if isinstance(found, tuple) else found
            for name, found in node.attrs.items()
        }
        found = self.rewriter.emit(node, "slice", [self.last[node.inputs[0]]], attrs)
        self.last[node.outputs[0]] = found
