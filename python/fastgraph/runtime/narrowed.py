"""Runs of a model for fewer rows than it was compiled for, beside its own runs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastgraph.errors import InputError
from fastgraph.runtime.compiled import CompiledGraph

__all__ = ["Narrowed"]

Array = np.ndarray[Any, np.dtype[Any]]


class Narrowed:
    """A clone of a model with an active extent of its own; made by the first run that needs it.

    `run` of several threads is one after another: the extent is set for each.
    """

    def __init__(self, model: CompiledGraph, title: str) -> None:
        self._model = model
        self._title = title
        self._mutex = threading.Lock()
        self._clone: CompiledGraph | None = None
        self._params: object = None

    def run(
        self,
        extent: tuple[int, int],
        dim: str | None,
        inputs: Mapping[str, Any],
        scalars: Mapping[str, Any],
    ) -> tuple[Array, ...]:
        """Return the outputs on the active rows; raises as `set_active_extent` and `run` do."""
        with self._mutex:
            # Read first: what is set meanwhile makes another clone next time.
            params = self._model._params
            if self._clone is None or self._params is not params:
                if self._model._state.handles:
                    raise InputError(
                        f"{self._title} has handles, which a run for fewer rows does not see: give "
                        "all inputs to run_padded and unbind them, or run the model itself"
                    )
                self._clone, self._params = self._model.clone(), params
            self._clone.set_active_extent(extent, dim=dim)
            return self._clone.run(inputs, **scalars)

    def forget(self) -> None:
        """Let go of the clone: its parameters are old."""
        with self._mutex:
            self._clone = self._params = None
