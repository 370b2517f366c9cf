"""Lowerings for the cpu: one function per operator, gathered from the family modules beside."""

from __future__ import annotations

from fastgraph.lower.cpu import (
    attention,
    elementwise,
    grouped,
    matmul,
    movement,
    normalization,
    ordering,
    reduction,
    rotary,
    scatter,
)
from fastgraph.lower.cpu.registry import LOWERINGS, Target

__all__ = [
    "LOWERINGS",
    "Target",
    "attention",
    "elementwise",
    "grouped",
    "matmul",
    "movement",
    "normalization",
    "ordering",
    "reduction",
    "rotary",
    "scatter",
]
