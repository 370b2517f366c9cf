"""What a benchmark hands back, and how it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Goal", "Outcome", "markdown", "microseconds", "text", "verdict"]


@dataclass
class Goal:
    """A number that was promised: met when `value` is at most `limit` (or at least, if `least`)."""

    what: str
    limit: float
    value: float
    least: bool = False

    @property
    def met(self) -> bool:
        """Whether the promise is kept."""
        return self.value >= self.limit if self.least else self.value <= self.limit

    def record(self) -> dict[str, Any]:
        """The goal as plain data."""
        return {
            "what": self.what,
            "limit": self.limit,
            "least": self.least,
            "value": float(f"{self.value:.4g}"),
            "met": self.met,
        }


@dataclass
class Outcome:
    """A table to read and the rows behind it.

    Attributes
    ----------
    name, title : str
    head : list of str
        The table's columns; those after the first `left` are numbers.
    cells : list of list of str
    rows : list of dict
        Raw: one for each timed thing, each with ``correct``.
    goals : list of Goal
    notes : list of str
    failed : bool
        Whether something is broken, not only slower than promised.
    """

    name: str
    title: str
    head: list[str]
    left: int = 1
    cells: list[list[str]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failed: bool = False

    def record(self) -> dict[str, Any]:
        """The outcome as plain data."""
        return {
            "title": self.title,
            "head": self.head,
            "left": self.left,
            "cells": self.cells,
            "goals": [goal.record() for goal in self.goals],
            "notes": self.notes,
            "failed": self.failed,
            "rows": self.rows,
        }


def microseconds(value: float) -> str:
    """A time for a table: three digits that mean something."""
    if value < 1:
        return f"{value:.3f}"
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def verdict(goal: dict[str, Any]) -> str:
    """Whether a recorded goal is reached, in words."""
    sign = "≥" if goal["least"] else "≤"
    word = "reached" if goal["met"] else "NOT reached"
    return f"{word}: {goal['what']} {goal['value']:g} ({sign} {goal['limit']:g})"


def text(record: dict[str, Any]) -> str:
    """A record as plain text."""
    rows = [record["head"], *record["cells"]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [record["title"]]
    for row in rows:
        padded = [
            cell.ljust(width) if i < record["left"] else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  " + "  ".join(padded).rstrip())
    lines += [f"  {verdict(goal)}" for goal in record["goals"]]
    lines += [f"  {note}" for note in record["notes"]]
    if record["failed"]:
        lines.append("  FAILED")
    return "\n".join(lines)


def markdown(record: dict[str, Any]) -> str:
    """A record as a Markdown table, with goals and notes below."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    marks = ["---" if i < record["left"] else "---:" for i in range(len(record["head"]))]
    lines = [line(record["head"]), line(marks), *map(line, record["cells"])]
    below = [*map(verdict, record["goals"]), *record["notes"]]
    if below:
        lines += ["", *(f"- {item}" for item in below)]
    return "\n".join(lines)
