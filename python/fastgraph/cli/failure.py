"""How a command ends when it cannot go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fastgraph.errors import FastGraphError

__all__ = ["Failure", "running"]


class Failure(Exception):
    """A message for the user, and the exit code."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def running() -> Iterator[None]:
    """What fails in here is a failed run, not a wrong request."""
    try:
        yield
    except FastGraphError as error:
        raise Failure(str(error), 1) from error
