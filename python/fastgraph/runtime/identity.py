"""What graphs and values are looked up by: their structure, as keys."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from fastgraph._core.key import Key
from fastgraph._core.keys import KeyWriter
from fastgraph._core.sizes import Size, form_of
from fastgraph.ir.graph import Graph, Node, Value

__all__ = ["digest", "key_of_graph", "key_of_value"]

# Larger arrays stand in a key by the SHA-256 of their bytes.
DIGEST_FROM = 4096


def key_of_graph(graph: Graph, settings: Iterable[Any] = ()) -> Key:
    """Return what tells a graph, compiled with these settings, from every other.

    Nodes count by operator, attributes, operands and name, constants by their bytes, parameters by
    name, shape and dtype alone; where a node was written does not count.
    """
    writer = KeyWriter()
    for setting in settings:
        writer.write_object(setting)
    numbers = _write_nodes(writer, graph.nodes, named=True)
    _write(writer, [(name, numbers[value]) for name, value in graph.outputs])
    _write(writer, sorted(graph.fixed.items()))
    return writer.take_key()


def key_of_value(value: Value) -> Key:
    """Return what tells the bytes of a set value from others, for each choice of parameters."""
    found: dict[Node, None] = {}
    waiting = [(value.node, False)]
    while waiting:
        node, ready = waiting.pop()
        if node in found:
            continue
        if ready:
            found[node] = None
        else:
            waiting.append((node, True))
            waiting.extend((operand.node, False) for operand in reversed(node.inputs))
    writer = KeyWriter()
    numbers = _write_nodes(writer, found, named=False)
    writer.write_int(numbers[value])
    return writer.take_key()


def digest(array: np.ndarray[Any, Any]) -> bytes:
    """Return the SHA-256 of an array's bytes."""
    data: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return hashlib.sha256(data).digest()


def _write_nodes(writer: KeyWriter, nodes: Iterable[Node], named: bool) -> dict[Value, int]:
    """Write nodes in this order; the numbers that stand for their values."""
    numbers: dict[Value, int] = {}
    for node in nodes:
        writer.write_str(node.op)
        if named or node.op in ("param", "input", "scalar"):
            writer.write_str(node.name)
        # What a parameter holds from the start is set like any other value of it.
        _write(writer, {k: v for k, v in node.attrs.items() if k != "initial"})
        _write(writer, [numbers[value] for value in node.inputs])
        for value in node.outputs:
            _write(writer, value.shape)
            writer.write_dtype(value.dtype)
            numbers[value] = len(numbers)
    return numbers


def _write(writer: KeyWriter, value: Any) -> None:
    """Write an attribute: containers by what is in them, arrays and graphs by their contents."""
    if isinstance(value, dict):
        writer.write_str("dict")
        writer.write_int(len(value))
        for name, one in sorted(value.items()):
            writer.write_str(name)
            _write(writer, one)
    elif isinstance(value, tuple | list):
        writer.write_str("tuple")
        writer.write_int(len(value))
        for one in value:
            _write(writer, one)
    elif isinstance(value, np.ndarray):
        writer.write_dtype(value.dtype)
        writer.write_shape(value.shape)
        writer.write_bytes(digest(value) if value.nbytes >= DIGEST_FROM else value.tobytes())
    elif isinstance(value, Graph):
        numbers = _write_nodes(writer, value.nodes, named=True)
        _write(writer, [(name, numbers[one]) for name, one in value.outputs])
    elif isinstance(value, Size):
        writer.write_str("size")
        _write(writer, form_of(value))
    else:
        writer.write_object(value)
