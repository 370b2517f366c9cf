"""Elementwise regions on the cpu: a body of instructions becomes one kernel's compact program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, prod
from typing import Any

import numpy as np

from fastgraph.errors import CompileError
from fastgraph.ir.graph import Node, Value
from fastgraph.lower.call import Alias, Call, Temp, estimate
from fastgraph.lower.cpu.layout import broadcast_strides, choose_parts, collapse, row_major
from fastgraph.lower.cpu.registry import Target, lowers

__all__ = ["OPCODES", "lower_region"]

_FLOAT = (
    "add subtract multiply divide maximum minimum remainder floor_divide power equal not_equal "
    "less less_equal negative abs sqrt rsqrt reciprocal square relu sign floor ceil exp log erf "
    "tanh sigmoid silu gelu gelu_tanh"
)
_INTEGER = (
    "add subtract multiply maximum minimum remainder floor_divide power equal not_equal less "
    "less_equal negative abs square sign"
)
_BOOL = "equal not_equal less less_equal logical_and logical_or logical_not"
# In the order of the table in src/_core/kernels/elementwise.cpp; a position is an opcode.
OPCODES: tuple[str, ...] = (
    *(f"{name}_f32" for name in _FLOAT.split()),
    *(f"{name}_i32" for name in _INTEGER.split()),
    *(f"{name}_i64" for name in _INTEGER.split()),
    *(f"{name}_b8" for name in _BOOL.split()),
    *("where_1", "where_4", "where_8", "copy_1", "copy_4", "copy_8"),
    *("f32_to_i32", "f32_to_i64", "f32_to_b8", "i32_to_f32", "i32_to_i64", "i32_to_b8"),
    *("i64_to_f32", "i64_to_i32", "i64_to_b8", "b8_to_f32", "b8_to_i32", "b8_to_i64"),
)
_OPCODE = {name: code for code, name in enumerate(OPCODES)}

_SUFFIX = {"float32": "f32", "int32": "i32", "int64": "i64", "bool": "b8"}
_COMPARISONS = frozenset(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"))
_LOGICAL = frozenset(("logical_and", "logical_or", "logical_not"))
_SWAPPED = {"greater": "less", "greater_equal": "less_equal"}
_ON_BOOL = {
    "add": "logical_or", "maximum": "logical_or",
    "multiply": "logical_and", "minimum": "logical_and",
}  # fmt: skip
_ALIASES = {"mod": "remainder", "neg": "negative", "pow": "power", "absolute": "abs"}

# Nanoseconds an element, for what is not about one vector instruction.
_COST = {
    "exp": 0.6, "log": 0.9, "erf": 0.6, "tanh": 0.5, "sigmoid": 0.7, "silu": 0.9, "gelu": 0.7,
    "gelu_tanh": 0.9, "power": 4.0, "remainder": 6.0, "floor_divide": 7.0,
}  # fmt: skip

# Limits of the kernel, which it states too.
_MAX_RANK, _MAX_INPUTS, _MAX_SLOTS, _STACK = 64, 48, 160, 40960
_ROWS, _FLAT = 0, 1
_DENSE, _BROADCAST = 0, 1
# Innermost axes at least this long are worth blocks of their own.
_SHORTEST_ROW = 96
_LARGEST_BLOCK = 1024
_CACHE = 24576


@dataclass(frozen=True, eq=False)
class _Operand:
    """An input of the region (`source` set), a constant (`bits` set) or a result."""

    dtype: np.dtype
    source: Value | Temp | None = None
    shape: tuple[int, ...] = ()
    bits: int | None = None


@dataclass(frozen=True, eq=False)
class _Step:
    """One instruction of the kernel."""

    code: str
    args: tuple[_Operand, ...]
    result: _Operand


@dataclass(eq=False)
class _Program:
    """Instructions over one iteration space."""

    node: Node
    steps: list[_Step] = field(default_factory=list)
    casts: dict[tuple[int, np.dtype], _Operand] = field(default_factory=dict)

    def emit(self, code: str, args: Sequence[_Operand], dtype: np.dtype) -> _Operand:
        result = _Operand(dtype)
        self.steps.append(_Step(code, tuple(args), result))
        return result

    def constant(self, value: Any, dtype: np.dtype) -> _Operand:
        array = np.asarray(value).astype(dtype)
        return _Operand(dtype, bits=int.from_bytes(array.tobytes().ljust(8, b"\0"), "little", signed=True))

    def cast(self, operand: _Operand, dtype: np.dtype) -> _Operand:
        if operand.dtype == dtype:
            return operand
        if operand.bits is not None:
            raw = operand.bits.to_bytes(8, "little", signed=True)[: operand.dtype.itemsize]
            return self.constant(np.frombuffer(raw, operand.dtype)[0], dtype)
        key = (id(operand), dtype)
        if key not in self.casts:
            code = f"{self.suffix(operand.dtype)}_to_{self.suffix(dtype)}"
            self.casts[key] = self.emit(code, (operand,), dtype)
        return self.casts[key]

    def suffix(self, dtype: np.dtype) -> str:
        if dtype.name not in _SUFFIX:
            raise CompileError(
                f"{self.node.name} ({self.node.site}): elementwise work in {dtype.name} is not "
                f"supported on the cpu; it computes in {', '.join(_SUFFIX)}"
            )
        return _SUFFIX[dtype.name]

    def unsupported(self, op: str, dtype: np.dtype) -> CompileError:
        return CompileError(
            f"{self.node.name} ({self.node.site}): {op} is not defined for {dtype.name}"
        )


def _translate(program: _Program, op: str, args: list[_Operand], attrs: dict[str, Any],
               dtype: np.dtype) -> _Operand:  # fmt: skip
    """Append what computes one instruction of the region's body; give its result."""
    op = _ALIASES.get(op, op)
    if op == "astype":
        return program.cast(args[0], dtype)
    if op in _LOGICAL:
        flags = [program.cast(arg, np.dtype(bool)) for arg in args]
        return program.emit(f"{op}_b8", flags, dtype)
    if op in _COMPARISONS:
        common = np.result_type(*(arg.dtype for arg in args))
        both = [program.cast(arg, common) for arg in args]
        if op in _SWAPPED:
            op, both = _SWAPPED[op], both[::-1]
        return program.emit(f"{op}_{program.suffix(common)}", both, dtype)
    if op == "where":
        flag = program.cast(args[0], np.dtype(bool))
        sides = [program.cast(arg, dtype) for arg in args[1:]]
        program.suffix(dtype)
        return program.emit(f"where_{dtype.itemsize}", (flag, *sides), dtype)
    args = [program.cast(arg, dtype) for arg in args]
    kind = program.suffix(dtype)
    if op == "clip":
        low, high = (*args[1:], None, None)[:2]
        low = program.constant(attrs["min"], dtype) if attrs.get("min") is not None else low
        high = program.constant(attrs["max"], dtype) if attrs.get("max") is not None else high
        result = args[0]
        for name, bound in (("maximum", low), ("minimum", high)):
            if bound is not None:
                result = _translate(program, name, [result, bound], {}, dtype)
        return result
    if op == "gelu" and attrs.get("approximate", "none") == "tanh":
        op = "gelu_tanh"
    if op == "power" and kind != "b8":
        exponent = args[1].bits
        if exponent is not None and exponent == program.constant(2, dtype).bits:
            op, args = "square", args[:1]
    if kind == "b8":
        if op in ("abs", "floor", "ceil"):
            return args[0]
        op = _ON_BOOL.get(op, op)
    elif kind != "f32":
        if op in ("floor", "ceil"):
            return args[0]
        if op == "relu":
            op, args = "maximum", [args[0], program.constant(0, dtype)]
    code = f"{op}_{kind}"
    if code not in _OPCODE:
        raise program.unsupported(op, dtype)
    return program.emit(code, args, dtype)


