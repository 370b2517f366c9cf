"""Elementwise instructions of the cpu: the kernel's opcodes, and how a region's body uses them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastgraph.errors import CompileError
from fastgraph.ir.graph import Node, Value
from fastgraph.lower.call import Temp

__all__ = ["OPCODE", "OPCODES", "Operand", "Program", "Step", "build"]

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
OPCODE: dict[str, int] = {name: code for code, name in enumerate(OPCODES)}

_SUFFIX = {"float32": "f32", "int32": "i32", "int64": "i64", "bool": "b8"}
_COMPARISONS = frozenset(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"))
_LOGICAL = frozenset(("logical_and", "logical_or", "logical_not"))
_SWAPPED = {"greater": "less", "greater_equal": "less_equal"}
_ON_BOOL = {
    "add": "logical_or", "maximum": "logical_or",
    "multiply": "logical_and", "minimum": "logical_and",
}  # fmt: skip
_ALIASES = {"mod": "remainder", "neg": "negative", "pow": "power", "absolute": "abs"}


@dataclass(frozen=True, eq=False)
class Operand:
    """An input of the region (`source` set), a constant (`bits` set) or a result."""

    dtype: np.dtype[Any]
    source: Value | Temp | None = None
    shape: tuple[int, ...] = ()
    bits: int | None = None


@dataclass(frozen=True, eq=False)
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
        array = np.asarray(value).astype(dtype)
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
            code = f"{self.suffix(operand.dtype)}_to_{self.suffix(dtype)}"
            self.casts[key] = self.emit(code, (operand,), dtype)
        return self.casts[key]

    def suffix(self, dtype: np.dtype[Any]) -> str:
        """Give the kernels' name of a dtype that regions compute in."""
        if dtype.name not in _SUFFIX:
            raise CompileError(
                f"{self.node.name} ({self.node.site}): elementwise work in {dtype.name} is not "
                f"supported on the cpu; it computes in {', '.join(_SUFFIX)}"
            )
        return _SUFFIX[dtype.name]

    def unsupported(self, op: str, dtype: np.dtype[Any]) -> CompileError:
        """Give the error for an operator that has no kernel in `dtype`."""
        return CompileError(
            f"{self.node.name} ({self.node.site}): {op} is not defined for {dtype.name}"
        )


def _translate(program: Program, op: str, args: list[Operand], attrs: dict[str, Any],
               dtype: np.dtype[Any]) -> Operand:  # fmt: skip
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
    if code not in OPCODE:
        raise program.unsupported(op, dtype)
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
            operands.append(_translate(program, op, picked, dict(attrs), dtype))
    results: list[Operand] = []
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
