"""What nodes were made of, told in places of another graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastgraph.device.kernel import Declared
from fastgraph.device.pending import Work

__all__ = ["moved_works"]


def moved_works(works: Sequence[Work], move: Callable[[Any], Any]) -> tuple[Work, ...]:
    """Return works whose arguments are what `move` makes of them, those of inner nodes too."""
    return tuple(
        work._replace(
            accesses=(),
            spec={name: _moved(value, move) for name, value in work.spec.items()},
            bodies=tuple(moved_works(body, move) for body in work.bodies),
        )
        for work in works
    )


def _moved(value: Any, move: Callable[[Any], Any]) -> Any:
    if isinstance(value, Declared):
        return type(value)(_moved(value.value, move))
    if isinstance(value, tuple):
        return tuple(_moved(entry, move) for entry in value)
    return move(value)
