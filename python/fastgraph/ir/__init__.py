"""Graphs, their operators and the oracle that runs them in NumPy."""

from __future__ import annotations

from fastgraph.ir import ops, reference
from fastgraph.ir.graph import Graph, Node, Value

__all__ = ["Graph", "Node", "Value", "ops", "reference"]
