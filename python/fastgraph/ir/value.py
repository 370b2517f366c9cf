"""Values and the nodes that compute them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from fastgraph.errors import GraphError
from fastgraph.ir.opdef import FUNCTIONS
from fastgraph.ir.types import Shape

if TYPE_CHECKING:
    from fastgraph.ir.graph import Graph

__all__ = ["LEAVES", "Node", "Value"]

LEAVES = frozenset({"input", "param", "constant", "scalar"})
"""The operators of nodes that compute nothing."""


class Node:
    """One operator applied to values.

    Attributes
    ----------
    graph : Graph
    op : str
        The operator's name; ``input``, ``param``, ``constant`` and ``scalar`` are leaves.
    inputs : tuple of Value
    attrs : dict
        Normalised attributes: axes count from the front.
    outputs : tuple of Value
    name : str
        Unique among the graph's nodes.
    site : str
        Where it was written, as ``file.py:12``.
    """

    __slots__ = ("attrs", "graph", "inputs", "name", "op", "outputs", "site")

    def __init__(
        self,
        graph: Graph,
        op: str,
        inputs: tuple[Value, ...],
        attrs: dict[str, Any],
        name: str,
        site: str,
    ) -> None:
        self.graph = graph
        self.op = op
        self.inputs = inputs
        self.attrs = attrs
        self.outputs: tuple[Value, ...] = ()
        self.name = name
        self.site = site

    @property
    def is_leaf(self) -> bool:
        """Whether the node computes nothing: an input, parameter, constant or scalar."""
        return self.op in LEAVES

    def __repr__(self) -> str:
        shapes = ", ".join(f"{out.dtype.name}{list(out.shape)}" for out in self.outputs)
        return f"<Node {self.name}: {self.op} -> {shapes}>"


def built(name: str, *args: Any, **kwargs: Any) -> Value:
    """Call the public function `name`: looked up here because ops are built upon values."""
    value: Value = FUNCTIONS[name].build(*args, **kwargs)
    return value


class Value:
    """A tensor that a run of the graph will hold; shape and dtype are known, the data is not.

    Python's operators build nodes, with NumPy 2's names, promotion and broadcasting: ``x + 1``,
    ``x @ w``, ``x[:, ::-1]``, also ``x == y`` (a bool Value; values hash by identity, so use
    ``is`` to compare handles).

    Attributes
    ----------
    node : Node
        The node that computes it.
    index : int
        Which of the node's outputs it is.
    shape : tuple of int
    dtype : numpy.dtype
    name : str
        The declared name of an input, parameter or scalar, else maybe empty.

    Examples
    --------
    >>> from fastgraph.ir import Graph
    >>> g = Graph()
    >>> x = g.input("x", (2, 3))
    >>> (x.T @ x[:, :2] + 1).shape
    (3, 2)
    """

    __slots__ = ("dtype", "index", "name", "node", "shape")

    # NumPy then leaves `array + value` to Value.__radd__.
    __array_ufunc__ = None

    def __init__(
        self, node: Node, index: int, shape: Shape, dtype: np.dtype[Any], name: str = ""
    ) -> None:
        self.node = node
        self.index = index
        self.shape = shape
        self.dtype = dtype
        self.name = name

    @property
    def graph(self) -> Graph:
        """The graph that the value belongs to."""
        return self.node.graph

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        size = 1
        for dim in self.shape:
            size *= dim
        return size

    @property
    def nbytes(self) -> int:
        """The number of bytes of the dense array."""
        return self.size * self.dtype.itemsize

    @property
    def label(self) -> str:
        """What messages call it: its name, else its node's with the output's index."""
        if self.name:
            return self.name
        return f"{self.node.name}:{self.index}" if self.index else self.node.name

    @property
    def T(self) -> Value:
        """The value with its axes reversed."""
        return built("transpose", self)

    def reshape(self, *shape: Any) -> Value:
        """Return the value in another shape; see `fastgraph.ops.reshape`."""
        return built("reshape", self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Value:
        """Return the value with its axes in another order; see `fastgraph.ops.transpose`."""
        if not axes:
            return built("transpose", self)
        return built("transpose", self, axes[0] if len(axes) == 1 else axes)

    def astype(self, dtype: Any) -> Value:
        """Return the value converted to `dtype`; see `fastgraph.ops.astype`."""
        return built("astype", self, dtype)

    def sum(self, axis: Any = None, keepdims: bool = False) -> Value:
        """Return the sum over `axis`; see `fastgraph.ops.sum`."""
        return built("sum", self, axis=axis, keepdims=keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Value:
        """Return the mean over `axis`; see `fastgraph.ops.mean`."""
        return built("mean", self, axis=axis, keepdims=keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Value:
        """Return the largest element over `axis`; see `fastgraph.ops.max`."""
        return built("max", self, axis=axis, keepdims=keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Value:
        """Return the smallest element over `axis`; see `fastgraph.ops.min`."""
        return built("min", self, axis=axis, keepdims=keepdims)

    def __getitem__(self, key: Any) -> Value:
        return built("getitem", self, key)

    def __add__(self, other: Any) -> Value:
        return built("add", self, other)

    def __radd__(self, other: Any) -> Value:
        return built("add", other, self)

    def __sub__(self, other: Any) -> Value:
        return built("subtract", self, other)

    def __rsub__(self, other: Any) -> Value:
        return built("subtract", other, self)

    def __mul__(self, other: Any) -> Value:
        return built("multiply", self, other)

    def __rmul__(self, other: Any) -> Value:
        return built("multiply", other, self)

    def __truediv__(self, other: Any) -> Value:
        return built("divide", self, other)

    def __rtruediv__(self, other: Any) -> Value:
        return built("divide", other, self)

    def __floordiv__(self, other: Any) -> Value:
        return built("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Value:
        return built("floor_divide", other, self)

    def __mod__(self, other: Any) -> Value:
        return built("remainder", self, other)

    def __rmod__(self, other: Any) -> Value:
        return built("remainder", other, self)

    def __pow__(self, other: Any) -> Value:
        return built("power", self, other)

    def __rpow__(self, other: Any) -> Value:
        return built("power", other, self)

    def __matmul__(self, other: Any) -> Value:
        return built("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Value:
        return built("matmul", other, self)

    def __neg__(self) -> Value:
        return built("negative", self)

    def __pos__(self) -> Value:
        return self

    def __abs__(self) -> Value:
        return built("abs", self)

    def __eq__(self, other: Any) -> Value:  # type: ignore[override]
        return built("equal", self, other)

    def __ne__(self, other: Any) -> Value:  # type: ignore[override]
        return built("not_equal", self, other)

    def __lt__(self, other: Any) -> Value:
        return built("less", self, other)

    def __le__(self, other: Any) -> Value:
        return built("less_equal", self, other)

    def __gt__(self, other: Any) -> Value:
        return built("greater", self, other)

    def __ge__(self, other: Any) -> Value:
        return built("greater_equal", self, other)

    # Identity, so that values can be keys though == builds a node.
    __hash__ = object.__hash__

    def __bool__(self) -> NoReturn:
        raise GraphError(
            f"the truth of {self.label} is known only when the graph runs; use fg.ops.where to "
            "choose by it, or `is` to compare handles"
        )

    def __iter__(self) -> NoReturn:
        raise GraphError(
            f"{self.label} cannot be iterated over while the graph is built; index it, as in "
            f"[x[i] for i in range({self.shape[0] if self.shape else 0})]"
        )

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise GraphError(
            f"{self.label} holds no data yet, so NumPy cannot take it; use fg.ops functions, or "
            "run the graph and use its output"
        )

    def __repr__(self) -> str:
        return f"<Value {self.label}: {self.dtype.name}{list(self.shape)}>"
