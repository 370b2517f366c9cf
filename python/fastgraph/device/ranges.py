"""NVTX ranges where the package `nvtx` is installed: what profilers show of the host's work.

A replay is one call, which a profiler shows by itself; node by node, in checks and profiles, each
node is a range of its own name in the domain ``fastgraph``.
"""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

__all__ = ["DOMAIN", "named_range"]

DOMAIN = "fastgraph"


@cache
def _library() -> Any:
    try:
        return importlib.import_module("nvtx")
    except ImportError:
        return None


def named_range(name: str) -> AbstractContextManager[object]:
    """Return a context that is a range of the name `name` to a profiler that listens."""
    nvtx = _library()
    if nvtx is None:
        return nullcontext()
    found: AbstractContextManager[object] = nvtx.annotate(name, domain=DOMAIN)
    return found
