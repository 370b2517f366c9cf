"""Other packages' graphs of the same work, a module each: they are imported in probes alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["PeerGraph", "PeerInputs"]


@dataclass
class PeerGraph:
    """A captured chain of kernels, as its package launches it.

    Attributes
    ----------
    line : str
        What a user of it would write, over `names`.
    names : dict
    launch : callable
        The same as a call.
    stream : int
        The handle of the stream that it goes to.
    executable : int or None
        The handle of what is launched, where the package tells it.
    """

    line: str
    names: dict[str, Any]
    launch: Callable[[], object]
    stream: int
    executable: int | None


@dataclass
class PeerInputs:
    """A graph of ``out = x + y`` over static inputs.

    Attributes
    ----------
    lines : dict of str
        By kind of live input, ``device`` and ``host``: copying them in, launching, waiting.
    names : dict
    load : callable
        Takes the live inputs' contents.
    result : callable
        Returns what is in ``out`` and clears it.
    """

    lines: dict[str, str]
    names: dict[str, Any]
    load: Callable[[Any, Any], object]
    result: Callable[[], Any]
