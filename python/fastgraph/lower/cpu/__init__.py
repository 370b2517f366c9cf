"""Lowerings for the cpu: one function per operator, gathered from the family modules beside."""

from __future__ import annotations

from fastgraph.lower.cpu import attention, elementwise, matmul, movement, normalization, reduction
from fastgraph.lower.cpu.registry import LOWERINGS, Target

__all__ = [
    "LOWERINGS",
    "Target",
    "attention",
    "elementwise",
    "matmul",
    "movement",
    "normalization",
    "reduction",
]
