"""A region's instructions as C++: one function of the elements that are read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastgraph.errors import CompileError
from fastgraph.ir.graph import Node
from fastgraph.lower.cuda.dtypes import COMPUTED, ctype, is_half

__all__ = ["body", "literal"]

DType = np.dtype[Any]

_COMPARISONS = {
    "equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">",
    "greater_equal": ">=",
}  # fmt: skip
# Of bools, and of bits.
_OPERATORS = {
    "logical_and": "{0} && {1}", "logical_or": "{0} || {1}", "logical_xor": "{0} != {1}",
    "logical_not": "!{0}", "bitwise_and": "{0} & {1}", "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
}  # fmt: skip
# What NumPy does for bools, which have no arithmetic of their own.
_ON_BOOL = {
    "add": "logical_or", "maximum": "logical_or", "bitwise_or": "logical_or",
    "multiply": "logical_and", "minimum": "logical_and", "bitwise_and": "logical_and",
    "bitwise_xor": "logical_xor", "not_equal": "logical_xor", "invert": "logical_not",
}  # fmt: skip
_FUNCTION_NAMES = (
    "add subtract multiply divide negative abs square maximum minimum sign relu remainder fmod "
    "floor_divide power exp exp2 expm1 log log1p log2 sqrt rsqrt erf sin cos tan arcsin arccos "
    "arctan sinh cosh tanh arcsinh arccosh arctanh floor ceil trunc round reciprocal sigmoid silu "
    "gelu gelu_tanh isnan isinf isfinite left_shift right_shift"
)
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
# What has a short cut where the result is rounded to a half type.
_FOR_HALVES = frozenset(("exp", "sigmoid", "silu", "tanh", "gelu", "gelu_tanh"))
_ROUNDINGS = frozenset(("floor", "ceil", "trunc", "round"))
_TESTS = frozenset(("isnan", "isinf", "isfinite"))


def literal(value: Any, dtype: DType) -> str:
    """Return `value`, in `dtype`, as an expression of the type that it is computed in.

    >>> literal(2.5, np.dtype("f4")), literal(-1, np.dtype("i4")), literal(True, np.dtype(bool))
    ('0x1.4000000000000p+1f', '(i32)-1', 'true')
    """
    with np.errstate(all="ignore"):
        number = np.asarray(value).astype(dtype)[()]
    name = ctype(dtype)
    if name == "b8":
        return "true" if number else "false"
    if name in ("f16", "bf16", "f32", "f64"):
        found, suffix = float(number), "" if name == "f64" else "f"
        if math.isnan(found):
            return "FG_NAN"
        if math.isinf(found):
            return "-FG_INFINITY" if found < 0 else "FG_INFINITY"
        return found.hex() + suffix
    whole = int(number)
    if name == "i64" and whole == -(2**63):
        return "(i64)(1ull << 63)"
    if name == "i32" and whole == -(2**31):
        return "(i32)(1u << 31)"
    suffix = {"u32": "u", "i64": "ll", "u64": "ull"}.get(name, "")
    return f"({name}){whole}{suffix}"


def _computed(dtype: DType) -> str:
    name = ctype(dtype)
    return COMPUTED.get(name, name)


def _converted(name: str, source: DType, target: DType) -> str:
    """The expression `name`, of `source`, in `target`."""
    if source == target:
        return name
    if ctype(target) in ("f16", "bf16"):
        # Doubles are rounded once.
        wide = name if source.name == "float64" else f"convert<f32>({name})"
        return f"round_{ctype(target)}({wide})"
    if _computed(source) == _computed(target):
        return name
    return f"convert<{_computed(target)}>({name})"


def _expression(
    op: str, args: Sequence[tuple[str, DType]], attrs: dict[str, Any], dtype: DType
) -> str | None:
    """What one instruction computes, or None where there is no such thing."""
    if op == "astype":
        return _converted(*args[0], dtype)
    names = [name for name, _ in args]
    kind = args[0][1]
    if op == "where":
        sides = [_converted(*arg, dtype) for arg in args[1:]]
        return f"{_converted(*args[0], np.dtype(bool))} ? {sides[0]} : {sides[1]}"
    if op == "clip":
        found = names[0]
        bounds = [_converted(*arg, dtype) for arg in args[1:]]
        if not bounds:
            ends = (attrs.get("min"), attrs.get("max"))
            bounds = ["" if end is None else literal(end, dtype) for end in ends]
        for name, bound in zip(("maximum", "minimum"), bounds, strict=False):
            found = f"op_{name}<{_computed(dtype)}>({found}, {bound})" if bound else found
        return found
    if op == "gelu" and attrs.get("approximate", "none") == "tanh":
        op = "gelu_tanh"
    if kind.name == "bool":
        op = _ON_BOOL.get(op, op)
        if op in ("abs", *_ROUNDINGS):
            return names[0]
    if op in _COMPARISONS:
        return f"{names[0]} {_COMPARISONS[op]} {names[1]}"
    if op in _OPERATORS:
        return f"({_computed(dtype)})({_OPERATORS[op].format(*names)})"
    if op == "invert":
        return f"({_computed(dtype)})~{names[0]}"
    if kind.kind in "iu":
        if op in _ROUNDINGS:
            return names[0]
        if op == "relu":
            return f"op_maximum<{_computed(dtype)}>({names[0]}, 0)"
    if op in _FOR_HALVES and is_half(dtype):
        op = f"{op}_half"
    elif op not in _FUNCTIONS or kind.name == "bool":
        return None
    return f"op_{op}({', '.join(names)})"


def body(node: Node) -> tuple[list[str], list[str]]:
    """Return the statements of a region's body, and the expressions of its results.

    Input ``i`` is ``x<i>``, in the type that it is computed in; an instruction's result ``v<n>``.
    """
    operands = [(f"x{i}", np.dtype(value.dtype)) for i, value in enumerate(node.inputs)]
    constants: dict[str, Any] = {}
    statements: list[str] = []
    for number, (op, args, attrs, dtype) in enumerate(node.attrs["body"]):
        dtype = np.dtype(dtype)
        if op == "const":
            operands.append((literal(attrs["value"], dtype), dtype))
            constants[operands[-1][0]] = attrs["value"]
            continue
        picked = [operands[arg] for arg in args]
        if op == "power" and constants.get(picked[1][0]) == 2:
            op, picked = "square", picked[:1]
        expression = _expression(op, picked, dict(attrs), dtype)
        if expression is None:
            raise CompileError(
                f"{node.name} ({node.site}): {op} is not defined for {picked[0][1].name}"
            )
        statements.append(f"const {_computed(dtype)} v{number} = {expression};")
        operands.append((f"v{number}", dtype))
    return statements, [operands[result][0] for result in node.attrs["results"]]
