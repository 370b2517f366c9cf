"""Lets attention read its operands where they lie, and write its result as it is wanted.

Transposes, slices and reshapes before q, k and v become strides; a transpose that brings the heads
behind the positions becomes the form of the result. What is then read by nobody goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.ir.ops.fused_attention import Place, extents
from fastgraph.passes.rewrite import Rewriter, readers_of

__all__ = ["run"]

Steps = Sequence[tuple[int, int]]
"""Of each axis of a view: its extent, and the elements between neighbours."""


def run(graph: Graph) -> Graph:
    """Return `graph` with the operands of attention read in place."""
    if not any(node.op == "fused_attention" for node in graph.nodes):
        return graph
    readers = readers_of(graph)
    visible = {value for _, value in graph.outputs}
    rewriter = Rewriter(graph)
    done: set[Node] = set()
    for node in graph.nodes:
        if node in done:
            continue
        if node.op != "fused_attention":
            rewriter.keep(node)
            continue
        number: dict[Value, int] = {}
        attrs = dict(node.attrs)
        for name in "qkv":
            source, place = in_place(node, name)
            attrs[name] = place._replace(input=number.setdefault(rewriter[source], len(number)))
        inputs = list(number)
        if attrs["mask"] is not None:
            inputs.append(rewriter[node.inputs[attrs["mask"]]])
            attrs["mask"] = len(inputs) - 1
        turned = None if attrs["rows_first"] else turned_result(node, readers, visible)
        attrs["rows_first"] = attrs["rows_first"] or turned is not None
        found = rewriter.emit(node, node.op, inputs, attrs)
        if turned is not None:
            done.update(turned)
        rewriter.replace_value((turned[-1] if turned else node).outputs[0], found)
    return rewriter.finish()


def turned_result(
    node: Node, readers: Mapping[Value, list[Node]], visible: set[Value]
) -> list[Node] | None:
    """Return the nodes from the result to a transpose that brings heads behind positions."""
    (value,) = node.outputs
    shape = value.shape
    chain: list[Node] = []
    while value not in visible and len(readers.get(value, ())) == 1:
        (reader,) = readers[value]
        chain.append(reader)
        value = reader.outputs[0]
        if reader.op == "transpose":
            whole = reader.inputs[0].shape == shape and reader.attrs["axes"] == (0, 2, 1, 3)
            return chain if whole else None
        if reader.op != "reshape":
            return None
    return None


def in_place(node: Node, name: str) -> tuple[Value, Place]:
    """Return the value that holds q, k or v furthest up, and where they lie in it."""
    place = node.attrs[name]
    batch, heads, positions, length = extents(node.attrs["sizes"], name)
    best = node.inputs[place.input], place
    if 0 in (batch, heads, positions, length):
        return best
    value, offset = node.inputs[place.input], place.offset
    steps: Steps = (
        (batch, place.batch), (heads, place.head), (positions, place.position), (length, 1),
    )  # fmt: skip
    while True:
        found = through(value, offset, steps)
        if found is None:
            return best
        value, offset, steps = found
        *outer, (_, step) = steps
        if (step == 1 or length == 1) and all(step >= 0 for _, step in outer):
            (_, a), (_, b), (_, c) = outer
            best = value, Place(0, offset, a, b, c)


def through(value: Value, offset: int, steps: Steps) -> tuple[Value, int, Steps] | None:
    """Return the operand of the node that made `value`, and the view of `value` as one of it."""
    node = value.node
    if node.op == "reshape":
        return node.inputs[0], offset, steps
    if node.op not in ("transpose", "slice"):
        return None
    (source,) = node.inputs
    strides = [prod(source.shape[axis + 1 :]) for axis in range(source.ndim)]
    first = 0
    if node.op == "transpose":
        strides = [strides[axis] for axis in node.attrs["axes"]]
    else:
        first = sum(s * stride for s, stride in zip(node.attrs["starts"], strides, strict=True))
        strides = [s * stride for s, stride in zip(node.attrs["steps"], strides, strict=True)]
    own = [prod(value.shape[axis + 1 :]) for axis in range(value.ndim)]
    reach = [offset // own[axis] % value.shape[axis] for axis in range(value.ndim)]
    start = first + sum(at * stride for at, stride in zip(reach, strides, strict=True))
    found = []
    for extent, step in steps:
        if extent == 1:
            found.append((1, 0))
            continue
        fitting = [a for a, n in enumerate(value.shape) if n != 1 and step and step % own[a] == 0]
        if not fitting:
            return None
        axis = max(fitting, key=own.__getitem__)
        times = step // own[axis]
        reach[axis] += times * (extent - 1)
        found.append((extent, times * strides[axis]))
    if any(last >= n for last, n in zip(reach, value.shape, strict=True)):
        return None  # A walk over the end of an axis is none along it.
    return source, start, found
