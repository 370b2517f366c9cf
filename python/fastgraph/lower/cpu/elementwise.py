"""Elementwise regions on the cpu: all instructions of a region in one call, block by block."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import ceil, prod
from typing import Any

import numpy as np

from fastgraph.ir.graph import Node, Value
from fastgraph.lower.call import Alias, Call, Temp
from fastgraph.lower.cpu.instructions import DENSE, OPCODE, Operand, Step, build, cast_path
from fastgraph.lower.cpu.layout import (
    broadcast_strides,
    choose_parts,
    collapse,
    memory_ns,
    row_major,
)
from fastgraph.lower.cpu.registry import Target, lowers

__all__ = ["cast_call", "emit", "lower_region"]

# Nanoseconds an element, for what is not about one vector instruction.
_COST = {
    "exp": 0.6, "log": 0.9, "erf": 0.6, "tanh": 0.5, "sigmoid": 0.7, "silu": 0.9, "gelu": 0.7,
    "gelu_tanh": 0.9, "power": 4.0, "remainder": 1.7, "floor_divide": 2.0,
}  # fmt: skip
# Likewise for what the C library does, an element at a time: in float64, or for these in float32.
_LIBRARY = 8.0
_IN_LIBRARY = frozenset((
    "exp2", "expm1", "log1p", "log2", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh",
    "cosh", "arcsinh", "arccosh", "arctanh", "fmod",
))  # fmt: skip
_DENSE_CODES = frozenset(DENSE)

# Limits of the kernel, which it states too.
_MAX_RANK, _MAX_INPUTS, _MAX_SLOTS, _STACK = 64, 48, 160, 40960
_ROWS, _FLAT = 0, 1
_DENSE, _BROADCAST = 0, 1
# Innermost axes at least this long are worth blocks of their own.
_SHORTEST_ROW = 96
_LARGEST_BLOCK = 1024
_CACHE = 24576


def _step_cost(code: str) -> float:
    """Nanoseconds an element of one instruction."""
    op, _, suffix = code.rpartition("_")
    if op in _IN_LIBRARY or (suffix == "f64" and op in _COST):
        return _LIBRARY
    return _COST.get(op, 0.05)


def _cost(steps: Sequence[Step], elements: int, nbytes: int) -> tuple[float, int]:
    """Nanoseconds on one core, and arithmetic operations."""
    per_element = sum(_step_cost(step.code) for step in steps)
    return 15.0 + elements * per_element + memory_ns(nbytes), elements * len(steps)


@lowers("region")
def lower_region(node: Node, target: Target) -> list[Call | Alias]:
    """Lower a region: one call, dense and unfused ones by the instruction's own kernel."""
    shape = node.outputs[0].shape
    if prod(shape) == 0:
        return []
    key = _key(node)
    if key in target.made:
        like, positions = target.made[key]
        ins = tuple([node.inputs[i] for i in positions])
        return [
            Call(like.kernel, node.outputs, ins, like.params, like.parts, like.cost_ns,
                 like.inplace, like.flops, like.nbytes)
        ]  # fmt: skip
    program, results = build(node)
    call = emit(program.steps, list(zip(node.outputs, results, strict=True)), shape, target)
    if call is not None:
        if key is not None:
            place: dict[Value | Temp, int] = {v: i for i, v in enumerate(node.inputs)}
            target.made[key] = call, [place[value] for value in call.ins]
        return [call]
    # More live values than the kernel has registers for: one call an instruction.
    homes = {id(result): out for out, result in zip(node.outputs, results, strict=True)}
    moved: dict[int, Operand] = {}
    calls: list[Call | Alias] = []
    for step in program.steps:
        dtype = step.result.dtype
        home: Value | Temp | None = homes.get(id(step.result))
        if home is None:
            home = Temp(prod(shape) * dtype.itemsize)
        args = tuple(moved.get(id(arg), arg) for arg in step.args)
        single = Step(step.code, args, step.result)
        alone = emit([single], [(home, step.result)], shape, target)
        assert alone is not None, "one instruction always fits"
        calls.append(alone)
        moved[id(step.result)] = Operand(dtype, source=home, shape=shape)
    return calls


