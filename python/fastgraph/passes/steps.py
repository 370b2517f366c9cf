"""A step of decoding in one node, for a GPU: turned, kept behind earlier positions, attending.

The new position's queries and keys are turned, its keys and values are put to their rows of the
caches, and its queries attend to those: each alone is far shorter than the way from one node to the
next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.ir.ops.attention_step import CACHES
from fastgraph.ir.ops.fused_attention import AttentionSizes, Place
from fastgraph.ir.types import is_half
from fastgraph.passes.rewrite import Rewriter, in_order, readers_of
from fastgraph.passes.setprogram import FEW_ROWS
from fastgraph.passes.views import through

__all__ = ["run"]

# Elements of a head: halves of it are whole steps of a matrix unit; and at most so many.
HEAD_STEP, LONGEST_HEAD = 32, 256


class Step(NamedTuple):
    """The nodes that become one, and what of the rotated elements is the new row of keys."""

    attend: Node
    turn: Node
    turn_key: Node
    put: Node
    chain: tuple[Node, ...]
    """What brings the rotated keys to the scatter."""
    new_key: int
    swapped: bool
    """Whether the scatter puts the values first."""

    @property
    def nodes(self) -> set[Node]:
        """All of them."""
        return {self.attend, self.turn, self.turn_key, self.put, *self.chain}


def run(graph: Graph) -> Graph:
    """Return `graph` with one node for each step of one position."""
    readers, visible = readers_of(graph), {value for _, value in graph.outputs}
    found: dict[Node, Step] = {}
    first: dict[Node, Node] = {}
    for node in graph.nodes:
        step = match(node) if node.op == "fused_attention" else None
        if step is None or not step.nodes.isdisjoint(first) or is_seen(step, readers, visible):
            continue
        together = first | dict.fromkeys(step.nodes, step.turn)
        # A mask may be computed from what the step gives.
        if in_order(graph, together) is not None:
            found[step.turn], first = step, together
    order = in_order(graph, first) if found else None
    if order is None:
        return graph
    rewriter = Rewriter(graph)
    for node in order:
        if node in found:
            emit(rewriter, found[node])
        else:
            rewriter.keep(node)
    return rewriter.finish()


def match(node: Node) -> Step | None:
    """Return what is one step with the attention of `node`."""
    attrs = node.attrs
    sizes: AttentionSizes = attrs["sizes"]
    turned, keys, values = (node.inputs[attrs[name].input] for name in "qkv")
    turn, put = turned.node, keys.node
    if put.op != "scatter_pair" or values.node is not put or keys is values:
        return None
    if not (is_one(node) and is_turn(turn, sizes) and is_row(node, put)):
        return None
    swapped = keys is put.outputs[1]
    value, offset = put.inputs[4 if swapped else 2], 0
    steps = wanted = [(sizes.key_heads, sizes.length), (sizes.length, 1)]
    chain: list[Node] = []
    while value.node.op != "rotary_embedding":
        found = through(value, offset, steps)
        if found is None:
            return None
        chain.append(value.node)
        value, offset, steps = found[0], found[1], list(found[2])
    key = value.node
    same = key is turn or all(a is b for a, b in zip(key.inputs[1:], turn.inputs[1:], strict=False))
    # Along one element there is no step.
    walked = all(a == b or a[0] == 1 for a, b in zip(steps, wanted, strict=True))
    if not (same and walked and is_turn(key, sizes)) or offset % sizes.length:
        return None
    return Step(node, turn, key, put, tuple(chain), offset, swapped)


def is_one(node: Node) -> bool:
    """Whether one position attends, by heads that the kernel takes, to all that there is."""
    attrs = node.attrs
    sizes: AttentionSizes = attrs["sizes"]
    q: Place = attrs["q"]
    return (
        is_half(node.outputs[0].dtype)
        and (sizes.batch, sizes.queries) == (1, 1)
        and sizes.heads // sizes.key_heads <= FEW_ROWS
        and sizes.length == sizes.value_length <= LONGEST_HEAD
        and sizes.length % HEAD_STEP == 0
        and q.offset % sizes.length == 0
        and (sizes.heads == 1 or q.head == sizes.length)
        and attrs["lower"] is None
        and (attrs["upper"] is None or attrs["upper"] >= sizes.keys - 1)
    )


def is_turn(node: Node, sizes: AttentionSizes) -> bool:
    """Whether whole heads of one position are turned, whose number is told."""
    return (
        node.op == "rotary_embedding"
        and len(node.inputs) == 4
        and node.inputs[3].size == 1
        and node.inputs[0].shape[0] == 1
        and node.attrs["length"] == node.inputs[0].shape[3] == sizes.length
        and not node.attrs["interleaved"]
    )


def is_row(node: Node, put: Node) -> bool:
    """Whether one row is put to each of two matrices that are read as a whole, head by head."""
    attrs = node.attrs
    sizes: AttentionSizes = attrs["sizes"]
    width = sizes.key_heads * sizes.length
    places = [attrs[name]._replace(input=0, batch=0) for name in "kv"]
    if sizes.key_heads == 1:
        places = [place._replace(head=sizes.length) for place in places]
    if sizes.keys == 1:
        places = [place._replace(position=width) for place in places]
    return (
        put.attrs["reduction"] == "none"
        and put.inputs[1].size == 1
        and put.inputs[0].shape == (sizes.keys, width)
        and places == [Place(0, 0, 0, sizes.length, width)] * 2
    )


def is_seen(step: Step, readers: Mapping[Value, list[Node]], visible: set[Value]) -> bool:
    """Whether anybody else reads what is rotated."""
    inner = [node.outputs[0] for node in (step.turn, step.turn_key, *step.chain)]
    return any(value in visible or not step.nodes.issuperset(readers[value]) for value in inner)


def emit(rewriter: Rewriter, step: Step) -> None:
    """Emit the node in place of the others."""
    keys, indices, _, values, row = step.put.inputs
    if step.swapped:
        values, indices, row, keys, _ = step.put.inputs
    x, key = step.turn.inputs[0], step.turn_key.inputs[0]
    inputs = [x, keys, values, *step.turn.inputs[1:], indices, key, row]
    attrs = dict(step.attend.attrs)
    if attrs["mask"] is not None:
        inputs.append(step.attend.inputs[attrs["mask"]])
        attrs["mask"] = len(inputs) - 1
    for name, number in zip("qkv", (0, *CACHES), strict=True):
        attrs[name] = attrs[name]._replace(input=number)
    attrs["new_key"] = step.new_key
    new = [rewriter[value] for value in inputs]
    if x.shape[2] != 1:
        shape = (1, x.shape[2], 1, x.shape[3])
        new[0] = rewriter.emit(step.attend, "reshape", new[:1], {"shape": shape})
    y, *both = rewriter.emit(step.attend, "attention_step", new, attrs).node.outputs
    rewriter.replace(step.attend, [y])
    rewriter.replace(step.put, both[::-1] if step.swapped else both)