def _build(node: Node) -> tuple[_Program, list[_Operand]]:
    """The node's program and the operand of each of its outputs, each one a step of its own."""
    program = _Program(node)
    inputs: dict[Value, _Operand] = {}
    operands: list[_Operand] = []
    for value in node.inputs:
        if value not in inputs:
            inputs[value] = _Operand(np.dtype(value.dtype), source=value, shape=value.shape)
        operands.append(inputs[value])
    for op, args, attrs, dtype in node.attrs["body"]:
        dtype = np.dtype(dtype)
        if op == "const":
            operands.append(program.constant(attrs["value"], dtype))
        else:
            picked = [operands[arg] for arg in args]
            operands.append(_translate(program, op, picked, dict(attrs), dtype))
    results: list[_Operand] = []
    computed = {id(step.result) for step in program.steps}
    for number in node.attrs["results"]:
        result = operands[number]
        if id(result) not in computed or any(result is other for other in results):
            program.suffix(result.dtype)
            result = program.emit(f"copy_{result.dtype.itemsize}", (result,), result.dtype)
        results.append(result)
    wanted = {id(result) for result in results}
    for step in reversed(program.steps[:]):
        if id(step.result) in wanted:
            wanted.update(id(arg) for arg in step.args)
        else:
            program.steps.remove(step)
    return program, results


