"""Where the rows of inputs go: which results have one part for each, and which mix them.

A graph compiled for more rows than it is given is right if what is computed of a row that was
given depends on no row that was filled in. Rows are followed through the operators: a value either
depends on none, or its elements, in order, belong to rows that take turns, or an operator has
mixed them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.ir.ops.registry import OPS
from fastgraph.ir.types import Shape

__all__ = ["RowFlow", "follow_rows"]


class Place(NamedTuple):
    """Index i of `axis` belongs to row ``i // inner % count``."""

    axis: int
    inner: int


class Mixed(NamedTuple):
    """The node that lets elements of one row depend on others."""

    node: Node


@dataclass(frozen=True)
class RowFlow:
    """What became of the rows.

    Attributes
    ----------
    outputs : list of Place or None
        For each output the axis along which its rows lie; None where it depends on none. An
        output that `mixed` names has None too.
    mixed : list of (str, Node)
        Outputs of which a row may depend on other rows, and the operator that does that.
    """

    outputs: list[Place | None]
    mixed: list[tuple[str, Node]]


# What is known of a value: nothing depends on rows; elements L, in order, belong to row
# L // stride % count; mixed.
State = int | Mixed | None


class _Mixes(Exception):
    """An operator lets rows depend on others."""


def follow_rows(graph: Graph, inputs: Mapping[str, int], count: int) -> RowFlow:
    """Follow the rows of inputs through a graph.

    Parameters
    ----------
    graph : Graph
        As users write it.
    inputs : mapping of str to int
        For each input that has rows their axis, of `count` elements.
    count : int

    Returns
    -------
    RowFlow

    Examples
    --------
    >>> from fastgraph.ir import Graph, ops
    >>> from fastgraph.ir.rows import follow_rows
    >>> g = Graph()
    >>> x, w = g.input("x", (4, 8)), g.param("w", (8, 2))
    >>> _ = g.output(ops.softmax(x @ w), "apart")
    >>> _ = g.output(ops.softmax(x @ w, axis=0), "together")
    >>> flow = follow_rows(g, {"x": 0}, 4)
    >>> flow.outputs
    [Place(axis=0, inner=1), None]
    >>> [(name, node.op) for name, node in flow.mixed]
    [('together', 'softmax')]
    """
    states: dict[Value, State] = {}
    for node in graph.nodes:
        if node.op == "input" and node.outputs[0].name in inputs:
            value = node.outputs[0]
            states[value] = prod(value.shape[inputs[value.name] + 1 :])
            continue
        for value, state in zip(node.outputs, _through(node, states, count), strict=True):
            states[value] = state
    places: list[Place | None] = []
    mixed = []
    for name, value in graph.outputs:
        state = states[value]
        place = None
        if isinstance(state, int):
            place = _locate(value.shape, state, count)
            if place is None or place.inner != 1 or value.shape[place.axis] != count:
                # The rows are apart, but no axis is theirs alone: they cannot be cut off.
                place, state = None, Mixed(value.node)
        if isinstance(state, Mixed):
            mixed.append((name, state.node))
        places.append(place)
    return RowFlow(places, mixed)


def _through(node: Node, states: Mapping[Value, State], count: int) -> Sequence[State]:
    """What is known of the results of a node."""
    given = [states[value] for value in node.inputs]
    n = len(node.outputs)
    if all(state is None for state in given):
        return [None] * n
    for state in given:
        if isinstance(state, Mixed):
            return [state] * n
    rule = RULES.get(node.op)
    if rule is None and OPS[node.op].family == "elementwise":
        rule = _aligned
    if rule is None:
        return [Mixed(node)] * n
    try:
        found = rule(Rows(node, given, count))
    except _Mixes:
        return [Mixed(node)] * n
    return [found] * n


