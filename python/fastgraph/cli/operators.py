"""``fastgraph ops``: the table of operators."""

from __future__ import annotations

import argparse

from fastgraph.cli.report import columns
from fastgraph.ir.opdef import FUNCTIONS
from fastgraph.onnx import known_operators

__all__ = ["command"]


def command(arguments: argparse.Namespace) -> None:
    """Print what `fastgraph.ops` holds and which ONNX operators are read."""
    rows = [(name, f.source, f.dtypes) for name, f in sorted(FUNCTIONS.items())]
    print(f"{len(rows)} functions of fastgraph.ops")
    print(columns([("name", "named after", "dtypes"), *rows]))
    known = known_operators()
    print(f"\n{len(known)} ONNX operators")
    print(columns([("operator", "opsets"), *((n, f"{a} to {b}") for n, (a, b) in known.items())]))
