"""Lowerings for cuda: one function per operator, gathered from the family modules beside."""

from __future__ import annotations

from fastgraph.lower.cuda import (
    elementwise,
    indexing,
    matmul,
    movement,
    normalization,
    reduction,
)
from fastgraph.lower.cuda.registry import LOWERINGS, Target

__all__ = [
    "LOWERINGS",
    "Target",
    "elementwise",
    "indexing",
    "matmul",
    "movement",
    "normalization",
    "reduction",
]
