"""The tables of all operators, gathered: what graphs know, and what users call."""

from __future__ import annotations

import inspect

from fastgraph.ir.opdef import FUNCTIONS, OPS, Function, OpDef
from fastgraph.ir.ops.elementwise import ELEMENTWISE
from fastgraph.ir.ops.fused_attention import AttentionSizes, Place
from fastgraph.ir.ops.lowered import ACTIVATIONS, PANEL, Instr, packed_size
from fastgraph.ir.ops.numerics import CORNER_CASES
from fastgraph.ir.ops.recurrence import DIRECTIONS, GATES
from fastgraph.ir.ops.windows import Windows

__all__ = [
    "ACTIVATIONS",
    "CORNER_CASES",
    "DIRECTIONS",
    "ELEMENTWISE",
    "FUNCTIONS",
    "GATES",
    "OPS",
    "PANEL",
    "AttentionSizes",
    "Function",
    "Instr",
    "OpDef",
    "Place",
    "Windows",
    "corner_cases",
    "packed_size",
    "table",
]


def signature(function: Function) -> str:
    """Return the function's parameters and defaults without annotations."""
    found = inspect.signature(function.build)
    plain = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in found.parameters.values()
    ]
    return str(inspect.Signature(plain))


def columns(rows: list[tuple[str, ...]]) -> str:
    """Return `rows` as lines with aligned columns."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)]
        lines.append("  ".join([*cells, row[-1]]))
    return "\n".join(lines)


def table() -> str:
    """Return all functions of `fastgraph.ops` as text: name, signature, dtypes, name's source.

    Examples
    --------
    >>> from fastgraph.ir.ops import registry
    >>> print(registry.table().splitlines()[0].split())
    ['name', 'signature', 'dtypes', 'named', 'after']
    """
    rows: list[tuple[str, ...]] = [("name", "signature", "dtypes", "named after")]
    for name in sorted(FUNCTIONS):
        function = FUNCTIONS[name]
        rows.append((name, signature(function), function.dtypes, function.source))
    return columns(rows)


def corner_cases() -> str:
    """Return the table of corner cases, on which all devices agree, as text."""
    return columns([("case", "result"), *CORNER_CASES])
