"""Graphs: values in single assignment, with static shapes, in the order of their writing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fastgraph.errors import GraphError
from fastgraph.ir.dims import leading
from fastgraph.ir.literals import array_of, frozen, scalar_array
from fastgraph.ir.opdef import OPS
from fastgraph.ir.types import Spec, check_dtype, check_shape, check_size
from fastgraph.ir.value import LEAVES, Node, Value

__all__ = ["LEAVES", "Graph", "Node", "Value"]

_RUN_ARGUMENTS = frozenset(("self", "inputs", "out", "stream", "n"))
_DECLARED = {"input": "inputs", "param": "params", "scalar": "scalars"}
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def calling_site() -> str:
    """Return ``file.py:12`` of the nearest frame outside the package."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE):
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


class Graph:
    """A computation, written once and compiled for a device.

    Parameters
    ----------
    name : str
        What messages and profiles call it.

    Attributes
    ----------
    inputs, params, scalars : list of Value
        As declared, in that order, also those that nothing uses.
    outputs : list of (str, Value)
    nodes : list of Node
        All nodes, leaves included, every node after those that it takes values from.
    fixed : dict of str to str
        Names that a user may take for parameters, and why they are none: ``{"shape": "is a
        constant: ..."}``. Importers fill it; a compiled graph's `set_params` says it.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import Graph, ops, reference
    >>> g = Graph("layer")
    >>> x, w = g.input("x", (1, 2)), g.param("w", (2, 2))
    >>> _ = g.output(ops.relu(x @ w + 1), "y")
    >>> reference.evaluate(g, {"x": np.float32([[1, -2]])}, {"w": np.eye(2, dtype="f4")})
    {'y': array([[2., 0.]], dtype=float32)}
    """

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.nodes: list[Node] = []
        self.inputs: list[Value] = []
        self.params: list[Value] = []
        self.scalars: list[Value] = []
        self.outputs: list[tuple[str, Value]] = []
        self.fixed: dict[str, str] = {}
        # Whether sizes in it are to be followed, and equal only what follows the same dimensions.
        self.sized = False
        # Read from a file, in which numbers of a shape may be what a dimension was worked out to.
        self.imported = False
        # Known to nobody but passes, the next of which may take its nodes instead of copying them.
        self.spent = False
        self._by_name: dict[str, Node] = {}
        self._counts: dict[str, int] = {}
        self._next_name: str | None = None
        self._next_site: str | None = None
        # While a function is traced: the graph of its nodes, and in that the graph around it.
        self._body: Graph | None = None
        self._around: Graph | None = None
        self._captured: dict[Value, Value] = {}

    @property
    def innermost(self) -> Graph:
        """Graph: where nodes go now: itself, or the body that is being traced within it."""
        graph = self
        while graph._body is not None:
            graph = graph._body
        return graph

    def last(self, op: str) -> Node | None:
        """Return the node of this operator that was written last, also in a body. For operators.

        Where a body is being traced, that is one in it, or else around it.
        """
        graph: Graph | None = self.innermost
        found = None
        while graph is not None and found is None:
            found = last_node(graph, op)
            graph = graph._around
        return found

    @contextmanager
    def tracing(self, name: str) -> Iterator[Graph]:
        """Let nodes go to a new graph, which is given, until the end of the ``with`` block.

        It takes values of the graphs around it, which become its inputs; constants it copies.
        `captured` tells which those are. For operators that take functions.
        """
        around = self.innermost
        body = Graph(name)
        around._body, body._around = body, around
        try:
            yield body
        finally:
            around._body = body._around = None

    @property
    def captured(self) -> dict[Value, Value]:
        """dict: for values of the graph around a body the inputs that they are in it."""
        return {outer: v for outer, v in self._captured.items() if v.node.op == "input"}

    def input(self, name: str, shape: Any, dtype: Any = "float32") -> Value:
        """Declare an input that every run is given.

        Parameters
        ----------
        name : str
            Unique among the graph's inputs, parameters and scalars.
        shape : tuple of int
        dtype : dtype
            bool, int8 to int64, uint8 to uint64, float16, bfloat16, float32 or float64.

        Returns
        -------
        Value

        Raises
        ------
        GraphError
            For a name that is taken, a bad shape or an unsupported dtype; the graph is unchanged.

        Examples
        --------
        >>> from fastgraph.ir import Graph
        >>> Graph().input("x", (2, 3))
        <Value x: float32[2, 3]>
        """
        value = self._declare("input", name, shape, dtype, {})
        if self._around is None:  # What a body takes is of the size of what it is given.
            value.shape = leading(value.shape)
        self.inputs.append(value)
        return value

    def param(self, name: str, shape: Any, dtype: Any = "float32", *, initial: Any = None) -> Value:
        """Declare a parameter: set between runs, kept from run to run.

        Parameters
        ----------
        name, shape, dtype
            As for `input`.
        initial : numpy.ndarray, optional
            Contents that it has until it is set; of exactly this shape and dtype.

        Returns
        -------
        Value

        Raises
        ------
        GraphError
            As for `input`, and where `initial` does not fit.

        Examples
        --------
        >>> from fastgraph.ir import Graph
        >>> Graph().param("w", (4, 2))
        <Value w: float32[4, 2]>
        """
        attrs: dict[str, Any] = {}
        if initial is not None:
            array = array_of(initial, f"param {name!r}: initial")
            wanted = check_dtype(dtype, f"param {name!r}")
            dims = check_shape(shape, f"param {name!r}", wanted)
            if array.shape != dims or array.dtype != wanted:
                raise GraphError(
                    f"param {name!r}: initial is {array.dtype.name}{list(array.shape)}, declared "
                    f"is {wanted.name}{list(dims)}; they must be the same"
                )
            attrs["initial"] = frozen(array)
        value = self._declare("param", name, shape, dtype, attrs)
        self.params.append(value)
        return value

    def scalar(self, name: str, dtype: Any, default: Any = None) -> Value:
        """Declare a scalar that runs take by keyword.

        Parameters
        ----------
        name : str
            As for `input`.
        dtype : dtype
        default : int, float or bool, optional
            Its value in a run that does not give one; without it every run must.

        Returns
        -------
        Value
            With shape ``()``.

        Raises
        ------
        GraphError
            As for `input`, where `default` does not fit the dtype, and for the names of a run's own
            arguments, such as ``out``.

        Examples
        --------
        >>> from fastgraph.ir import Graph
        >>> Graph().scalar("pos", "int32", default=0)
        <Value pos: int32[]>
        """
        if name in _RUN_ARGUMENTS:
            raise GraphError(
                f"scalar {name!r}: a run takes scalars by keyword, and this is an argument of the "
                "run methods already; give it another name"
            )
        wanted = check_dtype(dtype, f"scalar {name!r}")
        if default is not None:
            default = scalar_array(default, wanted, f"scalar {name!r}: default").item()
        value = self._declare("scalar", name, (), wanted, {"default": default})
        self.scalars.append(value)
        return value

    def constant(self, array: Any) -> Value:
        """Put an array into the graph.

        Parameters
        ----------
        array : array_like
            Copied. Its dtype must be supported: ``np.float32(...)``, not Python floats.

        Returns
        -------
        Value

        Raises
        ------
        GraphError
            For an unsupported dtype.

        Examples
        --------
        >>> import numpy as np
        >>> from fastgraph.ir import Graph
        >>> Graph().constant(np.arange(3))
        <Value constant: int64[3]>
        """
        if self._body is not None:
            return self.innermost.constant(array)
        found = array_of(array, "constant")
        dtype = check_dtype(found.dtype, "constant")
        check_size(found.shape, dtype, "constant")
        attrs = {"value": frozen(found)}
        return self._append("constant", (), attrs, [(found.shape, dtype)]).outputs[0]

    def output(self, value: Value, name: str | None = None) -> Value:
        """Make `value` an output of every run.

        Parameters
        ----------
        value : Value
        name : str, optional
            Unique among the outputs; else the value's own name, else ``output0`` and so on.

        Returns
        -------
        Value
            `value` itself.

        Raises
        ------
        GraphError
            For a value of another graph or a name that is taken.

        Examples
        --------
        >>> from fastgraph.ir import Graph
        >>> g = Graph()
        >>> _ = g.output(g.input("x", (2,)) * 2)
        >>> g.outputs
        [('output0', <Value multiply: float32[2]>)]
        """
        self.check_owned(value, "output")
        if value.node.graph is not self:
            raise GraphError(
                f"output: {value.label} is a value of {value.node.graph.name!r}; only what its "
                "function returns can be seen outside"
            )
        if name is None:
            name = value.name or f"output{len(self.outputs)}"
        check_name(name, "output")
        if any(name == taken for taken, _ in self.outputs):
            raise GraphError(
                f"output {name!r}: the graph has an output of this name; give another as "
                "output(value, name)"
            )
        self.outputs.append((name, value))
        return value

    def add_node(
        self,
        op: str,
        inputs: Sequence[Value],
        attrs: dict[str, Any] | None = None,
        specs: Sequence[Spec] | None = None,
    ) -> Node:
        """Append a node for the operator `op`. For importers and passes.

        Users call `fastgraph.ops`, which promotes values and normalises attributes before.

        Parameters
        ----------
        op : str
        inputs : sequence of Value
            Of this graph, and of dtypes that the operator takes as they are.
        attrs : dict, optional
            Normalised: axes count from the front.
        specs : sequence of (shape, dtype), optional
            What the results are, where a pass knows; else the operator says, and checks.

        Returns
        -------
        Node
            Its results are ``node.outputs``.

        Raises
        ------
        GraphError
            For an unknown operator, a value of another graph, or what the operator refuses.
        """
        if self._body is not None:
            return self.innermost.add_node(op, inputs, attrs, specs)
        if op not in OPS:
            raise GraphError(f"there is no operator {op!r}")
        for value in inputs:
            self.check_owned(value, op)
        if self._around is not None:
            inputs = [self.own(value) for value in inputs]
        attrs = dict(attrs or {})
        if specs is None:
            specs = OPS[op].infer([(value.shape, value.dtype) for value in inputs], attrs)
            for shape, dtype in specs:
                check_size(shape, dtype, op)
        return self._append(op, tuple(inputs), attrs, specs)

    def truncate(self, count: int) -> None:
        """Drop all nodes but the first `count`. For importers and passes.

        None of those dropped may be an output; this is not checked.
        """
        gone = set(self.nodes[count:])
        for node in gone:
            del self._by_name[node.name]
        del self.nodes[count:]
        if any(node.op in LEAVES for node in gone):
            for declared in (self.inputs, self.params, self.scalars):
                declared[:] = [value for value in declared if value.node not in gone]
            self._captured = {
                outer: value for outer, value in self._captured.items() if value.node not in gone
            }

    def drop(self, gone: Sequence[Node]) -> None:
        """Drop nodes that nothing reads, none of which is a declared leaf. For passes."""
        if gone:
            for node in gone:
                del self._by_name[node.name]
            dropped = set(gone)
            self.nodes = [node for node in self.nodes if node not in dropped]

    def annotate(self, name: str | None = None, site: str | None = None) -> None:
        """Name the nodes written from now on, for messages. For importers and passes.

        Parameters
        ----------
        name : str, optional
            Made unique; by default a node is named after its operator.
        site : str, optional
            Where the node comes from; by default the caller's file and line.
        """
        if self._body is not None:
            self.innermost.annotate(name, site)
            return
        self._next_name = name or None
        self._next_site = site

    def check_owned(self, value: Any, what: str) -> None:
        """Raise GraphError naming `what` unless `value` is a Value of this graph.

        While bodies are traced, those of the graphs around are too. For importers and passes.
        """
        if isinstance(value, Value) and value.node.graph is self:
            return
        if not isinstance(value, Value):
            raise GraphError(
                f"{what}: a Value of graph {self.name!r} is needed, found {type(value).__name__}"
            )
        graph: Graph | None = self.innermost
        while graph is not None and value.node.graph is not graph:
            graph = graph._around
        if graph is None:
            raise GraphError(
                f"{what}: {value.label} belongs to another graph, {value.node.graph.name!r} "
                f"(written at {value.node.site}); a graph takes its own values alone"
            )

    def own(self, value: Value) -> Value:
        """Return `value`, of this graph or one around it, as a value of this graph."""
        if value.node.graph is self:
            return value
        if value.node.op == "constant":
            if value not in self._captured:
                self._captured[value] = self.copy_node(value.node, ()).outputs[0]
            return self._captured[value]
        if value not in self._captured:
            if self._around is None:
                raise GraphError(f"{value.label} is no value of graph {self.name!r}")
            self._around.own(value)
            name = self.free_name(value.label)
            self._captured[value] = self.input(name, value.shape, value.dtype)
        return self._captured[value]

    def copy_node(self, node: Node, inputs: Sequence[Value]) -> Node:
        """Append a twin of another graph's `node` upon `inputs`. For importers and passes.

        Attributes are shared: a node that is to have others gets a new dict. The twin keeps the
        name (made unique) and site. A leaf takes its place among the graph's inputs, parameters or
        scalars.
        """
        name = node.name if node.name not in self._by_name else self.free_name(node.name)
        twin = Node(self, node.op, tuple(inputs), node.attrs, name, node.site)
        twin.outputs = tuple([Value(twin, v.index, v.shape, v.dtype, v.name) for v in node.outputs])
        self._enter(twin)
        return twin

    def take_node(self, node: Node, inputs: Sequence[Value]) -> None:
        """Append another graph's `node` itself upon `inputs`, as `copy_node` would. For passes.

        That graph has to be `spent`.
        """
        if node.name in self._by_name:
            node.name = self.free_name(node.name)
        node.graph = self
        node.inputs = tuple(inputs)
        self._enter(node)

    def _enter(self, node: Node) -> None:
        self.nodes.append(node)
        self._by_name[node.name] = node
        declared = _DECLARED.get(node.op)
        if declared is not None:
            getattr(self, declared).append(node.outputs[0])

    def copy(self) -> Graph:
        """Return a graph of its own with the same nodes, names and outputs; arrays are shared.

        Examples
        --------
        >>> from fastgraph.ir import Graph
        >>> g = Graph("layer")
        >>> x = g.input("x", (2,))
        >>> other = g.copy()
        >>> _ = g.output(x + 1, "y")
        >>> len(g.outputs), len(other.outputs)
        (1, 0)
        """
        other = Graph(self.name)
        values: dict[Value, Value] = {}
        for node in self.nodes:
            twin = other.copy_node(node, [values[value] for value in node.inputs])
            values.update(zip(node.outputs, twin.outputs, strict=True))
        other.outputs = [(name, values[value]) for name, value in self.outputs]
        other.fixed = dict(self.fixed)
        other.sized = self.sized
        other.imported = self.imported
        other._counts = dict(self._counts)
        return other

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> Graph:
        return self.copy()

    def __repr__(self) -> str:
        def listed(values: Iterable[tuple[str, Value]]) -> str:
            return ", ".join(f"{name} {v.dtype.name}{list(v.shape)}" for name, v in values)

        inputs = listed((value.name, value) for value in self.inputs)
        count = sum(not node.is_leaf for node in self.nodes)
        return f"<Graph {self.name}: ({inputs}) -> ({listed(self.outputs)}), {count} operators>"

    def _declare(self, op: str, name: str, shape: Any, dtype: Any, attrs: dict[str, Any]) -> Value:
        what = f"{op} {name!r}"
        check_name(name, op)
        taken = self._by_name.get(name)
        if taken is not None and taken.op in ("input", "param", "scalar"):
            raise GraphError(
                f"{what}: the name is taken by the {taken.op} written at {taken.site}; "
                "inputs, parameters and scalars share one set of names"
            )
        wanted = check_dtype(dtype, what)
        dims = check_shape(shape, what, wanted)
        if taken is not None:  # A node named after its operator gives way to a declared name.
            taken.name = self.free_name(taken.op)
            self._by_name[taken.name] = taken
        node = Node(self, op, (), attrs, name, self._next_site or calling_site())
        node.outputs = (Value(node, 0, dims, wanted, name),)
        self.nodes.append(node)
        self._by_name[name] = node
        return node.outputs[0]

    def _append(
        self, op: str, inputs: tuple[Value, ...], attrs: dict[str, Any], specs: Sequence[Spec]
    ) -> Node:
        name = self.free_name(self._next_name or op)
        node = Node(self, op, inputs, attrs, name, self._next_site or calling_site())
        node.outputs = tuple(
            [Value(node, i, shape, dtype) for i, (shape, dtype) in enumerate(specs)]
        )
        self.nodes.append(node)
        self._by_name[name] = node
        return node

    def free_name(self, stem: str) -> str:
        """Return `stem`, or it with a number, such that no node has this name. For passes."""
        name = stem
        while name in self._by_name:
            count = self._counts[stem] = self._counts.get(stem, 0) + 1
            name = f"{stem}_{count}"
        return name


def last_node(graph: Graph, op: str) -> Node | None:
    """Return the last node of an operator in a graph and the bodies of its nodes."""
    for node in reversed(graph.nodes):
        if node.op == op:
            return node
        for body in reversed([v for v in node.attrs.values() if isinstance(v, Graph)]):
            found = last_node(body, op)
            if found is not None:
                return found
    return None


def check_name(name: Any, what: str) -> None:
    """Raise GraphError naming `what` unless `name` is a non-empty str."""
    if not isinstance(name, str) or not name:
        raise GraphError(f"{what}: a name must be a non-empty str, found {name!r}")
