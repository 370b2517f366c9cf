"""Lowerings for cuda: one function per operator, gathered from the family modules beside."""

from __future__ import annotations

from fastgraph.lower.cuda import (
    attention,
    elementwise,
    grouped,
    indexing,
    matmul,
    movement,
    normalization,
    normed,
    ordering,
    recurrence,
    reduction,
    rotary,
    rows,
    windows,
)
from fastgraph.lower.cuda.registry import LOWERINGS, Target

__all__ = [
    "LOWERINGS",
    "Target",
    "attention",
    "elementwise",
    "grouped",
    "indexing",
    "matmul",
    "movement",
    "normalization",
    "normed",
    "ordering",
    "recurrence",
    "reduction",
    "rotary",
    "rows",
    "windows",
]
