"""Keeps Python's cycle collector from walking graphs while they are being made.

A graph is many small objects that stay: whenever some hundreds more were made the collector would
look at them, and from time to time at all that there are.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

__all__ = ["paused"]


P = ParamSpec("P")
R = TypeVar("R")


class _Pause:
    """While a thread is inside, nothing is collected unasked.

    It is the threshold that is taken away, for whether the collector is enabled is the user's, also
    meanwhile: who disables it finds it disabled afterwards. A threshold set meanwhile stays.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._inside = 0
        self._mine = threading.local()
        self._before: tuple[int, int, int] | None = None
        self._told_of_forks = False

    def __enter__(self) -> None:
        # A signal's handler may come by between any two of these lines, and do the same.
        with self._lock:
            self._mine.depth = getattr(self._mine, "depth", 0) + 1
            self._inside += 1
            found = gc.get_threshold()
            if self._inside == 1 and found[0]:
                self._before = found
                gc.set_threshold(0, *found[1:])
            if not self._told_of_forks:
                self._told_of_forks = True
                os.register_at_fork(after_in_child=self._after_fork)

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._mine.depth -= 1
            self._inside -= 1
            if self._inside == 0:
                self._resume()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        # Not contextlib's: who looks for the caller's file and line passes by this package's alone.
        @wraps(function)
        def inside(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return inside

    def _resume(self) -> None:
        before, self._before = self._before, None
        if before is not None and not gc.get_threshold()[0]:
            gc.set_threshold(*before)

    def _after_fork(self) -> None:
        """Go on in a child, which has one of the threads that may have been inside."""
        self._lock = threading.RLock()
        self._inside = getattr(self._mine, "depth", 0)
        if self._inside == 0:
            self._resume()


paused = _Pause()
"""``with paused:``, or ``@paused`` on a function; from several threads, and one in another."""
