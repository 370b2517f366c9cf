"""The order and soundness of an ONNX graph, before any node is translated."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING

from fastgraph.errors import CompileError
from fastgraph.onnx.proto import NEWEST_OPSET, OLDEST_OPSET, signature_of
from fastgraph.onnx.registry import find_rule

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

__all__ = [
    "DEFAULT_DOMAINS",
    "ModelNode",
    "check_operators",
    "model_opset",
    "sorted_nodes",
    "static_names",
]

DEFAULT_DOMAINS = ("", "ai.onnx")


class ModelNode:
    """A node of a model, with the fields of its message: read once, for each reading takes long.

    Attributes
    ----------
    bodies : list of (GraphProto, list of ModelNode)
        The graphs that its attributes hold.
    reads : list of str
        The values that it reads, those that its bodies take from around them included.
    label : str
        What messages call it: its name, else by what it makes.
    """

    def __init__(self, message: NodeProto) -> None:
        self.op_type = message.op_type
        self.domain = message.domain
        self.name = message.name
        # A slice is a list, and several times as quick as `list`.
        self.input: list[str] = message.input[:]
        self.output: list[str] = message.output[:]
        self.attribute: list[AttributeProto] = message.attribute[:]
        name = f"'{self.name}'" if self.name else f"making '{', '.join(filter(None, self.output))}'"
        self.label = f"{self.op_type} {name}"
        self.bodies = [(a.g, nodes_of(a.g)) for a in self.attribute if a.HasField("g")]
        self.reads = [name for name in dict.fromkeys(self.input) if name]
        for body, nodes in self.bodies:
            made = {info.name for info in body.input} | {t.name for t in body.initializer}
            made.update(name for inner in nodes for name in inner.output)
            read = [name for inner in nodes for name in inner.reads]
            read += [info.name for info in body.output]
            outer = [name for name in read if name not in made]
            self.reads = list(dict.fromkeys([*self.reads, *outer]))


def nodes_of(graph: GraphProto) -> list[ModelNode]:
    """The nodes of a graph, as they were written."""
    return [ModelNode(message) for message in graph.node]


def model_opset(model: ModelProto, title: str) -> int:
    """The version of the default operator set that the model imports."""
    found = [o.version for o in model.opset_import if o.domain in DEFAULT_DOMAINS]
    if not found:
        raise CompileError(f"{title} imports no version of the ONNX operator set")
    opset = int(max(found))
    if not 1 <= opset <= NEWEST_OPSET:
        raise CompileError(
            f"{title} uses ONNX opset {opset}; known are 1 to {NEWEST_OPSET}: "
            "convert it with onnx.version_converter, or export it with another opset_version"
        )
    return opset


def sorted_nodes(
    graph: GraphProto, title: str, outside: Container[str] = frozenset()
) -> list[ModelNode]:
    """The nodes, each after those that it reads from.

    Values named in `outside` are made in the graphs around this one.

    Raises
    ------
    CompileError
        A value is made twice, read but never made, or depends on itself; names values and nodes.
    """
    problems = []
    nodes = nodes_of(graph)
    made_by: dict[str, str] = {}
    sources = [(t.name, f"initialiser '{t.name}'") for t in graph.initializer]
    initialisers = {name for name, _ in sources}
    # Until IR version 4 every initialiser was listed among the inputs as well.
    sources += [(i.name, f"input '{i.name}'") for i in graph.input if i.name not in initialisers]
    sources += [(o, node.label) for node in nodes for o in node.output if o]
    for name, source in sources:
        if not name:
            problems.append(f"{source} has no name")
        elif name in made_by:
            problems.append(f"value '{name}' is made twice: by {made_by[name]} and by {source}")
        made_by.setdefault(name, source)
    for node in nodes:
        for name in node.reads:
            if name not in made_by and name not in outside:
                problems.append(f"{node.label} reads '{name}', which nothing makes")
    output_names = [o.name for o in graph.output]
    for name in output_names:
        if name not in made_by and name not in outside:
            problems.append(f"output '{name}' is made by no node")
    for name in sorted({n for n in output_names if output_names.count(n) > 1}):
        problems.append(f"output '{name}' is listed twice")
    if not output_names:
        problems.append("the graph has no output")
    if problems:
        raise CompileError(f"{title} is not a valid graph:" + listed(problems))
    return _topological(nodes, title)


def _topological(nodes: list[ModelNode], title: str) -> list[ModelNode]:
    producer = {o: i for i, node in enumerate(nodes) for o in node.output if o}
    unmade = set(producer)
    for node in nodes:
        if not unmade.isdisjoint(node.reads):
            break
        unmade.difference_update(node.output)
    else:
        return nodes  # as written, which keeps the model's own order
    waiting = [{producer[n] for n in node.reads if n in producer} for node in nodes]
    users: list[list[int]] = [[] for _ in nodes]
    for index, needed in enumerate(waiting):
        for source in needed:
            users[source].append(index)
    ready = [index for index, needed in enumerate(waiting) if not needed]
    order = []
    while ready:
        index = ready.pop()
        order.append(index)
        for user in users[index]:
            waiting[user].discard(index)
            if not waiting[user]:
                ready.append(user)
    if len(order) < len(nodes):
        raise CompileError(f"{title} is cyclic: {_cycle(nodes, waiting)}")
    return [nodes[index] for index in order]


def _cycle(nodes: Sequence[ModelNode], waiting: Sequence[set[int]]) -> str:
    """The names along one cycle; every node that still waits leads into one."""
    index = next(i for i, needed in enumerate(waiting) if needed)
    path: list[int] = []
    while index not in path:
        path.append(index)
        index = next(i for i in sorted(waiting[index]) if waiting[i])
    around = [*path[path.index(index) :], index]
    return " reads from ".join(nodes[i].label for i in around)


def check_operators(nodes: Iterable[ModelNode], opset: int) -> list[str]:
    """A line for every node whose operator, attributes or number of inputs are not known."""
    problems = []
    for node in nodes:
        if node.domain not in DEFAULT_DOMAINS:
            problems.append(f"{node.label}: domain '{node.domain}' is not supported")
        elif not _is_known(node.op_type, opset):
            problems.append(f"{node.label}: not supported (opset {opset})")
        else:
            problems += _against_definition(node, opset)
    return problems


@functools.lru_cache(maxsize=1024)
def _is_known(op_type: str, opset: int) -> bool:
    if find_rule(op_type, opset) is None:
        return False
    if opset >= OLDEST_OPSET:
        return True
    # Of older operators only those that have not changed since.
    old, first = signature_of(op_type, opset), signature_of(op_type, OLDEST_OPSET)
    return bool(old and first and old.since == first.since)


def _against_definition(node: ModelNode, opset: int) -> list[str]:
    given = tuple([(attribute.name, attribute.type) for attribute in node.attribute])
    inputs = tuple([bool(name) for name in node.input])
    problems = _misuse(node.op_type, opset, given, inputs, len(node.output))
    return [f"{node.label}: {problem}" for problem in problems]


@functools.lru_cache(maxsize=1024)
def _misuse(
    op_type: str,
    opset: int,
    attributes: tuple[tuple[str, int], ...],
    inputs: tuple[bool, ...],
    outputs: int,
) -> list[str]:
    """What is wrong with a node of these attributes and types, inputs that are given, outputs."""
    signature = signature_of(op_type, opset)
    if signature is None:
        return [f"the installed onnx package does not know opset {opset}"]
    problems = []
    for name, found in attributes:
        number, kind = signature.attributes.get(name, (None, ""))
        if number is None:
            problems.append(f"attribute '{name}' is not known in opset {opset}")
        elif found != number:
            problems.append(f"attribute '{name}' must be of type {kind}")
    fewest, most = signature.inputs
    last = len(signature.optional) - 1
    if not fewest <= len(inputs) <= most or any(
        not given and not signature.optional[min(i, last)] for i, given in enumerate(inputs)
    ):
        problems.append(f"takes {fewest} to {most} inputs, found {sum(inputs)}")
    fewest, most = signature.outputs
    if not fewest <= outputs <= most:
        problems.append(f"has {fewest} to {most} outputs, found {outputs}")
    return problems


def static_names(
    nodes: Sequence[ModelNode], opset: int, inputs: Iterable[str] = ()
) -> dict[str, str]:
    """Names of all values that some shape, axis or bound is made from, and of which one.

    ``{"s": "input 'shape' of Reshape 'flat'"}``, also for what ``s`` is made from. `inputs` are
    known to a run alone.
    """
    needed: dict[str, str] = {}
    moving = set(inputs)
    for node in nodes:
        if not moving.isdisjoint(node.reads):
            moving.update(node.output)
    for node in reversed(nodes):
        rule = find_rule(node.op_type, opset)
        if rule is None:
            continue
        made_for = [needed[o] for o in node.output if o in needed]
        if made_for and not rule.shape_only:
            needed.update({name: made_for[0] for name in node.reads if name not in needed})
        for body, inner in node.bodies:
            found = static_names(inner, opset, [*moving, *(info.name for info in body.input)])
            read = [name for name in node.reads if name in found]
            needed.update({name: found[name] for name in read if name not in needed})
        for i in rule.wanted:
            if i < len(node.input) and node.input[i] not in moving:
                what = f"{_formal_name(node, i, opset)} of {node.label}"
                needed.setdefault(node.input[i], what)
        for i in rule.static:
            if i < len(node.input):
                needed[node.input[i]] = f"{_formal_name(node, i, opset)} of {node.label}"
    needed.pop("", None)
    return needed


def _formal_name(node: ModelNode, index: int, opset: int) -> str:
    signature = signature_of(node.op_type, opset)
    assert signature is not None  # check_operators has seen to it
    names = signature.input_names
    return f"input '{names[min(index, len(names) - 1)]}'"


def listed(problems: Iterable[str]) -> str:
    """The problems, one a line."""
    return "".join(f"\n  {line}" for line in problems)