def _locate(shape: Shape, stride: int, count: int) -> Place | None:
    """The axis whose index alone decides the row, or None."""
    inside = 1
    if not stride:
        return None  # There are no elements.
    for axis in range(len(shape) - 1, -1, -1):
        if stride % inside == 0 and inside * shape[axis] % (stride * count) == 0:
            return Place(axis, stride // inside)
        inside *= shape[axis]
    return None


class Rows:
    """A node as its rule sees it: where the rows of each operand lie."""

    def __init__(self, node: Node, given: Sequence[State], count: int) -> None:
        self.node = node
        self.attrs = node.attrs
        self.count = count
        self.strides = [state if isinstance(state, int) else None for state in given]
        self.shapes = [value.shape for value in node.inputs]
        self.out = node.outputs[0].shape

    def place(self, i: int) -> Place | None:
        """Where the rows of operand `i` lie; None where it has none."""
        stride = self.strides[i]
        if stride is None:
            return None
        place = _locate(self.shapes[i], stride, self.count)
        if place is None:
            raise _Mixes
        return place

    def only(self, *operands: int) -> None:
        """No operand but these may have rows."""
        if any(s is not None for i, s in enumerate(self.strides) if i not in operands):
            raise _Mixes

    def at(self, places: Sequence[Place | None]) -> int:
        """The state of a result whose rows lie at these places, which must be one."""
        found = {place for place in places if place is not None}
        if len(found) != 1:
            raise _Mixes
        axis, inner = found.pop()
        return inner * prod(self.out[axis + 1 :])

    def moved(self, i: int, by: int) -> Place | None:
        """The place of operand `i` with so many axes before it."""
        place = self.place(i)
        return None if place is None else Place(place.axis + by, place.inner)


def _aligned(rows: Rows) -> int:
    """Operands are broadcast to the result, element by element."""
    if all(
        s is None or shape == rows.out for s, shape in zip(rows.strides, rows.shapes, strict=True)
    ):
        strides = {s for s in rows.strides if s is not None}
        if len(strides) == 1:
            return strides.pop()
        raise _Mixes
    ndim = len(rows.out)
    return rows.at([rows.moved(i, ndim - len(shape)) for i, shape in enumerate(rows.shapes)])


def _reshape(rows: Rows) -> int:
    stride = rows.strides[0]
    assert stride is not None
    return stride


def _transpose(rows: Rows) -> int:
    axis, inner = _single(rows)
    return rows.at([Place(rows.attrs["axes"].index(axis), inner)])


def _single(rows: Rows) -> Place:
    """The place of the first operand, the only one with rows."""
    rows.only(0)
    place = rows.place(0)
    assert place is not None
    return place


def _slice(rows: Rows) -> int | None:
    axis, inner = _single(rows)
    start, size, step = (rows.attrs[name][axis] for name in ("starts", "sizes", "steps"))
    length = rows.shapes[0][axis]
    if (start, size, step) == (0, length, 1):
        return rows.at([Place(axis, inner)])
    if (
        length == inner * rows.count
        and size
        and start + (size - 1) * abs(step) < inner
        and start >= 0
    ):
        return None  # Of the first row alone, which is always there.
    raise _Mixes


def _concat(rows: Rows) -> int:
    places = [rows.place(i) for i in range(len(rows.shapes))]
    if any(place is not None and place.axis == rows.attrs["axis"] for place in places):
        raise _Mixes
    return rows.at(places)


def _matmul(rows: Rows) -> int:
    """Products, as NumPy has them: rows may lie along what is not summed over."""
    ndim = len(rows.out)
    a, b = (len(shape) for shape in rows.shapes)
    left, right = rows.place(0), rows.place(1)
    if (left is not None and left.axis == a - 1) or (
        right is not None and right.axis == max(b - 2, 0)
    ):
        raise _Mixes
    # With an operand of one axis the result has one less.
    batch = ndim - (a > 1) - (b > 1)
    places: list[Place | None] = [None, None]
    if left is not None:
        at_row = left.axis == a - 2
        places[0] = Place(batch if at_row else left.axis + batch - (a - 2), left.inner)
    if right is not None:
        at_column = right.axis == b - 1
        places[1] = Place(ndim - 1 if at_column else right.axis + batch - (b - 2), right.inner)
    return rows.at(places)


def _reduction(rows: Rows) -> int:
    axis, inner = _single(rows)
    axes = rows.attrs["axis"]
    if axis in axes:
        raise _Mixes
    dropped = 0 if rows.attrs["keepdims"] else sum(one < axis for one in axes)
    return rows.at([Place(axis - dropped, inner)])


def _along(rows: Rows) -> int:
    """What works along one axis or several, on the first operand."""
    axis, inner = _single(rows)
    axes = rows.attrs["axis"]
    if axis in (axes if isinstance(axes, tuple) else (axes,)):
        raise _Mixes
    return rows.at([Place(axis, inner)])


def _cumulative(rows: Rows) -> int:
    place = _single(rows)
    # A running sum of the first rows knows nothing of those that follow.
    if place.axis == rows.attrs["axis"]:
        whole = rows.shapes[0][place.axis] == place.inner * rows.count
        if rows.attrs["reverse"] or not whole:
            raise _Mixes
    return rows.at([place])


def _take(rows: Rows) -> int:
    axis = rows.attrs["axis"]
    x = rows.place(0)
    if x is not None:
        if x.axis == axis:
            raise _Mixes
        if x.axis > axis:
            x = Place(x.axis + len(rows.shapes[1]) - 1, x.inner)
    return rows.at([x, rows.moved(1, axis)])


def _attention(rows: Rows) -> int:
    """Queries, keys and values have axes for batch, heads, positions and elements."""
    q, k, v, *mask = [rows.place(i) for i in range(len(rows.shapes))]
    if mask and mask[0] is not None:
        mask = [rows.moved(3, 4 - len(rows.shapes[3]))]
    for place in (q, k, v, *mask):
        if place is not None and place.axis in (1, 3):
            raise _Mixes
    keys = [place for place in (k, v) if place is not None]
    if all(place.axis == 0 for place in keys):
        return rows.at([q, k, v, *mask])
    upper = rows.attrs["upper"]
    # No query sees a key behind it: the first rows know nothing of those that follow.
    behind = upper is None or upper > 0
    whole = rows.shapes[0][2] == rows.shapes[1][2] == rows.count
    if behind or not whole or not q == k == v:
        raise _Mixes
    return rows.at([q])


def _rotary(rows: Rows) -> int:
    """Angles have axes for batch and positions, which are the first and another one of x."""
    axes = (0, 1 if rows.attrs["rows_first"] else 2)
    places = [rows.place(0)]
    if places[0] is not None and places[0].axis == 3:
        raise _Mixes
    angles = (3,) if len(rows.shapes) == 4 else (1, 2)
    rows.only(0, *angles)
    for i in angles:
        place = rows.place(i)
        if place is not None and place.axis == 2:
            raise _Mixes
        places.append(place and Place(axes[place.axis], place.inner))
    return rows.at(places)


def _grouped(rows: Rows) -> int:
    rows.only(0, 2)
    x = rows.place(0)
    if x is not None and x.axis != 0:
        raise _Mixes
    return rows.at([x, rows.place(2)])


RULES: dict[str, Callable[[Rows], State]] = {
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "concat": _concat,
    "broadcast_to": _aligned,
    "matmul": _matmul,
    "sum": _reduction,
    "mean": _reduction,
    "max": _reduction,
    "min": _reduction,
    "prod": _reduction,
    "argmax": _reduction,
    "argmin": _reduction,
    "softmax": _along,
    "layer_norm": _along,
    "rms_norm": _along,
    "top_k": _along,
    "cumulative_sum": _cumulative,
    "take": _take,
    "attention": _attention,
    "rotary_embedding": _rotary,
    "grouped_matmul": _grouped,
}
