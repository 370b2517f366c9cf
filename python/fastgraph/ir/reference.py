"""The oracle: runs a graph in NumPy, slowly and plainly, before passes and after them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fastgraph.errors import InputError
from fastgraph.ir.graph import Graph, Value
from fastgraph.ir.literals import scalar_array
from fastgraph.ir.opdef import OPS

__all__ = ["apply", "compute", "evaluate"]

Array = np.ndarray[Any, np.dtype[Any]]


def evaluate(
    graph: Graph,
    inputs: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    scalars: Mapping[str, Any] | None = None,
) -> dict[str, Array]:
    """Return the outputs of `graph` by name.

    Parameters
    ----------
    graph : Graph
        As written, or as passes left it.
    inputs, params : mapping of str to array, optional
        All of them, of the declared shapes and dtypes; parameters may keep their initial contents.
    scalars : mapping of str to number, optional
        Those without a default at least.

    Returns
    -------
    dict of str to numpy.ndarray

    Raises
    ------
    InputError
        For a missing, unknown, misshaped or wrongly typed argument, and for an index out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import Graph, reference
    >>> g = Graph()
    >>> _ = g.output(g.input("x", (3,)) * 2, "y")
    >>> reference.evaluate(g, {"x": np.float32([1, 2, 3])})
    {'y': array([2., 4., 6.], dtype=float32)}
    """
    known: dict[Value, Array] = {}
    bind(graph.inputs, inputs or {}, "input", known)
    bind(graph.params, params or {}, "param", known)
    bind(graph.scalars, scalars or {}, "scalar", known)
    return {
        name: np.array(array, order="C")
        for (name, _), array in zip(graph.outputs, compute(graph, known), strict=True)
    }


def compute(graph: Graph, known: dict[Value, Array]) -> list[Array]:
    """Return the outputs of `graph` in order; `known` holds its leaves, constants aside.

    For operators that hold graphs. `known` is used up.
    """
    uses: dict[Value, int] = {}
    for node in graph.nodes:
        for value in node.inputs:
            uses[value] = uses.get(value, 0) + 1
    for _, value in graph.outputs:
        uses[value] = uses.get(value, 0) + 1
    for node in graph.nodes:
        if node.op == "constant":
            known[node.outputs[0]] = node.attrs["value"]
        if node.is_leaf:
            continue
        arrays = OPS[node.op].reference([known[value] for value in node.inputs], node.attrs)
        for value, array in zip(node.outputs, arrays, strict=True):
            if (array.shape, array.dtype) != (value.shape, value.dtype):
                raise AssertionError(
                    f"{node.name}: the reference of {node.op} gives {array.dtype}{array.shape}, "
                    f"its rule says {value.dtype}{value.shape}"
                )
            known[value] = array
        for value in node.inputs:
            uses[value] -= 1
            if not uses[value]:
                del known[value]
    return [known[value] for _, value in graph.outputs]


def bind(
    values: list[Value], given: Mapping[str, Any], kind: str, known: dict[Value, Array]
) -> None:
    """Check the arguments `given` for `values` and enter them in `known`."""
    names = [value.name for value in values]
    for name in given:
        if name not in names:
            raise InputError(f"{kind} {name!r} is unknown; the graph has {', '.join(names) or '-'}")
    for value in values:
        attrs = value.node.attrs
        if value.name in given:
            if kind == "scalar":
                array = scalar_array(given[value.name], value.dtype, f"scalar {value.name!r}")
            else:
                array = np.asarray(given[value.name])
        elif attrs.get("initial") is not None:
            array = attrs["initial"]
        elif attrs.get("default") is not None:
            array = np.asarray(attrs["default"], value.dtype)
        else:
            raise InputError(
                f"{kind} {value.name!r} is missing: {value.dtype.name}{list(value.shape)} is needed"
            )
        if (array.shape, array.dtype) != (value.shape, value.dtype):
            raise InputError(
                f"{kind} {value.name!r} is {array.dtype.name}{list(array.shape)}, needed is "
                f"{value.dtype.name}{list(value.shape)}"
            )
        known[value] = array


def apply(function: Callable[..., Value], *args: Any, **kwargs: Any) -> Array:
    """Return what a function of `fastgraph.ops` gives for arrays.

    Parameters
    ----------
    function : callable
        One of `fastgraph.ops`.
    *args : numpy.ndarray or anything that `function` takes
        Each array becomes an input of a graph; all else is handed on.
    **kwargs
        Handed on as they are.

    Returns
    -------
    numpy.ndarray

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> reference.apply(ops.add, np.float32([1, 2]), 10)
    array([11., 12.], dtype=float32)
    """
    graph = Graph(function.__name__)
    given: dict[str, Array] = {}
    built: list[Any] = []
    for i, arg in enumerate(args):
        if isinstance(arg, np.ndarray):
            name = f"x{i}"
            given[name] = arg
            built.append(graph.input(name, arg.shape, arg.dtype))
        else:
            built.append(arg)
    graph.output(function(*built, **kwargs), "y")
    return evaluate(graph, given)["y"]
