"""Names of dtypes in kernels' names."""

from __future__ import annotations

from collections.abc import Collection

from fastgraph.errors import CompileError
from fastgraph.ir.graph import Node, Value

__all__ = ["KINDS", "kernel_kind"]

KINDS = {
    "float32": "f32", "float64": "f64",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
}  # fmt: skip


def kernel_kind(node: Node, value: Value, kinds: Collection[str] = tuple(KINDS.values())) -> str:
    """Return what kernels call the dtype of `value`; CompileError where none of `kinds` is it."""
    kind = KINDS.get(value.dtype.name, "")
    if kind not in kinds:
        names = ", ".join(name for name, short in KINDS.items() if short in kinds)
        raise CompileError(
            f"{node.name} ({node.site}): {node.op} of {value.dtype.name} is not supported on the "
            f"cpu; convert it to one of {names} with astype"
        )
    return kind
