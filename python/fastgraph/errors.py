"""Every error and warning that fastgraph raises.

What a failed call leaves behind is said in each function's documentation; the rule is that a call
that raises has changed nothing.
"""

from __future__ import annotations

__all__ = [
    "CompileError",
    "ContextPoisonedError",
    "DriverError",
    "FastGraphError",
    "FastGraphWarning",
    "GraphError",
    "HazardError",
    "InputError",
    "OutOfMemoryError",
    "ScopeError",
    "StaleAddressError",
    "StaleOutputError",
    "UnsupportedError",
]


class FastGraphError(Exception):
    """Base of all errors that fastgraph raises."""


class InputError(FastGraphError, ValueError):
    """What a run or a call was given does not fit: name, shape, dtype, size, layout or data."""


class GraphError(FastGraphError):
    """A graph was built wrongly: dimensions, a foreign node, arguments, sizes, a closed graph."""


class ScopeError(GraphError):
    """A builder or node was used outside the callback that it belongs to."""


class HazardError(GraphError):
    """Two nodes that no edge orders touch the same bytes, and one of them writes."""


class CompileError(FastGraphError):
    """A graph cannot be compiled; lists every unsupported or ill-typed operator at once."""


class UnsupportedError(FastGraphError, NotImplementedError):
    """The device or build cannot do this; the message names the missing capability."""


class StaleOutputError(FastGraphError):
    """A raw output was asked for its array after a later run had replaced its contents."""


class StaleAddressError(FastGraphError):
    """A recorded address no longer belongs to the memory that it was recorded for."""


class DriverError(FastGraphError, RuntimeError):
    """A call of the device driver failed.

    Attributes
    ----------
    code : int
        The driver's result code.
    name : str
        The driver's name of that code.
    node : str or None
        The graph node concerned, where one is known.
    """

    def __init__(
        self, message: str, code: int = 0, name: str = "", node: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.name = name
        self.node = node


class ContextPoisonedError(DriverError):
    """The device context was lost to an earlier fault; every later call on it fails."""


class OutOfMemoryError(DriverError, MemoryError):
    """The device or the host has too little memory for what was asked."""


class FastGraphWarning(UserWarning):
    """Something is not as a caller would expect, but no result is wrong."""
