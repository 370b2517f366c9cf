"""Lowerings for the cpu: one function per operator, gathered from the family modules beside."""

from __future__ import annotations

from fastgraph.lower.cpu import (
    attention,
    convolution,
    elementwise,
    grouped,
    matmul,
    movement,
    normalization,
    ordering,
    recurrence,
    reduction,
    rotary,
    scatter,
    windows,
)
from fastgraph.lower.cpu.registry import LOWERINGS, Target

__all__ = [
    "LOWERINGS",
    "Target",
    "attention",
    "convolution",
    "elementwise",
    "grouped",
    "matmul",
    "movement",
    "normalization",
    "ordering",
    "recurrence",
    "reduction",
    "rotary",
    "scatter",
    "windows",
]
