"""Elementwise instructions of the cpu: the kernel's opcodes, and how a region's body uses them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastgraph.errors import CompileError
from fastgraph.ir.graph import Node, Value
from fastgraph.ir.ops.numerics import convert
from fastgraph.ir.types import (
    BOOL,
    FLOAT32,
    FLOAT64,
    SUPPORTED,
    UNSIGNED,
    computed_in,
    is_half,
    is_integer,
)
from fastgraph.lower.call import Temp
from fastgraph.lower.cpu.kinds import KINDS

__all__ = ["DENSE", "OPCODE", "Operand", "Program", "Step", "build", "suffix_of", "translate"]

_FLOAT = (
    "add subtract multiply divide maximum minimum remainder floor_divide power equal not_equal "
    "less less_equal negative abs sqrt rsqrt reciprocal square relu sign floor ceil exp log erf "
    "tanh sigmoid silu gelu gelu_tanh"
)
_MORE_FLOAT = (
    "round trunc fmod exp2 expm1 log1p log2 sin cos tan arcsin arccos arctan sinh cosh arcsinh "
    "arccosh arctanh"
)
_INTEGER = (
    "add subtract multiply maximum minimum remainder floor_divide power equal not_equal less "
    "less_equal negative abs square sign"
)
_MORE_INTEGER = "fmod bitwise_and bitwise_or bitwise_xor invert left_shift right_shift"
# What differs from the work of the signed loops of the same size.
_UNSIGNED = "maximum minimum remainder floor_divide power less less_equal sign right_shift"
_BOOL = "equal not_equal less less_equal logical_and logical_or logical_not"
_CASTS = (
    "i8_to_i16 i8_to_i32 i8_to_i64 u8_to_i16 u8_to_i32 u8_to_i64 i16_to_i8 i16_to_i32 "
    "i16_to_i64 u16_to_i32 u16_to_i64 i32_to_i8 i32_to_i16 u32_to_i64 i64_to_i8 i64_to_i16 "
    "i8_to_f32 i8_to_f64 i16_to_f32 i16_to_f64 i32_to_f64 i64_to_f64 u8_to_f32 u8_to_f64 "
    "u16_to_f32 u16_to_f64 u32_to_f32 u32_to_f64 u64_to_f32 u64_to_f64 i8_to_b8 b8_to_i8 "
    "i16_to_b8 b8_to_i16 f64_to_b8 b8_to_f64 f32_to_f64 f64_to_f32 f32_to_i8 f32_to_i16 "
    "f32_to_u8 f32_to_u16 f32_to_u32 f32_to_u64 f64_to_i32 f64_to_i64 f64_to_u32 f64_to_u64 "
    "f64_to_i8 f64_to_i16 f64_to_u8 f64_to_u16 f64_to_odd f16_to_f32 f32_to_f16 bf16_to_f32 "
    "f32_to_bf16"
)


def _named(ops: str, *suffixes: str) -> list[str]:
    return [f"{op}_{suffix}" for suffix in suffixes for op in ops.split()]


# The instructions that have a kernel of their own, for dense operands.
DENSE: tuple[str, ...] = (
    *_named(_FLOAT, "f32"), *_named(_INTEGER, "i32", "i64"), *_named(_BOOL, "b8"),
    *("where_1", "where_4", "where_8", "copy_1", "copy_4", "copy_8"),
    *("f32_to_i32", "f32_to_i64", "f32_to_b8", "i32_to_f32", "i32_to_i64", "i32_to_b8"),
    *("i64_to_f32", "i64_to_i32", "i64_to_b8", "b8_to_f32", "b8_to_i32", "b8_to_i64"),
)  # fmt: skip
# In the order of the tables in src/_core/kernels/elementwise.cpp, _integers, _double and _casts.
TABLES: tuple[tuple[str, ...], ...] = (
    (
        *DENSE, *_named(_MORE_FLOAT, "f32"), *_named(_MORE_INTEGER, "i32", "i64"),
        *("where_2", "copy_2"),
    ),
    (
        *_named(f"{_INTEGER} {_MORE_INTEGER}", "i8", "i16"),
        *_named(_UNSIGNED, "u8", "u16", "u32", "u64"),
    ),
    tuple(_named(f"{_FLOAT} {_MORE_FLOAT}", "f64")),
    tuple(_CASTS.split()),
)  # fmt: skip
OPCODE: dict[str, int] = {
    name: table << 8 | position
    for table, names in enumerate(TABLES)
    for position, name in enumerate(names)
}

# By dtype, for what a dtype's name is NumPy works out anew each time.
_SUFFIX = {
    dtype: {**KINDS, "bool": "b8", "float16": "f16", "bfloat16": "bf16"}[dtype.name]
    for dtype in SUPPORTED
}
_COMPARISONS = frozenset(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"))
_LOGICAL = frozenset(("logical_and", "logical_or", "logical_not"))
_SWAPPED = {"greater": "less", "greater_equal": "less_equal"}


def suffix_of(dtype: np.dtype[Any]) -> str:
    """The kernels' name of a dtype."""
    return _SUFFIX[dtype]


