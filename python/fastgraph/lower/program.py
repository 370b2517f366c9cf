"""From an optimised graph to two records: the set program and the run program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fastgraph._core.record import Operand, Record
from fastgraph.errors import CompileError, UnsupportedError
from fastgraph.ir.collector import paused
from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.ir.ops.control import BODIES
from fastgraph.lower.control import lower_control
from fastgraph.lower.edges import chain
from fastgraph.lower.extension import Known, known_of
from fastgraph.lower.flow import Flow
from fastgraph.lower.plan import Plan, plan
from fastgraph.lower.recorder import NodeSpec, Recorder
from fastgraph.lower.storage import Item, Lowered, Place, Roots, Seam, nbytes_of
from fastgraph.lower.taps import Tap
from fastgraph.passes.rewrite import is_sized

__all__ = [
    "NodeMeta",
    "Plan",
    "Program",
    "SetProgram",
    "TapPlace",
    "extend",
    "lower",
    "lower_calls",
    "record_beside",
    "record_calls",
]

SCALAR_ALIGNMENT = 8
OUTPUT_ALIGNMENT = 64


class NodeMeta(NamedTuple):
    """What profiles and summaries say of one node of a record."""

    name: str
    operator: str
    shape: tuple[int, ...]
    nbytes: int
    flops: int


class TapPlace(NamedTuple):
    """The memory of a tap, and where the matrices lie whose rows it counts.

    ``weight`` is memory and byte offset; None where these are no parameters, and of other taps.
    """

    memory: int
    tap: Tap
    weight: tuple[int, int] | None


@dataclass
class SetProgram:
    """What depends on parameters and constants alone, run when the last of its parameters is set.

    Attributes
    ----------
    record : Record
        Memory 0 is scratch; then leaves and results.
    leaves : dict of Value to int
        Memory numbers of parameters and constants that the program reads.
    results : dict of Value to int
        Memory numbers of what the run program reads of it.
    needs : dict of Value to frozenset of Value
        For each result the parameters that it depends on.
    nodes : dict of Value to tuple of int
        For each result the nodes to run for it, in order.
    taps : list of int
        Memory numbers of what kernels would note: nobody listens here.
    fault_memory : int
        As `Program` has it.
    arena_nbytes : int
    plan : Plan
        The memory plan of the scratch, for the whole program.
    calls, roots
        As `Lowered` has them: what programs for extents find their results by.
    """

    record: Record = field(default_factory=Record)
    leaves: dict[Value, int] = field(default_factory=dict)
    results: dict[Value, int] = field(default_factory=dict)
    needs: dict[Value, frozenset[Value]] = field(default_factory=dict)
    nodes: dict[Value, tuple[int, ...]] = field(default_factory=dict)
    taps: list[int] = field(default_factory=list)
    fault_memory: int = -1
    arena_nbytes: int = 0
    plan: Plan | None = None
    calls: list[Item] = field(default_factory=list)
    roots: Roots = field(default_factory=Roots)


@dataclass
class Program:
    """A lowered graph: records, memory numbers, and what the run methods need to know.

    Attributes
    ----------
    graph : Graph
        The optimised graph.
    record : Record
        The run program. Memory 0 is the arena.
    inputs, outputs : list of int
        Memory numbers in declared order.
    output_offsets : list of int
        Bytes from the start of the arena, or of a block of `outputs_nbytes` bytes beside it.
    blocks : dict of Value to int
        Memory numbers of the parameters, constants and set results that the run program reads.
    scalars : list of (str, dtype, int, default)
        Byte offset in the scalar block; `scalar_memory` is the block's memory number.
    taps : list of TapPlace
        In the order of the calls.
    fault_memory : int
        Memory number of the word in which kernels leave faults; -1 where they need none.
    meta : list of NodeMeta
        By node of `record`.
    tensor_nbytes : int
        Sum of the bytes of all values that the arena holds, scratch included.
    plan : Plan
        The memory plan of the arena.
    inplace : dict of int to tuple of (int, int)
        By node: operands (written, read) that it may have in the same bytes, element by element.
    kept : list of (int, int)
        Numbers of inputs, and memories that lie in their handles.
    following : object
        On a GPU what works the record out for extents, `None` where it follows none.
    """

    graph: Graph
    setup: SetProgram
    record: Record = field(default_factory=Record)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    output_offsets: list[int] = field(default_factory=list)
    outputs_nbytes: int = 0
    blocks: dict[Value, int] = field(default_factory=dict)
    scalars: list[tuple[str, np.dtype[Any], int, object]] = field(default_factory=list)
    scalar_memory: int = -1
    scalar_nbytes: int = 0
    taps: list[TapPlace] = field(default_factory=list)
    fault_memory: int = -1
    meta: list[NodeMeta] = field(default_factory=list)
    arena_nbytes: int = 0
    tensor_nbytes: int = 0
    plan: Plan | None = None
    inplace: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    kept: list[tuple[int, int]] = field(default_factory=list)
    following: Any = None


@paused
def lower(graph: Graph, is_set: set[Node], recorder: Recorder) -> Program:
    """Lower an optimised graph for one device.

    Raises
    ------
    CompileError
        Lists every operator that has no lowering, and every refusal of one that has.
    """
    lowered = lower_calls(graph, is_set, recorder)
    recorder.finish(lowered)
    return record_calls(lowered, recorder)


def lower_calls(graph: Graph, is_set: set[Node], recorder: Recorder) -> Lowered:
    """Return the calls of a graph, but for those that bring inputs and outputs to their places.

    Raises
    ------
    CompileError
        As `lower`.
    UnsupportedError
        Sizes follow extents where an operator cannot; each is named.
    """
    lowered = Lowered(graph, is_set)
    refused: list[str] = []
    unsized: list[str] = []
    _lower_nodes(graph, lowered, recorder, refused, unsized)
    if unsized:
        # The last ones are operators that the user knows; the first may be parts of inputs.
        raise UnsupportedError("\n".join(reversed(unsized)))
    if refused:
        raise CompileError("cannot be compiled:\n  " + "\n  ".join(refused))
    return lowered


def _lower_nodes(
    graph: Graph, lowered: Lowered, recorder: Recorder, refused: list[str], unsized: list[str]
) -> None:
    """Add the calls of all nodes of a graph, or of a body; note what cannot be done."""
    for node in graph.nodes:
        if node.is_leaf:
            continue
        if node.op in BODIES:
            lower_control(
                node,
                lowered,
                recorder,
                lambda body: _lower_nodes(body, lowered, recorder, refused, unsized),
            )
            continue
        if node.op not in recorder.lowerings and node.op != "kernel":
            refused.append(f"{node.name} ({node.op}): not on {recorder.where}")
            continue
        if node.op not in recorder.sized and is_sized(node):
            unsized.append(
                f"{node.name} ({node.op}, {node.site}) cannot follow the active extent: it has no "
                f"kernel for it on {recorder.where}"
            )
            continue
        try:
            lowered.add(node, recorder.lower(node, lowered))
        except CompileError as error:
            refused.append(str(error))
        except UnsupportedError as error:
            if not is_sized(node):
                raise
            unsized.append(
                f"{node.name} ({node.op}, {node.site}) cannot follow the active extent: {error}"
            )


def record_calls(lowered: Lowered, recorder: Recorder, setup: SetProgram | None = None) -> Program:
    """Return calls as records, with a plan of their memory.

    `setup` is the set program of the same calls with other ways in and out.
    """
    if setup is None:
        setup = _lower_set(lowered, recorder)
    return _lower_run(lowered, recorder, setup)


def _lower_set(lowered: Lowered, recorder: Recorder) -> SetProgram:
    setup = SetProgram(calls=lowered.set_calls, roots=lowered.roots)
    record = setup.record
    edges = chain(len(lowered.set_calls))
    read_by_run = {
        lowered.roots.of(operand)[0] for _, call in lowered.run_calls for operand in call.ins
    }
    written = {lowered.roots.of(out)[0] for _, call in lowered.set_calls for out in call.outs}
    results = {root for root in written if root in read_by_run}
    planned = plan(lowered.set_calls, edges, lowered.roots, set(), results)
    setup.plan = planned
    setup.arena_nbytes = planned.total
    record.add_memory("arena", "set scratch", planned.total)
    setup.fault_memory = recorder.fault_memory(record)
    places: dict[Place, tuple[int, int]] = {
        place: (0, planned.offsets[i]) for place, i in planned.index.items()
    }
    needs: dict[Place, frozenset[Value]] = {}
    ancestors: dict[Place, tuple[int, ...]] = {}
    for node, call in lowered.set_calls:
        for operand in (*call.outs, *call.ins):
            root, _ = lowered.roots.of(operand)
            if root in places:
                continue
            if isinstance(root, Tap):
                places[root] = record.add_memory("tap", root.title, root.nbytes), 0
                setup.taps.append(places[root][0])
                continue
            assert isinstance(root, Value)
            if _is_nothing(root):
                places[root], needs[root], ancestors[root] = (0, 0), frozenset(), ()
                continue
            kind = "output" if root in results else "param"
            memory = record.add_memory(kind, root.name or root.node.name, nbytes_of(root))
            places[root] = (memory, 0)
            if root in results:
                setup.results[root] = memory
            else:
                setup.leaves[root] = memory
                is_param = root.node.op == "param"
                needs[root] = frozenset((root,)) if is_param else frozenset()
                ancestors[root] = ()
        number = len(record.nodes)
        operands = _operands(call, lowered, places)
        spec = recorder.node(call, operands, number, setup.fault_memory)
        _add(record, node, call, operands, spec, edges[number])
        roots = [lowered.roots.of(operand)[0] for operand in call.ins]
        above = [r for r in roots if r in needs]
        before = sorted({i for r in above for i in ancestors[r]})
        for out in call.outs:
            root, _ = lowered.roots.of(out)
            earlier = ancestors.get(root, ())
            needs[root] = needs.get(root, frozenset()).union(*(needs[r] for r in above))
            ancestors[root] = tuple(sorted({*before, *earlier, number}))
    for root in results:
        assert isinstance(root, Value)
        setup.needs[root] = needs[root]
        setup.nodes[root] = ancestors[root]
    return setup


def extend(lowered: Lowered, recorder: Recorder, own: Program) -> Program:
    """Return a run program for extents over the memories of the program `own` of a model.

    The first memories of its record are those of `own`; only the arena is another one, in which no
    output lies. What it needs besides is in its `blocks`: parameters and constants of `lowered`.
    """
    known = known_of(lowered, own, recorder.identity)
    recorder.finish(lowered)
    return record_beside(lowered, recorder, own, known)


def record_beside(lowered: Lowered, recorder: Recorder, own: Program, known: Known) -> Program:
    """Return the same of calls that are complete, of which `known` is what they have of `own`."""
    return _lower_run(lowered, recorder, own.setup, own, known)


def _lower_run(
    lowered: Lowered,
    recorder: Recorder,
    setup: SetProgram,
    own: Program | None = None,
    known: Known | None = None,
) -> Program:
    program = Program(lowered.graph, setup)
    record = program.record
    edges = recorder.dependencies(lowered.run_calls, lowered.roots)
    roots: set[Place] = {output.root for output in lowered.outputs}
    outside: set[Place] = set(setup.results)
    if recorder.outputs_outside or own is not None:
        outside |= roots
    kept = {place for _, place in lowered.kept}
    outside |= kept
    planned = plan(lowered.run_calls, edges, lowered.roots, roots, outside)
    program.plan = planned
    program.arena_nbytes = planned.total
    program.tensor_nbytes = sum(planned.sizes)
    record.add_memory("arena", "arena", planned.total)
    program.fault_memory = recorder.fault_memory(record)
    places: dict[Place, tuple[int, int]] = {
        place: (0, planned.offsets[i]) for place, i in planned.index.items()
    }
    _place_ports(program, lowered, recorder, places)
    taps: list[Tap] = []
    known_taps: dict[str, int] = {}
    if own is not None and known is not None:
        for kind, name, nbytes in own.record.memories[len(record.memories) :]:
            record.add_memory(kind, name, nbytes)
        places.update((place, (number, 0)) for place, number in known.memories.items())
        known_taps = {place.tap.title: place.memory for place in own.taps}
    for _, call in lowered.run_calls:
        for operand in call.ins:
            root, _ = lowered.roots.of(operand)
            if root not in places and root not in kept:
                if isinstance(root, Tap) and root.title in known_taps:
                    places[root] = known_taps[root.title], 0
                    continue
                if isinstance(root, Tap):
                    places[root] = record.add_memory("tap", root.title, root.nbytes), 0
                    taps.append(root)
                    continue
                assert isinstance(root, Value)
                if _is_nothing(root):
                    places[root] = (0, 0)
                    continue
                kind = "param" if root.node.op == "param" else "constant"
                memory = record.add_memory(kind, root.name or root.node.name, nbytes_of(root))
                places[root] = (memory, 0)
                program.blocks[root] = memory
    # The last, so that the numbers of all others are the same whatever is kept.
    for i, place in lowered.kept:
        number = record.add_memory("handle", lowered.graph.inputs[i].name, nbytes_of(place))
        places[place] = (number, 0)
        program.kept.append((i, number))
    program.taps = [
        TapPlace(places[tap][0], tap, _weight(tap, program, lowered, places)) for tap in taps
    ]
    _add_items(record, lowered.run_calls, edges, lowered, recorder, places, program.fault_memory)
    program.meta += [_meta(node, call) for node, call in lowered.run_calls]
    for number, (_, call) in enumerate(lowered.run_calls):
        if call.inplace:
            pairs = tuple((out, len(call.outs) + source) for out, source in call.inplace)
            program.inplace[number] = pairs
    return program


def _add_items(
    record: Record,
    items: Sequence[Item],
    edges: Sequence[tuple[int, ...]],
    lowered: Lowered,
    recorder: Recorder,
    places: dict[Place, tuple[int, int]],
    fault: int,
    outer: str = "",
    first: int = 0,
) -> int:
    """Add calls as nodes, those of bodies as theirs; return the number of the next one.

    Numbers count nodes in this order, what holds bodies before what is in them.
    """
    number = first
    for (node, call), before in zip(items, edges, strict=True):
        mine, number = number, number + 1
        if isinstance(call, Flow):
            bodies = []
            for calls in call.bodies:
                body = record.body()
                within = f"{outer}{node.name}/"
                chained = chain(len(calls))
                number = _add_items(
                    body, calls, chained, lowered, recorder, places, fault, within, number
                )
                bodies.append(body)
            root, offset = lowered.roots.of(call.flag)
            memory, start = places[root]
            flag = Operand(memory, start + offset, nbytes_of(call.flag), True, False)
            label = f"{call.label}, {node.site}" if node.site else call.label
            name = outer + node.name
            record.add_node(name, call.kind, None, [flag], (), 1, 0.0, before, label, None, bodies)
            continue
        operands = _operands(call, lowered, places)
        spec = recorder.node(call, operands, mine, fault)
        _add(record, node, call, operands, spec, before, outer)
    return number


def _weight(
    tap: Tap, program: Program, lowered: Lowered, places: dict[Place, tuple[int, int]]
) -> tuple[int, int] | None:
    """Return where the matrices of a tap lie, if they are parameters."""
    if tap.matrices is None:
        return None
    root, inner = lowered.roots.of(tap.matrices)
    if root not in program.blocks:
        return None
    memory, offset = places[root]
    return memory, offset + inner


def _place_ports(
    program: Program, lowered: Lowered, recorder: Recorder, places: dict[Place, tuple[int, int]]
) -> None:
    """Give outputs, inputs and scalars of the graph memories of their own."""
    record, graph, planned = program.record, program.graph, program.plan
    assert planned is not None
    for name, _, root in lowered.outputs:
        if recorder.outputs_outside:
            offset = program.outputs_nbytes
            program.outputs_nbytes += -(-nbytes_of(root) // OUTPUT_ALIGNMENT) * OUTPUT_ALIGNMENT
        else:
            offset = planned.offsets[planned.index[root]] if root in planned.index else 0
        number = record.add_memory("output", name, nbytes_of(root))
        places[root] = (number, 0)
        program.outputs.append(number)
        program.output_offsets.append(offset)
    for value, place in zip(graph.inputs, lowered.inputs, strict=True):
        number = record.add_memory("input", value.name, nbytes_of(value))
        places[place] = (number, 0)
        program.inputs.append(number)
    if graph.scalars:
        for value in graph.scalars:
            program.scalars.append(
                (value.name, value.dtype, program.scalar_nbytes, value.node.attrs.get("default"))
            )
            program.scalar_nbytes += SCALAR_ALIGNMENT
        program.scalar_memory = record.add_memory("scalars", "scalars", program.scalar_nbytes)
        for place, (_, _, offset, _) in zip(lowered.scalars, program.scalars, strict=True):
            places[place] = (program.scalar_memory, offset)


def _meta(node: Node | Seam, call: Any) -> NodeMeta:
    if isinstance(node, Seam):
        return NodeMeta(node.name, call.label or node.op, node.shape, call.nbytes, call.flops)
    first = call.outs[0] if call.outs else None
    shape = first.shape if isinstance(first, Value) else node.outputs[0].shape
    operator = call.label or (node.op if not node.is_leaf else "copy")
    return NodeMeta(node.name, operator, shape, call.nbytes, call.flops)


def _is_nothing(value: Value) -> bool:
    """Whether `value` has no bytes and so no call that writes it, yet another call may name it."""
    return not nbytes_of(value) and not value.node.is_leaf


def _operands(call: Any, lowered: Lowered, places: dict[Place, tuple[int, int]]) -> list[Operand]:
    operands = []
    for position, operand in enumerate((*call.outs, *call.ins)):
        root, inner = lowered.roots.of(operand)
        memory, offset = places[root]
        writes = position < len(call.outs)
        operands.append(Operand(memory, offset + inner, nbytes_of(operand), not writes, writes))
    return operands


def _add(
    record: Record,
    node: Node | Seam,
    call: Any,
    operands: list[Operand],
    spec: NodeSpec,
    dependencies: tuple[int, ...],
    outer: str = "",
) -> None:
    # What messages about bad data call it: the operator, and where it was written.
    label = call.label or node.op
    if node.site:
        label = f"{label}, {node.site}"
    record.add_node(
        outer + node.name,
        "function",
        spec.kernel,
        [*operands, *spec.extra],
        spec.params,
        spec.parts,
        call.cost_ns,
        dependencies,
        label,
        spec.keep,
        call=spec.call,
    )
