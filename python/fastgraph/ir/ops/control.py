"""fg.ops functions that take functions: a choice between two, and a loop.

A node of either holds the graphs of its functions, its bodies. Their inputs stand for the node's,
in order, from `FIRST` on; what a function names of the graph around it is among those. A condition
is a uint32, as device graphs have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fastgraph.errors import GraphError
from fastgraph.ir.graph import Graph, Value
from fastgraph.ir.opdef import Attrs, register
from fastgraph.ir.ops.arguments import as_value, convert, owner
from fastgraph.ir.ops.comparison import not_equal
from fastgraph.ir.ops.entry import public
from fastgraph.ir.ops.movement import ALL
from fastgraph.ir.reference import compute
from fastgraph.ir.types import BOOL, UINT32, Spec, is_float

__all__ = ["BODIES", "FIRST", "cond", "while_loop"]

Array = np.ndarray[Any, np.dtype[Any]]

BODIES: dict[str, tuple[str, ...]] = {"cond": ("then", "else"), "while_loop": ("cond", "body")}
"""The attributes that hold graphs."""

FIRST = {"cond": 1, "while_loop": 0}
"""Which of the node's inputs is the first of its bodies."""


def described(specs: Iterable[Spec]) -> str:
    """Return shapes and dtypes as messages tell them."""
    return ", ".join(f"{dtype.name}{list(shape)}" for shape, dtype in specs) or "nothing"


def specs_of(values: Iterable[Value]) -> list[Spec]:
    """Return shape and dtype of each value."""
    return [(value.shape, value.dtype) for value in values]


def results_of(body: Graph) -> list[Spec]:
    """Return shape and dtype of what a body returns."""
    return specs_of(value for _, value in body.outputs)


def check_bodies(op: str, inputs: Sequence[Spec], attrs: Attrs) -> None:
    """Raise GraphError unless the bodies take the inputs of their node."""
    for key in BODIES[op]:
        wanted = specs_of(attrs[key].inputs)
        if list(inputs[FIRST[op] :]) != wanted:
            found = described(inputs[FIRST[op] :])
            if found == described(wanted):  # One of the two follows an extent.
                raise GraphError(f"{op}: its functions are of the sizes that they were written for")
            raise GraphError(f"{op}: {key} takes {described(wanted)}, found {found}")


