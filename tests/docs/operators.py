"""``python -m tests.docs.operators`` writes docs/operators.md from the operator table."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import fastgraph.ir.ops  # noqa: F401 - fills the table
from fastgraph.ir.opdef import FUNCTIONS, Function

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "operators.md"

HEAD = """\
# Operators

All functions of `fastgraph.ops`. This file is generated: `python -m tests.docs.operators` writes \
it from the operator table, and a test compares the two.

A name and its parameters are NumPy 2's where NumPy has the function, else those of \
torch.nn.functional, else ONNX's in snake case, else our own; the last column says which. An axis \
is always called `axis`, a small constant `eps`. Operands are broadcast as in NumPy, and Python \
numbers take the dtype of the other operand.

Dtypes are told in groups: `float` is float16, bfloat16, float32 and float64, `int` is int8 to \
int64, `uint` is uint8 to uint64. float16 and bfloat16 are storage: they are computed in float32 \
and rounded at the end. bfloat16 needs the `ml_dtypes` package. Result dtypes are NumPy 2's: \
functions of floats take integers of 8, 16 and more bits as float16, float32 and float64, `divide` \
and `mean` of integers are float64, and `sum` and `prod` of small integers are int64 or uint64.

| function | result | dtypes | name from |
|---|---|---|---|
"""


def row(function: Function) -> str:
    """Return one line of the table."""
    signature = inspect.signature(function.build)
    plain = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
    ]
    shown = str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    summary = (inspect.getdoc(function.build) or "").split("\n\n")[0].replace("\n", " ")
    result = summary.removeprefix("Return ").replace("``", "`")
    cells = [f"`{function.name}{shown}`", result, function.dtypes, function.source]
    return "| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", cell) for cell in cells) + " |\n"


def markdown() -> str:
    """Return the whole document."""
    return HEAD + "".join(row(FUNCTIONS[name]) for name in sorted(FUNCTIONS))


if __name__ == "__main__":
    DOCUMENT.write_text(markdown(), "utf-8")
