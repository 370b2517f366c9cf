"""From an ONNX model to a Graph."""

from __future__ import annotations

import functools
import os
from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fastgraph.errors import CompileError, GraphError
from fastgraph.ir import ops, reference
from fastgraph.ir.collector import paused
from fastgraph.ir.graph import Graph, Value, calling_site
from fastgraph.ir.types import check_table, is_supported
from fastgraph.onnx import (
    ops_attention,
    ops_control,
    ops_convolution,
    ops_elementwise,
    ops_filling,
    ops_indexing,
    ops_matmul,
    ops_movement,
    ops_quantization,
    ops_recurrence,
    ops_reduction,
    ops_resizing,
)
from fastgraph.onnx.dims import Dim, bind_shapes, declared_dims, dims_text
from fastgraph.onnx.proto import (
    ReadModel,
    attribute_value,
    element_type_name,
    read_model,
    tensor_array,
)
from fastgraph.onnx.registry import (
    DTYPE_ADVICE,
    SUPPORTED_NAMES,
    NodeError,
    OnnxNode,
    Rule,
    Untranslated,
    find_rule,
)
from fastgraph.onnx.structure import (
    ModelNode,
    check_operators,
    listed,
    model_opset,
    sorted_nodes,
    static_names,
)
from fastgraph.onnx.values import known_values

if TYPE_CHECKING:
    import numpy.typing as npt
    from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto

__all__ = ["DeclaredInput", "declared_inputs", "from_model", "from_read", "load"]

# The families whose rules are registered once they are imported.
FAMILIES = (
    ops_attention,
    ops_control,
    ops_convolution,
    ops_elementwise,
    ops_filling,
    ops_indexing,
    ops_matmul,
    ops_movement,
    ops_quantization,
    ops_recurrence,
    ops_reduction,
    ops_resizing,
)

Array = np.ndarray[Any, Any]
Operand = Value | Array


@paused
def load(
    model: str | os.PathLike[str] | bytes | bytearray | memoryview,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, npt.ArrayLike] | None = None,
) -> Graph:
    """Read an ONNX model into a Graph, without compiling it.

    Parameters
    ----------
    model : path or bytes
        An ``.onnx`` file or its contents; external data are found beside a file.
    dims : mapping of str to int, optional
        Sizes of the model's symbolic dimensions. Active extents know them by these names.
    shapes : mapping of str to tuple of int, optional
        Whole shapes of inputs, by name.
    values : mapping of str to array or number, optional
        Of inputs that are the same in every run, by name: they become constants, and what depends
        on them alone is computed now. Arrays have the declared dtype; numbers fit it.

    Returns
    -------
    Graph
        Initialisers are parameters that are already set, under their own names; those that a
        shape, axis or bound needs are constants. Large ones stay where they lie in the
        bytes of the file, which the graph then keeps.

    Raises
    ------
    CompileError
        The file is damaged, or holds what is not supported: every such operator, dtype and
        unbound dimension is listed.
    InputError
        `dims`, `shapes` or `values` do not fit the model, or `model` is neither a path nor bytes.
    UnsupportedError
        The ``onnx`` package is not installed.

    Examples
    --------
    >>> from importlib.resources import files
    >>> import fastgraph.onnx
    >>> model = files("fastgraph") / "data" / "digits.onnx"
    >>> fastgraph.onnx.load(model.read_bytes(), dims={"N": 1}).inputs
    [<Value image: float32[1, 64]>]
    """
    title = f"the model '{os.fspath(model)}'" if isinstance(model, str | os.PathLike) else None
    return from_read(read_model(model), dims, shapes, values, title=title)


