"""From what a user passes (values, numbers, arrays) to values of one graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fastgraph._core.sizes import Size
from fastgraph.errors import GraphError
from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.ir.literals import scalar_array
from fastgraph.ir.types import (
    FLOAT16,
    FLOAT32,
    FLOAT64,
    check_dtype,
    is_float,
    is_half,
    result_dtype,
    whole,
)

__all__ = [
    "as_value",
    "convert",
    "flag",
    "float_only",
    "floats",
    "in_float32",
    "integers",
    "is_weak",
    "literal",
    "node",
    "number",
    "one",
    "operands",
    "owner",
]

Number = bool | int | float


def owner(op: str, args: Sequence[Any]) -> Graph:
    """Return the graph of the first Value among `args`."""
    for arg in args:
        if isinstance(arg, Value):
            return arg.graph
    raise GraphError(
        f"{op}: at least one operand must be a Value of a graph, as g.input, g.param or g.constant "
        "give it"
    )


def as_value(op: str, graph: Graph, arg: Any) -> Value:
    """Return `arg` as a Value of `graph`: arrays and NumPy scalars become constants."""
    if isinstance(arg, Value):
        graph.check_owned(arg, op)
        return arg
    if isinstance(arg, np.ndarray | np.generic):
        check_dtype(arg.dtype, f"{op}: array operand")
        return graph.constant(arg)
    raise GraphError(f"{op}: a Value, a number or an ndarray is needed, found {type(arg).__name__}")


def one(op: str, x: Any) -> Value:
    """Return the only operand of `op` as a Value."""
    return as_value(op, owner(op, (x,)), x)


def is_weak(arg: Any) -> bool:
    """Whether `arg` is a Python number, which takes the dtype of the other operands."""
    # numpy.float64 is a float as well, yet strong.
    return isinstance(arg, (bool, int, float)) and not isinstance(arg, np.generic)


def operands(op: str, *args: Any) -> list[Value]:
    """Return `args` as values of one graph in NumPy's result dtype."""
    graph = owner(op, args)
    found = [arg if is_weak(arg) else as_value(op, graph, arg) for arg in args]
    first = found[0]
    if all(isinstance(arg, Value) and arg.dtype == first.dtype for arg in found):
        return found
    dtype = result_dtype([arg.dtype if isinstance(arg, Value) else arg for arg in found], op)
    return [
        convert(arg, dtype)
        if isinstance(arg, Value)
        else literal(graph, arg, scalar_array(arg, dtype, f"{op}: operand"))
        for arg in found
    ]


def literal(graph: Graph, source: Any, array: np.ndarray[Any, Any]) -> Value:
    """Return a constant; where `source`, what it was made of, follows a dimension, it knows."""
    value = graph.constant(array)
    sources = source if isinstance(source, tuple | list) else (source,)
    if any(isinstance(one, Size) for one in sources):
        value.node.attrs["made_of"] = tuple(sources)
    return value


def float_only(op: str, *args: Any) -> list[Value]:
    """Return `args` as values of one float dtype; GraphError for integers and bools."""
    graph = owner(op, args)
    for arg in args:
        value = arg if is_weak(arg) else as_value(op, graph, arg)
        if isinstance(value, Value) and not is_float(value.dtype):
            raise GraphError(
                f"{op}: {value.label} is {value.dtype.name}, but it takes floats; use "
                "x.astype('float32')"
            )
    return operands(op, *args)


def floats(op: str, x: Any) -> Value:
    """Return `x` as a float value: integers and bools in the dtype that NumPy computes them in."""
    value = one(op, x)
    if is_float(value.dtype):
        return value
    return convert(value, {1: FLOAT16, 2: FLOAT32}.get(value.dtype.itemsize, FLOAT64))


def in_float32(x: Value, build: Callable[[Value], Value]) -> Value:
    """Return ``build(x)``; for half types computed in float32 and rounded once, at the end."""
    if not is_half(x.dtype):
        return build(x)
    return convert(build(convert(x, FLOAT32)), x.dtype)


def convert(value: Value, dtype: np.dtype[Any]) -> Value:
    """Return `value` in `dtype`: itself, or a new ``astype`` node."""
    if value.dtype == dtype:
        return value
    return node("astype", [value], {"dtype": dtype}).outputs[0]


def node(op: str, inputs: Sequence[Value], attrs: dict[str, Any] | None = None) -> Node:
    """Append a node to the graph of its inputs."""
    return inputs[0].node.graph.add_node(op, inputs, attrs)


def number(op: str, what: str, found: Any) -> float:
    """Return `found` as a float; GraphError naming it if it is not a finite number."""
    if isinstance(found, bool | np.bool_) or not isinstance(found, int | float | np.number):
        raise GraphError(f"{op}: {what} must be a number, found {found!r}")
    try:
        value = float(found)
    except (OverflowError, TypeError):  # an int beyond every float, a complex number
        value = math.inf
    if not math.isfinite(value):
        raise GraphError(f"{op}: {what} must be finite, found {found!r}")
    return value


def flag(op: str, what: str, found: Any) -> bool:
    """Return `found` as a bool; GraphError naming it if it is neither a bool nor 0 or 1."""
    if not isinstance(found, bool | np.bool_ | int | np.integer) or found not in (0, 1):
        raise GraphError(f"{op}: {what} must be True or False, found {found!r}")
    return bool(found)


def integers(op: str, what: str, found: Any) -> tuple[int, ...]:
    """Return `found`, an int or several, as a tuple; GraphError naming it if it is neither."""
    try:
        if isinstance(found, Value | str | bool):
            raise TypeError
        if isinstance(found, tuple | list | np.ndarray):
            return tuple(whole(one) for one in found)
        return (whole(found),)
    except TypeError:
        raise GraphError(f"{op}: {what} must be ints that are known now, found {found!r}") from None
