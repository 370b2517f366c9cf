"""The command ``fastgraph``: demo, run, info, ops."""

from fastgraph.cli.entry import main

__all__ = ["main"]