def infer_cond(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Give what both bodies return."""
    if inputs[0] != ((), UINT32):
        raise GraphError(f"cond: the condition is a uint32, found {described(inputs[:1])}")
    check_bodies("cond", inputs, attrs)
    then, other = results_of(attrs["then"]), results_of(attrs["else"])
    if then != other:
        raise GraphError(
            f"cond: {attrs['then'].name} returns {described(then)}, {attrs['else'].name} returns "
            f"{described(other)}; both must return values of the same shapes and dtypes"
        )
    return then


def infer_while(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Give as many of the inputs as the body returns."""
    check_bodies("while_loop", inputs, attrs)
    found = results_of(attrs["body"])
    if results_of(attrs["cond"]) != [((), UINT32)]:
        raise GraphError(
            f"while_loop: the condition is a uint32, found {described(results_of(attrs['cond']))}"
        )
    if found != list(inputs[: len(found)]):
        raise GraphError(
            f"while_loop: {attrs['body'].name} takes {described(inputs[: len(found)])} and returns "
            f"{described(found)}; shapes and dtypes stay the same from turn to turn"
        )
    return found


def run_body(body: Graph, arrays: Sequence[Array]) -> list[Array]:
    """Return what a body gives for its inputs."""
    return compute(body, dict(zip(body.inputs, arrays, strict=True)))


def cond_reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Run one of the bodies."""
    return run_body(attrs["then" if arrays[0] else "else"], arrays[1:])


def while_reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Run the body while the condition holds."""
    count = len(attrs["body"].outputs)
    carried, rest = list(arrays[:count]), list(arrays[count:])
    while run_body(attrs["cond"], [*carried, *rest])[0]:
        carried = run_body(attrs["body"], [*carried, *rest])
    return carried


register("cond", "control", infer_cond, cond_reference)
register("while_loop", "control", infer_while, while_reference)


def name_of(function: Callable[..., Any], default: str) -> str:
    """Return what messages call a function."""
    return getattr(function, "__name__", default)


def trace(op: str, graph: Graph, function: Any, what: str, values: Sequence[Value]) -> Graph:
    """Return the graph of a function of values like these."""
    if not callable(function):
        raise GraphError(f"{op}: {what} is a function, found {type(function).__name__}")
    name = name_of(function, what)
    with graph.tracing(f"{what} {name!r}" if name != what else what) as body:
        inputs = [body.input(f"x{i}", v.shape, v.dtype) for i, v in enumerate(values)]
        found = function(*inputs)
        for result in found if isinstance(found, tuple | list) else (found,):
            if not isinstance(result, Value | np.ndarray | np.generic):
                raise GraphError(
                    f"{op}: {body.name} returns a {type(result).__name__}; a Value or a tuple of "
                    "values is needed, and numbers with a dtype, as np.float32(0)"
                )
            value = body.own(as_value(op, body, result))
            body.outputs.append((f"output{len(body.outputs)}", value))
    return body


def truth(op: str, value: Value, what: str) -> Value:
    """Return a bool or an integer as a condition; GraphError for another value."""
    if value.shape != () or is_float(value.dtype):
        raise GraphError(
            f"{op}: {what} must be one bool or integer, of shape (), found "
            f"{described(specs_of([value]))}; use x.reshape(()), or x != 0"
        )
    return convert(value if value.dtype == BOOL else not_equal(value, 0), UINT32)


def join(bodies: Sequence[Graph], count: int, order: Sequence[int]) -> list[Value]:
    """Give bodies one list of inputs: the first `count` in `order`, then all that they capture.

    Returns what they capture of the graph around them.
    """
    captured = list(dict.fromkeys(outer for body in bodies for outer in body.captured))
    for body in bodies:
        for outer in captured:
            if outer not in body.captured:
                body.input(body.free_name(outer.label), outer.shape, outer.dtype)
        own = body.captured
        spare = iter([v for v in body.inputs[count:] if v not in set(own.values())])
        rest = [own[outer] if outer in own else next(spare) for outer in captured]
        body.inputs[:] = [*(body.inputs[i] for i in order), *rest]
    return captured


def taken(op: str, graph: Graph, values: Sequence[Any]) -> list[Value]:
    """Return what a function is given as values of the graph."""
    for i, value in enumerate(values):
        if not isinstance(value, Value | np.ndarray | np.generic):
            raise GraphError(
                f"{op}: value {i} must be a Value or an array, found {type(value).__name__}; give "
                "a number a dtype, as np.int32(0)"
            )
    return [as_value(op, graph, value) for value in values]


def unpacked(values: Sequence[Value]) -> Any:
    """Return one value as itself, several as a tuple."""
    return values[0] if len(values) == 1 else tuple(values)


@public("own", ALL)
def cond(pred: Any, then_fn: Callable[..., Any], else_fn: Callable[..., Any], *values: Any) -> Any:
    """Return what `then_fn` gives where `pred` holds, else what `else_fn` gives.

    Parameters
    ----------
    pred : Value or bool
        One bool or integer, of shape (); an integer holds unless it is 0.
    then_fn, else_fn : callable
        Called once each, with values like `values`, while the graph is built. They return a Value
        or a tuple of values, both the same number, of the same shapes and dtypes. They may use
        other values of the graph as well, also parameters that they declare.
    *values : Value or numpy.ndarray

    Returns
    -------
    Value or tuple of Value
        As the functions return it.

    Raises
    ------
    GraphError
        `pred` is not one bool or integer, or the functions differ in what they return.

    Notes
    -----
    A run computes what it takes for one of the two functions alone. What depends on parameters
    alone in either is computed when they are set. A `pred` that is known when the graph is compiled
    leaves nothing of the other function.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import Graph, ops, reference
    >>> g = Graph()
    >>> x, flag = g.input("x", (3,)), g.input("flag", (), "bool")
    >>> _ = g.output(ops.cond(flag, ops.relu, lambda x: x * 10, x), "y")
    >>> reference.evaluate(g, {"x": np.float32([-1, 0, 2]), "flag": np.True_})
    {'y': array([0., 0., 2.], dtype=float32)}
    >>> reference.evaluate(g, {"x": np.float32([-1, 0, 2]), "flag": np.False_})
    {'y': array([-10.,   0.,  20.], dtype=float32)}
    """
    graph = owner("cond", (pred, *values)).innermost
    if isinstance(pred, bool):
        pred = np.bool_(pred)
    wanted = truth("cond", as_value("cond", graph, pred), "pred")
    given = taken("cond", graph, values)
    then = trace("cond", graph, then_fn, "then_fn", given)
    other = trace("cond", graph, else_fn, "else_fn", given)
    captured = join((then, other), len(given), range(len(given)))
    attrs = {"then": then, "else": other}
    return unpacked(graph.add_node("cond", [wanted, *given, *captured], attrs).outputs)


@public("own", ALL)
def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], *values: Any) -> Any:
    """Return what `values` are once ``cond_fn(*values)`` holds no more; `body_fn` gives the next.

    Parameters
    ----------
    cond_fn : callable
        Called with values like `values`, while the graph is built; returns one bool or integer, of
        shape ().
    body_fn : callable
        The same; returns a Value or a tuple of values, as many as `values` and of their shapes and
        dtypes. Both functions may use other values of the graph as well.
    *values : Value or numpy.ndarray
        What the first turn starts from. Without a turn they are the result.

    Returns
    -------
    Value or tuple of Value
        As many as `values`.

    Raises
    ------
    GraphError
        `cond_fn` returns something else, or `body_fn` other shapes and dtypes than it takes.

    Notes
    -----
    No turn takes more memory than the one before. What depends on parameters alone is computed when
    they are set.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import Graph, ops, reference
    >>> g = Graph()
    >>> x, n = g.input("x", (2,)), g.input("n", (), "int32")
    >>> i, y = ops.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, x * x), np.int32(0), x)
    >>> _ = g.output(y, "y")
    >>> reference.evaluate(g, {"x": np.float32([2, 3]), "n": np.int32(3)})
    {'y': array([ 256., 6561.], dtype=float32)}
    """
    if not values:
        raise GraphError("while_loop: a loop without values has no result; give it at least one")
    graph = owner("while_loop", values).innermost
    given = taken("while_loop", graph, values)
    test = trace("while_loop", graph, cond_fn, "cond_fn", given)
    if len(test.outputs) != 1:
        raise GraphError(
            f"while_loop: {test.name} returns {described(results_of(test))}; one bool or integer "
            "of shape () is needed"
        )
    test.outputs[0] = ("turn", truth("while_loop", test.outputs[0][1], f"what {test.name} returns"))
    body = trace("while_loop", graph, body_fn, "body_fn", given)
    if results_of(body) != specs_of(given):
        raise GraphError(
            f"while_loop: {body.name} takes {described(specs_of(given))} and returns "
            f"{described(results_of(body))}; shapes and dtypes stay the same from turn to turn"
        )
    # What a turn leaves as it is need not be carried.
    moving = [i for i, (_, value) in enumerate(body.outputs) if value is not body.inputs[i]]
    still = [i for i in range(len(given)) if i not in moving]
    captured = join((test, body), len(given), [*moving, *still])
    body.outputs[:] = [body.outputs[i] for i in moving]
    results = list(given)
    if moving:
        operands = [*(given[i] for i in (*moving, *still)), *captured]
        node = graph.add_node("while_loop", operands, {"cond": test, "body": body})
        for i, value in zip(moving, node.outputs, strict=True):
            results[i] = value
    return unpacked(results)