def _cost(steps: Sequence[_Step], elements: int, nbytes: int) -> tuple[float, int]:
    """Nanoseconds on one core, and arithmetic operations."""
    per_element = sum(_COST.get(step.code.rpartition("_")[0], 0.06) for step in steps)
    return 15.0 + elements * per_element + estimate(0, nbytes), elements * len(steps)


@lowers("region")
def lower_region(node: Node, target: Target) -> list[Call | Alias]:
    """Lower a region: one call, dense and unfused ones by the instruction's own kernel."""
    shape = node.outputs[0].shape
    if prod(shape) == 0:
        return []
    program, results = _build(node)
    call = _emit(program.steps, list(zip(node.outputs, results, strict=True)), shape, target)
    if call is not None:
        return [call]
    # More live values than the kernel has registers for: one call an instruction.
    homes = {id(result): out for out, result in zip(node.outputs, results, strict=True)}
    moved: dict[int, _Operand] = {}
    calls: list[Call | Alias] = []
    for step in program.steps:
        dtype = step.result.dtype
        home = homes.get(id(step.result))
        if home is None:
            home = Temp(prod(shape) * dtype.itemsize)
        args = tuple(moved.get(id(arg), arg) for arg in step.args)
        single = _Step(step.code, args, step.result)
        call = _emit([single], [(home, step.result)], shape, target)
        assert call is not None, "one instruction always fits"
        calls.append(call)
        moved[id(step.result)] = _Operand(dtype, source=home, shape=shape)
    return calls


def _emit(
    steps: list[_Step],
    outs: list[tuple[Value | Temp, _Operand]],
    shape: tuple[int, ...],
    target: Target,
) -> Call | None:
    """One call that runs `steps`, or None where they do not fit the kernel."""
    inputs: list[_Operand] = []
    constants: list[_Operand] = []
    for step in steps:
        for arg in step.args:
            known = inputs if arg.source is not None else constants
            if (arg.source is not None or arg.bits is not None) and arg not in known:
                known.append(arg)
    # The result's own strides come first, so that axes of the result merge as well.
    sizes, strides = collapse(
        shape, [row_major(shape), *(broadcast_strides(arg.shape, shape) for arg in inputs)]
    )
    if prod(shape) == 1:
        strides = [[1] for _ in strides]
    dense = [own == strides[0] for own in strides[1:]]
    elements = prod(shape)
    nbytes = sum(elements * result.dtype.itemsize for _, result in outs)
    nbytes += sum(prod(arg.shape) * arg.dtype.itemsize for arg in inputs)
    cost_ns, flops = _cost(steps, elements, nbytes)
    values = tuple(out for out, _ in outs)
    common = {"cost_ns": cost_ns, "flops": flops, "nbytes": nbytes}

    if len(steps) == 1 and all(dense) and not constants:
        (step,) = steps
        sources = tuple(arg.source for arg in step.args)
        width = step.result.dtype.itemsize
        inplace = tuple((0, j) for j, a in enumerate(step.args) if a.dtype.itemsize == width)
        parts = choose_parts(cost_ns, target.threads, ceil(elements / 64))
        return Call(f"ew_{step.code}", values, sources, [elements], parts, inplace=inplace, **common)

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
        words += [_OPCODE[step.code], slots[id(step.result)], *(used + [0, 0])[:3]]

    inplace = _inplace(steps, [result for _, result in outs], inputs, dense)
    parts = choose_parts(cost_ns, target.threads, units)
    sources = tuple(arg.source for arg in inputs)
    return Call("region", values, sources, words, parts, inplace=inplace, **common)


def _choose_block(
    sizes: list[int], mode: int, widths: list[int], outs: list[tuple[Value | Temp, _Operand]],
    inputs: list[_Operand], needs: list[bool],
) -> tuple[int, int]:  # fmt: skip
    """Elements a block, so that all a block touches stays in the first cache; number of blocks."""
    touched = sum(widths) + sum(result.dtype.itemsize for _, result in outs)
    touched += sum(a.dtype.itemsize for a, need in zip(inputs, needs, strict=True) if not need)
    limit = max(64, min(_LARGEST_BLOCK, _CACHE // touched // 64 * 64))
    if widths:
        limit = min(limit, _STACK // sum(widths) // 64 * 64)
    along = sizes[-1] if mode == _ROWS else prod(sizes)
    blocks = ceil(along / limit)
    # Blocks of equal length, in whole vectors.
    block = min(limit, ceil(ceil(along / blocks) / 64) * 64)
    rows = prod(sizes[:-1]) if mode == _ROWS else 1
    return block, rows * ceil(along / block)


def _allocate(
    steps: list[_Step], results: list[_Operand]
) -> tuple[list[int], dict[int, int]]:
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
    steps: list[_Step], results: list[_Operand], inputs: list[_Operand], dense: list[bool]
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
