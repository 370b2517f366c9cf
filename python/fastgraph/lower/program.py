"""From an optimised graph to two records: the set program and the run program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastgraph._core import arena
from fastgraph._core.order import Order
from fastgraph._core.record import Operand, Record
from fastgraph.errors import CompileError
from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.lower.call import Call, Temp
from fastgraph.lower.cpu import LOWERINGS, Target
from fastgraph.lower.storage import Item, Lowered, Place, nbytes_of

__all__ = ["NodeMeta", "Program", "SetProgram", "lower"]

SCALAR_ALIGNMENT = 8
# What a record and the pool's ticket hold; only work of minutes would be cut further.
MAX_PARTS = 0xFFFF


@dataclass(frozen=True)
class NodeMeta:
    """What profiles and summaries say of one node of a record."""

    name: str
    operator: str
    shape: tuple[int, ...]
    nbytes: int
    flops: int


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
    arena_nbytes : int
    plan : Plan
        The memory plan of the scratch, for the whole program.
    """

    record: Record = field(default_factory=Record)
    leaves: dict[Value, int] = field(default_factory=dict)
    results: dict[Value, int] = field(default_factory=dict)
    needs: dict[Value, frozenset[Value]] = field(default_factory=dict)
    nodes: dict[Value, tuple[int, ...]] = field(default_factory=dict)
    arena_nbytes: int = 0
    plan: Plan | None = None


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
        Bytes from the arena's start.
    blocks : dict of Value to int
        Memory numbers of the parameters, constants and set results that the run program reads.
    scalars : list of (str, dtype, int, default)
        Byte offset in the scalar block; `scalar_memory` is the block's memory number.
    meta : list of NodeMeta
        By node of `record`.
    tensor_nbytes : int
        Sum of the bytes of all values that the arena holds, scratch included.
    plan : Plan
        The memory plan of the arena.
    """

    graph: Graph
    setup: SetProgram
    record: Record = field(default_factory=Record)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    output_offsets: list[int] = field(default_factory=list)
    blocks: dict[Value, int] = field(default_factory=dict)
    scalars: list[tuple[str, np.dtype[Any], int, object]] = field(default_factory=list)
    scalar_memory: int = -1
    scalar_nbytes: int = 0
    meta: list[NodeMeta] = field(default_factory=list)
    arena_nbytes: int = 0
    tensor_nbytes: int = 0
    plan: Plan | None = None


@dataclass(frozen=True)
class Plan:
    """A memory plan with everything that an independent checker needs."""

    dependencies: list[tuple[int, ...]]
    sizes: list[int]
    writers: list[list[int]]
    users: list[list[int]]
    pinned: list[int]
    inplace: list[tuple[int, int]]
    offsets: list[int]
    total: int
    index: dict[Place, int]


def lower(graph: Graph, is_set: set[Node], target: Target) -> Program:
    """Lower an optimised graph for the cpu.

    Raises
    ------
    CompileError
        Lists every operator that has no lowering, and every refusal of one that has.
    """
    lowered = Lowered(graph, is_set)
    refused = []
    for node in graph.nodes:
        if node.is_leaf:
            continue
        if node.op not in LOWERINGS:
            refused.append(f"{node.name} ({node.op}): not on {target.isa}")
            continue
        try:
            lowered.add(node, LOWERINGS[node.op](node, target))
        except CompileError as error:
            refused.append(str(error))
    if refused:
        raise CompileError("cannot be compiled:\n  " + "\n  ".join(refused))
    lowered.claim_outputs(target.threads)
    setup = _lower_set(lowered)
    return _lower_run(lowered, setup)


def _plan(items: list[Item], lowered: Lowered, pinned: set[Place], outside: set[Place]) -> Plan:
    """Plan the arena of a chain of calls for every root that is not `outside` of it.

    The calls are done one after another, each by all threads: overlap would be worth less than the
    bytes that order saves, so the chain's edges are the final edges.
    """
    dependencies: list[tuple[int, ...]] = [(i - 1,) if i else () for i in range(len(items))]
    index: dict[Place, int] = {}
    places: list[Place] = []
    writers: list[list[int]] = []
    users: list[list[int]] = []
    wishes: list[tuple[int, int]] = []
    for number, (_, call) in enumerate(items):
        for operand in call.outs:
            root, _ = lowered.roots.of(operand)
            if root not in outside:
                if root not in index:
                    index[root] = len(places)
                    places.append(root)
                    writers.append([])
                    users.append([])
                writers[index[root]].append(number)
        for operand in call.ins:
            root, _ = lowered.roots.of(operand)
            if root in index:
                users[index[root]].append(number)
        for out, source in call.inplace:
            target, target_offset = lowered.roots.of(call.outs[out])
            taken, taken_offset = lowered.roots.of(call.ins[source])
            # Other operands of the call that read the same bytes would see them overwritten.
            again = sum(lowered.roots.of(operand)[0] is taken for operand in call.ins)
            whole = not target_offset and not taken_offset and again == 1
            if whole and target in index and taken in index and taken is not target:
                wishes.append((index[target], index[taken]))
    sizes = [nbytes_of(place) for place in places]
    fixed = [i for i, place in enumerate(places) if place in pinned]
    inplace = [(v, u) for v, u in wishes if sizes[v] == sizes[u]]
    order = Order(dependencies)
    offsets, total = arena.plan(order, sizes, writers, users, fixed, inplace)
    return Plan(dependencies, sizes, writers, users, fixed, inplace, offsets, total, index)


def _lower_set(lowered: Lowered) -> SetProgram:
    setup = SetProgram()
    record = setup.record
    read_by_run = {
        lowered.roots.of(operand)[0] for _, call in lowered.run_calls for operand in call.ins
    }
    written = {lowered.roots.of(out)[0] for _, call in lowered.set_calls for out in call.outs}
    results = {root for root in written if root in read_by_run}
    plan = _plan(lowered.set_calls, lowered, set(), results)
    setup.plan = plan
    setup.arena_nbytes = plan.total
    record.add_memory("arena", "set scratch", plan.total)
    places: dict[Place, tuple[int, int]] = {
        place: (0, plan.offsets[i]) for place, i in plan.index.items()
    }
    needs: dict[Place, frozenset[Value]] = {}
    ancestors: dict[Place, tuple[int, ...]] = {}
    for node, call in lowered.set_calls:
        for operand in (*call.outs, *call.ins):
            root, _ = lowered.roots.of(operand)
            if root in places:
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
        _add(record, node, call, lowered, places, number)
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


def _lower_run(lowered: Lowered, setup: SetProgram) -> Program:
    program = Program(lowered.graph, setup)
    record = program.record
    graph = lowered.graph
    pinned = {root for _, _, root in lowered.outputs}
    outside: set[Place] = set(setup.results)
    plan = _plan(lowered.run_calls, lowered, pinned, outside)
    program.plan = plan
    program.arena_nbytes = plan.total
    program.tensor_nbytes = sum(plan.sizes)
    record.add_memory("arena", "arena", plan.total)
    places: dict[Place, tuple[int, int]] = {
        place: (0, plan.offsets[i]) for place, i in plan.index.items()
    }
    for name, _, root in lowered.outputs:
        offset = plan.offsets[plan.index[root]] if root in plan.index else 0
        number = record.add_memory("output", name, nbytes_of(root))
        places[root] = (number, 0)
        program.outputs.append(number)
        program.output_offsets.append(offset)
    for value in graph.inputs:
        number = record.add_memory("input", value.name, nbytes_of(value))
        places[value] = (number, 0)
        program.inputs.append(number)
    if graph.scalars:
        for value in graph.scalars:
            program.scalars.append(
                (value.name, value.dtype, program.scalar_nbytes, value.node.attrs.get("default"))
            )
            program.scalar_nbytes += SCALAR_ALIGNMENT
        program.scalar_memory = record.add_memory("scalars", "scalars", program.scalar_nbytes)
        for value, (_, _, offset, _) in zip(graph.scalars, program.scalars, strict=True):
            places[value] = (program.scalar_memory, offset)
    for number, (node, call) in enumerate(lowered.run_calls):
        for operand in call.ins:
            root, _ = lowered.roots.of(operand)
            if root not in places:
                assert isinstance(root, Value)
                if _is_nothing(root):
                    places[root] = (0, 0)
                    continue
                kind = "param" if root.node.op == "param" else "constant"
                memory = record.add_memory(kind, root.name or root.node.name, nbytes_of(root))
                places[root] = (memory, 0)
                program.blocks[root] = memory
        _add(record, node, call, lowered, places, number)
        first = call.outs[0] if call.outs else None
        shape = first.shape if isinstance(first, Value) else node.outputs[0].shape
        operator = call.label or (node.op if not node.is_leaf else "copy")
        program.meta.append(
            NodeMeta(record.nodes[number].name, operator, shape, call.nbytes, call.flops)
        )
    return program


def _is_nothing(value: Value) -> bool:
    """Whether `value` has no bytes and so no call that writes it, yet another call may name it."""
    return not nbytes_of(value) and not value.node.is_leaf


def _add(
    record: Record,
    node: Node,
    call: Call,
    lowered: Lowered,
    places: dict[Place, tuple[int, int]],
    number: int,
) -> None:
    operands = []
    for position, operand in enumerate((*call.outs, *call.ins)):
        root, inner = lowered.roots.of(operand)
        memory, offset = places[root]
        writes = position < len(call.outs)
        size = operand.nbytes if isinstance(operand, Temp) else nbytes_of(operand)
        operands.append(Operand(memory, offset + inner, size, not writes, writes))
    # What messages about bad data call it: the operator, and where it was written.
    label = call.label or node.op
    if node.site:
        label = f"{label}, {node.site}"
    record.add_node(
        node.name,
        "function",
        call.kernel,
        operands,
        call.params,
        min(call.parts, MAX_PARTS),
        call.cost_ns,
        (number - 1,) if number else (),
        label,
    )
