"""Named dimensions: sizes that an active extent can make smaller."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from fastgraph._core.sizes import Size, dimension
from fastgraph.errors import GraphError

__all__ = ["LEADING", "Dim", "dim", "follows", "leading"]

Dim = tuple[str, int]
"""The name of a dimension and its size."""

LEADING = ""
"""The name of dimensions that nobody named: leading axes of inputs, told apart by their size."""


def dim(name: str, upper: int) -> int:
    """Return a size for shapes, which `CompiledGraph.set_active_extent` can make smaller by name.

    Parameters
    ----------
    name : str
        What the dimension is called; one name has one size in a graph.
    upper : int
        Its size when the graph is compiled, at least 1.

    Returns
    -------
    int
        `upper`. What is worked out from it by ``+ - * // %``, here or from the shapes of values,
        follows the dimension too: ``x.reshape(1, seq * 12, 32)``, ``table[:seq]``. What is worked
        out otherwise, a float or a NumPy array, is what it is for `upper`.

    Raises
    ------
    GraphError
        The name is no str or empty, or `upper` no int from 1 on.

    Examples
    --------
    >>> import fastgraph as fg, numpy as np
    >>> g = fg.Graph("total")
    >>> x = g.input("x", (2, fg.dim("n", 4)))
    >>> _ = g.output(x.sum(axis=1), "y")
    >>> model = fg.Session("cpu").compile(g)
    >>> model.run({"x": np.ones((2, 4), "f4")})
    (array([4., 4.], dtype=float32),)
    >>> model.set_active_extent((3, 4), dim="n")
    >>> model.run({"x": np.ones((2, 4), "f4")})
    (array([3., 3.], dtype=float32),)
    """
    if not isinstance(name, str) or name == LEADING:
        raise GraphError(f"dim: the name of a dimension is a str that is not empty, not {name!r}")
    try:
        if isinstance(upper, bool | np.bool_):
            raise TypeError
        size = operator.index(upper)
    except TypeError:
        size = 0
    if size < 1:
        raise GraphError(f"dim {name!r}: the size must be an int from 1 on, found {upper!r}")
    return dimension(name, size)


def leading(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of an input, whose leading axis may have an extent also without a name."""
    if not shape or not shape[0] or isinstance(shape[0], Size):
        return shape
    return (dimension(LEADING, shape[0]), *shape[1:])


def follows(found: Any) -> bool:
    """Whether a shape, an attribute or a part of one follows a dimension."""
    if isinstance(found, Size):
        return True
    return isinstance(found, (tuple, list)) and any(follows(one) for one in found)