def cast_path(source: np.dtype[Any], to: np.dtype[Any]) -> list[tuple[str, np.dtype[Any]]]:
    """The conversions one after another from `source` to `to`: code and dtype of the result."""
    if source == to:
        return []
    if is_half(source):
        return [(f"{suffix_of(source)}_to_f32", FLOAT32), *cast_path(FLOAT32, to)]
    if is_half(to):
        last = (f"f32_to_{suffix_of(to)}", to)
        if source == FLOAT64:
            return [("f64_to_odd", FLOAT32), last]
        return [*cast_path(source, FLOAT32), last]
    begin, end = suffix_of(source), suffix_of(to)
    if is_integer(source) and is_integer(to):
        if source.itemsize == to.itemsize:
            return [(f"copy_{to.itemsize}", to)]
        # Only the sign of what grows matters.
        end = f"i{8 * to.itemsize}"
        if to.itemsize < source.itemsize:
            begin = f"i{8 * source.itemsize}"
    elif to == BOOL and is_integer(source):
        begin = f"i{8 * source.itemsize}"
    elif source == BOOL and is_integer(to):
        end = f"i{8 * to.itemsize}"
    return [(f"{begin}_to_{end}", to)]


@dataclass(eq=False, slots=True)
class Operand:
    """An input of the region (`source` set), a constant (`bits` set) or a result."""

    dtype: np.dtype[Any]
    source: Value | Temp | None = None
    shape: tuple[int, ...] = ()
    bits: int | None = None


@dataclass(eq=False, slots=True)
class Step:
    """One instruction of the kernel."""

    code: str
    args: tuple[Operand, ...]
    result: Operand


@dataclass(eq=False)
class Program:
    """Instructions over one iteration space."""

    node: Node
    steps: list[Step] = field(default_factory=list)
    casts: dict[tuple[int, np.dtype[Any]], Operand] = field(default_factory=dict)

    def emit(self, code: str, args: Sequence[Operand], dtype: np.dtype[Any]) -> Operand:
        """Append an instruction; give its result."""
        result = Operand(dtype)
        self.steps.append(Step(code, tuple(args), result))
        return result

    def constant(self, value: Any, dtype: np.dtype[Any]) -> Operand:
        """Give `value` in `dtype` as an operand."""
        array = convert(np.asarray(value), dtype)
        return Operand(
            dtype, bits=int.from_bytes(array.tobytes().ljust(8, b"\0"), "little", signed=True)
        )

    def cast(self, operand: Operand, dtype: np.dtype[Any]) -> Operand:
        """Give `operand` in `dtype`, once however often it is asked for."""
        if operand.dtype == dtype:
            return operand
        if operand.bits is not None:
            raw = operand.bits.to_bytes(8, "little", signed=True)[: operand.dtype.itemsize]
            return self.constant(np.frombuffer(raw, operand.dtype)[0], dtype)
        key = (id(operand), dtype)
        if key not in self.casts:
            result = operand
            for code, kind in cast_path(operand.dtype, dtype):
                result = self.emit(code, (result,), kind)
            self.casts[key] = result
        return self.casts[key]

    def unsupported(self, op: str, dtype: np.dtype[Any]) -> CompileError:
        """Give the error for an operator that has no kernel in `dtype`."""
        return CompileError(
            f"{self.node.name} ({self.node.site}): {op} is not defined for {dtype.name}"
        )