def _key(node: Node) -> Hashable | None:
    """Return what regions that differ in operands alone have in common; None for one by itself."""
    if node.graph.sized or len(set(node.inputs)) < len(node.inputs):
        return None
    # As text, since numbers may be equal and not have the same bits.
    body = [(op, args, repr(own) if own else "", to) for op, args, own, to in node.attrs["body"]]
    specs = [(value.shape, value.dtype) for value in (*node.inputs, *node.outputs)]
    return "region", tuple(body), node.attrs["results"], tuple(specs)


def cast_call(
    source: Value | Temp,
    kind: np.dtype[Any],
    out: Value | Temp,
    to: np.dtype[Any],
    shape: tuple[int, ...],
    target: Target,
) -> Call:
    """Convert all elements of `source`, of dtype `kind`, to dtype `to`."""
    operand = Operand(kind, source=source, shape=shape)
    steps: list[Step] = []
    for code, dtype in cast_path(kind, to):
        steps.append(Step(code, (operand,), Operand(dtype)))
        operand = steps[-1].result
    call = emit(steps, [(out, operand)], shape, target)
    assert call is not None, "a conversion always fits"
    return call


def emit(
    steps: list[Step],
    outs: list[tuple[Value | Temp, Operand]],
    shape: tuple[int, ...],
    target: Target,
) -> Call | None:
    """One call that runs `steps`, or None where they do not fit the kernel."""
    read = dict.fromkeys(arg for step in steps for arg in step.args)
    sources = {arg: arg.source for arg in read if arg.source is not None}
    inputs = list(sources)
    constants = [arg for arg in read if arg.bits is not None]
    # The result's own strides come first, so that axes of the result merge as well.
    sizes, strides = collapse(
        shape, [row_major(shape), *(broadcast_strides(arg.shape, shape) for arg in inputs)]
    )
    if prod(shape) == 1:
        strides = [[1] for _ in strides]
    dense = [own == strides[0] for own in strides[1:]]
    elements = prod(shape)
    nbytes = sum(int(elements) * result.dtype.itemsize for _, result in outs)
    nbytes += sum(int(prod(arg.shape)) * arg.dtype.itemsize for arg in inputs)
    cost_ns, flops = _cost(steps, int(elements), nbytes)
    values = tuple(out for out, _ in outs)

    if len(steps) == 1 and all(dense) and not constants and steps[0].code in _DENSE_CODES:
        (step,) = steps
        ins = tuple(sources[arg] for arg in step.args)
        width = step.result.dtype.itemsize
        inplace = tuple((0, j) for j, a in enumerate(step.args) if a.dtype.itemsize == width)
        parts = choose_parts(cost_ns, target.threads, ceil(elements / 64))
        return Call(
            f"ew_{step.code}", values, ins, [elements], parts, cost_ns, inplace, flops, nbytes
        )

    mode = _ROWS if len(sizes) == 1 or sizes[-1] >= _SHORTEST_ROW else _FLAT
    # In rows, only what repeats one element needs a register; else all that is broadcast.
    needs = [
        (own[-1] == 0) if mode == _ROWS else not whole
        for own, whole in zip(strides[1:], dense, strict=True)
    ]
    widths = [arg.dtype.itemsize for arg, need in zip(inputs, needs, strict=True) if need]
    widths += [constant.dtype.itemsize for constant in constants]
    registers, places = _allocate(steps, [result for _, result in outs])
    widths += registers
    n_slots = len(outs) + len(inputs) + len(constants) + len(registers)
    if len(sizes) > _MAX_RANK or len(inputs) > _MAX_INPUTS or n_slots > _MAX_SLOTS:
        return None
    if sum(widths) * 64 > _STACK:
        return None
    block, units = _choose_block(sizes, mode, widths, outs, inputs, needs)

    offsets: list[int] = []
    at = 0
    for width in widths:
        offsets.append(at)
        at += block * width
    home = iter(offsets)
    slots: dict[int, int] = {}
    words = [mode, block, len(sizes), len(outs), len(inputs), len(constants), len(registers),
             len(steps), *sizes]  # fmt: skip
    for i, (_, result) in enumerate(outs):
        slots[id(result)] = i
        words.append(result.dtype.itemsize)
    for arg, own, whole, need in zip(inputs, strides[1:], dense, needs, strict=True):
        slots[id(arg)] = len(outs) + inputs.index(arg)
        kind = _DENSE if whole else _BROADCAST
        words += [kind, arg.dtype.itemsize, next(home) if need else 0, *own]
    for i, constant in enumerate(constants):
        slots[id(constant)] = len(outs) + len(inputs) + i
        assert constant.bits is not None
        words += [constant.bits, constant.dtype.itemsize, next(home)]
    words += list(home)
    first = len(outs) + len(inputs) + len(constants)
    slots.update((key, first + register) for key, register in places.items())
    for step in steps:
        used = [slots[id(arg)] for arg in step.args]
        words += [OPCODE[step.code], slots[id(step.result)], *used, *[0] * (3 - len(used))]

    inplace = _inplace(steps, [result for _, result in outs], inputs, dense)
    parts = choose_parts(cost_ns, target.threads, units)
    ins = tuple(sources.values())
    return Call("region", values, ins, words, parts, cost_ns, inplace, flops, nbytes)


