"""Values and the nodes that compute them."""

from __future__ import annotations

from math import prod
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
    is_leaf : bool
        Whether it computes nothing: an input, parameter, constant or scalar.
    """

    __slots__ = ("attrs", "graph", "inputs", "is_leaf", "name", "op", "outputs", "site")

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
        self.is_leaf = op in LEAVES

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
        """Graph: the graph that the value belongs to.

        Examples
        --------
        >>> from fastgraph.ir import Graph
        >>> g = Graph("layer")
        >>> g.input("x", (2, 3)).graph is g
        True
        """
        return self.node.graph

    @property
    def ndim(self) -> int:
        """int: the number of axes.

        Examples
        --------
        >>> from fastgraph.ir import Graph
        >>> Graph().input("x", (2, 3)).ndim
        2
        """
        return len(self.shape)

    @property
    def size(self) -> int:
        """int: the number of elements.

        Examples
        --------
        >>> from fastgraph.ir import Graph
        >>> Graph().input("x", (2, 3)).size
        6
        """
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """int: the number of bytes of the dense array.

        Examples
        --------
        >>> from fastgraph.ir import Graph
        >>> Graph().input("x", (2, 3)).nbytes
        24
        """
        return self.size * self.dtype.itemsize

    @property
    def label(self) -> str:
        """str: what messages call it: its name, else its node's with the output's index.

        Examples
        --------
        >>> from fastgraph.ir import Graph
        >>> x = Graph().input("x", (2, 3))
        >>> x.label, (x + 1).label
        ('x', 'add')
        """
        if self.name:
            return self.name
        return f"{self.node.name}:{self.index}" if self.index else self.node.name

    @property
    def T(self) -> Value:
        """Value: this one with its axes reversed.

        Examples
        --------
        >>> from fastgraph.ir import Graph
        >>> Graph().input("x", (2, 3, 4)).T
        <Value transpose: float32[4, 3, 2]>
        """
        return built("transpose", self)

    def reshape(self, *shape: Any) -> Value:
        """Return the value in another shape; see `fastgraph.ops.reshape`.

        Parameters
        ----------
        *shape : int, or one tuple of int
            As many elements; one size may be -1 and is worked out.

        Returns
        -------
        Value

        Raises
        ------
        GraphError
            The numbers of elements differ; the graph is unchanged.

        Examples
        --------
        >>> from fastgraph.ir import Graph
        >>> x = Graph().input("x", (2, 3, 4))
        >>> x.reshape(2, -1)
        <Value reshape: float32[2, 12]>
        >>> x.reshape((6, 4)).shape
        (6, 4)
        """
        return built("reshape", self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Value:
        """Return the value with its axes in another order; see `fastgraph.ops.transpose`.

        Parameters
        ----------
        *axes : int, or one tuple of int
            Every axis once, in the new order; reversed where none is given.

        Returns
        -------
        Value

        Raises
        ------
        GraphError
            `axes` is no order of the value's axes; the graph is unchanged.

        Examples
        --------
        >>> from fastgraph.ir import Graph
        >>> x = Graph().input("x", (2, 3, 4))
        >>> x.transpose(0, 2, 1)
        <Value transpose: float32[2, 4, 3]>
        >>> x.transpose().shape
        (4, 3, 2)
        """
        if not axes:
            return built("transpose", self)
        return built("transpose", self, axes[0] if len(axes) == 1 else axes)

    def astype(self, dtype: Any) -> Value:
        """Return the value converted to `dtype`; see `fastgraph.ops.astype`.

        Parameters
        ----------
        dtype : dtype
            bool, int8 to int64, uint8 to uint64, float16, bfloat16, float32 or float64.

        Returns
        -------
        Value

        Raises
        ------
        GraphError
            The dtype is not supported; the graph is unchanged.

        Examples
        --------
        >>> from fastgraph.ir import Graph
        >>> Graph().input("ids", (4,), "int64").astype("float32")
        <Value astype: float32[4]>
        """
        return built("astype", self, dtype)

    def sum(self, axis: Any = None, keepdims: bool = False) -> Value:
        """Return the sum over `axis`; see `fastgraph.ops.sum`.

        Parameters
        ----------
        axis : int or tuple of int, optional
            All axes where it is not given.
        keepdims : bool, default False
            Whether reduced axes stay, with size 1.

        Returns
        -------
        Value

        Raises
        ------
        GraphError
            There is no such axis, or one is named twice; the graph is unchanged.

        Examples
        --------
        >>> from fastgraph.ir import Graph
        >>> x = Graph().input("x", (2, 3))
        >>> x.sum(axis=1)
        <Value sum: float32[2]>
        >>> x.sum(axis=0, keepdims=True)
        <Value sum_1: float32[1, 3]>
        """
        return built("sum", self, axis=axis, keepdims=keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Value:
        """Return the mean over `axis`; see `fastgraph.ops.mean`.

        Parameters
        ----------
        axis : int or tuple of int, optional
            All axes where it is not given.
        keepdims : bool, default False
            Whether reduced axes stay, with size 1.

        Returns
        -------
        Value

        Raises
        ------
        GraphError
            There is no such axis, or one is named twice; the graph is unchanged.

        Examples
        --------
        >>> from fastgraph.ir import Graph
        >>> x = Graph().input("x", (2, 3))
        >>> x.mean(axis=1)
        <Value mean: float32[2]>
        >>> x.mean(axis=0, keepdims=True)
        <Value mean_1: float32[1, 3]>
        """
        return built("mean", self, axis=axis, keepdims=keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Value:
        """Return the largest element over `axis`; see `fastgraph.ops.max`.

        Parameters
        ----------
        axis : int or tuple of int, optional
            All axes where it is not given.
        keepdims : bool, default False
            Whether reduced axes stay, with size 1.

        Returns
        -------
        Value

        Raises
        ------
        GraphError
            There is no such axis, one is named twice, or an axis to reduce is empty; the graph is
            unchanged.

        Examples
        --------
        >>> from fastgraph.ir import Graph
        >>> x = Graph().input("x", (2, 3))
        >>> x.max(axis=1)
        <Value max: float32[2]>
        >>> x.max(axis=0, keepdims=True)
        <Value max_1: float32[1, 3]>
        """
        return built("max", self, axis=axis, keepdims=keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Value:
        """Return the smallest element over `axis`; see `fastgraph.ops.min`.

        Parameters
        ----------
        axis : int or tuple of int, optional
            All axes where it is not given.
        keepdims : bool, default False
            Whether reduced axes stay, with size 1.

        Returns
        -------
        Value

        Raises
        ------
        GraphError
            There is no such axis, one is named twice, or an axis to reduce is empty; the graph is
            unchanged.

        Examples
        --------
        >>> from fastgraph.ir import Graph
        >>> x = Graph().input("x", (2, 3))
        >>> x.min(axis=1)
        <Value min: float32[2]>
        >>> x.min(axis=0, keepdims=True)
        <Value min_1: float32[1, 3]>
        """
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

    def __and__(self, other: Any) -> Value:
        return built("bitwise_and", self, other)

    def __rand__(self, other: Any) -> Value:
        return built("bitwise_and", other, self)

    def __or__(self, other: Any) -> Value:
        return built("bitwise_or", self, other)

    def __ror__(self, other: Any) -> Value:
        return built("bitwise_or", other, self)

    def __xor__(self, other: Any) -> Value:
        return built("bitwise_xor", self, other)

    def __rxor__(self, other: Any) -> Value:
        return built("bitwise_xor", other, self)

    def __lshift__(self, other: Any) -> Value:
        return built("left_shift", self, other)

    def __rlshift__(self, other: Any) -> Value:
        return built("left_shift", other, self)

    def __rshift__(self, other: Any) -> Value:
        return built("right_shift", self, other)

    def __rrshift__(self, other: Any) -> Value:
        return built("right_shift", other, self)

    def __invert__(self) -> Value:
        return built("invert", self)

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