def from_model(
    model: ModelProto,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, npt.ArrayLike] | None = None,
    *,
    title: str | None = None,
) -> Graph:
    """Read a parsed ONNX model into a Graph, without compiling it.

    Parameters
    ----------
    model : onnx.ModelProto
        Left as it is. External data must have been loaded into it.
    dims : mapping of str to int, optional
        Sizes of the model's symbolic dimensions.
    shapes : mapping of str to tuple of int, optional
        Whole shapes of inputs, by name.
    values : mapping of str to array or number, optional
        Of inputs that are the same in every run, by name: they become constants, and what depends
        on them alone is computed now. Arrays have the declared dtype; numbers fit it.
    title : str, optional
        What messages call the model; by default by its graph's name.

    Returns
    -------
    Graph
        As `load` gives it.

    Raises
    ------
    CompileError
        The model holds what is not supported: every such operator, dtype and unbound dimension is
        listed.
    InputError
        `dims`, `shapes` or `values` do not fit the model.

    Examples
    --------
    >>> from importlib.resources import files
    >>> import fastgraph as fg
    >>> import onnx
    >>> file = files("fastgraph") / "data" / "digits.onnx"
    >>> model = onnx.ModelProto.FromString(file.read_bytes())
    >>> fg.onnx.from_model(model, dims={"N": 4}).inputs
    [<Value image: float32[4, 64]>]
    """
    return from_read(ReadModel(model), dims, shapes, values, title=title)


@paused
def from_read(
    read: ReadModel,
    dims: Mapping[str, int] | None,
    shapes: Mapping[str, Sequence[int]] | None,
    values: Mapping[str, npt.ArrayLike] | None = None,
    *,
    title: str | None = None,
) -> Graph:
    """Read a model into a Graph; as `from_model`."""
    model = read.message
    title = title or (f"the model '{model.graph.name}'" if model.graph.name else "the model")
    opset = model_opset(model, title)
    nodes = sorted_nodes(model.graph, title)
    names = {t.name for t in model.graph.initializer}
    inputs = [info for info in model.graph.input if info.name not in names]
    problems = check_operators(nodes, opset)
    problems += [line for info in inputs for line in _input_problems(info)]
    problems += [
        f"initialiser '{t.values.name}' is sparse, which is not supported"
        for t in model.graph.sparse_initializer
    ]
    same = known_values(inputs, values)
    bound, open_dims = bind_shapes(inputs, dims, shapes, same)
    problems += open_dims
    if problems:
        raise _refusal(title, problems)
    graph = Graph(model.graph.name or "onnx")
    graph.imported = True
    translator = _Translator(graph, opset)
    graph.annotate(site=calling_site())
    translator.declare_inputs(inputs, bound, same)
    translator.declare_initialisers(model.graph, nodes, read.array)
    graph.annotate()
    for node in nodes:
        translator.translate(node)
    translator.declare_outputs(model.graph.output)
    if translator.problems:
        raise _refusal(title, translator.problems)
    return translator.graph


@dataclass(frozen=True)
class DeclaredInput:
    """An input as the model declares it: a dimension is a size, a name, or None for neither."""

    name: str
    dtype: str
    dims: tuple[Dim, ...] | None

    def __str__(self) -> str:
        return f"{self.dtype} {dims_text(self.dims) if self.dims is not None else 'of any shape'}"


def declared_inputs(model: ModelProto) -> list[DeclaredInput]:
    """What a parsed model wants to be given, before any dimension is bound."""
    names = {t.name for t in model.graph.initializer}
    return [
        DeclaredInput(
            info.name, element_type_name(info.type.tensor_type.elem_type), declared_dims(info)
        )
        for info in model.graph.input
        if info.name not in names
    ]


def _refusal(title: str, problems: Sequence[str]) -> CompileError:
    count = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
    return CompileError(f"{title} cannot be compiled, {count}:{listed(problems)}")


def _input_problems(info: ValueInfoProto) -> list[str]:
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        found = (kind or "nothing").removesuffix("_type").replace("_", " ")
        return [f"input '{info.name}' is of type {found}, not a tensor"]
    name = element_type_name(info.type.tensor_type.elem_type)
    if name not in SUPPORTED_NAMES:
        return [f"input '{info.name}' has dtype {name}; {DTYPE_ADVICE}"]
    return []