def _choose_block(
    sizes: list[int], mode: int, widths: list[int], outs: list[tuple[Value | Temp, Operand]],
    inputs: list[Operand], needs: list[bool],
) -> tuple[int, int]:  # fmt: skip
    """Elements a block, so that all a block touches stays in the first cache; number of blocks."""
    touched = sum(widths) + sum(result.dtype.itemsize for _, result in outs)
    touched += sum(a.dtype.itemsize for a, need in zip(inputs, needs, strict=True) if not need)
    limit = max(64, min(_LARGEST_BLOCK, _CACHE // touched // 64 * 64))
    if widths:
        limit = min(limit, _STACK // sum(widths) // 64 * 64)
    along = sizes[-1] if mode == _ROWS else prod(sizes)
    # Blocks are as long for all extents: the kernel sees where an axis ends.
    along = int(along)
    blocks = ceil(along / limit)
    # Blocks of equal length, in whole vectors.
    block = min(limit, ceil(ceil(along / blocks) / 64) * 64)
    rows = int(prod(sizes[:-1])) if mode == _ROWS else 1
    return block, rows * ceil(along / block)


def _allocate(steps: list[Step], results: list[Operand]) -> tuple[list[int], dict[int, int]]:
    """Registers (their item sizes) and which of them each step's result lives in.

    A result may take the register of an operand that it is the last to read: loops read an
    element before they write it.
    """
    outputs = {id(result) for result in results}
    last = {id(arg): i for i, step in enumerate(steps) for arg in step.args}
    widths: list[int] = []
    free: dict[int, list[int]] = {}
    places: dict[int, int] = {}
    for i, step in enumerate(steps):
        for arg in dict.fromkeys(step.args):
            if id(arg) in places and last[id(arg)] == i:
                free.setdefault(arg.dtype.itemsize, []).append(places[id(arg)])
        if id(step.result) in outputs:
            continue
        width = step.result.dtype.itemsize
        pool = free.setdefault(width, [])
        if not pool:
            pool.append(len(widths))
            widths.append(width)
        places[id(step.result)] = pool.pop()
    return widths, places


def _inplace(
    steps: list[Step], results: list[Operand], inputs: list[Operand], dense: list[bool]
) -> tuple[tuple[int, int], ...]:
    """Pairs (output, input) that may be the same bytes: nothing reads the input after the write."""
    written = {id(step.result): i for i, step in enumerate(steps)}
    last = {id(arg): i for i, step in enumerate(steps) for arg in step.args}
    return tuple(
        (i, j)
        for i, result in enumerate(results)
        for j, arg in enumerate(inputs)
        if dense[j]
        and arg.dtype.itemsize == result.dtype.itemsize
        and last[id(arg)] <= written[id(result)]
    )
