"""How a function becomes one of ``fastgraph.ops``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from fastgraph.ir.graph import Graph, Value
from fastgraph.ir.opdef import FUNCTIONS, Function

__all__ = ["public"]

P = ParamSpec("P")
R = TypeVar("R")


def public(source: str, dtypes: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Enter the decorated function in `FUNCTIONS`; where it raises, its graph is as it was."""

    def enter(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def build(*args: P.args, **kwargs: P.kwargs) -> R:
            graph = graph_of((*args, *kwargs.values()))
            count = 0 if graph is None else len(graph.nodes)
            try:
                return function(*args, **kwargs)
            except BaseException:
                if graph is not None:
                    graph.truncate(count)
                raise

        name = function.__name__
        if name in FUNCTIONS:
            raise ValueError(f"function {name} is registered twice")
        FUNCTIONS[name] = Function(name, build, source, dtypes)
        return build

    return enter


def graph_of(args: tuple[Any, ...]) -> Graph | None:
    """Return the graph of the first Value among `args` and the lists in them."""
    for arg in args:
        if isinstance(arg, Value):
            return arg.graph.innermost
        if isinstance(arg, (list, tuple)):
            for one in arg:
                if isinstance(one, Value):
                    return one.graph.innermost
    return None