class _Translator:
    """The values made so far: graph values, or arrays where they are known at import."""

    def __init__(
        self, graph: Graph, opset: int, around: _Translator | None = None, path: str = ""
    ) -> None:
        self.path = path
        self.graph = graph
        self.opset = opset
        self.problems: list[str] = [] if around is None else around.problems
        self._known: MutableMapping[str, Operand] = {}
        self._lifted: MutableMapping[str, Value] = {}
        if around is not None:
            self._known = ChainMap(self._known, around._known)
            self._lifted = ChainMap(self._lifted, around._lifted)
        # Of bodies too, which may be translated more than once.
        self._params: dict[str, Operand] = {} if around is None else around._params

    def declare_inputs(
        self,
        inputs: Sequence[ValueInfoProto],
        bound: Mapping[str, tuple[int, ...]],
        same: Mapping[str, Array],
    ) -> None:
        for info in inputs:
            if info.name in same:
                self._known[info.name] = same[info.name]
                self.graph.fixed[info.name] = "has got its value with the model"
                continue
            dtype = element_type_name(info.type.tensor_type.elem_type)
            try:
                self._known[info.name] = self.graph.input(info.name, bound[info.name], dtype)
            except GraphError as error:
                self.problems.append(str(error))

    def declare_initialisers(
        self,
        graph: GraphProto,
        nodes: Sequence[ModelNode],
        array_of: Callable[[int, TensorProto], Array] = lambda number, tensor: tensor_array(tensor),
    ) -> None:
        moving = [name for name, known in self._known.items() if isinstance(known, Value)]
        static = static_names(nodes, self.opset, moving)
        used = {name for node in nodes for name in node.reads}
        used.update(o.name for o in graph.output)
        for number, tensor in enumerate(graph.initializer):
            name = tensor.name
            if name not in used:
                self.graph.fixed[name] = "is an initialiser that nothing in the model reads"
                continue
            try:
                array = array_of(number, tensor)
                reason = _why_constant(array, static.get(name))
                if reason is not None:
                    self.graph.fixed[name] = reason
                    self._known[name] = array
                    continue
                key = f"{self.path}{name}"
                if key not in self._params:
                    # Two bodies may use the same name.
                    self._params[key] = self.graph.param(
                        self.graph.free_name(name), array.shape, array.dtype, initial=array
                    )
                self._known[name] = self._params[key]
            except (ValueError, GraphError) as error:
                self.problems.append(f"initialiser '{name}': {error}")

    def translate(self, node: ModelNode) -> None:
        """Add one node; what cannot be added becomes a problem, and what reads it is passed by."""
        if any(name not in self._known for name in node.reads):
            return
        try:
            results = self._results(node)
        except Untranslated:
            return  # What is wrong with its body is among the problems.
        except (NodeError, GraphError) as error:
            self.problems.append(f"{node.label}: {error}")
            return
        finally:
            self.graph.annotate()
        if len(results) < len(node.output) - node.output.count(""):
            self.problems.append(
                f"{node.label}: output {len(results)} ('{node.output[len(results)]}') "
                "is not supported"
            )
        for name, result in zip(node.output, results, strict=False):
            if name and result is not None:
                self._known[name] = result

    def declare_outputs(self, outputs: Sequence[ValueInfoProto]) -> None:
        for info in outputs:
            if info.name not in self._known:
                continue
            try:
                value = self._lift(info.name)
                declared = element_type_name(info.type.tensor_type.elem_type)
                if info.type.tensor_type.elem_type and declared != value.dtype.name:
                    self.problems.append(
                        f"output '{info.name}' is declared {declared}, but is {value.dtype.name}"
                    )
                self.graph.output(value, info.name)
            except (NodeError, GraphError) as error:
                self.problems.append(f"output '{info.name}': {error}")

    def _results(self, node: ModelNode) -> tuple[Operand | None, ...]:
        rule = find_rule(node.op_type, self.opset)
        assert rule is not None  # check_operators has seen to it
        operands = [self._known[name] if name else None for name in node.input]
        for index in rule.static:
            if index < len(operands) and isinstance(operands[index], Value):
                raise NodeError(_not_static(node, index))
        if rule.raw:
            return self._apply(rule, node, self.graph, operands)
        if operands and not any(isinstance(o, Value) for o in operands):
            return self._folded(rule, node, operands)
        for index, name in enumerate(node.input):
            if name and index not in rule.static:
                operands[index] = self._lift(name)
        return self._apply(rule, node, self.graph, operands)

    def _apply(
        self, rule: Rule, node: ModelNode, graph: Graph, operands: Sequence[Operand | None]
    ) -> tuple[Operand | None, ...]:
        given = OnnxNode(
            op_type=node.op_type,
            label=node.label,
            name=node.name or node.output[0],
            opset=self.opset,
            attributes={a.name: attribute_value(a) for a in node.attribute},
            inputs=node.input,
            outputs=node.output,
            graph=graph,
            body=functools.partial(self._body, node),
        )
        while operands and operands[-1] is None:
            operands = operands[:-1]
        given.annotate()
        results = rule.function(given, *operands)
        return results if isinstance(results, tuple) else (results,)

    def _body(
        self, node: ModelNode, attribute: str, body: GraphProto, inputs: Sequence[Operand]
    ) -> tuple[Operand, ...]:
        """Translate the graph that a node holds; what it makes is known in it alone."""
        path = f"{self.path}{node.label} {attribute}/"
        inner = _Translator(self.graph, self.opset, self, path)
        count = len(self.problems)
        try:
            nodes = sorted_nodes(body, f"its {attribute}", self._known)
        except CompileError as error:
            raise NodeError(str(error)) from error
        self.problems += check_operators(nodes, self.opset)
        if len(body.input) != len(inputs):
            raise NodeError(f"its body takes {len(body.input)} inputs, found {len(inputs)}")
        for info, operand in zip(body.input, inputs, strict=True):
            if declared_dims(info) == (1,) and isinstance(operand, Value) and not operand.shape:
                operand = ops.reshape(operand, (1,))
            inner._known[info.name] = operand
        if len(self.problems) == count:
            inner.declare_initialisers(body, nodes)
        if len(self.problems) == count:
            for node in nodes:
                inner.translate(node)
        if len(self.problems) > count:
            raise Untranslated
        return tuple(inner._known[o.name] for o in body.output)

    def _folded(
        self, rule: Rule, node: ModelNode, operands: Sequence[Operand | None]
    ) -> tuple[Array | None, ...]:
        """Work out a node whose inputs are all known, by the same rule and the IR's reference."""
        scratch = Graph("import")
        lifted: list[Operand | None] = []
        for index, operand in enumerate(operands):
            keep = index in rule.static or operand is None
            lifted.append(operand if keep else _constant(scratch, operand, node.input[index]))
        results = self._apply(rule, node, scratch, lifted)
        for step in scratch.nodes:
            for value in step.outputs:
                check_table(value.shape, value.dtype, step.op)
        for index, result in enumerate(results):
            if isinstance(result, Value):
                scratch.output(result, str(index))
        found = reference.evaluate(scratch, {}, {}, {})
        return tuple(
            found[str(index)] if isinstance(result, Value) else result
            for index, result in enumerate(results)
        )

    def _lift(self, name: str) -> Value:
        """The graph value of this name; an array becomes a constant, once."""
        known = self._known[name]
        if isinstance(known, Value):
            return known
        if name not in self._lifted:
            self.graph.annotate(name, f"ONNX value '{name}'")
            self._lifted[name] = _constant(self.graph, known, name)
            self.graph.annotate()
        return self._lifted[name]


def _why_constant(array: Array, static_for: str | None) -> str | None:
    """What is said of an initialiser that is no parameter, after its name; None if it is one."""
    if static_for is not None:
        return (
            f"is a constant of the model, not a parameter: {static_for} depends on it and is fixed "
            "when the model is loaded; change it in the model and load that again"
        )
    if not is_supported(array.dtype):
        return (
            f"is a constant of the model, not a parameter: it has dtype {array.dtype.name}; "
            f"{DTYPE_ADVICE}"
        )
    return None


def _constant(graph: Graph, operand: Operand | None, name: str) -> Value:
    array = np.asarray(operand)
    if not is_supported(array.dtype):
        raise NodeError(f"'{name}' has dtype {array.dtype.name}; {DTYPE_ADVICE}")
    return graph.constant(array)


def _not_static(node: ModelNode, index: int) -> str:
    return (
        f"its input {index} ('{node.input[index]}') must be known when the model is loaded, but "
        "depends on an input of the run: pass values= of that input, or make it an initialiser or "
        "a Constant in the model"
    )