def translate(program: Program, op: str, args: Sequence[Operand], attrs: dict[str, Any],
              dtype: np.dtype[Any]) -> Operand:  # fmt: skip
    """Append what computes one instruction of the region's body; give its result.

    The result of an instruction in a half type is a float32: nothing is rounded within a region,
    but where the graph says so by an astype.
    """
    if op == "astype":
        return program.cast(args[0], dtype)
    if op in _LOGICAL:
        flags = [program.cast(arg, BOOL) for arg in args]
        return program.emit(f"{op}_b8", flags, dtype)
    if op == "where":
        flag, sides = program.cast(args[0], BOOL), list(args[1:])
        # What was stored in a half type is chosen from as it is.
        kind = dtype if all(side.dtype == dtype for side in sides) else computed_in(dtype)
        sides = [program.cast(side, kind) for side in sides]
        return program.emit(f"where_{kind.itemsize}", (flag, *sides), kind)
    if op in _COMPARISONS:
        kind = computed_in(np.result_type(*(arg.dtype for arg in args)))
    else:
        kind = dtype = computed_in(dtype)
    return _compute(program, op, [program.cast(arg, kind) for arg in args], attrs, kind, dtype)


def _compute(program: Program, op: str, args: list[Operand], attrs: dict[str, Any],
             kind: np.dtype[Any], dtype: np.dtype[Any]) -> Operand:  # fmt: skip
    """Append the instruction on operands of dtype `kind`, with a result of `dtype`."""
    if op in _SWAPPED:
        op, args = _SWAPPED[op], args[::-1]
    if op == "gelu" and attrs["approximate"] == "tanh":
        op = "gelu_tanh"
    if op == "power" and args[1].bits == program.constant(2, kind).bits:
        op, args = "square", args[:1]
    if kind in UNSIGNED:
        if op == "abs":
            return args[0]
        op = "remainder" if op == "fmod" else op
        sign = "u" if op in _UNSIGNED.split() else "i"
        return program.emit(f"{op}_{sign}{8 * kind.itemsize}", args, dtype)
    code = f"{op}_{suffix_of(kind)}"
    if code not in OPCODE:
        raise program.unsupported(op, kind)
    return program.emit(code, args, dtype)


def build(node: Node) -> tuple[Program, list[Operand]]:
    """The node's program and the operand of each of its outputs, each one a step of its own."""
    program = Program(node)
    inputs: dict[Value, Operand] = {}
    operands: list[Operand] = []
    for value in node.inputs:
        if value not in inputs:
            inputs[value] = Operand(np.dtype(value.dtype), source=value, shape=value.shape)
        operands.append(inputs[value])
    for op, args, attrs, dtype in node.attrs["body"]:
        dtype = np.dtype(dtype)
        if op == "const":
            operands.append(program.constant(attrs["value"], dtype))
        else:
            picked = [operands[arg] for arg in args]
            operands.append(translate(program, op, picked, dict(attrs), dtype))
    results: list[Operand] = []
    for number, value in zip(node.attrs["results"], node.outputs, strict=True):
        result = program.cast(operands[number], value.dtype)
        computed = {id(step.result) for step in program.steps}
        if id(result) not in computed or any(result is other for other in results):
            result = program.emit(f"copy_{result.dtype.itemsize}", (result,), result.dtype)
        results.append(result)
    wanted = {id(result) for result in results}
    for step in reversed(program.steps[:]):
        if id(step.result) in wanted:
            wanted.update(id(arg) for arg in step.args)
        else:
            program.steps.remove(step)
    return program, results
